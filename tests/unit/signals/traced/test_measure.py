"""Planted traces: causes of idleness, waiting and lost events are named and sum to the whole."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuelline.schema.run.trace import DeviceKind, HostKind
from fuelline.signals.traced import gaps, measure_trace
from fuelline.signals.traced.kernels.names import classify, find_library, uses_tensor_cores
from tests.unit.signals.traced.planted import US, Rank, build

NCCL = "ncclDevKernel_AllReduce"


def shares(rank: Rank) -> dict[str, float]:
    (device,) = measure_trace(build(rank)).facts.devices
    return device.ledger


CAUSES = [
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", HostKind.OP, "data wait"),
    ("aten::linear", HostKind.OP, "launch-bound"),
    ("cudaStreamSynchronize", HostKind.RUNTIME, "synchronisation"),
    ("hipDeviceSynchronize", HostKind.RUNTIME, "synchronisation"),
    ("aten::item", HostKind.OP, "synchronisation"),
    ("cudaFree", HostKind.RUNTIME, "allocation"),
    ("train.py(7): log", HostKind.PYTHON, "launch-bound"),
    ("Buffer Flush", HostKind.PROFILER, "profiler overhead"),
]


@pytest.mark.parametrize(("name", "kind", "part"), CAUSES)
def test_a_gap_belongs_to_what_the_host_did(name: str, kind: HostKind, part: str) -> None:
    rank = Rank()
    rank.kernel(0, 100, called=-10)
    rank.op(100, 198, name, int(kind))
    rank.kernel(205, 305, called=200)
    assert shares(rank)[part] == pytest.approx(98 / 305, abs=0.03)


def test_a_host_that_was_ahead_is_not_blamed() -> None:
    rank = Rank()
    rank.kernel(0, 100, called=-10)
    rank.op(0, 400)
    rank.kernel(300, 400, called=50)
    ledger = shares(rank)
    assert ledger["unknown"] == pytest.approx(180 / 400)
    assert ledger["launch-bound"] == pytest.approx(20 / 400)


def test_without_host_events_idleness_is_unknown_and_stated() -> None:
    rank = Rank()
    rank.kernel(0, 100)
    rank.kernel(200, 300)
    measured = measure_trace(build(rank))
    assert measured.facts.devices[0].ledger["unknown"] == pytest.approx(1 / 3)
    assert measured.facts.trace is not None
    assert "no-host" in {each.code for each in measured.facts.trace.quality}


def test_communication_under_compute_is_hidden() -> None:
    rank = Rank()
    rank.kernel(0, 100)
    rank.kernel(50, 150, "ncclDevKernel_AllReduce", stream=9)
    measured = measure_trace(build(rank))
    (ledger,) = measured.answer.ledgers
    assert ledger.hidden_communication_ns == 50 * US
    assert ledger.parts_ns["undivided communication"] == 50 * US
    assert ledger.parts_ns["useful compute"] == 100 * US


def test_kernels_that_run_at_once_fill_the_chip_only_once() -> None:
    rank = Rank()
    rank.kernel(0, 100, blocks=81)
    rank.kernel(0, 100, blocks=81, stream=9)
    (device,) = measure_trace(build(rank)).facts.devices
    assert device.ladder["SM fill"] == pytest.approx(1)


def straggler(
    late: int, *, shift_us: float = 0, name: str = "ncclDevKernel_AllReduce"
) -> list[Rank]:
    """Four ranks, of which one computes longer before each of ten collectives."""
    ranks = [Rank(rank=number, world_size=4) for number in range(4)]
    for number in range(10):
        begin = number * 1000
        for rank in ranks:
            own = 500 if rank.rank == late else 200 + 5 * rank.rank
            off = shift_us if rank.rank == 3 else 0
            rank.kernel(begin + off, begin + own + off, "gemm")
            rank.kernel(begin + own + off, begin + 600 + rank.rank + off, name, stream=9)
    return ranks


def test_the_rank_that_comes_last_is_the_culprit_and_the_others_wait() -> None:
    measured = measure_trace(build(*straggler(2)))
    (late,) = measured.collectives.culprits
    assert (late.rank, late.late_count, late.of) == (2, 10, 10)
    assert "computing longer" in late.because
    victim = next(each for each in measured.facts.devices if each.rank == 0)
    assert victim.ledger["waiting for a peer"] == pytest.approx(298 / 960, abs=0.01)
    assert late.caused_wait_seconds == pytest.approx(10 * (298 + 294 + 284) * 1e-6, rel=0.02)


def test_a_culprit_whose_other_device_is_all_that_is_known_has_no_cause() -> None:
    ranks = straggler(2)
    for row in ranks[2].device:
        row["device"] = 1
    ranks[2].kernel(0, 10, "gemm")
    (late,) = measure_trace(build(*ranks)).collectives.culprits
    assert late.rank == 2
    assert late.because == "what it did before is not in the trace"
    assert (late.stage, late.limit, late.part) == (None, None, "")


def test_clocks_that_contradict_collectives_are_shifted_and_that_is_stated() -> None:
    ranks = straggler(2, shift_us=5000)
    ranks[1].origin_ns = 10**9
    for row in ranks[1].device:
        row["start_ns"] -= 10**9
        row["end_ns"] -= 10**9
    measured = measure_trace(build(*ranks))
    clock = measured.answer.clocks[3]
    assert clock.shift_ns == pytest.approx(-5_000_000, abs=10_000)
    assert clock.error_ns is not None
    (late,) = measured.collectives.culprits
    assert (late.rank, "computing longer" in late.because) == (2, True)
    assert measured.facts.trace is not None
    assert "clocks" in {each.code for each in measured.facts.trace.quality}


def test_a_collective_whose_name_says_nothing_is_known_by_its_behaviour() -> None:
    measured = measure_trace(build(*straggler(1, name="my_secret_exchange")))
    assert measured.answer.communication == ["by behaviour"]
    assert [late.rank for late in measured.collectives.culprits] == [1]


def test_compute_of_the_same_name_is_not_taken_for_communication() -> None:
    ranks = [Rank(rank=number) for number in range(4)]
    rng = random.Random(1)
    for step in range(20):
        for rank in ranks:
            start = 1000 * step + rng.uniform(0, 300)
            rank.kernel(start, start + 100, "my_secret_kernel")
    assert measure_trace(build(*ranks)).answer.communication == []


def test_groups_are_told_apart_by_who_leaves_together() -> None:
    ranks = [Rank(rank=number) for number in range(4)]
    for step in range(8):
        for rank in ranks:
            own = 100 if rank.rank % 2 else 300
            begin = 1000 * step + (400 if rank.rank >= 2 else 0)
            rank.kernel(begin + own, begin + 350, "ncclDevKernel_AllReduce")
    frame = measure_trace(build(*ranks))
    waits = {each.rank: each.ledger["waiting for a peer"] for each in frame.facts.devices}
    assert waits[1] > 0.1
    assert waits[3] > 0.1
    assert waits[0] == waits[2] == 0


def test_ranks_that_take_turns_have_no_culprit() -> None:
    ranks = [Rank(rank=number) for number in range(4)]
    for number in range(40):
        for rank in ranks:
            own = 500 if number % 4 == rank.rank else 200
            rank.kernel(1000 * number + own, 1000 * number + 600, "ncclDevKernel_AllReduce")
    measured = measure_trace(build(*ranks))
    assert measured.collectives.culprits == []
    assert (measured.collectives.wait_share or 0) > 0.1


def test_one_rank_of_many_is_stated_and_its_communication_is_not_divided() -> None:
    rank = Rank(rank=3, world_size=16)
    rank.kernel(0, 100, "ncclDevKernel_AllReduce")
    measured = measure_trace(build(rank))
    assert measured.facts.devices[0].ledger["undivided communication"] == 1
    assert measured.facts.trace is not None
    assert "one-rank" in {each.code for each in measured.facts.trace.quality}


def test_launches_without_kernels_are_a_loss_and_forbid_idleness() -> None:
    rank = Rank()
    for number in range(10):
        rank.kernel(100 * number, 100 * number + 10, called=100 * number - 5)
        rank.launches += 1  # correlations count launches, whether their kernels were kept or not
        start = 100 * number + 20
        rank.call(start, start + 5, "cudaLaunchKernel", correlation=rank.launches)
    measured = measure_trace(build(rank))
    assert measured.facts.trace is not None
    # The last one may still be in the queue.
    assert "45 % of the launches" in measured.facts.trace.doubt
    assert set(measured.facts.devices[0].ladder.values()) == {None}


def test_graphs_without_kernels_are_a_loss() -> None:
    rank = Rank()
    rank.kernel(0, 10, called=-5)
    for number in range(5):
        rank.call(100 * number, 100 * number + 5, "cudaGraphLaunch", correlation=900 + number)
    rank.kernel(900, 910, called=890)
    measured = measure_trace(build(rank))
    assert measured.facts.trace is not None
    assert "graphs" in {each.code for each in measured.facts.trace.quality}


def test_steps_are_inferred_from_kernels_that_repeat_but_not_from_layers() -> None:
    repeated, layers = Rank(), Rank()
    for step in range(6):
        for place, name in enumerate(("embed", "layer", "layer", "loss", "update")):
            at = 1000 * step + 100 * place
            repeated.kernel(at, at + 50, f"{name}_kernel")
    layers.kernel(0, 300, "embed_kernel")
    for layer in range(6):
        for place, name in enumerate(("qkv", "mlp", "norm")):
            at = 500 + 300 * layer + 100 * place
            layers.kernel(at, at + 50, f"{name}_kernel")
    found = measure_trace(build(repeated))
    assert (found.answer.steps_from, found.facts.steps.count) == ("periodicity", 5)
    assert measure_trace(build(layers)).answer.steps_from == ""


spans = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60)), min_size=1, max_size=25)
FAMILIES = ("gemm", "ncclDevKernel_AllReduce", "copy")


@given(spans, spans, st.randoms(use_true_random=False))
@settings(max_examples=settings().max_examples // 2)
def test_a_ledger_counts_every_moment_once(
    kernels: list[tuple[int, int]], calls: list[tuple[int, int]], rng: random.Random
) -> None:
    rank = Rank()
    for start, length in kernels:
        name = rng.choice(FAMILIES)
        kind = DeviceKind.COPY if name == "copy" else DeviceKind.KERNEL
        called = start - rng.randrange(30) if rng.random() < 0.5 else None
        rank.kernel(start, start + length, name, called=called, kind=int(kind), direction=1)
    for start, length in calls:
        name, kind, _ = rng.choice(CAUSES)
        rank.op(start, start + length, name, int(kind))
    measured = measure_trace(build(rank))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaps, "_GAPS", 2)  # gaps are explained some at a time
        in_slices = measure_trace(build(rank))
    assert in_slices.answer.ledgers == measured.answer.ledgers
    assert in_slices.answer.gaps == measured.answer.gaps
    for ledger in measured.answer.ledgers:
        ledger.check()
        computing = {
            at
            for row in rank.device
            if row["name"] == rank.names.get("gemm")
            for at in range(row["start_ns"] // US, row["end_ns"] // US)
        }
        assert ledger.parts_ns["useful compute"] == len(computing) * US


NAMES = [
    ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*)", "communication", "NCCL", False),
    ("void deep_ep::internode::dispatch<8>(int)", "communication", "DeepEP", False),
    ("nvshmemi_transfer_rma_nbi", "communication", "NVSHMEM", False),
    ("mscclKernel_Sum_half_Simple", "communication", "MSCCL", False),
    ("mscclpp::allreduce6<__half>", "communication", "MSCCL", False),
    ("rcclGenericKernel", "communication", "RCCL", False),
    ("vllm::cross_device_reduce_1stage<half, 8>", "communication", "custom all-reduce", False),
    ("tensorrt_llm::oneShotAllReduceKernel<half>", "communication", "custom all-reduce", False),
    ("two_shot_all_reduce_kernel", "communication", "custom all-reduce", False),
    ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", "gemm", None, True),
    ("volta_sgemm_128x64_nn", "gemm", None, False),
    ("flash_fwd_kernel<Flash_fwd_kernel_traits>", "attention", None, True),
    (
        "void at::native::vectorized_elementwise_kernel<4, {lambda(float)#1}>",
        "elementwise",
        None,
        False,
    ),
    ("void at::native::multi_tensor_apply_kernel<AdamFunctor>", "optimizer", None, False),
    ("cuApplyLayerNorm<c10::Half>", "norm", None, False),
    ("Cijk_Alik_Bljk_BBS_BH_MT16x16x256_MI16x16x1", "gemm", None, True),
    ("my_kernel", "other", None, False),
]


@pytest.mark.parametrize(("name", "kind", "library", "tensor"), NAMES)
def test_names_tell_class_library_and_tensor_cores(
    name: str, kind: str, library: str | None, *, tensor: bool
) -> None:
    assert (classify(name), find_library(name), uses_tensor_cores(name)) == (kind, library, tensor)


def test_a_matrix_product_of_triton_uses_tensor_cores() -> None:
    assert uses_tensor_cores("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x256x1")
    assert not uses_tensor_cores("triton_poi_fused__to_copy_1")


@pytest.mark.parametrize(("second", "is_stated"), [(100, False), (50, True)])
def test_steps_that_overlap_are_stated(second: float, is_stated: bool) -> None:
    rank = Rank()
    rank.kernel(0, 190, called=-10)
    rank.step(1, 0, 100)
    rank.step(2, second, 200)
    measured = measure_trace(build(rank))
    assert measured.facts.trace is not None
    codes = {each.code for each in measured.facts.trace.quality}
    assert ("overlapping-steps" in codes) == is_stated


def codes(*ranks: Rank) -> set[str]:
    """What is stated about the quality of these."""
    trace = measure_trace(build(*ranks)).facts.trace
    assert trace is not None
    return {each.code for each in trace.quality}


def test_steps_are_those_of_the_annotation_that_repeats_evenly() -> None:
    rank = Rank()
    for step in range(5):
        at = 1000 * step
        rank.op(at, at + 900, f"train_step {step}", int(HostKind.ANNOTATION))
        uneven = at + 400 * (step % 2)
        rank.op(uneven, uneven + 50, "forward", int(HostKind.ANNOTATION))
        rank.kernel(at + 100, at + 200 + step, f"kernel_{step}", called=at + 90)
    answer = measure_trace(build(rank)).answer
    assert (answer.steps_from, answer.step_name) == ("annotation", "train_step #")


def test_collectives_that_nobody_else_has_are_stated() -> None:
    ranks = [Rank(rank=number, world_size=2) for number in range(2)]
    for number in range(4):
        ranks[0].kernel(1000 * number, 1000 * number + 100, NCCL)
    ranks[1].kernel(50, 90, NCCL)
    assert "unmatched" in codes(*ranks)


def test_clocks_that_contradict_numbered_collectives_are_shifted() -> None:
    """They are matched by their numbers, however far apart their clocks are."""
    ranks = [Rank(rank=number, world_size=2) for number in range(2)]
    for meeting in range(10):
        for rank in ranks:
            at = 1000 * meeting + 3000 * rank.rank
            group = rank.names.setdefault("default_pg", len(rank.names))
            rank.kernel(at + 400, at + 500, NCCL, group=group, sequence=meeting)
    clock = measure_trace(build(*ranks)).answer.clocks[1]
    assert clock.shift_ns == -3000 * US
    assert clock.error_ns == 100 * US


def test_kernels_of_an_operator_that_communicates_do_so_whatever_their_name() -> None:
    rank = Rank()
    rank.kernel(0, 100, "my_secret_exchange", external=7)
    rank.call(0, 10, "nccl:all_reduce", kind=int(HostKind.OP), external=7)
    assert measure_trace(build(rank)).facts.devices[0].ledger["undivided communication"] == 1
