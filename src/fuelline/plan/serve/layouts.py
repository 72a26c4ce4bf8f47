"""Ways to cut one replica over chips: what is given is kept, the rest is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.plan.estimates import Parallelism

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.models import Model

_DEGREES = (1, 2, 4, 8)


def list_spreads(
    model: Model,
    chip: Chip,
    tp: Sequence[int] | None = None,
    pp: Sequence[int] | None = None,
    ep: Sequence[int] | None = None,
) -> list[Parallelism]:
    """Ways to cut one replica that the model's heads and experts allow; what is given is kept."""
    group = max(chip.scaleup_domain, 8)
    tps = [size for size in (tp or _DEGREES) if tp or size <= group]
    found = [
        Parallelism(tp=t, pp=p)
        for t in tps
        for p in (pp or (1, 2, 4))
        if model.heads % t == 0 and model.layers >= p and (p == 1 or t in (1, 8) or pp)
    ]
    if not model.experts or list(ep or ()) == [1]:
        return found
    if ep:
        return [each for size in ep for each in _with_experts(model, size, tps, pp or (1,))]
    if tp:
        return found
    wide = [size for size in (8, 16, 32, 64) if size <= chip.scaleup_domain]
    return found + [each for size in wide for each in _with_experts(model, size, (1,), pp or (1,))]


def _with_experts(
    model: Model, ep: int, tps: Sequence[int], pps: Sequence[int]
) -> Iterator[Parallelism]:
    """Attention is cut by `tp` and repeated over the rest of the chips that share the experts."""
    for t in tps:
        for p in pps:
            even = ep % t == 0 or t % ep == 0
            if even and model.heads % t == 0 and model.experts % ep == 0 and model.layers >= p:
                yield Parallelism(tp=t, pp=p, dp=max(ep // t, 1), ep=ep)
