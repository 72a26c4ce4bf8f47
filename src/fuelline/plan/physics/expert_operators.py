"""Operators of feed-forward layers on one chip: dense ones, and experts with their router.

Experts are cut by `tp` or spread by `ep`; spread experts get tokens of all attention replicas that
share them. How many experts a step touches decides how many weights it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fuelline.plan.physics.kernels import (
    ACT_BYTES,
    Operator,
    dense_format,
    expert_format,
    half,
    matmul,
    plain_format,
)

if TYPE_CHECKING:
    from fuelline.plan.physics.work import StepWork
    from fuelline.schema.plan.estimates import Parallelism
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision

LEAST_TILE, MOST_TILE = 16.0, 128.0
"""Rows of a tile: kernels take small ones where experts get few rows (facts of skinny products)."""


def feed_forward(
    name: str, model: Model, precision: Precision, rows: float, size: tuple[float, float]
) -> list[Operator]:
    """`size`: layers, and the width on this chip."""
    layers, width = size
    form = dense_format(precision)
    up = (model.matrices - 1) * width
    return [
        matmul(f"{name} up", layers, rows, (model.hidden, up), form),
        matmul(f"{name} down", layers, rows, (width, model.hidden), form),
        Operator(
            name=f"{name} activation",
            kind="elementwise",
            count=layers,
            math="bf16",
            moved_bytes=ACT_BYTES * rows * (up + width),
        ),
    ]


class ExpertShare(NamedTuple):
    """What of the experts is on one chip."""

    experts: float
    replicas: float
    """Of attention, that send tokens to it."""
    cut: float
    """Of an expert's width."""


def expert_share(model: Model, spread: Parallelism) -> ExpertShare:
    """By `ep`, or by `tp` if experts are not spread."""
    if spread.ep > 1:
        replicas, cut = max(spread.ep / spread.tp, 1.0), max(spread.tp / spread.ep, 1.0)
        return ExpertShare(model.experts / spread.ep, replicas, cut)
    return ExpertShare(float(model.experts), 1.0, float(spread.tp))


def touched_share(experts: float, chosen: float, tokens: float) -> float:
    """Share of the experts that at least one of these tokens goes to, choices being even."""
    return 1 - (1 - chosen / experts) ** tokens if tokens > 0 else 0.0


def _filled_share(rows: float, touched: float) -> float:
    """Each touched expert's rows are filled up to whole tiles: half a tile of waste on average."""
    if not touched or not rows:
        return 1.0
    each = rows / touched
    return each / (each + min(max(each, LEAST_TILE), MOST_TILE) / 2)


def _copies(spread: Parallelism) -> float:
    """Reads and writes of a row on its way to an expert and back.

    Into the experts' order and out of it; experts on other chips sort once more at either end of
    both exchanges.
    """
    return 8.0 if spread.ep > 1 else 4.0


def experts(
    model: Model, precision: Precision, work: StepWork, spread: Parallelism, route_launches: float
) -> list[Operator]:
    """Router, experts and shared experts of all sparse layers."""
    form = expert_format(model, precision)
    here, replicas, cut = expert_share(model, spread)
    layers, hidden, width = model.moe_layers, model.hidden, model.expert_ffn / cut
    tokens = work.rows * max(replicas * work.busy_share, 1.0)
    # A layer ends with its last chip, and one that has a token at all reads a whole expert.
    touched = max(here * touched_share(model.experts, model.experts_per_token, tokens), 1.0)
    rows = tokens * model.experts_per_token * here / model.experts
    filled = _filled_share(rows, touched)
    up = (model.matrices - 1) * width

    def product(name: str, depth: float, breadth: float) -> Operator:
        return Operator(
            name=name,
            kind="grouped",
            count=layers,
            math=form.math,
            flops=2 * rows * depth * breadth,
            weight_bytes=form.bits / 8 * touched * depth * breadth,
            moved_bytes=ACT_BYTES * rows * (depth + breadth),
            packed_bits=form.bits if form.packed else 0.0,
            inner=depth,
            filled_share=filled,
        )

    operators = [
        matmul("router", layers, work.rows, (hidden, model.experts), plain_format(precision)),
        product("experts up", hidden, up),
        product("experts down", width, hidden),
        Operator(
            name="route and combine",
            kind="elementwise",
            count=layers,
            math=half(precision),
            moved_bytes=ACT_BYTES * rows * (_copies(spread) * hidden + up + width),
            launches=route_launches,
        ),
    ]
    if model.shared_experts:
        shared = model.shared_experts * model.expert_ffn
        size = (layers, shared / spread.tp)
        operators += feed_forward("shared expert", model, precision, work.rows, size)
    return operators
