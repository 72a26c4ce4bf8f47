"""All operators of one forward step of a transformer on one chip, with their FLOPs and bytes.

Matrices are cut by `tp`, experts by `ep` (or by `tp`, if experts are not spread), layers are not
cut: a pipeline divides the sum, not the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.plan.physics.attention_operators import attention
from fuelline.plan.physics.expert_operators import experts, feed_forward
from fuelline.plan.physics.kernels import ACT_BYTES, Operator, half

if TYPE_CHECKING:
    from fuelline.plan.physics.work import Work
    from fuelline.schema.plan.estimates import Parallelism
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision

REPEATED_UP_TO = 8
"""Larger tensor-parallel groups cut activations as well (arXiv 2211.05102); smaller ones repeat
norms."""


def list_operators(
    model: Model,
    precision: Precision,
    work: Work,
    spread: Parallelism,
    route_launches: float = 10.0,
    *,
    causal: bool = True,
) -> list[Operator]:
    """All operators of one forward step on one chip."""
    tp = spread.tp
    operators = [
        *attention(model, precision, work, tp, causal=causal),
        *_small(model, work, spread),
    ]
    dense = model.layers - model.moe_layers
    if dense:
        operators += feed_forward("ffn", model, precision, work.rows, (dense, model.ffn / tp))
    if model.moe_layers:
        operators += experts(model, precision, work, spread, route_launches)
    vocab = model.vocab / tp
    head = work.logit_rows
    operators.append(
        Operator(
            "output projection",
            "matmul",
            1,
            2 * head * model.hidden * vocab,
            model.hidden * vocab * precision.plain_bits / 8,
            ACT_BYTES * head * (model.hidden + vocab),
            half(precision),
            inner=model.hidden,
            rows=head,
        )
    )
    return operators


def _small(model: Model, work: Work, spread: Parallelism) -> list[Operator]:
    """Norms with their residual sums (two a layer), rotary embedding with the cache write."""
    cut = spread.tp if spread.shared_norms or spread.tp > REPEATED_UP_TO else 1
    wide = ACT_BYTES * work.rows * model.hidden / cut
    heads = ACT_BYTES * work.rows * model.head_size * (model.heads + 2 * model.kv_heads)
    heads /= min(spread.tp, model.heads)
    return [
        Operator("norm and residual", "elementwise", 2 * model.layers, 0.0, 0.0, 4 * wide, "bf16"),
        Operator("rotary and cache", "elementwise", model.layers, 0.0, 0.0, 2 * heads, "bf16"),
        Operator("embedding", "elementwise", 1, 0.0, 0.0, 2 * wide, "bf16"),
    ]
