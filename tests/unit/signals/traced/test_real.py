"""What is true in the published traces, computed by others, to 0.1 percentage points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from fuelline.diagnose import diagnose
from fuelline.schema.diagnosis.findings import RunSummary
from fuelline.schema.readings import Reading
from fuelline.schema.run.trace import DeviceKind
from fuelline.signals.traced import measure_survey, measure_trace, survey_trace
from tests.unit.ingest.kineto.texts import REAL, load

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.signals.traced.measure import MeasuredTrace
    from fuelline.signals.traced.survey import Survey
from fuelline.timeline.collectives import KEY

pytestmark = pytest.mark.integration

if not REAL.is_dir():
    pytest.skip(f"the published traces are not in {REAL}", allow_module_level=True)

POINT = 0.001
"""A tenth of a percentage point."""


@pytest.fixture(scope="module")
def surveyed(tmp_path_factory: pytest.TempPathFactory) -> Survey:
    return survey_trace(load(tmp_path_factory.mktemp("megatron"), REAL / "megatron_tp8"))


@pytest.fixture(scope="module")
def megatron(surveyed: Survey) -> MeasuredTrace:
    return measure_survey(surveyed)


MEGATRON = {0: (62.6, 22.1, 40.5, 32.1), 6: (65.6, 22.1, 43.5, 35.3)}
MEGATRON |= {2: (89.2, 21.6, 67.7, 59.5), 4: (99.5, 20.9, 78.5, 70.6)}


@pytest.mark.parametrize("rank", MEGATRON)
def test_the_ledger_of_megatron(megatron: MeasuredTrace, rank: int) -> None:
    busy, compute, nccl, waiting = (percent / 100 for percent in MEGATRON[rank])
    (device,) = (each for each in megatron.facts.devices if each.rank == rank)
    ledger = device.ledger
    assert sum(ledger.values()) == pytest.approx(1)
    assert device.ladder["reported utilisation"] == pytest.approx(busy, abs=POINT)
    assert ledger["useful compute"] == pytest.approx(compute, abs=POINT)
    exposed = ledger["waiting for a peer"] + ledger["exposed transfer"]
    assert exposed == pytest.approx(nccl, abs=POINT)
    assert ledger["waiting for a peer"] == pytest.approx(waiting, abs=POINT)


def test_megatron_has_its_ranks_events_and_kernels(
    surveyed: Survey, megatron: MeasuredTrace
) -> None:
    facts = surveyed.trace.facts
    assert {(rank.world_size, len(rank.chips)) for rank in facts.ranks} == {(8, 8)}
    assert {rank.chips[0].name for rank in facts.ranks} == {"NVIDIA A100-SXM4-80GB"}
    mean_events = sum(source.events for source in facts.sources) / len(facts.sources)
    assert mean_events == pytest.approx(15_200, abs=50)
    is_kernel = pl.col("kind") == int(DeviceKind.KERNEL)
    assert {lane.events.filter(is_kernel).height for lane in surveyed.lanes} == {690}
    assert surveyed.matched.count == 84
    assert megatron.facts.steps.count == 1


def test_ranks_of_megatron_leave_their_collectives_within_49_us(surveyed: Survey) -> None:
    met = surveyed.matched.frame.group_by(KEY)
    apart = met.agg((pl.col("end_ns").max() - pl.col("end_ns").min()).alias("ns"))["ns"]
    assert apart.max() == 49_000


def test_each_rank_of_megatron_is_last_as_often_as_counted(surveyed: Survey) -> None:
    last = surveyed.matched.frame.unique(KEY)["last"].to_list()
    assert {rank: last.count(rank) for rank in MEGATRON} == {0: 32, 6: 28, 2: 4, 4: 0}


@pytest.mark.parametrize(
    ("rank", "idle", "compute", "other"),
    [(0, 0.374, 0.221, 0.405), (4, 0.005, 0.209, 0.786), (6, 0.344, 0.220, 0.435)],
)
def test_the_breakdown_of_megatron_is_that_of_hta(
    megatron: MeasuredTrace, rank: int, idle: float, compute: float, other: float
) -> None:
    (ledger,) = (each for each in megatron.answer.ledgers if each.rank == rank)
    busy = ledger.busy_ns / ledger.wall_ns
    computes = ledger.parts_ns["useful compute"] / ledger.wall_ns
    assert 1 - busy == pytest.approx(idle, abs=POINT)
    assert computes == pytest.approx(compute, abs=POINT)
    assert busy - computes == pytest.approx(other, abs=POINT)


def test_megatron_over_all_ranks(megatron: MeasuredTrace) -> None:
    ledgers = megatron.answer.ledgers
    wall = sum(each.wall_ns for each in ledgers)
    shares = {
        part: sum(each.parts_ns[part] for each in ledgers) / wall for part in ledgers[0].parts_ns
    }
    assert shares["waiting for a peer"] == pytest.approx(0.594, abs=POINT)
    assert shares["useful compute"] == pytest.approx(0.214, abs=POINT)
    assert megatron.collectives.wait_share == pytest.approx(0.594, abs=POINT)


def test_the_ladder_of_megatron_rank_4(megatron: MeasuredTrace) -> None:
    (device,) = (each for each in megatron.facts.devices if each.rank == 4)
    assert device.ladder["SM fill"] == pytest.approx(0.377, abs=POINT)
    assert device.ladder["estimated occupancy"] == pytest.approx(0.047, abs=POINT)


def test_the_culprits_of_megatron_are_late_on_the_host_side(megatron: MeasuredTrace) -> None:
    culprits = megatron.collectives.culprits
    assert {late.rank: (late.late_count, late.of) for late in culprits} == {
        0: (32, 84),
        6: (28, 84),
    }
    assert all("host is late" in late.because for late in culprits)
    assert [link.rank for link in megatron.answer.blame] == [0, 6]
    assert all(clock.shift_ns == 0 for clock in megatron.answer.clocks)


def test_kernel_classes_of_megatron(megatron: MeasuredTrace) -> None:
    classes = {each.name: each.share for each in megatron.answer.kernel_classes}
    assert classes["communication"] == pytest.approx(0.759, abs=POINT)
    assert megatron.answer.communication == ["NCCL"]


def test_three_quarters_of_the_device_time_of_megatron_are_communication(surveyed: Survey) -> None:
    took = (pl.col("end_ns") - pl.col("start_ns")).sum()
    events = pl.concat(
        [lane.events.select("family", "start_ns", "end_ns") for lane in surveyed.lanes]
    )
    spent = dict(events.group_by("family").agg(took.alias("ns")).iter_rows())
    assert spent["communication"] / sum(spent.values()) == pytest.approx(0.759, abs=POINT)
    assert spent["compute"] / sum(spent.values()) == pytest.approx(0.240, abs=POINT)


def test_gemms_of_megatron_are_on_the_roofline_below_what_an_a100_can(
    megatron: MeasuredTrace,
) -> None:
    """Its trace has the launch's number beside a kernel, where others have the operator's."""
    gemms = [each for each in megatron.answer.kernels if each.kind == "gemm"]
    assert {each.bound for each in gemms} == {"compute", "memory"}
    rates = [each.flops_per_s for each in gemms]
    assert all(isinstance(rate, Reading) and 10e12 < rate.value < 312e12 for rate in rates)


def test_megatron_is_reported_busy_and_hides_no_communication(megatron: MeasuredTrace) -> None:
    ledgers = megatron.answer.ledgers
    busy = [each.busy_ns / each.wall_ns for each in ledgers]
    assert sum(busy) / len(busy) == pytest.approx(0.887, abs=POINT)
    assert {each.rank: 1 - share for each, share in zip(ledgers, busy, strict=True)}[
        6
    ] == pytest.approx(0.344, abs=POINT)
    assert [each.hidden_communication_ns for each in ledgers] == [0] * 8


@pytest.mark.parametrize(("workers", "idle", "of_it"), [(0, 0.31, 0.61), (4, 0.16, 0.0)])
def test_the_labelled_pair_differs_in_data_wait(
    tmp_path: Path, workers: int, idle: float, of_it: float
) -> None:
    path = REAL / "tb_resnet50" / f"num_workers_{workers}.json.gz"
    measured = measure_trace(load(tmp_path, path))
    (device,) = measured.facts.devices
    assert device.name == "Tesla V100-DGXS-32GB"
    (ledger,) = measured.answer.ledgers
    unused = 1 - ledger.busy_ns / ledger.wall_ns
    assert unused == pytest.approx(idle, abs=0.005)
    assert device.ledger["data wait"] / unused == pytest.approx(of_it, abs=0.005)
    assert device.ledger["launch-bound"] > 0.1
    assert measured.facts.steps.count == 6


def test_holes_in_graphs_are_a_loss_of_the_trace(tmp_path: Path) -> None:
    trace = load(tmp_path, REAL / "hta" / "negative_queue_length_values_check")
    assert [(rank.rank, rank.world_size) for rank in trace.facts.ranks] == [(0, 16)]
    measured = measure_trace(trace)
    assert [each.name for each in measured.facts.devices] == ["NVIDIA A100-SXM4-80GB"]
    assert measured.facts.trace is not None
    assert {"graphs", "one-rank"} <= {each.code for each in measured.facts.trace.quality}
    assert measured.facts.trace.doubt
    assert measured.facts.devices[0].ladder["reported utilisation"] is None


def test_a_whole_graph_is_not_called_under_recorded(tmp_path: Path) -> None:
    path = REAL / "tracelens" / "inference" / "vllm_decode_full" / "graph_execution.json.gz"
    measured = measure_trace(load(tmp_path, path))
    assert measured.facts.trace is not None
    assert not measured.facts.trace.doubt
    assert sum(kernel.graph_count for kernel in measured.answer.kernel_classes) == 421


def test_one_of_two_ranks_has_its_steps_and_collectives_counted(tmp_path: Path) -> None:
    trace = load(tmp_path, REAL / "hta" / "df_index_resolver")
    measured = measure_trace(trace)
    classes = {each.name: each.count for each in measured.answer.kernel_classes}
    assert classes["communication"] == 2020
    assert round(trace.facts.sources[0].events, -3) == 216_000
    assert [(rank.rank, rank.world_size) for rank in trace.facts.ranks] == [(1, 2)]
    assert measured.facts.steps.count == 5
    assert [each.name for each in measured.facts.devices] == ["Tesla V100-SXM2-32GB"]
    assert measured.facts.trace is not None
    assert "one-rank" in {each.code for each in measured.facts.trace.quality}


@pytest.mark.parametrize("folder", ["cupti_profiler", "rank_non_gpu"])
def test_a_trace_without_kernels_is_not_idle(tmp_path: Path, folder: str) -> None:
    measured = measure_trace(load(tmp_path, REAL / "hta" / folder))
    assert measured.facts.devices == []
    assert measured.facts.trace is not None
    assert measured.facts.trace.doubt


@pytest.mark.parametrize(
    ("path", "chip"),
    [
        ("hta/amd_trace", "AMD Radeon Graphics"),
        ("hta/ns_resolution_trace", "Tesla V100-SXM2-32GB"),
        ("hta/critical_path/cuda_event_sync", "NVIDIA A100-PG509-200"),
        ("tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz", "NVIDIA H100 80GB HBM3"),
        ("tracelens/mi300", "AMD Instinct MI300X"),
    ],
)
def test_chips_are_named_as_the_driver_names_them(tmp_path: Path, path: str, chip: str) -> None:
    facts = load(tmp_path, REAL / path).facts
    assert {each.name for rank in facts.ranks for each in rank.chips} == {chip}


LABELLED = REAL.parent / "labelled"


def judge(tmp_path: Path, name: str) -> tuple[MeasuredTrace, Diagnosis]:
    if not (LABELLED / name).is_file():
        pytest.skip(f"the labelled traces are not in {LABELLED}")
    measured = measure_trace(load(tmp_path, LABELLED / name))
    run = RunSummary(run_id="", command=[], host="", exit_code=0, seconds=0)
    return measured, diagnose(measured.facts, run, [])


def share_of(measured: MeasuredTrace, part: str) -> float:
    return sum(each.share for each in measured.facts.budget if each.part == part)


def test_timesformer_waits_for_its_preprocessing_from_the_mark_on(tmp_path: Path) -> None:
    measured, found = judge(tmp_path, "h100_timesformer.json.gz")
    assert measured.facts.window.seconds == pytest.approx(0.3825, abs=0.0005)
    assert share_of(measured, "useful compute") == pytest.approx(155 / 382.5, abs=0.002)
    assert (found.verdict.code, found.verdict.stage) == ("PR212", "transform")
    assert found.verdict.share_of_wall == pytest.approx(0.57, abs=0.005)
    assert "preprocess (transformers/pipelines/video_classification.py" in found.verdict.sentence


def test_owlv2_resizes_in_scipy(tmp_path: Path) -> None:
    measured, found = judge(tmp_path, "h100_owlv2.json.gz")
    assert measured.facts.window.seconds == pytest.approx(1.211, abs=0.001)
    assert (found.verdict.code, found.verdict.limit) == ("PR212", "code")
    for words in ("86 %", "zoom (scipy/ndimage", "resize (", "image_processing_owlv2.py"):
        assert words in found.verdict.sentence


@pytest.mark.parametrize("name", ["vllm_piecewise.json.gz", "xdit_flux1_split_it1.json.gz"])
def test_layers_and_rhythms_in_a_corner_are_no_steps(tmp_path: Path, name: str) -> None:
    measured, found = judge(tmp_path, name)
    assert measured.answer.steps_from == ""
    assert found.steps.count == 0


def test_a_decode_step_with_a_hole_is_under_recorded(tmp_path: Path) -> None:
    measured, found = judge(tmp_path, "sglang_Qwen3-8B_decode.json.gz")
    assert "unrecorded" in {each.code for each in found.quality}
    assert found.verdict.code is None
    assert "with host activity" not in found.verdict.sentence
    assert all(share is None for share in measured.facts.devices[0].ladder.values())


def test_first_launches_of_a_test_of_layers_are_its_start(tmp_path: Path) -> None:
    _, found = judge(tmp_path, "normalization_layer_test.json.gz")
    assert found.verdict.code == "PA512"
    assert "hipLaunchKernel" in found.verdict.sentence
    assert "torch.compile" not in str(found.findings[0].remedies)


def test_capturing_a_graph_loses_nothing(tmp_path: Path) -> None:
    _, found = judge(tmp_path, "sglang_capture_bs32.json.gz")
    assert not {"lost", "dropped"} & {each.code for each in found.quality}
    assert found.verdict.code == "PA512"
    assert "graph capture" in found.verdict.sentence


def test_a_trace_without_correlations_is_joined_by_external_numbers(tmp_path: Path) -> None:
    _, found = judge(tmp_path, "gemm_01_compute_few_tiles.json")
    assert found.verdict.code == "CP400"


@pytest.mark.parametrize("name", ["alexnet", "simple_add"])
def test_a_one_off_cuda_free_is_start_up(tmp_path: Path, name: str) -> None:
    measured = measure_trace(load(tmp_path, REAL / "hta" / "critical_path" / name))
    shares = {gap.cause: gap.share for gap in measured.answer.gaps}
    assert shares["start-up"] > 0.8
    assert shares.get("allocator", 0.0) < 0.05


def test_memory_that_is_freed_after_every_convolution_is_a_pattern(tmp_path: Path) -> None:
    measured = measure_trace(load(tmp_path, REAL / "tracelens" / "mi300"))
    shares = {gap.cause: gap.share for gap in measured.answer.gaps}
    assert shares["allocator"] > 0.8
    assert shares.get("start-up", 0.0) < 0.01


def test_a_wait_for_the_step_before_is_not_counted_as_idle(tmp_path: Path) -> None:
    """Before its first kernel the host waits 46 ms for a device that nothing is recorded of."""
    measured = measure_trace(load(tmp_path, REAL / "tb_resnet50" / "num_workers_4.json.gz"))
    assert measured.facts.window.seconds == pytest.approx(0.7285, abs=0.002)
