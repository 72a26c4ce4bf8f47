"""Every operator of a torch model: its FLOPs, its bytes and its time.

A dispatch mode sees each operator as torch runs it. FLOPs come from torch's own registry, so that
they are those of FlopCounterMode; kernels that it has no formula for (attention on CPUs) are
counted here, separately. Bytes are inputs read once and outputs written once; a view moves nothing,
a lookup reads only what it returns.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from torch.utils.module_tracker import ModuleTracker

from fuelline.plan.roofline import seam

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKET, _SCHEMA = seam.PACKET, seam.SCHEMA
_flop_registry, _tree_leaves = seam.flop_registry, seam.tree_leaves
_LOOKUPS = ("embedding", "index", "index_select", "gather", "take")
_NAMES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float64: "fp64",
    torch.int8: "int8",
}


class OperatorCall(Struct):
    """One call, as it was seen."""

    name: str
    shapes: str
    precision: str
    module: str
    flops: float
    uncounted_flops: float
    """Of kernels that FlopCounterMode has no formula for."""
    weight_bytes: float
    """Of parameters: the same for every batch size."""
    moved_bytes: float
    """Everything else."""
    seconds: float


class OperatorWatch(seam.DispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Writes down every operator that runs while it is active; `watch` knows modules, too."""

    def __init__(self, model: Any, settle: Callable[[], None]) -> None:
        super().__init__()
        self.calls: list[OperatorCall] = []
        self._settle = settle
        self._modules = ModuleTracker()
        self._weights = _storages(model)

    def watch(self, run: Callable[[], object]) -> list[OperatorCall]:
        """Every operator of one run."""
        with self._modules, self:
            run()
        return self.calls

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Time one operator; composite ones are taken apart first, as FlopCounterMode does."""
        kwargs = kwargs or {}
        packet = getattr(func, _PACKET, func)
        if packet not in _flop_registry and func is not torch.ops.prim.device.default:
            with self:
                result = (
                    func.decompose(*args, **kwargs)
                    if hasattr(func, "decompose")
                    else NotImplemented
                )
            if result is not NotImplemented:
                return result
        self._settle()
        start = time.perf_counter()
        result = func(*args, **kwargs)
        self._settle()
        self._note(func, args, kwargs, result, time.perf_counter() - start)
        return result

    def _note(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, seconds: float
    ) -> None:
        inputs = _tensors((args, kwargs))
        outputs = _tensors(result)
        packet = getattr(func, _PACKET, func)
        name = str(packet).removeprefix("aten.")
        if _is_view(func, inputs, outputs) or not (inputs or outputs):
            return
        weight, moved = self._bytes(name, func, inputs, outputs)
        count = _flop_registry.get(packet)
        self.calls.append(
            OperatorCall(
                name=name,
                shapes=_shapes(inputs),
                precision=_precision(inputs or outputs),
                module=_deepest(self._modules.parents),
                flops=float(count(*args, **kwargs, out_val=result)) if count else 0.0,
                uncounted_flops=0.0 if count else _attention_flops(name, inputs),
                weight_bytes=weight,
                moved_bytes=moved,
                seconds=seconds,
            )
        )

    def _bytes(
        self, name: str, func: Any, inputs: list[Any], outputs: list[Any]
    ) -> tuple[float, float]:
        written = sum(_size(each) for each in outputs)
        if name in _LOOKUPS:
            indices = sum(_size(each) for each in inputs[1:])
            return 0.0, 2.0 * written + indices
        unique = {(each.data_ptr(), _size(each)): each for each in inputs}.values()
        weight = sum(_size(each) for each in unique if _storage(each) in self._weights)
        read = sum(_size(each) for each in unique) - weight
        if _overwrites(func):
            read = max(read - written, 0)
        return float(weight), float(read + written)


def _storages(model: Any) -> set[int]:
    if not isinstance(model, torch.nn.Module):
        return set()
    return {_storage(each) for each in (*model.parameters(), *model.buffers())}


def _storage(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # sparse and wrapped tensors have none
        return id(tensor)


def _tensors(tree: Any) -> list[Any]:
    return [each for each in _tree_leaves(tree) if isinstance(each, torch.Tensor)]


def _size(tensor: Any) -> int:
    """Bytes behind a tensor; an expanded dimension is read once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride != 0 else min(size, 1)
    return int(count * tensor.element_size())


def _is_view(func: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    """Nothing is computed: the result is another look at the same memory."""
    schema = getattr(func, _SCHEMA, None)
    if schema is not None and schema.is_mutable:
        return False
    before = {_storage(each) for each in inputs}
    return bool(outputs) and all(_storage(each) in before for each in outputs)


def _overwrites(func: Any) -> bool:
    """`copy_` and `fill_` write their first argument without reading it."""
    return str(func).startswith(("aten.copy_", "aten.fill_", "aten.zero_"))


def _shapes(inputs: list[Any]) -> str:
    sizes = ["x".join(str(size) for size in each.shape) or "scalar" for each in inputs]
    return " ".join(sizes[:3]) + (" ..." if len(sizes) > 3 else "")


def _precision(tensors: list[Any]) -> str:
    for each in tensors:
        if each.is_floating_point():
            return _NAMES.get(each.dtype, str(each.dtype).removeprefix("torch."))
    return _NAMES.get(tensors[0].dtype, str(tensors[0].dtype).removeprefix("torch."))


def _deepest(parents: set[str]) -> str:
    return max(parents - {"Global"}, key=len, default="")


def _attention_flops(name: str, inputs: list[Any]) -> float:
    """All pairs, as torch counts its other attention kernels."""
    if "scaled_dot_product" not in name or len(inputs) < 3:
        return 0.0
    query, key, value = (tuple(each.shape) for each in inputs[:3])
    if key[1] != query[1]:  # grouped heads: every query head has its share of the work
        key, value = ((each[0], query[1], *each[2:]) for each in (key, value))
    return float(seam.sdpa_flop_count(query, key, value))
