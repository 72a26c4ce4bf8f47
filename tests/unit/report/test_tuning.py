"""What `fuelline tune` shows: every step, no line wider than a terminal."""

import io

from fuelline.report import render_terminal, write_tuning
from fuelline.schema.diagnosis.trials import Recommendation, Setting, Tuning, risk_of
from fuelline.schema.readings import Reading


def test_all_steps_are_told_within_80_columns() -> None:
    steps = [f"num_workers={n}: {'measured ' * 12}/{'a/long/path' * 2}." for n in (2, 4)]
    chosen = [Setting(knob="num_workers", value=4)]
    tuning = Tuning(steps=steps, chosen=chosen, trial_seconds=48.2, paste="DataLoader(...)")
    stream = io.StringIO()
    render_terminal(write_tuning(tuning), stream)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    words = text.split()
    assert {"num_workers=2:", "num_workers=4:", "48", "DataLoader(...)"} <= set(words)


def test_a_patch_that_is_written_at_once_is_not_the_next_step() -> None:
    tuning = Tuning(chosen=[Setting(knob="num_workers", value=4)], patch="--- a\n+++ b\n")
    texts = []
    for is_written in (False, True):
        stream = io.StringIO()
        render_terminal(write_tuning(tuning, is_written=is_written), stream)
        texts.append(stream.getvalue())
    assert "Next: `fuelline tune --apply" in texts[0]
    assert "Next" not in texts[1]


def test_what_is_recommended_comes_with_its_gain_its_reason_and_its_risk() -> None:
    settings = [
        Setting(knob="num_workers", value=4),
        Setting(knob="persistent_workers", value=True),
    ]
    gain = Reading(value=2.064, unit="x", low=1.88, high=2.268, level=95)
    recommended = Recommendation(
        settings=settings, workers=4, speedup=gain, is_measured=True,
        why="the trials confirm it", risk=risk_of(settings, None),
    )  # fmt: skip
    stream = io.StringIO()
    render_terminal(write_tuning(Tuning(chosen=settings, recommended=recommended)), stream)
    text = " ".join(stream.getvalue().split())
    assert f"{recommended.text()}: 2.06x (95 %: 1.88-2.27) measured; the trials confirm it" in text
    assert f"Check first: {recommended.risk}." in text


def test_a_machine_that_is_too_noisy_still_gets_the_models_word() -> None:
    predicted = Recommendation(settings=[Setting(knob="num_workers", value=4)], why="they wait")
    stream = io.StringIO()
    render_terminal(write_tuning(Tuning(recommended=predicted)), stream)
    assert "Recommended: DataLoader(..., num_workers=4); they wait." in stream.getvalue()
