"""Planted traces: the window runs from mark to mark, and what is paid once or missing is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuelline.schema.readings import value_of
from fuelline.schema.run.trace import CopyDirection, DeviceKind, HostKind
from fuelline.signals.traced import measure_trace
from tests.unit.signals.traced.planted import Rank, build

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import TraceSignals
    from fuelline.signals.traced.measure import MeasuredTrace

MS = 1000
PYTHON = int(HostKind.PYTHON)


def measure(rank: Rank) -> MeasuredTrace:
    return measure_trace(build(rank))


def signals(rank: Rank) -> TraceSignals:
    found = measure(rank).facts.trace
    assert found is not None
    return found


def parts(measured: MeasuredTrace) -> dict[str, float]:
    return {part.part: part.share for part in measured.facts.budget}


def copy(rank: Rank, start: float, end: float, **more: int) -> None:
    kind, way = int(DeviceKind.COPY), int(CopyDirection.HOST_TO_DEVICE)
    rank.kernel(start, end, "Memcpy HtoD (Pageable -> Device)", kind=kind, direction=way, **more)


def prepare() -> Rank:
    """A marked step: 60 ms of preparing, a copy, 40 ms of compute."""
    rank = Rank()
    rank.step(6, 0, 101 * MS)
    rank.op(0, 101 * MS, "train.py(3): main", PYTHON)
    rank.op(0, 60 * MS, "data.py(7): prepare", PYTHON)
    rank.op(5 * MS, 58 * MS, "scipy/ndimage/_interpolation.py(739): zoom", PYTHON)
    copy(rank, 60 * MS, 61 * MS, called=60 * MS - 10)
    rank.kernel(61 * MS, 101 * MS, called=60 * MS)
    return rank


def test_a_marked_step_begins_with_what_its_host_does_before_the_first_kernel() -> None:
    measured = measure(prepare())
    assert measured.facts.window.seconds == pytest.approx(0.101)
    assert parts(measured)["useful compute"] == pytest.approx(40 / 101, abs=0.001)
    assert parts(measured)["data wait"] == pytest.approx(60 / 101, abs=0.001)
    (ledger,) = measured.answer.ledgers
    assert ledger.wall_ns == 41 * MS * 1000


def test_what_ends_in_a_copy_to_the_device_prepares_an_input_and_the_stacks_say_where() -> None:
    trace = signals(prepare())
    assert value_of(trace.preparing_share) == pytest.approx(60 / 101, abs=0.001)
    frame = trace.frames["python"]
    assert (frame.function, frame.caller) == ("zoom", "prepare (data.py:7)")
    assert frame.share == pytest.approx(53 / 60, abs=0.02)
    assert frame.user == ""


def test_a_first_kernel_that_the_host_waited_for_begins_the_window() -> None:
    """The device was still busy with what came before, and that was not recorded."""
    rank = Rank()
    rank.step(6, 0, 100 * MS)
    rank.call(5 * MS, 50 * MS, "cudaStreamSynchronize")
    rank.kernel(51 * MS, 100 * MS, called=51 * MS)
    measured = measure(rank)
    assert measured.facts.window.seconds == pytest.approx(0.05, rel=0.01)
    assert parts(measured)["useful compute"] == pytest.approx(0.98, abs=0.01)


def test_kernels_before_the_first_mark_and_after_the_last_are_not_of_the_steps() -> None:
    rank = Rank()
    rank.kernel(0, 50 * MS, "fill", called=-1)
    for number in range(3):
        rank.step(number, (100 + 10 * number) * MS, (110 + 10 * number) * MS)
        rank.kernel(
            (101 + 10 * number) * MS, (109 + 10 * number) * MS, called=(100 + 10 * number) * MS
        )
    rank.kernel(500 * MS, 600 * MS, "evaluate", called=500 * MS)
    measured = measure(rank)
    assert measured.facts.window.seconds == pytest.approx(0.030, abs=0.002)
    assert parts(measured)["useful compute"] == pytest.approx(0.8, abs=0.05)


def test_kernels_that_outlast_their_mark_belong_to_its_step() -> None:
    rank = Rank()
    rank.step(6, 0, 10 * MS)
    for number in range(10):
        rank.kernel((1 + 10 * number) * MS, (11 + 10 * number) * MS, called=(1 + number) * 10)
    measured = measure(rank)
    assert measured.facts.window.seconds == pytest.approx(0.101)


def start() -> Rank:
    """Every kernel's first launch loads its code."""
    rank = Rank()
    for number in range(5):
        called = 100 * MS * (number + 1)
        rank.launches += 1
        rank.call(called - 90 * MS, called, "hipLaunchKernel", correlation=rank.launches)
        rank.kernel(called + 10, called + 20, f"kernel_{number}", correlation=rank.launches)
    return rank


