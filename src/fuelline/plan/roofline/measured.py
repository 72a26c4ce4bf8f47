"""A measured roofline as an entry of the catalogue, so that other commands can plan with it.

The chip gets the measured rates as its peaks; one `[[matmul]]` entry per precision says how
products, attention and
small operators fare against them. Both go into one TOML file that people can read and change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.plan.physics.constants import Constants, Matmul
from fuelline.plan.physics.kernels import ACT_BYTES
from fuelline.schema.plan.catalogue import read_own
from fuelline.schema.plan.chips import GIBI, GIGA, TERA, Chip
from fuelline.schema.readings import value_of
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.plan.roofline import MathCeiling, Roofline, RowsRate


class _Entries(Struct, forbid_unknown_fields=False):
    matmul: tuple[Matmul, ...] = ()


def make_chip(roofline: Roofline, name: str) -> Chip:
    """The device under the user's name for it."""
    peaks = {each.precision: value_of(each.flops_per_s) for each in roofline.math}
    memory = roofline.memory_bytes
    return Chip(
        name=name,
        kind="cpu" if roofline.device == "cpu" else "gpu",
        fp32_tflops=_tera(peaks.get("fp32")),
        bf16_tflops=_tera(peaks.get("bf16")),
        fp16_tflops=_tera(peaks.get("fp16")),
        mem_gb=None if memory is None else memory / GIBI,
        mem_gbps=roofline.bandwidth / GIGA,
        source=f"fuelline roofline, {roofline.measured_on}: {roofline.name}, {roofline.framework}",
        confidence="measured",
        notes=_notes(roofline),
    )


def _notes(roofline: Roofline) -> str:
    words = "rates are measured, not a sheet's"
    if roofline.disturbed:
        words += f"; under load: rounds differed by {percent(roofline.spread_frac or 0.0)}"
    return words


def _tera(per_s: float | None) -> float | None:
    return None if per_s is None else per_s / TERA


def make_matmuls(roofline: Roofline, name: str) -> tuple[Matmul, ...]:
    """One a precision."""
    return tuple(
        _matmul(roofline, each, name)
        for each in roofline.math
        if value_of(each.flops_per_s) is not None
    )


def _matmul(roofline: Roofline, ceiling: MathCeiling, name: str) -> Matmul:
    peak = value_of(ceiling.flops_per_s) or 1.0
    bandwidth = roofline.bandwidth
    attention = value_of(ceiling.attention_flops_per_s)
    cache = value_of(ceiling.cache_read_bytes_per_s)
    values = value_of(ceiling.move_values_per_s)
    launch_s = value_of(ceiling.launch_s) or roofline.launch_s.value
    return Matmul(
        math=ceiling.precision,
        chips=(name,),
        launch_us=launch_s * 1e6,
        memory_share=roofline.read_bytes_per_s.value / bandwidth,
        math_share=1.0,
        attention_share=0.0 if attention is None else attention / peak,
        doubt_frac=_spread(ceiling),
        source="fuelline roofline",
        by_rows=_curve(ceiling.by_rows, peak),
        move_share=0.0 if values is None else ACT_BYTES * values / bandwidth,
        cache_share=0.0 if cache is None else cache / bandwidth,
        small_us=(value_of(ceiling.small_launch_s) or 0.0) * 1e6,
        wide_by_rows=_curve(ceiling.wide_by_rows, peak),
        narrow_by_rows=_curve(ceiling.narrow_by_rows, peak),
    )


def _curve(rates: tuple[RowsRate, ...], peak: float) -> tuple[tuple[float, float], ...]:
    return tuple((float(each.rows), each.flops_per_s.value / peak) for each in rates)


def _spread(ceiling: MathCeiling) -> float:
    """Half the width of the rounds' interval, averaged over the curve."""
    widths = [
        ((each.flops_per_s.high or 0.0) - (each.flops_per_s.low or 0.0))
        / each.flops_per_s.value
        / 2
        for each in ceiling.by_rows
    ]
    return max(sum(widths) / max(len(widths), 1), 0.03)


def with_entries(constants: Constants, entries: tuple[Matmul, ...]) -> Constants:
    """The same table, these entries first."""
    return replace(constants, matmul=(*entries, *constants.matmul)) if entries else constants


def read_entries(path: Path) -> tuple[Matmul, ...]:
    """The `[[matmul]]` entries of a user's file."""
    return read_own(path, _Entries).matmul


def write_entry(roofline: Roofline, name: str) -> str:
    """The TOML file."""
    chip = make_chip(roofline, name)
    blocks = [
        "# Measured by `fuelline roofline`; `fuelline plan ... --chip` finds it by its name.",
        *_table("chip", chip),
        *(line for each in make_matmuls(roofline, name) for line in _table("matmul", each)),
    ]
    return "\n".join(blocks) + "\n"


def _table(kind: str, entry: Struct) -> list[str]:
    lines = ["", f"[[{kind}]]"]
    for field in entry.__struct_fields__:
        value = getattr(entry, field)
        if value not in (None, "", (), 0.0):
            lines.append(f"{field} = {_literal(value)}")
    return lines


def _literal(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_literal(each) for each in value) + "]"
    return f"{value:.6g}"
