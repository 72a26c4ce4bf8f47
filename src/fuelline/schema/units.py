"""Numbers for people. Inside the code a number keeps its base unit; only sentences use these."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuelline.schema.readings import Reading

_BYTE_STEPS = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_SHORT_STEPS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
_DAYS_FROM_S = 10 * 86400
_TIME_STEPS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


def percent(frac: float) -> str:
    """`0.614` -> `61 %`; small shares keep a digit."""
    value = 100 * frac
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def duration(seconds: float) -> str:
    """`0.0112` -> `11.2 ms`, `95` -> `1 min 35 s`, `7260` -> `2 h 1 min`, `1e7` -> `116 days`."""
    whole = round(seconds)
    if whole >= _DAYS_FROM_S:
        return f"{whole / 86400:,.0f} days"
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    if seconds >= 59.95:  # rounds to 60.0
        return f"{whole // 60} min {whole % 60} s"
    for unit, step in _TIME_STEPS:
        if seconds >= step:
            return f"{_three_digits(seconds / step)} {unit}"
    return f"{seconds * 1e9:.0f} ns" if seconds > 0 else "0 s"


def size(size_bytes: float) -> str:
    """`131072` -> `131 kB`."""
    for unit, step in _BYTE_STEPS:
        if size_bytes >= step:
            return f"{_three_digits(size_bytes / step)} {unit}"
    return f"{size_bytes:.0f} bytes"


def rate(bytes_per_s: float) -> str:
    """`10485760` -> `10.5 MB/s`."""
    return f"{size(bytes_per_s)}/s"


def number(value: float) -> str:
    """`2.04` -> `2.0`, `1843.2` -> `1,843`."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def plain(value: float) -> str:
    """As it was typed, nearly: `0.05` -> `0.05`, `100000` -> `100,000`."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def times(speedup: Reading) -> str:
    """`2.06x (90 %: 1.88-2.27)`; without its interval if it has none."""
    value = f"{_three_figures(speedup.value)}x"
    if speedup.low is None or speedup.high is None:
        return value
    within = f"{_three_figures(speedup.low)}-{_three_figures(speedup.high)}"
    return f"{value} ({speedup.level} %: {within})"


def _three_figures(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def count(value: float, noun: str) -> str:
    """`1` -> `1 sequence`, `1800` -> `1,800 sequences`."""
    words = f"{value:,.0f}"
    return f"{words} {noun}{'' if words == '1' else 's'}"


def amount(value: float, one: str, many: str) -> str:
    """`1.0` -> `1 fetch`, `1.96` -> `2.0 fetches`."""
    words = number(value)
    return f"{words} {one if words == '1' else many}"


def parameters(count: float) -> str:
    """`70553706496` -> `70.6B`, as models are named."""
    for letter, step in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if count >= step:
            return f"{count / step:.3g}{letter}"
    return f"{count:,.0f}"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 9.95 else f"{value:.2g}"


def short(value: float) -> str:
    """`1843.2` -> `1.8k`, `0.0123` -> `0.012`: for axes and narrow columns."""
    for letter, step in _SHORT_STEPS:
        if abs(value) >= step:
            return f"{_three_digits(value / step)}{letter}"
    if abs(value) >= 0.095 or value == 0:
        return _three_digits(value)
    return f"{value:.2g}"


def even(value: float, *, brief: bool = False) -> str:
    """Like `short`, with its zeros: `0.2` -> `0.20`, so that the ends of an interval look alike.

    Brief ones have two digits where others have three: `52` for `51.9`.
    """
    for letter, step in _SHORT_STEPS:
        if abs(value) >= 0.995 * step:
            return f"{_even_digits(value / step, brief=brief)}{letter}"
    return _even_digits(value, brief=brief)


def _even_digits(value: float, *, brief: bool) -> str:
    if abs(value) >= (9.95 if brief else 99.5) or value == 0:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.95 else f"{value:#.2g}"
