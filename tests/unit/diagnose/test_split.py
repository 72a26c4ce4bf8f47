"""The wait is divided without remainder, and noise is no second cause."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.diagnose.evidence.split import InputSplit, split_input
from fuelline.schema.diagnosis.facts import InputFacts
from fuelline.schema.readings import Missing, Reading, Signal
from tests.rules.cases import build_facts

SHARE = st.floats(0, 1)
SIGNAL = SHARE | st.none()
NAMES = [name for name in InputFacts.__struct_fields__ if name.endswith("_share")]


def split_of(**shares: float | None) -> InputSplit | None:
    def signal(value: float | None) -> Signal:
        return Missing(reason="?") if value is None else Reading(value=value, unit="frac")

    facts = build_facts({"base": "reading"})
    changed = {name: signal(value) for name, value in shares.items()}
    waiting = msgspec.structs.replace(facts.input, **changed)
    return split_input(msgspec.structs.replace(facts, input=waiting))


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, SIGNAL) | {"exposed_share": SHARE}))
def test_the_stages_sum_to_the_exposed_wait(shares: dict[str, float | None]) -> None:
    split = split_of(**shares)
    assert sum(msgspec.structs.astuple(split)) == pytest.approx(shares["exposed_share"])
    assert min(msgspec.structs.astuple(split)) >= 0


def test_an_unknown_wait_is_not_divided() -> None:
    assert split_of(exposed_share=None) is None


def test_a_stage_below_a_fifth_is_folded_into_the_largest() -> None:
    split = split_of(
        cpu_share=0.19, core_wait_share=0, read_share=0.81, metadata_share=0, unpickle_share=0
    )
    assert (split.read, split.prepare) == (pytest.approx(0.61), 0)


def test_a_stage_of_a_fifth_stands_on_its_own() -> None:
    split = split_of(
        cpu_share=0.25, core_wait_share=0, read_share=0.75, metadata_share=0, unpickle_share=0
    )
    assert split.prepare == pytest.approx(0.25 * 0.61)


def test_states_that_name_no_stage_are_unknown() -> None:
    split = split_of(
        cpu_share=0.1, core_wait_share=0, read_share=0.1, metadata_share=0, lock_share=0
    )
    assert split.unknown > 0.5 * 0.61


def test_workers_that_wait_for_one_another_are_preparing() -> None:
    split = split_of(
        cpu_share=0.25, core_wait_share=0, read_share=0, metadata_share=0, lock_share=0.75
    )
    assert split.prepare == pytest.approx(0.61)


def test_a_deliberate_sleep_is_no_preparing() -> None:
    split = split_of(
        cpu_share=0.1, core_wait_share=0, read_share=0, metadata_share=0, blocked_share=0.9
    )
    assert split.fetch == pytest.approx(0.61)
    assert split.prepare == 0


def test_waiting_for_a_core_is_preparing() -> None:
    split = split_of(cpu_share=0.2, core_wait_share=0.8, read_share=0, metadata_share=0)
    assert split.prepare == pytest.approx(0.61)