def test_a_first_launch_that_loads_code_is_start_up_and_not_a_pattern() -> None:
    trace = signals(start())
    assert value_of(trace.startup_share) == pytest.approx(0.9, abs=0.03)
    assert (value_of(trace.launch_share) or 0.0) < 0.15
    assert trace.during["start-up"] == "hipLaunchKernel"


def test_slow_launches_of_known_kernels_are_a_pattern() -> None:
    rank = start()
    rank.names = {name: 0 if name.startswith("kernel") else 1 for name in rank.names}
    for event in rank.device:
        event["name"] = 0
    rank.names = {"kernel": 0, "hipLaunchKernel": 1}
    for event in rank.host:
        event["name"] = 1
    trace = signals(rank)
    assert (value_of(trace.startup_share) or 0.0) < 0.01
    assert (value_of(trace.launch_share) or 0.0) > 0.8


def test_a_one_off_allocation_is_start_up_and_one_in_every_step_is_not() -> None:
    once, ever = Rank(), Rank()
    once.kernel(0, 10, "fill", called=-1)
    once.call(20, 500 * MS, "cudaFree")
    once.kernel(501 * MS, 502 * MS, "conv", called=500 * MS + 5)
    for number in range(10):
        at = 10 * MS * number
        ever.kernel(at, at + 10, "conv", called=at - 1)
        ever.call(at + 20, at + 9 * MS, "hipFree")
    assert (value_of(signals(once).startup_share) or 0.0) > 0.9
    assert (value_of(signals(ever).allocator_share) or 0.0) > 0.8
    assert (value_of(signals(ever).startup_share) or 0.0) == 0.0


def test_what_is_put_into_a_graph_is_not_lost() -> None:
    rank = Rank()
    rank.kernel(0, 10, called=-1)
    rank.call(20, 25, "hipStreamBeginCapture")
    for number in range(50):
        rank.call(
            100 + 100 * number, 105 + 100 * number, "hipLaunchKernel", correlation=900 + number
        )
    rank.call(6000, 6010, "hipStreamEndCapture")
    rank.kernel(6050, 6060, called=6040)
    trace = signals(rank)
    assert not trace.doubt
    assert "lost" not in {each.code for each in trace.quality}
    assert (value_of(trace.startup_share) or 0.0) > 0.9
    assert trace.during["start-up"] == "graph capture"


def wait_for(name: str) -> Rank:
    """The next kernel is queued, and the host is in a call of this name."""
    rank = Rank()
    rank.kernel(0, 100, called=-1)
    rank.kernel(100 * MS, 100 * MS + 100, called=50)
    rank.call(60, 99 * MS, name)
    return rank


@pytest.mark.parametrize("name", ["hipMemcpyWithStream", "cudaStreamSynchronize", "aten::item"])
def test_a_host_that_waits_for_an_idle_device_shows_that_work_is_missing(name: str) -> None:
    measured = measure(wait_for(name))
    assert measured.facts.trace is not None
    assert "unrecorded" in {each.code for each in measured.facts.trace.quality}
    assert "not in the trace" in measured.facts.trace.doubt
    (device,) = measured.facts.devices
    assert set(device.ladder.values()) == {None}


def test_a_host_that_waits_for_another_device_shows_no_loss() -> None:
    rank = wait_for("cudaStreamSynchronize")
    rank.kernel(100, 100 * MS, called=40, device=1)
    assert "unrecorded" not in {each.code for each in signals(rank).quality}


def test_rocm_joins_calls_and_kernels_by_their_external_number() -> None:
    rank = Rank()
    for number in range(5):
        rank.call(100 * number, 100 * number + 5, "hipExtModuleLaunchKernel", external=number)
        rank.kernel(100 * number + 10, 100 * number + 90, external=number)
    assert not signals(rank).doubt


