"""Measures a torch device: math, bandwidth, dispatch, and how products fare by their rows.

Everything is timed as a model would run it: `F.linear` with weights that are read from memory each
time (a pool
larger than the caches goes round), attention by torch's own kernel, norms and gates one operator
at a time. On
a CPU half precision may run slower than single; that is measured, not assumed. CUDA differs only
in `settle`.
"""

from __future__ import annotations

import itertools
import os
import platform
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from fuelline.predict.timing import Probe, median_reading, rate_reading, time_rounds
from fuelline.schema.errors import RefusedError
from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.roofline import MathCeiling, Roofline, RowsRate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ARRAY_BYTES = 256 * 2**20
"""Of the bandwidth's array: several times the last cache of any CPU that we know of in one
socket's share."""
POOL_BYTES = 160 * 2**20
"""Of the weights that go round."""
WEIGHT = (1024, 4096)
"""The usual shape of a product in a small model, and its transpose; both go round."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
HEADS, HEAD, CONTEXT = 8, 64, 512
"""Of the attention that is timed."""
WIDTH = 1024
TOKENS = 256
"""Rows of norms and gates: enough that bytes, not dispatch, take the time."""


def measure_device(
    device: str,
    precisions: Iterable[str],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Roofline:
    """All ceilings of one device."""
    check_device(device)
    kinds = tuple(precisions)
    with torch.inference_mode():
        tried = {kind: _try_probes(kind, device) for kind in kinds}
        absent = {kind: found for kind, found in tried.items() if isinstance(found, str)}
        usable = [found for found in tried.values() if not isinstance(found, str)]
        probes = [*_device_probes(device), *(probe for found in usable for probe in found)]
        times = time_rounds(probes, rounds, clock, settler(device))
    amounts = {probe.key: probe.amount for probe in probes}
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
            _missing_ceiling(kind, absent[kind])
            if kind in absent
            else _ceiling(kind, times, amounts)
            for kind in kinds
        ),
        rounds=rounds,
        array_bytes=ARRAY_BYTES,
        measured_on=datetime.now(timezone.utc).date().isoformat(),
        notes=_notes(),
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
    """Waits until the device has done all that it was told."""
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


def _notes() -> tuple[str, ...]:
    """What would make the figures differ from those of a quiet machine."""
    busy = os.getloadavg()[0] - 1
    cores = os.cpu_count() or 1
    if busy > 0.5 * cores:
        used = f"other programs used about {busy:.1f} of {cores} cores"
        return (f"{used}: the roof is that of a shared machine",)
    return ()


def _device_probes(device: str) -> list[Probe]:
    array = torch.ones(ARRAY_BYTES // 4, device=device)
    other = torch.empty_like(array)
    one = torch.ones(1, device=device)
    return [
        Probe("read", array.sum, ARRAY_BYTES),
        Probe("copy", lambda: other.copy_(array), 2 * ARRAY_BYTES),
        Probe("launch", lambda: one + one),
    ]


def _try_probes(kind: str, device: str) -> list[Probe] | str:
    """Or why torch has no kernel for this precision here."""
    try:
        probes = _math_probes(kind, device)
        for probe in probes:
            probe.run()
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return probes


def _math_probes(kind: str, device: str) -> list[Probe]:
    dtype = PRECISIONS[kind]
    return [
        *_product_probes(kind, dtype, device),
        *_attention_probes(kind, dtype, device),
        *_small_probes(kind, dtype, device),
    ]


def _random(*shape: int, dtype: torch.dtype, device: str) -> Any:
    return torch.randn(*shape, device=device).to(dtype)


def _product_probes(kind: str, dtype: torch.dtype, device: str) -> list[Probe]:
    inner, outer = WEIGHT
    count = max(2, POOL_BYTES // (inner * outer * dtype.itemsize) // 2 * 2)
    shapes = itertools.islice(itertools.cycle(((outer, inner), (inner, outer))), count)
    weights = [_random(*shape, dtype=dtype, device=device) for shape in shapes]
    tiny, tiny_weight = (
        _random(1, 16, dtype=dtype, device=device),
        _random(16, 16, dtype=dtype, device=device),
    )
    probes = [Probe(f"{kind} launch", lambda: functional.linear(tiny, tiny_weight))]
    for rows in ROWS:
        inputs = {width: _random(rows, width, dtype=dtype, device=device) for width in WEIGHT}
        probes.append(
            Probe(f"{kind} rows {rows}", _goes_round(weights, inputs), 4.0 * rows * inner * outer)
        )
    return probes


def _goes_round(weights: list[Any], inputs: dict[int, Any]) -> Callable[[], None]:
    """Two products a run, one of each shape, with the weights that were used longest ago."""
    turn = itertools.cycle(range(0, len(weights), 2))

    def run() -> None:
        at = next(turn)
        for weight in weights[at : at + 2]:
            functional.linear(inputs[weight.shape[1]], weight)

    return run


def _attention_probes(kind: str, dtype: torch.dtype, device: str) -> list[Probe]:
    attend = functional.scaled_dot_product_attention
    whole = _random(1, HEADS, CONTEXT, HEAD, dtype=dtype, device=device)
    pairs = CONTEXT * (CONTEXT + 1) / 2
    size = 2 * HEADS * CONTEXT * HEAD * dtype.itemsize
    caches = [
        _random(2, 1, HEADS, CONTEXT, HEAD, dtype=dtype, device=device)
        for _ in range(max(2, POOL_BYTES // size // 2))
    ]
    turn = itertools.cycle(caches)
    one = whole[:, :, :1]

    def decode() -> None:
        keys, values = next(turn)
        attend(one, keys, values)

    return [
        Probe(
            f"{kind} prefill",
            lambda: attend(whole, whole, whole, is_causal=True),
            4 * pairs * HEADS * HEAD,
        ),
        Probe(f"{kind} decode", decode, size),
    ]


def _small_probes(kind: str, dtype: torch.dtype, device: str) -> list[Probe]:
    probes = []
    for label, rows in (("small", 1), ("moves", TOKENS)):
        wide = _random(rows, WIDTH, dtype=dtype, device=device)
        gain = torch.ones(WIDTH, dtype=dtype, device=device)
        gates = _random(rows, 4 * WIDTH, dtype=dtype, device=device)
        heads = _random(rows, WIDTH // HEAD, HEAD, dtype=dtype, device=device)
        angles = _random(rows, 1, HEAD, dtype=dtype, device=device)
        run = _one_layer(wide, gain, gates, heads, angles)
        # As the step model counts: norm and residual 4 widths, twice; gate 3 of 4; rotations and
        # cache 6.
        values = rows * WIDTH * (8 + 12 + 6)
        probes.append(Probe(f"{kind} {label}", run, values if label == "moves" else 4))
    return probes


def _one_layer(wide: Any, gain: Any, gates: Any, heads: Any, angles: Any) -> Callable[[], None]:
    """What a layer does besides products and attention: norms, rotations, a gate."""

    def rotate(part: Any) -> Any:
        left, right = part.chunk(2, dim=-1)
        return part * angles + torch.cat((-right, left), dim=-1) * angles

    def run() -> None:
        for _ in range(2):
            functional.rms_norm(wide + wide, (WIDTH,), gain)
        rotate(heads)
        rotate(heads)
        functional.silu(gates) * gates

    return run


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
    by_rows = tuple(
        RowsRate(rows=rows, flops_per_s=_rate(f"{kind} rows {rows}", times, amounts, "FLOP/s"))
        for rows in ROWS
    )
    best: Signal = max((each.flops_per_s for each in by_rows), key=lambda each: each.value)
    small = [each / amounts[f"{kind} small"] for each in times[f"{kind} small"]]
    return MathCeiling(
        precision=kind,
        element_bytes=PRECISIONS[kind].itemsize,
        flops_per_s=best,
        by_rows=by_rows,
        launch_s=median_reading(times[f"{kind} launch"], "s", "torch linear of 16 x 16"),
        attention_flops_per_s=_rate(f"{kind} prefill", times, amounts, "FLOP/s"),
        cache_read_bytes_per_s=_rate(f"{kind} decode", times, amounts, "bytes/s"),
        move_values_per_s=rate_reading(
            amounts[f"{kind} moves"],
            _beyond_launch(kind, times),
            "count/s",
            "torch norms and gates",
        ),
        small_launch_s=median_reading(small, "s", "torch norms, rotations, gate on one token"),
    )


def _beyond_launch(kind: str, times: dict[str, list[float]]) -> list[float]:
    """Times of many tokens without what a single one takes as well."""
    fixed_s = median_reading(times[f"{kind} small"], "s", "").value
    return [max(each - fixed_s, each / 5) for each in times[f"{kind} moves"]]
