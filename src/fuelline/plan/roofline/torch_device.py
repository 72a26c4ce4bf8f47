"""Measures a torch device: math, bandwidth, dispatch, and how products fare by their rows.

Rounds of the probes of `torch_probes` in, a `Roofline` out. On a CPU half precision may run slower
than single; that is measured, not assumed. CUDA differs only in `settler`.
"""

from __future__ import annotations

import os
import platform
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fuelline.plan.roofline.timing import Rounds, find_spread, median_reading, rate_reading
from fuelline.plan.roofline.torch_probes import (
    PRECISIONS,
    ROWS,
    SHAPES,
    array_bytes,
    device_probes,
    math_probes,
)
from fuelline.schema.errors import RefusedError
from fuelline.schema.plan.roofline import MathCeiling, Roofline, RowsRate
from fuelline.schema.readings import Missing, Reading, Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fuelline.plan.roofline.timing import TimedProbe


def measure_device(
    device: str,
    precisions: Iterable[str],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Roofline:
    """All ceilings of one device."""
    measuring = DeviceRounds(device, precisions, clock)
    for _ in range(rounds):
        measuring.take()
    return measuring.roofline()


class DeviceRounds:
    """One device's probes: a round whenever asked, a roofline of any stretch of rounds."""

    def __init__(
        self,
        device: str,
        precisions: Iterable[str],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        check_device(device)
        self._device, self._kinds = device, tuple(precisions)
        with torch.inference_mode():
            tried = {kind: _try_probes(kind, device) for kind in self._kinds}
            self._absent = {kind: found for kind, found in tried.items() if isinstance(found, str)}
            usable = [found for found in tried.values() if not isinstance(found, str)]
            probes = [*device_probes(device), *(probe for found in usable for probe in found)]
            self._amounts = {probe.key: probe.amount for probe in probes}
            self._rounds = Rounds(probes, clock, settler(device))

    def take(self) -> None:
        """One round."""
        with torch.inference_mode():
            self._rounds.take()

    def roofline(self, first: int = 0, end: int | None = None) -> Roofline:
        """Of the rounds from `first` to before `end`: all by default."""
        device, amounts = self._device, self._amounts
        times = {key: values[first:end] for key, values in self._rounds.times.items()}
        return Roofline(
            name=_device_name(device),
            device=device,
            framework=f"torch {torch.__version__}",
            threads=torch.get_num_threads(),
            memory_bytes=_memory_bytes(device),
            read_bytes_per_s=_rate("read", times, amounts, "bytes/s"),
            copy_bytes_per_s=_rate("copy", times, amounts, "bytes/s"),
            launch_s=median_reading(times["launch"], "s", "torch add of one element"),
            math=tuple(
                _missing_ceiling(kind, self._absent[kind])
                if kind in self._absent
                else _ceiling(kind, times, amounts)
                for kind in self._kinds
            ),
            rounds=len(times["launch"]),
            array_bytes=array_bytes(device),
            measured_on=datetime.now(timezone.utc).date().isoformat(),
            notes=_notes(device),
            spread_frac=find_spread(times),
        )


def check_device(device: str) -> None:
    """Raise if torch has no such device here."""
    if device == "cuda" and not torch.cuda.is_available():
        raise RefusedError(
            "torch sees no CUDA device on this machine. Nothing was measured. Try --device cpu, or "
            "`fuelline doctor` to see what is there."
        )


def default_device() -> str:
    """CUDA where torch sees one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def use_threads(count: int) -> None:
    """For everything that follows."""
    torch.set_num_threads(count)


def settler(device: str) -> Callable[[], None]:
    """Waits until the device has done all that was queued."""
    return torch.cuda.synchronize if device == "cuda" else lambda: None


def _device_name(device: str) -> str:
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "CPU"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _memory_bytes(device: str) -> float | None:
    if device == "cuda":
        return float(torch.cuda.get_device_properties(0).total_memory)
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError):
        return None


def _notes(device: str) -> tuple[str, ...]:
    """What would make the figures differ from those of a quiet machine."""
    own = torch.get_num_threads() if device == "cpu" else 1
    busy = os.getloadavg()[0] - own
    cores = os.cpu_count() or 1
    if busy > 0.5 * cores:
        used = f"other programs used about {busy:.1f} of {cores} cores"
        return (f"{used}: the roof is that of a shared machine",)
    return ()


def _try_probes(kind: str, device: str) -> list[TimedProbe] | str:
    """Or why torch has no kernel for this precision here."""
    try:
        probes = math_probes(kind, device)
        for probe in probes:
            probe.run()
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return probes


def _rate(key: str, times: dict[str, list[float]], amounts: dict[str, float], unit: str) -> Reading:
    return rate_reading(amounts[key], times[key], unit, f"torch {key}")


def _missing_ceiling(kind: str, why: str) -> MathCeiling:
    reason = f"torch cannot run {kind} here: {why}"
    return MathCeiling(
        precision=kind,
        element_bytes=PRECISIONS[kind].itemsize,
        flops_per_s=Missing(reason=reason),
    )


def _ceiling(kind: str, times: dict[str, list[float]], amounts: dict[str, float]) -> MathCeiling:
    wide, narrow = (_by_rows(kind, (shape,), times, amounts) for shape in SHAPES)
    seen = [each.flops_per_s for each in (*wide, *narrow)]
    if f"{kind} full" in times:
        seen.append(_rate(f"{kind} full", times, amounts, "FLOP/s"))
    best: Signal = max(seen, key=lambda each: each.value)
    rest = times[f"{kind} small"]
    small = [each / amounts[f"{kind} small"] for each in rest]
    return MathCeiling(
        precision=kind,
        element_bytes=PRECISIONS[kind].itemsize,
        flops_per_s=best,
        by_rows=_by_rows(kind, SHAPES, times, amounts),
        launch_s=median_reading(times[f"{kind} launch"], "s", "torch linear of 16 x 16"),
        attention_flops_per_s=_rate(f"{kind} prefill", times, amounts, "FLOP/s"),
        cache_read_bytes_per_s=_rate(f"{kind} decode", times, amounts, "bytes/s"),
        move_values_per_s=rate_reading(
            amounts[f"{kind} moves"], _beyond(kind, times, rest), "count/s", "torch norms and gates"
        ),
        small_launch_s=median_reading(small, "s", "torch norms, rotations, gate on one token"),
        wide_by_rows=wide,
        narrow_by_rows=narrow,
    )


def _by_rows(
    kind: str,
    shapes: tuple[str, ...],
    times: dict[str, list[float]],
    amounts: dict[str, float],
) -> tuple[RowsRate, ...]:
    """One product of each shape, by the rows that it takes."""
    return tuple(
        RowsRate(
            rows=rows,
            flops_per_s=rate_reading(
                sum(amounts[f"{kind} {shape} {rows}"] for shape in shapes),
                _together(kind, shapes, rows, times),
                "FLOP/s",
                f"torch linear of {rows} rows",
            ),
        )
        for rows in ROWS
    )


def _together(
    kind: str, shapes: tuple[str, ...], rows: int, times: dict[str, list[float]]
) -> list[float]:
    rounds = zip(*(times[f"{kind} {shape} {rows}"] for shape in shapes), strict=True)
    return [sum(each) for each in rounds]


def _beyond(kind: str, times: dict[str, list[float]], rest: list[float]) -> list[float]:
    """Times of many tokens without what a single one takes as well."""
    fixed_s = median_reading(rest, "s", "").value
    return [max(each - fixed_s, each / 5) for each in times[f"{kind} moves"]]
