"""`plan shape`: dimensions that waste tiles or block sharding, and the nearest that do not.

Costs are as measured, not as the textbook has them: crossing a tile edge costs a few per cent in
the median and up to about one and a half times at worst, only in the compute-bound band
(aiconfigurator 0.12 GEMM tables).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.plan.answers import Dimension, ShapeAnswer
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision

_ALIGN_BYTES = 128
"""Tensor cores from A100 on run best on multiples of 128 bytes (NVIDIA DU-09799); 16 bytes are
required."""
_NEED_BYTES = 16
_ARRAY = {"TPU-v6e": 256, "TPU-v7x-Ironwood": 256}
"""Side of the systolic array; 128 on the other TPUs."""
_VOCAB = {"gpu": 128}
_DEGREES = (1, 2, 4, 8, 16, 32, 64)
_TILES: dict[tuple[str, str], tuple[tuple[int, float, float], ...]] = {
    ("H100-SXM-80GB", "bf16"): (
        (16, 1.00, 1.02), (128, 1.02, 1.06), (256, 1.04, 1.21), (512, 1.05, 1.17),
        (1024, 1.06, 1.47), (4096, 0.99, 1.05),
    ),
    ("B200", "bf16"): (
        (64, 1.04, 1.18), (128, 1.09, 1.21), (256, 1.14, 1.27), (512, 1.13, 1.21),
        (2048, 1.01, 1.11),
    ),
    ("H100-SXM-80GB", "fp8"): ((256, 1.04, 1.13),),
}  # fmt: skip
"""Tokens at a tile's edge, and how much longer one token more takes: median and worst tenth.
aiconfigurator 0.12 GEMM tables, weights of 16M values and more."""
_BAND = (128, 1500)
"""Tokens of a step between which products are math-bound and tiles show."""


def tile_edges(chip: Chip, precision: Precision) -> tuple[tuple[int, float, float], ...]:
    """As measured on this chip in this precision; empty where nobody did."""
    half = "bf16" if precision.math in ("bf16", "fp16") else precision.math
    return _TILES.get((chip.name, half), ())


def _tile_cost(chip: Chip, precision: Precision) -> str:
    low, high = _BAND
    edges = [edge for edge in tile_edges(chip, precision) if low <= edge[0] <= high]
    if not edges:
        return "not measured on this chip; a few per cent on H100 and B200, at worst 1.5 times"
    medians = sorted(edge[1] - 1 for edge in edges)
    ends = dict.fromkeys(f"{100 * each:.0f}" for each in (medians[0], medians[-1]))
    return (
        f"{' to '.join(ends)} % in the median where products are math-bound ({low} to {high:,} "
        f"tokens a step), {percent(max(edge[2] for edge in edges) - 1)} in the worst tenth"
    )


def why_uneven(model: Model, name: str, value: float) -> str:
    """Why a degree contradicts the model; empty if it does not."""
    if name == "tp" and model.heads % max(int(value), 1):
        return f"cannot cut {model.heads} heads"
    if name == "pp" and value > model.layers:
        return f"only {model.layers} layers"
    if name == "ep" and value > 1 and (not model.experts or model.experts % int(value)):
        return f"cannot cut {model.experts} experts" if model.experts else "no experts"
    return ""


def check_shape(model: Model, chip: Chip, precision: Precision) -> ShapeAnswer:
    """Every dimension with a problem."""
    return ShapeAnswer(
        model=model.name,
        chip=chip.name,
        precision=precision.name,
        dimensions=tuple(_problems(model, chip, precision)),
        degrees=tuple(size for size in _DEGREES if not _blocked(model, size)),
        edges=tile_edges(chip, precision),
    )


def _blocked(model: Model, tp: int) -> str:
    """Why this degree does not cut the model evenly; empty if it does."""
    if model.heads % tp:
        return f"{model.heads} heads"
    if model.ffn and model.ffn % tp:
        return f"feed-forward width {model.ffn}"
    if model.expert_ffn and model.expert_ffn % tp:
        return f"expert width {model.expert_ffn}"
    return ""


def _step(chip: Chip, precision: Precision) -> int:
    """Elements that a dimension should be a multiple of."""
    if chip.kind == "tpu":
        return _ARRAY.get(chip.name, 128)
    size = {"fp4": 0.5, "fp8": 1.0, "int8": 1.0, "fp32": 4.0}.get(precision.math, 2.0)
    return int(_ALIGN_BYTES / size)


def _near(value: int, step: int) -> tuple[int, ...]:
    below = value // step * step
    return tuple(each for each in (below, below + step) if each > 0)


def _problems(model: Model, chip: Chip, precision: Precision) -> Iterator[Dimension]:
    step = _step(chip, precision)
    for name, value in (
        ("hidden size", model.hidden),
        ("feed-forward width", model.ffn),
        ("expert width", model.expert_ffn),
        ("attention width", model.heads * model.head_size),
    ):
        if value and value % step:
            yield _misaligned(name, value, (step, chip, precision))
    yield from _vocabulary(model, chip)
    yield from _heads(model)


def _misaligned(name: str, value: int, on: tuple[int, Chip, Precision]) -> Dimension:
    step, chip, precision = on
    if chip.kind == "tpu":
        padded = -(-value // step) * step
        cost = f"the rest of an array of {step} computes zeros: {percent(1 - value / padded)} of it"
    else:
        cost = _tile_cost(chip, precision)
    return Dimension(
        name=name,
        value=value,
        problem=f"no multiple of {step} elements, which is what one tile line holds",
        cost=cost,
        nearest=_near(value, step),
    )


def _vocabulary(model: Model, chip: Chip) -> Iterator[Dimension]:
    step = _ARRAY.get(chip.name, 128) if chip.kind == "tpu" else _VOCAB.get(chip.kind, 64)
    if model.vocab % step:
        yield Dimension(
            name="vocabulary",
            value=model.vocab,
            problem=(
                f"no multiple of {step}: {percent(1 - model.vocab % step / step)} of the output "
                "projection's last tile is empty, and its rows are not aligned"
            ),
            cost="a few per cent of a step for small models (arXiv 2401.14489); pad, do not cut",
            nearest=(-(-model.vocab // step) * step,),
        )


def _power(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def _heads(model: Model) -> Iterator[Dimension]:
    size = model.head_size
    if size & (size - 1) and size % 32:
        yield Dimension(
            name="head size",
            value=size,
            problem="neither a power of two nor a multiple of 32: attention kernels pad it",
            cost=f"{percent(1 - size / _power(size))} of attention computes padding",
            nearest=tuple(dict.fromkeys((*_near(size, 32)[:1], _power(size)))),
        )
    for tp in (2, 4, 8):
        blocked = _blocked(model, tp)
        if blocked:
            yield Dimension(
                name="tensor parallelism",
                value=tp,
                problem=f"{blocked} cannot be cut evenly by {tp}",
                cost="this degree is not possible without padding",
                nearest=tuple(each for each in (tp // 2, tp * 2) if not _blocked(model, each))[:2],
            )
            return
    if not model.latent and 1 < model.kv_heads < 8 and model.heads % 8 == 0:
        yield Dimension(
            name="key-value heads",
            value=model.kv_heads,
            problem=f"above tp {model.kv_heads} every chip keeps a copy of some head's cache",
            cost=f"at tp 8 the cache takes {8 / model.kv_heads:.1f} times its size",
            nearest=(8,),
        )
