"""What `fuelline tune` shows: every step, no line wider than a terminal."""

import io

from fuelline.report import render_terminal, write_tuning
from fuelline.schema.diagnosis.trials import Setting, Tuning


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
