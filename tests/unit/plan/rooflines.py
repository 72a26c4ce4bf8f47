"""A measured device as data, for tests that need no clock."""

from __future__ import annotations

from fuelline.schema.plan.roofline import MathCeiling, Roofline, RowsRate
from fuelline.schema.readings import Missing, Reading


def reading(value: float, unit: str = "FLOP/s") -> Reading:
    return Reading(value=value, unit=unit, low=0.9 * value, high=1.1 * value, level=95, count=9)


def ceiling(precision: str, element_bytes: int, peak: float) -> MathCeiling:
    return MathCeiling(
        precision=precision,
        element_bytes=element_bytes,
        flops_per_s=reading(peak),
        by_rows=tuple(
            RowsRate(rows=rows, flops_per_s=reading(peak * share))
            for rows, share in ((1, 0.1), (16, 0.4), (256, 1.0))
        ),
        launch_s=reading(4e-6, "s"),
        attention_flops_per_s=reading(0.5 * peak),
        cache_read_bytes_per_s=reading(5e9, "bytes/s"),
        move_values_per_s=reading(1e9, "count/s"),
        small_launch_s=reading(2e-5, "s"),
    )


def roofline() -> Roofline:
    """100 GFLOP/s in single precision, 10 GB/s: the ridge is at 10 FLOPs a byte."""
    return Roofline(
        name="a CPU",
        device="cpu",
        framework="torch 0",
        threads=2,
        memory_bytes=16 * 2**30,
        read_bytes_per_s=reading(10e9, "bytes/s"),
        copy_bytes_per_s=reading(8e9, "bytes/s"),
        launch_s=reading(2e-6, "s"),
        math=(
            ceiling("fp32", 4, 100e9),
            ceiling("bf16", 2, 20e9),
            MathCeiling(precision="fp16", element_bytes=2, flops_per_s=Missing(reason="no kernel")),
        ),
        rounds=9,
        array_bytes=2**28,
        measured_on="2026-01-01",
    )
