"""One verdict or none: by time lost, above a threshold, never against what is unknown."""

import re
from typing import Any

import msgspec
import pytest

from fuelline.diagnose import cannot_tell, diagnose
from fuelline.schema.diagnosis.facts import Culprit, Facts
from fuelline.schema.diagnosis.findings import Diagnosis, LateRank
from fuelline.schema.parts import StepPart
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.run.recording import Blindspot
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
    full = {"device_busy": 0.99, "device_queue": 8, "refault_share": 0.9}
    found = diagnosis_of("reading", storage=full)
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
    assert "input does not hold training up" in verdict.sentence


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
    (remedy, *_) = diagnosis_of("healthy", budget={"checkpoint": 0.61}).findings[0].remedies
    assert remedy.at_most_speedup == pytest.approx(1 / 0.39)


@pytest.mark.parametrize(
    ("loader", "epochs", "command"),
    [
        ({"num_workers": 2, "context": "fork"}, 0, "run --fix"),
        ({"num_workers": 2, "context": "spawn"}, 0, "tune"),
        ({"num_workers": 0}, 3, "run --fix"),
        ({"num_workers": 0}, 0, "tune"),
        ({"num_workers": 2, "style": "iterable"}, 0, None),
    ],
)
def test_who_can_try_other_workers_depends_on_the_loader(
    loader: dict[str, Any], epochs: int, command: str | None
) -> None:
    facts = build_facts({"base": "reading"})
    replace = msgspec.structs.replace
    demands = replace(facts.demands, pause_counts={"epoch start": epochs})
    facts = replace(facts, loader=replace(facts.loader, **loader), demands=demands)
    assert diagnose(facts, RUN, []).tried_by == command


def test_a_measurement_has_no_gain_of_its_own() -> None:
    probe, trial, nearer = (
        diagnosis_of("reading", storage={"saturation": None}).findings[0].remedies
    )
    assert probe.setting.startswith("fuelline probe /data")
    assert probe.at_most_speedup is None
    assert trial.by_fix
    assert trial.at_most_speedup is None
    assert nearer.at_most_speedup == pytest.approx(1 / 0.39)


@pytest.mark.parametrize("base", ["reading", "preparing"])
@pytest.mark.parametrize(
    ("workers", "lost", "bound"),
    [
        (4, 0.61, None),
        (4, 0.15, 1 / 0.85),
        (0, 0.95, None),
        (None, 0.61, 1 / 0.39),
    ],
)
def test_more_workers_gain_no_more_than_their_number_grows(
    base: str, workers: int | None, lost: float, bound: float | None
) -> None:
    facts = {"budget": {"input": lost}, "loader": {"num_workers": workers}}
    found = diagnosis_of(base, **facts, input={"exposed_share": lost, "wait_share": lost})
    remedy = found.findings[0].remedies[0]
    count = int(re.search(r"num_workers=(\d+)", remedy.setting)[1])
    by_number = count / workers if workers else count + 1
    assert remedy.at_most_speedup == pytest.approx(by_number if bound is None else bound)


@pytest.mark.parametrize("base", ["reading", "preparing"])
def test_more_workers_are_never_called_safe_and_name_their_risk(base: str) -> None:
    remedy = diagnosis_of(base).findings[0].remedies[0]
    assert remedy.applicability == "unsafe"
    assert "augmentation will draw different numbers" in remedy.risk


@pytest.mark.parametrize("base", ["reading", "preparing"])
def test_more_workers_may_repeat_the_samples_of_an_iterable_dataset(base: str) -> None:
    loader = {"style": "iterable", "num_workers": 0}
    remedy = diagnosis_of(base, loader=loader).findings[0].remedies[0]
    count = int(re.search(r"num_workers=(\d+)", remedy.setting)[1])
    assert remedy.applicability == "unsafe"
    assert "get_worker_info()" in remedy.risk
    assert f"each one comes {count} times" in remedy.risk


def test_workers_that_live_on_are_never_called_safe_and_name_their_risk() -> None:
    remedy = diagnosis_of("healthy", budget={"epoch start": 0.2}).findings[0].remedies[0]
    assert "persistent_workers" in remedy.setting
    assert remedy.applicability == "unsafe"
    assert "set_epoch()" in remedy.risk


