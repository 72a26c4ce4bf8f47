"""Figures of one report agree: the same quantity is the same everywhere, parts sum to their whole.

Over the goldens, over every case of every rule, and over recordings made up by chance: of any
length, with or without an end after the last step, watched by an observer that looked seldom.
"""

from __future__ import annotations

import io
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuelline.diagnose import diagnose
from fuelline.report import render_terminal, write_document, write_feed
from fuelline.schema.diagnosis.findings import Diagnosis  # noqa: TC001 - beside its makers
from fuelline.schema.foreign import encode_json
from fuelline.schema.readings import Reading
from fuelline.schema.run.samples import Limits
from fuelline.schema.units import duration, percent
from fuelline.signals import with_waiting
from tests.golden.freeze import make_diagnoses
from tests.rules.cases import RUN, build_facts, load_cases
from tests.unit.builders import START_NS, TRAINER, Lane, facts_of, make_timeline
from tests.unit.report.test_feeding import FULL_SPEED

_BAR = re.compile(r"^  (\S.*?) +[█·#.-]{8,} +(\d+\.\d) %  (.+?)(?: per step)?$", re.M)
_PERCENT = re.compile(r"(?<![\d.+-])(\d+(?:\.\d+)?) %")
_CORES = re.compile(r"(\d+(?:\.\d+)?) of (\d+(?:\.\d+)?) cores")
_HEADER = re.compile(r"Where the time went: .*?, mean (.+?), p95")
S = 1_000_000_000
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def draw(document: Any) -> str:
    stream = io.StringIO()
    render_terminal(document, stream)
    return stream.getvalue()


def seconds_of(words: str) -> float:
    """`1 min 25 s` as a number."""
    return sum(float(value) * _UNITS[unit] for value, unit in re.findall(r"([\d.]+) (\w+)", words))


def check_figures(diagnosis: Diagnosis) -> None:
    """All of the contract."""
    diagnosis.check()
    text, plain = draw(write_document(diagnosis)), msgspec.json.decode(encode_json(diagnosis))
    check_budget(diagnosis, text, plain)
    for share in _PERCENT.findall(text):
        assert float(share) <= 100, text
    for used, there in _CORES.findall(text):
        assert float(used) <= float(there), text
    for finding in diagnosis.findings:
        assert 0 <= finding.lost_share <= 1
        window = diagnosis.window
        assert window is not None
        assert finding.lost_seconds == pytest.approx(finding.lost_share * window.seconds)
        if finding.code == diagnosis.verdict.code:
            assert diagnosis.verdict.share_of_wall == finding.lost_share
            assert diagnosis.verdict.sentence == finding.sentence


def check_budget(diagnosis: Diagnosis, text: str, plain: dict[str, Any]) -> None:
    window, steps = diagnosis.window, diagnosis.steps
    if window is None or not diagnosis.budget:
        return
    assert sum(part["share"] for part in plain["budget"]) == pytest.approx(1)
    assert sum(part["seconds"] for part in plain["budget"]) == pytest.approx(window.seconds)
    assert all(0 <= part["share"] <= 1 for part in plain["budget"])
    _, _, section = text.partition("Where the time went")
    bars = _BAR.findall(section.partition("\n\n")[0])
    shown = [part for part in diagnosis.budget if part.share >= 0.001]
    assert [share for _, share, _ in bars] == [f"{100 * part.share:.1f}" for part in shown]
    if diagnosis.trace is not None or steps.mean is None:
        return
    assert steps.mean * steps.count == pytest.approx(window.seconds)
    # Of one step there is no mean beside its length.
    assert _HEADER.findall(text) == ([duration(steps.mean)] if steps.count > 1 else [])
    # One decimal is shown of each, so that 1.0 may be 1.05; parts below a thousandth are not shown.
    total = sum(seconds_of(detail) for *_, detail in bars)
    assert total == pytest.approx(steps.mean, rel=0.05)


@pytest.mark.parametrize("name", sorted(make_diagnoses()))
def test_figures_of_a_golden_report_agree(name: str) -> None:
    check_figures(make_diagnoses()[name])


@pytest.mark.parametrize(("rule", "kind", "case"), load_cases())
def test_figures_of_every_case_of_a_rule_agree(rule: Any, kind: str, case: dict[str, Any]) -> None:
    del rule, kind
    check_figures(diagnose(build_facts(case), RUN, []))


_MILLISECONDS = st.integers(0, 400)


@st.composite
def recordings(draw_one: st.DrawFn) -> Any:
    """A few steps of any parts, perhaps a pause after the last, and looks at its CPU time."""
    lane = Lane()
    for _ in range(draw_one(st.integers(2, 12))):
        lane.step(
            wait=draw_one(_MILLISECONDS),
            forward=draw_one(_MILLISECONDS),
            backward=draw_one(st.integers(1, 400)),
            opt=draw_one(_MILLISECONDS),
        )
    if draw_one(st.booleans()):
        lane.epoch_end(draw_one(st.integers(1, 3000)))
    cores = 2
    looks = sorted(draw_one(st.sets(st.floats(0, 12), min_size=2, max_size=8)))
    rates = [draw_one(st.floats(0, cores)) for _ in looks]
    used, rows = 0.0, []
    for place, second in enumerate(looks):
        used += rates[place] * (second - looks[place - 1]) if place else 0.0
        rows.append((START_NS + int(second * S), TRAINER, int(used * S), *(0,) * 7))
    limits = Limits(START_NS, cores, cores, None, None, {})
    return make_timeline(lane, facts={"limits": (limits,)}, processes=rows)


@settings(deadline=None, max_examples=60)
@given(recordings())
def test_figures_of_any_recording_agree(timeline: Any) -> None:
    facts = facts_of(timeline)
    check_figures(diagnose(facts, RUN, []))
    used, host = facts.cores.used, facts.cores.host
    if isinstance(used, Reading) and isinstance(host, Reading):
        assert used.value <= host.value


@settings(deadline=None, max_examples=30)
@given(st.floats(0.1, 0.9), st.floats(0.15, 0.9))
def test_a_feed_says_one_share_of_waiting(recorded: float, measured: float) -> None:
    """The recording also holds the batches until the queue had settled."""
    case = {"base": "reading", "facts": {"budget": {"input": recorded}}}
    facts = with_waiting(build_facts(case), measured)
    found = diagnose(facts, RUN, [])
    check_figures(found)
    (finding,) = [each for each in found.findings if each.code == found.verdict.code]
    assert finding.lost_share == pytest.approx(measured)
    busy = Reading(value=1 - measured, unit="frac")
    fed = {"utilisation": busy, "verdict": found.verdict, "findings": found.findings}
    text = draw(write_feed(msgspec.structs.replace(FULL_SPEED, **fed, step_seconds=0.05)))
    assert f"{100 * measured:.1f} %" in text
    assert f"{percent(measured)} of training time" in text
