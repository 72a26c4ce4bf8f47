"""What a trace shows of the software: the framework, and which remedies the job already has.

Told by names that only that software gives: of operators, kernels, Python files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from fuelline.schema.run.trace import CopyDirection, CopyFacts, DeviceKind, Framework, Software

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.signals.traced.host import HostActivity
    from fuelline.signals.traced.kernels.lane import DeviceLane
    from fuelline.timeline.trace import Trace

_SIGNS: tuple[tuple[Framework, str], ...] = (
    ("sglang", r"(^|/)sglang/|\bsgl_kernel|sgl_kernel::"),
    ("vllm", r"(^|/)vllm/|\bvllm::|vllm_flash"),
    ("jax", r"PjitFunction|PjRt|^\$(pjit|xla_bridge|lax_numpy)\.py|jit_\w+:XLA|np\.asarray\(jax"),
    (
        "tensorflow",
        r"^tensorflow|TfOp|EagerLocalExecute|FunctionRun|ExecutorState|tf_data|Iterator::",
    ),
    ("torch_npu", r"^AscendCL@|^aclnn\w|torch_npu/|(^|\W)npu::|^npu_|NPUCachingAllocator"),
    ("torch", r"^aten::|\bat::native|\bc10::|^torch/|ProfilerStep#|(^|\W)torch::"),
    ("xla", r"^(loop|input|wrapped|gemm|triton)_\w*fusion|%\S+ = \w+\["),
)
"""The first that any name shows; those that are built on others stand before them."""
_COMPILED = re.compile(r"triton_(poi|red|per|tem|for)_fused|CompiledFxGraph|CompiledFunction")
_SEVERAL = 3
_TRAINING = re.compile(r"Optimizer\.step|autograd::engine|[Bb]ackward|multi_tensor_apply")
_FUSED = re.compile(r"[Ff]used_?(Adam|SGD|Lamb|Optimizer)|_fused_(adam|sgd|adagrad)", re.IGNORECASE)
_PINNED = re.compile(r"pinned", re.IGNORECASE)
_PAGEABLE = re.compile(r"pageable", re.IGNORECASE)
_PINNED_BYTES_PER_NS = 14.0
"""Copies out of pageable memory go through a buffer that a core fills, and are never this fast."""
_TPU = re.compile(r"\bTPU\b")
_ROCM = re.compile(r"^hip[A-Z]")
_BUILDS = re.compile(r"aclopCompileAndExecute")


def describe_software(
    trace: Trace, lanes: Sequence[DeviceLane], hosts: Mapping[int, HostActivity]
) -> Software:
    """By the first rank's names, which all ranks share."""
    texts = list(trace.texts(lanes[0].rank).values()) if lanes else []
    chips = [chip.name for lane in lanes for chip in lane.facts.chips]
    return Software(
        framework=_find_framework(texts),
        is_tpu=any(_TPU.search(chip) for chip in chips),
        is_compiled=any(_COMPILED.search(text) for text in texts) or _is_jitted(lanes, hosts),
        is_training=any(_TRAINING.search(text) for text in texts),
        is_fused=any(_FUSED.search(text) for text in texts),
        is_rocm=any(_ROCM.match(text) for text in texts),
        builds_operators=any(_BUILDS.search(text) for text in texts),
        has_graphs=any(host.graph_launches or host.captures.height for host in hosts.values())
        or any(lane.events["graph"].count() for lane in lanes),
    )


def _is_jitted(lanes: Sequence[DeviceLane], hosts: Mapping[int, HostActivity]) -> bool:
    """JAX that runs operation by operation calls a function for each kernel."""
    calls = sum(host.jitted_calls for host in hosts.values())
    events = sum(lane.events.height / max(1, len(lane.devices)) for lane in lanes)
    return 0 < _SEVERAL * calls <= events


def _find_framework(texts: Sequence[str]) -> Framework:
    joined = pl.Series(values=texts, dtype=pl.String)
    for framework, sign in _SIGNS:
        if joined.str.contains(sign).any():
            return framework
    return ""


def measure_copies(trace: Trace, lanes: Sequence[DeviceLane]) -> list[CopyFacts]:
    """Copies by direction and by the memory that they come from, the longest first."""
    parts = [
        part.filter(pl.col("kind").is_in([int(DeviceKind.COPY), int(DeviceKind.SET)])).with_columns(
            _memory(trace, lane.rank).alias("memory"),
            (pl.col("end_ns") - pl.col("start_ns")).alias("took_ns"),
        )
        for lane in lanes
        for part in trace.parts("device", lane.rank, _COLUMNS)
    ]
    if not parts:
        return []
    sums = (
        pl.concat(parts)
        .with_columns(pl.col("direction").fill_null(int(CopyDirection.UNKNOWN)))
        .group_by("kind", "direction", "memory")
        .agg(pl.len().alias("count"), pl.col("took_ns", "size_bytes").sum())
        .sort("took_ns", "kind", "direction", "memory", descending=True)
    )
    return [_describe(row) for row in sums.iter_rows(named=True)]


_COLUMNS = ("start_ns", "end_ns", "kind", "direction", "size_bytes", "name")


def _memory(trace: Trace, rank: int) -> pl.Expr:
    told = {
        name: "pinned" if _PINNED.search(text) else "pageable"
        for name, text in trace.texts(rank).items()
        if _PINNED.search(text) or _PAGEABLE.search(text)
    }
    return pl.col("name").replace_strict(told, default="", return_dtype=pl.String)


def _describe(row: dict[str, Any]) -> CopyFacts:
    took_ns, size_bytes = int(row["took_ns"]), int(row["size_bytes"])
    direction = CopyDirection(row["direction"])
    fast = took_ns > 0 and size_bytes / took_ns >= _PINNED_BYTES_PER_NS
    of_host = direction in (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST)
    memory = row["memory"] or ("pinned" if fast and of_host else "")
    return CopyFacts(
        kind=DeviceKind(row["kind"]),
        direction=direction,
        memory=memory,
        count=row["count"],
        seconds=took_ns / 1e9,
        size_bytes=size_bytes,
    )
