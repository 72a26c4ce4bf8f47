"""One recommendation: in the words of a report, its JSON, `whatif`, and among the trials of `tune`.

Over the goldens, and over jobs made up by chance. What gains less than 3 % is never shown, and no
command names another number of workers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuelline.report import write_document, write_forecasts
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.trials import AS_GOOD
from fuelline.schema.foreign import encode_json
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.units import times
from fuelline.whatif import answer, fit, forecast, seed_settings
from fuelline.whatif.recommending import ask_for
from tests.contract.test_figures import draw
from tests.golden.freeze import judge, make_jobs
from tests.unit.whatif.jobs import make_facts, plain

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Diagnosis

_LOADER = re.compile(r"DataLoader\(\.\.\., [^)]*\)")
_PREDICTED = re.compile(r"predicted: ([\d.,]+)x")


def check_recommended(facts: Facts) -> None:
    """All of the contract."""
    fitted = fit(facts)
    diagnosis, asked = judge(facts), answer(fitted, WhatIf())
    report = " ".join(draw(write_document(diagnosis)).split())
    forecasts = " ".join(draw(write_forecasts(asked, "last")).split())
    check_remedies(diagnosis)
    for gain in _PREDICTED.findall(report):
        assert float(gain.replace(",", "")) >= 1 + AS_GOOD, report
    recommended = diagnosis.recommended
    assert asked.recommended == recommended
    assert isinstance(fitted, Missing) == (recommended is None)
    if recommended is None:
        return
    plain_json = msgspec.json.decode(encode_json(diagnosis))["recommended"]
    words = ", ".join(f"{each['knob']}={each['value']}" for each in plain_json["settings"])
    named = {f"DataLoader(..., {words})"} if words else set()
    assert set(_LOADER.findall(report)) <= named, report
    assert set(_LOADER.findall(forecasts)) == named, forecasts
    first, *_ = [*seed_settings(fitted, 2.0), None]
    if not recommended.settings:
        assert "leave the loader as it is" in forecasts
        return
    assert isinstance(recommended.speedup, Reading)
    assert recommended.speedup == forecast(fitted, ask_for(recommended)).speedup
    assert first is not None
    assert (list(first.settings), first.predicted) == (recommended.settings, recommended.speedup)
    assert f"{recommended.text()}: {times(recommended.speedup)} predicted" in forecasts
    assert recommended.why in forecasts
    if recommended.speedup.value >= 1 + AS_GOOD:
        assert recommended.text() in report
        assert times(recommended.speedup) in report
        assert recommended.why in report
        assert recommended.risk in report


def check_remedies(diagnosis: Diagnosis) -> None:
    """Those of each finding, and the settings beside them."""
    for remedies in [*(found.remedies for found in diagnosis.findings), diagnosis.settings]:
        gains = [each.gain.value for each in remedies if isinstance(each.gain, Reading)]
        assert gains == sorted(gains, reverse=True)
        assert all(gain >= 1 + AS_GOOD for gain in gains)
        for remedy in remedies:
            if isinstance(remedy.gain, Reading):
                assert remedy.gain_words.startswith(f"{times(remedy.gain)}, then ")
            if remedy.at_most_speedup is not None:
                assert remedy.at_most_speedup >= 1 + AS_GOOD


@pytest.mark.parametrize("name", sorted(make_jobs()))
def test_every_place_of_a_golden_report_recommends_the_same(name: str) -> None:
    check_recommended(make_jobs()[name])


def test_some_goldens_recommend_something() -> None:
    found = [judge(facts).recommended for facts in make_jobs().values()]
    assert len([each for each in found if each is not None and each.settings]) >= 3


_PARTS = {"epoch start": st.floats(0.0, 20.0), "checkpoint": st.floats(0.0, 5.0)}


@settings(deadline=None, max_examples=12)
@given(
    workers=st.integers(0, 12),
    cores=st.sampled_from((1.0, 2.0, 8.0, 64.0)),
    cpu=st.floats(0.1, 60.0),
    blocked=st.floats(0.0, 200.0),
    read=st.floats(0.0, 1.0),
    device=st.floats(0.5, 60.0),
    beside=st.booleans(),
    asleep=st.floats(0.0, 1.0),
    pauses=st.fixed_dictionaries({}, optional=_PARTS),
    persistent=st.booleans(),
)
def test_every_place_of_any_job_recommends_the_same(
    workers: int, asleep: float, persistent: bool, **job: Any
) -> None:
    fetch = (job["cpu"] + job["blocked"]) / max(1, workers)
    batch = max(fetch, job["device"], 2.0) + sum(job["pauses"].values())
    told = make_facts(
        batch=batch,
        workers=workers,
        loader={"persistent_workers": persistent and workers > 0},
        demands={"sleep_frac": plain(asleep)},
        **job,
    )
    check_recommended(told)
