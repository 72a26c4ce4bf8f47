"""Nouns refuse to contradict themselves."""

import msgspec
import pytest

from fuelline.schema.diagnosis.comparison import Change, ComparedRun, RunComparison
from fuelline.schema.plan.estimates import Estimate, Term
from fuelline.schema.plan.simulated import Request, Served
from fuelline.schema.run.trace import LEDGER_PARTS, DeviceLedger, TraceAnswer
from tests.golden.freeze import make_diagnoses

RUN = ComparedRun(label="a", steps=1, seconds=1.0, verdict="", sentence="")
TERM = Term(name="a", seconds=1.0, limit="math")


def ledger(**parts_ns: int) -> DeviceLedger:
    """One of 10 ns, all of them compute, but for what is said."""
    whole = {**dict.fromkeys(LEDGER_PARTS, 0), "useful compute": 10, **parts_ns}
    return DeviceLedger(rank=3, device=0, start_ns=0, wall_ns=10, parts_ns=whole)


def test_a_ledger_is_whole() -> None:
    ledger().check()
    with pytest.raises(ValueError, match="rank 3: parts sum to 11 ns"):
        ledger(**{"exposed transfer": 1}).check()
    with pytest.raises(ValueError, match="rank 3: a part is negative"):
        ledger(**{"useful compute": 11, "exposed transfer": -1}).check()
    with pytest.raises(ValueError, match=r"rank 3: parts are .*rest"):
        ledger(rest=0).check()


def test_what_the_parts_of_a_comparison_changed_by_is_what_the_step_did() -> None:
    step = Change(name="step", before=1.0, after=1.5, change=0.5, share=0.5, judgement="slower")
    part = Change(name="input", before=0.0, after=0.5, change=0.5, share=0.5, judgement="slower")
    RunComparison(before=RUN, after=RUN, unit="step", step=step, parts=[part]).check()
    with pytest.raises(ValueError, match=r"parts change by 1\.0, steps by 0\.5"):
        RunComparison(before=RUN, after=RUN, unit="step", step=step, parts=[part, part]).check()


def test_an_estimate_lies_in_its_interval_and_is_the_sum_of_its_terms() -> None:
    sound = Estimate(
        value=2.0, low=1.0, high=3.0, level=80, unit="s", limit="a", terms=(TERM, TERM)
    )
    sound.check()
    sound.check_explained()
    outside = Estimate(
        value=4.0, low=1.0, high=3.0, level=80, unit="s", limit="a", terms=(TERM, TERM)
    )
    with pytest.raises(ValueError, match=r"4\.0 is outside 1\.0 to 3\.0"):
        outside.check()
    with pytest.raises(ValueError, match=r"4\.0 s is explained as 2\.0"):
        outside.check_explained()


def test_a_diagnosis_is_as_sound_as_the_ledgers_in_it() -> None:
    diagnosis = make_diagnoses()["healthy"]
    sound, broken = (TraceAnswer(ledgers=[each]) for each in (ledger(), ledger(rest=1)))
    msgspec.structs.replace(diagnosis, trace=sound).check()
    with pytest.raises(ValueError, match="rank 3"):
        msgspec.structs.replace(diagnosis, trace=broken).check()


def test_an_output_of_one_token_has_no_time_between_tokens() -> None:
    one, three = (Request(arrival_s=0.0, prompt=8, output=output) for output in (1, 3))
    assert Served(one, 0.0, 1.0, 1.0).tpot_s is None
    assert Served(three, 0.0, 1.0, 2.0).tpot_s == 0.5
