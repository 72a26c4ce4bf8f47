"""Operators as nouns: FLOPs, bytes, launches, and how their weights are kept.

A multiply-add is two FLOPs, as torch's FlopCounterMode counts. `matmul` makes the commonest
operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision

ACT_BYTES = 2.0
"""Activations between operators are kept in half precision by every engine that we know."""


OperatorKind = Literal["matmul", "grouped", "attention", "elementwise"]
"""grouped: many small products in one."""


class Operator(Struct, frozen=True, kw_only=True):
    """One kernel or a few, `count` times a step."""

    name: str
    kind: OperatorKind
    count: float
    """How often it runs in a step: mostly once per layer."""
    math: str
    moved_bytes: float
    """Activations and cache that one run reads and writes."""
    flops: float = 0.0
    """Of one run."""
    weight_bytes: float = 0.0
    launches: float = 1.0
    packed_bits: float = 0.0
    """Above 0: weights of this many bits are unpacked to half precision on the way."""
    inner: float = 0.0
    """Length of the sums of a product: short sums do not fill the pipeline of a math unit."""
    rows: float = 0.0
    """Tokens that a product of one matrix takes; 0 for what is not a such product."""
    filled_share: float = 1.0
    """Of the rows of all tiles that hold tokens: the rest is multiplied in vain."""


class Format(Struct, frozen=True):
    """How the weights of one operator are kept and multiplied."""

    bits: float
    math: str
    packed: bool = False


def matmul(
    name: str, count: float, rows: float, sides: tuple[float, float], form: Format
) -> Operator:
    """Rows times a matrix of these sides."""
    inner, outer = sides
    return Operator(
        name=name,
        kind="matmul",
        count=count,
        math=form.math,
        flops=2 * rows * inner * outer,
        weight_bytes=inner * outer * form.bits / 8,
        moved_bytes=ACT_BYTES * rows * (inner + outer),
        packed_bits=form.bits if form.packed else 0.0,
        inner=inner,
        rows=rows,
    )


def half(precision: Precision) -> str:
    """The unit of what is never quantised."""
    return "fp32" if precision.math == "fp32" else "bf16"


def plain_format(precision: Precision) -> Format:
    """What is never quantised: router, and attention of some releases."""
    return Format(precision.plain_bits, half(precision))


def dense_format(precision: Precision) -> Format:
    """Large matrices."""
    return Format(precision.weight_bits, precision.math, precision.weight_only)


def attention_format(model: Model, precision: Precision) -> Format:
    """4-bit releases of MoE models keep the attention matrices in half precision."""
    if model.expert_bits or (model.experts and precision.math == "fp4"):
        return plain_format(precision)
    return dense_format(precision)


def expert_format(model: Model, precision: Precision) -> Format:
    """A release with 4-bit experts has them at every precision below half."""
    if model.expert_bits and precision.weight_bits < 16:
        return Format(model.expert_bits, "mxfp4")
    return dense_format(precision)
