"""What is true in the published traces, computed by others, to 0.1 percentage points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuelline.schema.readings import Reading
from fuelline.signals.trace import measure_trace
from tests.unit.ingest.kineto.texts import REAL, load

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.signals.trace.measure import Measured

if not REAL.is_dir():
    pytest.skip(f"the published traces are not in {REAL}", allow_module_level=True)

POINT = 0.001
"""A tenth of a percentage point."""


@pytest.fixture(scope="module")
def megatron(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure_trace(load(tmp_path_factory.mktemp("megatron"), REAL / "megatron_tp8"))


MEGATRON = {0: (62.6, 22.1, 40.5, 32.1), 6: (65.6, 22.1, 43.5, 35.3)}
MEGATRON |= {2: (89.2, 21.6, 67.7, 59.5), 4: (99.5, 20.9, 78.5, 70.6)}


@pytest.mark.parametrize("rank", MEGATRON)
def test_the_ledger_of_megatron(megatron: Measured, rank: int) -> None:
    busy, compute, nccl, waiting = (percent / 100 for percent in MEGATRON[rank])
    (device,) = (each for each in megatron.facts.devices if each.rank == rank)
    ledger = device.ledger
    assert sum(ledger.values()) == pytest.approx(1)
    assert device.ladder["reported utilisation"] == pytest.approx(busy, abs=POINT)
    assert ledger["useful compute"] == pytest.approx(compute, abs=POINT)
    exposed = ledger["waiting for a peer"] + ledger["exposed transfer"]
    assert exposed == pytest.approx(nccl, abs=POINT)
    assert ledger["waiting for a peer"] == pytest.approx(waiting, abs=POINT)


def test_megatron_over_all_ranks(megatron: Measured) -> None:
    shares = {part.part: part.share for part in megatron.facts.budget}
    assert shares["waiting for a peer"] == pytest.approx(0.594, abs=POINT)
    assert shares["useful compute"] == pytest.approx(0.214, abs=POINT)
    assert megatron.collectives.wait_share == pytest.approx(0.594, abs=POINT)


def test_the_ladder_of_megatron_rank_4(megatron: Measured) -> None:
    (device,) = (each for each in megatron.facts.devices if each.rank == 4)
    assert device.ladder["SM fill"] == pytest.approx(0.377, abs=POINT)
    assert device.ladder["estimated occupancy"] == pytest.approx(0.047, abs=POINT)


def test_the_culprits_of_megatron_are_late_on_the_host_side(megatron: Measured) -> None:
    culprits = megatron.collectives.culprits
    assert {late.rank: (late.late_count, late.of) for late in culprits} == {
        0: (32, 84),
        6: (28, 84),
    }
    assert all("host is late" in late.because for late in culprits)
    assert [link.rank for link in megatron.answer.blame] == [0, 6]
    assert all(clock.shift_ns == 0 for clock in megatron.answer.clocks)


def test_kernel_classes_of_megatron(megatron: Measured) -> None:
    classes = {each.name: each.share for each in megatron.answer.kernel_classes}
    assert classes["communication"] == pytest.approx(0.759, abs=POINT)
    assert megatron.answer.communication == ["NCCL"]


def test_gemms_of_megatron_are_on_the_roofline_below_what_an_a100_can(megatron: Measured) -> None:
    """Its trace has the launch's number beside a kernel, where others have the operator's."""
    gemms = [each for each in megatron.answer.kernels if each.kind == "gemm"]
    assert {each.bound for each in gemms} == {"compute", "memory"}
    rates = [each.flops_per_s for each in gemms]
    assert all(isinstance(rate, Reading) and 10e12 < rate.value < 312e12 for rate in rates)


def test_megatron_is_reported_busy_and_hides_no_communication(megatron: Measured) -> None:
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
    (ledger,) = measured.answer.ledgers
    unused = 1 - ledger.busy_ns / ledger.wall_ns
    assert unused == pytest.approx(idle, abs=0.005)
    assert device.ledger["data wait"] / unused == pytest.approx(of_it, abs=0.005)
    assert device.ledger["launch-bound"] > 0.1
    assert measured.facts.steps.count == 6


def test_holes_in_graphs_are_a_loss_of_the_trace(tmp_path: Path) -> None:
    folder = REAL / "hta" / "negative_queue_length_values_check"
    measured = measure_trace(load(tmp_path, folder))
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
    measured = measure_trace(load(tmp_path, REAL / "hta" / "df_index_resolver"))
    classes = {each.name: each.count for each in measured.answer.kernel_classes}
    assert classes["communication"] == 2020
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
