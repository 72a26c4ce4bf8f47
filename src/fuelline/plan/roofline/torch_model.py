"""A torch model on a roofline: rounds of the whole pass and of every operator, in turn.

The pass is timed untouched; the operators are timed one by one in passes between. Calls are
matched by their order,
which a model without random control flow keeps from pass to pass; for others the report says so.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from fuelline.plan.roofline.points import OperatorWork, place
from fuelline.plan.roofline.timing import median_reading
from fuelline.plan.roofline.torch_device import settler
from fuelline.plan.roofline.torch_operators import OperatorCall, OperatorWatch
from fuelline.plan.roofline.user_model import ModelCall, try_call
from fuelline.schema.errors import InputError
from fuelline.schema.plan.roofline import ModelPoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fuelline.schema.plan.roofline import Roofline

Key = tuple[str, str, str]


def check_call(target: str, call: ModelCall, shown: str) -> None:
    """Raise if the inputs do not fit, before anything is measured."""
    with torch.no_grad():
        try_call(target, call, shown)


def needed_precisions(call: ModelCall) -> tuple[str, ...]:
    """Of parameters and inputs: those whose ceilings the points need."""
    kinds = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
    tensors = list(call.tensors())
    if isinstance(call.model, torch.nn.Module):
        tensors += list(call.model.parameters())
    found = {kinds[str(each.dtype)] for each in tensors if str(each.dtype) in kinds}
    return tuple(sorted(found)) or ("fp32",)


def measure_model(
    target: str, call: ModelCall, roofline: Roofline, rounds: int, shown: str
) -> ModelPoints:
    """Every operator as a point."""
    whole: list[float] = []
    passes: list[list[OperatorCall]] = []
    settle = settler(roofline.device)
    with torch.no_grad(), _taken_apart():
        _once(call, settle)
        for _ in range(rounds):
            whole.append(_once(call, settle))
            passes.append(_watched(call, settle))
    if not passes[0]:
        raise InputError(f"{target} ran no torch operator. There is nothing to place.")
    usable = [each for each in passes if _order(each) == _order(passes[-1])]
    total = median_reading(whole, "s", "whole passes")
    batch = find_batch(call)
    works = _group(usable)
    traced_s = sum(work.seconds.value for work in works)
    points = [place(work, roofline, traced_s, batch) for work in works]
    counted = sum(each.flops for each in usable[-1])
    return ModelPoints(
        target=target,
        inputs=shown or ", ".join(_describe(each) for each in call.tensors()),
        roofline=roofline,
        points=tuple(sorted(points, key=lambda point: -point.seconds.value)),
        total_s=total,
        flops=counted,
        moved_bytes=sum(point.moved_bytes for point in points),
        params=_params(call.model),
        batch=batch,
        traced_s=traced_s,
        notes=_notes(len(usable), rounds, sum(each.uncounted_flops for each in usable[-1])),
    )


@contextmanager
def _taken_apart() -> Iterator[None]:
    """Run encoder layers operator by operator, not as torch's one opaque kernel."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _once(call: ModelCall, settle: Callable[[], None]) -> float:
    settle()
    start = time.perf_counter()
    call.run()
    settle()
    return time.perf_counter() - start


def _watched(call: ModelCall, settle: Callable[[], None]) -> list[OperatorCall]:
    return OperatorWatch(call.model, settle).watch(call.run)


def _order(calls: list[OperatorCall]) -> list[Key]:
    return [_key(each) for each in calls]


def _key(call: OperatorCall) -> Key:
    return call.name, call.shapes, call.precision


def _group(passes: list[list[OperatorCall]]) -> list[OperatorWork]:
    """Calls of one operator and shape together; a time a pass."""
    places: dict[Key, list[int]] = {}
    for at, call in enumerate(passes[-1]):
        places.setdefault(_key(call), []).append(at)
    return [_work(passes, at) for at in places.values()]


def _work(passes: list[list[OperatorCall]], at: list[int]) -> OperatorWork:
    calls = [passes[-1][each] for each in at]
    times = [sum(calls_of[each].seconds for each in at) for calls_of in passes]
    first = calls[0]
    return OperatorWork(
        name=first.name,
        shapes=first.shapes,
        precision=first.precision,
        module=first.module,
        calls=len(calls),
        flops=sum(each.flops + each.uncounted_flops for each in calls),
        weight_bytes=sum(each.weight_bytes for each in calls),
        moved_bytes=sum(each.moved_bytes for each in calls),
        seconds=median_reading(times, "s", "operator by operator"),
    )


def find_batch(call: ModelCall) -> int | None:
    """The first dimension that all inputs share."""
    sizes = {each.shape[0] for each in call.tensors() if each.dim() > 0}
    return int(sizes.pop()) if len(sizes) == 1 else None


def _params(model: Any) -> int:
    if not isinstance(model, torch.nn.Module):
        return 0
    return sum(each.numel() for each in model.parameters())


def _describe(tensor: Any) -> str:
    size = "x".join(str(each) for each in tensor.shape) or "scalar"
    return f"{size}:{str(tensor.dtype).removeprefix('torch.')}"


def _notes(usable: int, rounds: int, uncounted: float) -> tuple[str, ...]:
    notes = []
    if usable < rounds:
        notes.append(
            f"the model ran other operators in {rounds - usable} of {rounds} passes; only equal "
            "passes count"
        )
    if uncounted:
        notes.append(
            f"{uncounted / 1e9:,.3g} GFLOP of attention kernels are counted here that torch's "
            "FlopCounterMode has no formula for"
        )
    return tuple(notes)