def test_time_between_steps_that_no_stack_explains_carries_no_verdict() -> None:
    found = diagnosis_of("healthy", budget={"loop": 0.3})
    found.check()
    assert found.verdict.code is None
    assert "30 %" in found.verdict.reason
    assert "No stack sample" in found.verdict.reason
    assert "fuelline doctor" in found.verdict.reason
    assert [(finding.code, finding.confidence) for finding in found.findings] == [("PA503", "low")]


@pytest.mark.parametrize(("fstype", "words"), [("nfs4", "--cache-from"), ("ext4", "a faster disk")])
def test_nearer_data_is_another_disk_if_it_is_on_a_local_one(fstype: str, words: str) -> None:
    found = diagnosis_of("reading", place={"fstype": fstype}, storage={"saturation": 0.8})
    assert words in found.findings[0].remedies[0].setting


def test_what_comes_through_a_socket_is_called_the_network_and_not_a_mount() -> None:
    socket = {"path": "tcp 10.0.0.7:443", "mount": "", "fstype": "socket", "syscall": "recvfrom"}
    found = diagnosis_of("reading", place=socket)
    finding = found.findings[0]
    assert "reads from the network (tcp 10.0.0.7:443)" in finding.sentence
    assert finding.evidence[0].mount is None
    assert not any("--cache" in remedy.setting for remedy in finding.remedies)


def test_a_memory_too_small_is_not_blamed_on_many_files() -> None:
    found = diagnosis_of("reading", storage={"refault_share": 0.9})
    assert not any("pack" in remedy.setting for remedy in found.findings[0].remedies)


def test_a_slope_that_may_be_none_is_no_proof_of_a_full_storage() -> None:
    facts = build_facts({"base": "reading"})

    def code(low: float) -> str | None:
        slope = Reading(value=0.8, unit="count", low=low, high=1.6, origin="fetches")
        storage = msgspec.structs.replace(facts.storage, saturation=slope)
        return diagnose(msgspec.structs.replace(facts, storage=storage), RUN, []).verdict.code

    assert code(low=-0.1) == "IN101"
    assert code(low=0.1) == "IN102"


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


def explained(part: StepPart, own: Facts | None, excess_seconds: float = 10.0) -> LateRank:
    """A late rank as the diagnosis of a job of four gives it."""
    culprit = Culprit(
        rank=2,
        late_count=100,
        of=120,
        caused_wait_seconds=30.0,
        share_of_waiting=Missing(reason="not needed here"),
        part=part,
        excess_seconds=excess_seconds,
        own=own,
    )
    job = build_facts({"base": "healthy", "facts": {}})
    sync = msgspec.structs.replace(job.sync, ranks=4, culprits=[culprit])
    found = diagnose(msgspec.structs.replace(job, sync=sync), RUN, [], None)
    assert found.collectives is not None
    (late,) = found.collectives.culprits
    return late


def test_a_rank_that_waits_for_input_has_the_cause_that_its_own_facts_show() -> None:
    late = explained("input", build_facts({"base": "reading", "facts": {}}))
    assert late.stage == "read"
    assert late.because.startswith(
        "its wait for input takes 100 ms longer each time. On that rank alone: "
    )
    assert late.remedies
    assert all(each.at_most_speedup is None for each in late.remedies)
    unknown = explained("input", build_facts({"base": "healthy", "facts": {}}))
    assert (unknown.stage, unknown.limit) == (None, None)
    assert unknown.because.endswith("longer each time")


def test_a_rank_that_computes_longer_lacks_cores_only_if_it_waits_for_them_half_as_long() -> None:
    def limit(waits_s: float) -> str | None:
        own = build_facts({"base": "healthy", "facts": {}})
        waited = Reading(value=waits_s / own.window.seconds, unit="frac")
        compute = msgspec.structs.replace(own.compute, core_wait_share=waited)
        late = explained("backward", msgspec.structs.replace(own, compute=compute))
        assert late.stage == "compute"
        return late.limit

    assert (limit(6.0), limit(4.0)) == ("cores", "code")


def test_a_rank_that_is_late_elsewhere_or_unseen_has_no_invented_cause() -> None:
    own = build_facts({"base": "healthy", "facts": {}})
    assert (explained("checkpoint", own).stage, explained("checkpoint", own).limit) == (
        "pause",
        "code",
    )
    assert explained("forward", None).stage is None
