"""A device as it was measured, and the operators of a model as points under its roof.

Every ceiling is a `Reading` with the spread of its rounds, or `Missing` with the reason. Intensity
is FLOPs
for a byte moved; a point left of the ridge waits for memory, right of it for math.
"""

from __future__ import annotations

from msgspec import Struct

from fuelline.schema.readings import Missing, Reading, Signal, value_of

ROOFLINE_VERSION = 1
"""Of the JSON of `roofline`; raised when a key changes its meaning."""


MOST_SPREAD = 0.10
"""Of the rounds: predictions from a roofline should hold to 20 %, and this is half of it."""


class RowsRate(Struct, frozen=True, kw_only=True):
    """Matrix products with this many rows, weights read from memory each time."""

    rows: int
    flops_per_s: Reading


class MathCeiling(Struct, frozen=True, kw_only=True):
    """One precision."""

    precision: str
    """`fp32`, `bf16`, `fp16`, `int8`."""
    element_bytes: int
    flops_per_s: Signal
    """The best that large products reached. Low at half precision: the device has no unit for it
    and unpacks."""
    by_rows: tuple[RowsRate, ...] = ()
    """From one row (decoding one sequence) to many (prefill). A curve far below both roofs: the
    library packs
    weights again for every product."""
    launch_s: Signal = Missing(reason="not measured")
    """A product so small that nothing but its dispatch counts."""
    attention_flops_per_s: Signal = Missing(reason="not measured")
    """Prefill attention, pairs under the causal mask counted."""
    cache_read_bytes_per_s: Signal = Missing(reason="not measured")
    """Decode attention: keys and values read."""
    move_values_per_s: Signal = Missing(reason="not measured")
    """Values that norms, rotations and gates read and write, run one operator at a time."""
    small_launch_s: Signal = Missing(reason="not measured")
    """Their cost on a single token."""
    wide_by_rows: tuple[RowsRate, ...] = ()
    """As `by_rows`, of products that give more values a row than they take. Far below the narrow
    ones: the library packs their weights in strips that leave the cache."""
    narrow_by_rows: tuple[RowsRate, ...] = ()
    """Of products that give no more values a row than they take."""


class Roofline(Struct, frozen=True, kw_only=True):
    """What one device can do at most, as measured on it."""

    name: str
    device: str
    """`cpu` or `cuda`."""
    framework: str
    """Whose kernels were timed, and its version."""
    threads: int
    memory_bytes: float | None
    read_bytes_per_s: Reading
    """Sum over an array far larger than the caches: what decoding lives on."""
    copy_bytes_per_s: Reading
    """Copy, both directions counted."""
    launch_s: Reading
    """One operator on one element. High: small batches wait for the host."""
    math: tuple[MathCeiling, ...]
    rounds: int
    array_bytes: int
    """Of the array behind the bandwidth."""
    measured_on: str = ""
    """Date of the measurement."""
    notes: tuple[str, ...] = ()
    schema_version: int = ROOFLINE_VERSION
    spread_frac: float | None = None
    """How much a probe's rounds differ, middle over all probes; None in old files. High: something
    else ran, or the clock changed, and the ceilings are those of a disturbed machine."""

    @property
    def disturbed(self) -> bool:
        """Whether the rounds differ too much to plan with."""
        return self.spread_frac is not None and self.spread_frac > MOST_SPREAD

    @property
    def bandwidth(self) -> float:
        """The slope of the roof, bytes/s: the better of reading and copying."""
        return max(self.read_bytes_per_s.value, self.copy_bytes_per_s.value)

    def ceiling(self, precision: str) -> MathCeiling | None:
        """Of this precision, if it was measured."""
        for each in self.math:
            if each.precision == precision and isinstance(each.flops_per_s, Reading):
                return each
        return None

    def ridge(self, precision: str) -> float | None:
        """FLOPs per byte at which math takes over."""
        found = self.ceiling(precision)
        peak = value_of(found.flops_per_s) if found else None
        return None if peak is None else peak / self.bandwidth


class OperatorPoint(Struct, frozen=True, kw_only=True):
    """All calls of one operator with one set of shapes."""

    name: str
    shapes: str
    precision: str
    calls: int
    flops: float
    """Of all calls, as torch's FlopCounterMode counts."""
    moved_bytes: float
    """Inputs read once and outputs written once, of all calls; views move nothing."""
    seconds: Reading
    """Of all calls."""
    share: float
    """Of the model's time."""
    bound: str
    """`memory`, `math` or `launch`: what the roof over this point is made of."""
    roof_s: float
    """What the roof allows at best."""
    batch_to_turn: float | None = None
    """Batch size at which memory gives way to math (or back); None if none would."""
    module: str = ""
    """Where in the model most of it is called."""

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte; None where nothing is computed or moved."""
        return self.flops / self.moved_bytes if self.flops and self.moved_bytes else None

    @property
    def reached_share(self) -> float:
        """Of the roof. 1 is perfect; low means the kernel, not the device, is the limit."""
        return self.roof_s / self.seconds.value if self.seconds.value > 0 else 0.0


class ModelPoints(Struct, frozen=True, kw_only=True):
    """A model on a roofline."""

    target: str
    inputs: str
    roofline: Roofline
    points: tuple[OperatorPoint, ...]
    """Slowest first."""
    total_s: Reading
    """One forward pass, nothing instrumented."""
    flops: float
    """By FlopCounterMode's count."""
    moved_bytes: float
    params: int
    batch: int | None
    """The size of the inputs' first dimension; None if they do not agree on one."""
    traced_s: float = 0.0
    """Sum over the operators one by one: more than `total_s` by the cost of looking."""
    notes: tuple[str, ...] = ()
    schema_version: int = ROOFLINE_VERSION
