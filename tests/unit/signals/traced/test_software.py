"""What a trace shows of the software, of copies, and of functions of Python."""

from __future__ import annotations

import pytest

from fuelline.schema.run.trace import CopyDirection, CopyFacts, DeviceKind, Framework, HostKind
from fuelline.signals.traced import measure_trace
from fuelline.signals.traced.stacks import read_frame
from tests.unit.signals.traced.planted import Rank, build

COPY = int(DeviceKind.COPY)
H2D = int(CopyDirection.HOST_TO_DEVICE)


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("aten::linear", "torch"),
        ("PjitFunction(train_step)", "jax"),
        ("EagerLocalExecute: MatMul", "tensorflow"),
        ("vllm/v1/engine/core.py(12): step", "vllm"),
        ("/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py(9): run", "sglang"),
        ("solve", ""),
    ],
)
def test_the_framework_is_told_by_names_that_only_it_gives(name: str, framework: Framework) -> None:
    rank = Rank()
    rank.kernel(0, 10, "saxpy", called=-1)
    rank.op(0, 5, name)
    trace = measure_trace(build(rank)).facts.trace
    assert trace is not None
    assert trace.software.framework == framework


def test_what_is_in_use_already_is_known() -> None:
    rank = Rank()
    rank.kernel(0, 10, "triton_poi_fused_add_0", called=-1, graph=7)
    rank.op(0, 5, "Optimizer.step#Adam.step")
    rank.op(6, 9, "aten::_fused_adam_")
    trace = measure_trace(build(rank)).facts.trace
    assert trace is not None
    known = trace.software
    assert known.is_compiled
    assert known.has_graphs
    assert known.is_training
    assert known.is_fused


def copies(name: str, size_bytes: int) -> CopyFacts:
    """Of one copy that takes a millisecond."""
    rank = Rank()
    rank.kernel(0, 1000, name, kind=COPY, direction=H2D, size_bytes=size_bytes)
    trace = measure_trace(build(rank)).facts.trace
    assert trace is not None
    (found,) = trace.copies
    return found


def test_pinned_memory_is_known_by_the_name_of_a_copy_or_by_its_speed() -> None:
    assert copies("Memcpy HtoD (Pinned -> Device)", 1_000_000).memory == "pinned"
    assert copies("Memcpy HtoD (Pageable -> Device)", 1_000_000).memory == "pageable"
    assert copies("Memcpy HtoD", 25_000_000).memory == "pinned"
    assert copies("Memcpy HtoD", 5_000_000).memory == ""


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("train.py(3): main", "user"),
        ("/home/me/project/data.py(9): load", "user"),
        ("<ipython-input-5-2f3a>(3): train", "user"),
        ("C:\\venv\\Lib\\site-packages\\torch\\_ops.py(5): call", "framework"),
        ("scipy/ndimage/_interpolation.py(739): zoom", "library"),
        ("/opt/venv/lib/python3.11/site-packages/anything/io.py(2): read", "library"),
        ("/workspace/sglang/python/sglang/srt/server.py(1): run", "library"),
        ("torch/nn/modules/module.py(1743): _call_impl", "framework"),
        ("/usr/lib/python3.11/site-packages/torch/_tensor.py(5): to", "framework"),
        ("threading.py(1032): _bootstrap", "framework"),
        ("$model.py:29 block", "user"),
        ("$pjit.py:120 cache_miss", "framework"),
    ],
)
def test_a_frame_belongs_to_the_user_a_library_or_the_framework(text: str, owner: str) -> None:
    frame = read_frame(text)
    assert frame is not None
    assert frame.owner == owner


@pytest.mark.parametrize(
    "text", ["<built-in function next>", "nn.Module: Linear_3", "<string>(1): f"]
)
def test_built_ins_and_modules_of_a_model_are_no_frames(text: str) -> None:
    assert read_frame(text) is None


def test_a_loader_with_workers_shows_no_function_of_its_own() -> None:
    """Its process only waits for them; what is above the loader is not what loads."""
    rank = Rank()
    rank.kernel(0, 100, called=-1)
    rank.kernel(10_000, 10_100, called=9_990)
    for name in (
        "train.py(3): main",
        "torch/utils/data/dataloader.py(1327): _next_data",
        "torch/utils/data/dataloader.py(1131): _try_get_data",
        "multiprocessing/queues.py(102): get",
    ):
        rank.op(90, 9_980, name, int(HostKind.PYTHON))
    trace = measure_trace(build(rank)).facts.trace
    assert trace is not None
    assert "data loader" not in trace.frames
    assert not trace.loader_in_process
