"""One verdict or none: by time lost, above a threshold, never against what is unknown."""

from typing import Any

import msgspec
import pytest

from fuelline.diagnose import cannot_tell, diagnose
from fuelline.schema.findings import Diagnosis
from fuelline.schema.recording import Blindspot
from tests.rules.cases import RUN, build_facts


def diagnosis_of(base: str, price: float | None = None, **facts: Any) -> Diagnosis:
    return diagnose(build_facts({"base": base, "facts": facts}), RUN, [], price)


def test_findings_are_ranked_by_the_time_they_cost() -> None:
    budget = {"input": 0.2, "checkpoint": 0.3, "validation": 0.06, "garbage collection": 0.1}
    found = diagnosis_of("reading", input={"exposed_share": 0.2}, budget=budget)
    assert [finding.code for finding in found.findings] == ["PA501", "IN101", "PA504", "PA502"]
    assert found.verdict.code == "PA501"
    losses = [finding.lost_seconds for finding in found.findings]
    assert losses == sorted(losses, reverse=True)


def test_equal_losses_are_ranked_by_code() -> None:
    found = diagnosis_of("healthy", budget={"checkpoint": 0.2, "validation": 0.2})
    assert [finding.code for finding in found.findings] == ["PA501", "PA502"]


def test_one_stage_is_named_once() -> None:
    found = diagnosis_of("reading", storage={"device_busy": 0.99, "refault_share": 0.9})
    assert [finding.code for finding in found.findings] == ["IN104"]


def test_two_stages_of_one_wait_share_it() -> None:
    states = {"cpu_share": 0.5, "core_wait_share": 0.0, "read_share": 0.5, "metadata_share": 0.0}
    found = diagnosis_of("reading", input={**states, "unpickle_share": 0.0})
    assert {finding.code for finding in found.findings} == {"IN101", "PR201"}
    assert sum(finding.lost_share for finding in found.findings) == pytest.approx(0.61)


@pytest.mark.parametrize(("share", "code"), [(0.099, "CP400"), (0.1, "PA501")])
def test_a_loss_must_reach_a_tenth_to_be_the_verdict(share: float, code: str) -> None:
    found = diagnosis_of("healthy", budget={"checkpoint": share})
    assert found.verdict.code == code
    assert [finding.code for finding in found.findings] == ["PA501"]


def test_the_verdict_repeats_its_finding() -> None:
    found = diagnosis_of("reading")
    (finding,) = found.findings
    verdict = found.verdict
    assert (verdict.code, verdict.stage, verdict.limit) == ("IN101", "read", "latency")
    assert (verdict.sentence, verdict.share_of_wall) == (finding.sentence, finding.lost_share)
    assert verdict.reason is None


def test_a_healthy_job_says_what_it_does_with_its_time() -> None:
    verdict = diagnosis_of("healthy").verdict
    assert (verdict.code, verdict.stage, verdict.limit) == ("CP400", "compute", "math")
    assert verdict.share_of_wall == pytest.approx(0.95)
    assert "95 %" in verdict.sentence
    assert "2.0 % to waiting" in verdict.sentence


def test_few_steps_carry_no_verdict_but_keep_their_findings() -> None:
    found = diagnosis_of("reading", steps=4)
    assert found.verdict.code is None
    assert "only 4 steps" in found.verdict.reason
    assert found.findings
    assert diagnosis_of("reading", steps=5).verdict.code == "IN101"


def test_what_is_unknown_outweighs_a_smaller_finding() -> None:
    found = diagnosis_of("healthy", budget={"checkpoint": 0.15, "unexplained": 0.2})
    assert found.verdict.code is None
    assert "20 %" in found.verdict.reason
    assert [finding.code for finding in found.findings] == ["PA501"]


def test_a_finding_outweighs_a_smaller_unknown() -> None:
    found = diagnosis_of("healthy", budget={"checkpoint": 0.2, "unexplained": 0.15})
    assert found.verdict.code == "PA501"


def test_an_unknown_wait_says_which_measurement_is_missing() -> None:
    verdict = diagnosis_of("reading", input={"read_share": None}).verdict
    assert verdict.code is None
    assert verdict.stage is None
    assert "61 %" in verdict.reason
    assert "read_share was not measured" in verdict.reason
    assert "fuelline doctor" in verdict.reason


def test_unknown_cores_are_named_as_what_is_missing() -> None:
    verdict = diagnosis_of("preparing", cores={"allowed": None}).verdict
    assert "allowed was not measured" in verdict.reason


def test_a_wait_that_nobody_could_see_forbids_calling_the_job_healthy() -> None:
    verdict = diagnosis_of("healthy", input={"exposed_share": None}, budget={}).verdict
    assert verdict.code is None
    assert "exposed_share was not measured" in verdict.reason


def test_money_is_shown_only_with_a_price() -> None:
    assert diagnosis_of("reading").findings[0].lost_usd is None
    priced = diagnosis_of("reading", price=36.0)
    assert priced.price_usd_per_hour == 36.0
    assert priced.findings[0].lost_usd == pytest.approx(0.61 * 60 / 3600 * 36)


def test_the_upper_bound_of_a_gain_comes_from_the_budget() -> None:
    remedies = diagnosis_of("reading").findings[0].remedies
    assert [remedy.at_most_speedup for remedy in remedies] == pytest.approx([1 / 0.39] * 2)


def test_a_loss_of_everything_promises_no_infinite_gain() -> None:
    found = diagnosis_of("healthy", budget={"checkpoint": 0.995})
    assert found.findings[0].remedies[0].at_most_speedup is None


def test_a_run_without_steps_says_why() -> None:
    spot = Blindspot(what="steps", why="none", forbids="all")
    found = cannot_tell(RUN, [spot], "nothing was trained")
    found.check()
    assert (found.verdict.code, found.verdict.reason) == (None, "nothing was trained")
    assert (found.budget, found.findings, found.window, found.steps.count) == ([], [], None, 0)
    assert found.blindspots == [spot]


@pytest.mark.parametrize("base", ["healthy", "reading", "preparing"])
def test_a_diagnosis_survives_its_own_json(base: str) -> None:
    found = diagnosis_of(base, price=2.5)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Diagnosis) == found


def test_a_diagnosis_that_contradicts_itself_is_refused() -> None:
    found = diagnosis_of("reading")
    wrong = [
        msgspec.structs.replace(found, budget=found.budget[:-1]),
        msgspec.structs.replace(
            found,
            budget=[
                msgspec.structs.replace(found.budget[0], seconds=-1.0),
                *found.budget[1:],
            ],
        ),
        msgspec.structs.replace(
            found, verdict=msgspec.structs.replace(found.verdict, reason="and a reason")
        ),
    ]
    for diagnosis in wrong:
        with pytest.raises(ValueError, match=r"sum to 1|negative|either"):
            diagnosis.check()