def one_pass(layers: int = 8, *, tail: bool = True) -> Rank:
    """The layers of one pass, each with several kernels, and what comes after them."""
    rank = Rank()
    rank.kernel(0, 10, "embed_kernel")
    for layer in range(layers):
        for place, name in enumerate(("norm", "qkv_gemm", "attention", "norm", "mlp_gemm")):
            at = 100 + 1000 * layer + 200 * place
            rank.kernel(at, at + 190, f"{name}_kernel")
    if tail:
        rank.kernel(100 + 1000 * layers, 150 + 1000 * layers, "lm_head_gemm_kernel")
    return rank


def test_layers_with_something_after_them_are_no_steps() -> None:
    assert measure(one_pass()).answer.steps_from == ""


def test_layers_of_one_graph_are_no_steps() -> None:
    rank = one_pass(tail=False)
    for event in rank.device:
        event["correlation"] = 7
    assert measure(rank).answer.steps_from == ""


def test_layers_within_one_annotated_step_are_no_steps() -> None:
    rank = one_pass(tail=False)
    for number, event in enumerate(rank.device):
        event["correlation"] = number
        rank.call(10 * number, 10 * number + 5, "cudaLaunchKernel", correlation=number)
    rank.op(0, 1000, "execute_8192_context_9", int(HostKind.ANNOTATION))
    assert measure(rank).answer.steps_from == ""


def test_a_rhythm_in_a_corner_of_the_trace_makes_no_steps() -> None:
    rank = Rank()
    rank.kernel(0, 50 * MS, "encode_kernel")
    for number in range(4):
        for place, name in enumerate(("a", "b", "c")):
            at = 60 * MS + 1000 * number + 100 * place
            rank.kernel(at, at + 20, f"{name}_kernel")
    assert measure(rank).answer.steps_from == ""


def test_a_thread_that_python_numbers_differently_still_says_what_the_host_did() -> None:
    rank = Rank()
    rank.kernel(0, 100, called=-1)
    rank.host.append({**rank._span(100, 190, "PjitFunction(add)"), "thread": 99, "kind": 3})
    rank.host.append({**rank._span(90, 195, "$model.py:12 block"), "thread": 99, "kind": PYTHON})
    rank.kernel(205, 300, called=200)
    trace = signals(rank)
    assert trace.software.framework == "jax"
    assert trace.during["operators"] == "PjitFunction(add)"
    assert trace.largest == "operators"


def test_first_steps_that_warm_up_are_not_counted() -> None:
    rank = Rank()
    rank.step(0, 0, 900 * MS)
    rank.kernel(890 * MS, 899 * MS, called=880 * MS)
    for number in range(1, 5):
        at = (800 + 100 * number) * MS
        rank.step(number, at, at + 100 * MS)
        rank.kernel(at + 10 * MS, at + 99 * MS, called=at + 10 * MS)
    measured = measure(rank)
    assert measured.facts.window.seconds == pytest.approx(0.4, abs=0.01)
    assert parts(measured)["useful compute"] == pytest.approx(0.89, abs=0.02)


def test_a_copy_within_a_program_of_xla_prepares_no_input() -> None:
    rank = prepare()
    number = rank.device[0].pop("correlation")
    rank.host = [event for event in rank.host if event.get("correlation") != number]
    assert value_of(signals(rank).preparing_share) == 0.0


def test_memory_that_is_freed_once_before_a_known_kernel_is_no_habit() -> None:
    rank = Rank()
    for number in range(6):
        at = (0 if number < 3 else 500) * MS + 10 * number
        rank.kernel(at, at + 5, "conv", called=at - 1)
    rank.call(100, 499 * MS, "cudaFree")
    trace = signals(rank)
    assert (value_of(trace.startup_share) or 0.0) > 0.9
    assert value_of(trace.allocator_share) == 0.0


def test_one_long_stretch_without_marks_is_told_as_such() -> None:
    rank = Rank()
    rank.kernel(0, 10, called=-1)
    rank.kernel(50 * MS, 50 * MS + 10, called=50 * MS - 10)
    assert value_of(signals(rank).once_share) == pytest.approx(1, abs=0.01)
    rank.step(1, 0, 51 * MS)
    assert value_of(signals(rank).once_share) == 0.0
    assert signals(rank).longest_stretch == 0.0


def test_stretches_without_marks_that_recur_are_a_pattern() -> None:
    rank = Rank()
    for number in range(5):
        rank.kernel(number * 50 * MS, number * 50 * MS + 10, called=number * 50 * MS - 10)
    trace = signals(rank)
    assert value_of(trace.once_share) == 0.0
    assert value_of(trace.host_code_share) == pytest.approx(1, abs=0.01)
    assert value_of(trace.launch_share) == pytest.approx(0, abs=0.01)


def test_long_stretches_without_any_event_are_no_launching() -> None:
    rank = Rank()
    for number in range(5):
        rank.kernel(number * 50 * MS, number * 50 * MS + 10, called=number * 50 * MS - 10)
    for number in range(4):
        rank.op(number * 50 * MS, number * 50 * MS + 20)
    rank.op(200 * MS, 201 * MS)
    assert value_of(signals(rank).unseen_share) == pytest.approx(1, abs=0.02)


def test_a_device_that_was_seen_for_less_than_its_host_is_not_called_healthy() -> None:
    rank = Rank()
    for number in range(40):
        rank.kernel(80 * MS + number * MS, 81 * MS + number * MS, called=79 * MS)
    rank.op(0, 79 * MS)
    assert "uncovered" in [each.code for each in signals(rank).quality]


def test_a_slice_does_not_blame_its_host_for_what_was_launched_before_it() -> None:
    rank = Rank()
    for number, start in enumerate((0, 300, 600)):
        rank.kernel(start, start + 100, correlation=number)
    rank.op(0, 2000)
    for number, start in enumerate((900, 1200), 10):
        rank.call(start - 60, start - 55, "cudaLaunchKernel", correlation=number)
        rank.kernel(start, start + 100, correlation=number)
    shares = {gap.cause: gap.seconds for gap in measure(rank).answer.gaps}
    assert shares["dependency on the device"] == pytest.approx(2 * 180e-6 + 2 * 35e-6, rel=0.01)


def compiled(*kernels: str) -> Rank:
    """Steps of a compiled model, in which the host takes 50 ms before a kernel."""
    rank = Rank()
    rank.kernel(-1000, -990, called=-1010)
    for number, name in enumerate(kernels):
        at = 100 * MS * number
        rank.op(at, at + 60 * MS, f"Torch-Compiled Region: 0/{number}")
        rank.kernel(at + 50 * MS, at + 100 * MS, name, called=at + 50 * MS - 10)
    return rank


def test_compiling_is_start_up_where_new_kernels_come_of_it() -> None:
    first = signals(compiled("triton_poi_fused_add_0"))
    again = signals(compiled(*["triton_poi_fused_add_0"] * 6))
    assert (value_of(first.startup_share) or 0.0) > 0.4
    assert (value_of(again.startup_share) or 0.0) < 0.1
    assert (value_of(again.launch_share) or 0.0) > 0.3


def test_without_calls_what_begins_after_the_last_mark_is_not_of_the_steps() -> None:
    rank = Rank()
    rank.step(1, 0, 10 * MS)
    rank.kernel(0, 10 * MS, correlation=1)
    rank.kernel(500 * MS, 600 * MS, correlation=2)
    assert measure(rank).facts.window.seconds == pytest.approx(0.01)


def test_one_call_of_the_allocator_is_start_up_in_a_single_marked_step_too() -> None:
    rank = Rank()
    rank.step(1, 0, 6000 * MS)
    rank.kernel(10, 20, called=5)
    rank.op(30, 5000 * MS, "cudaFree", int(HostKind.RUNTIME))
    rank.kernel(5000 * MS + 20, 5990 * MS, called=5000 * MS + 10)
    trace = signals(rank)
    assert (value_of(trace.startup_share) or 0.0) > 0.8
    assert value_of(trace.allocator_share) == 0.0


def test_the_budget_says_what_the_verdict_says_of_preparing_and_of_allocating() -> None:
    assert parts(measure(prepare()))["data wait"] > 0.5
    rank = Rank()
    for number in range(5):
        begin = number * 50 * MS
        rank.op(begin + 20, begin + 49 * MS, "hipFree", int(HostKind.RUNTIME))
        rank.kernel(begin, begin + 10, called=begin - 10)
    found = parts(measure(rank))
    assert found["allocation"] > 0.7
    assert found.get("launch-bound", 0.0) < 0.1
