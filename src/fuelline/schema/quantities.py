"""Numbers as people type them: `4k`, `1.5T`, `500ms`, `1..256`; absurd ones are refused.

A flag may hold several values (`1,2,4` or `1..256`, which doubles), so every flag is read as a
tuple.
"""

from __future__ import annotations

import math
import re

from fuelline.schema.errors import UsageError

_MULTIPLES = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MOST_VALUES = 64
_DOUBLE_FROM = 4.0
"""A range whose ends differ by at least this factor is walked by doubling, else in eight even
steps."""


def parse_amount(text: str, name: str, low: float, high: float) -> float:
    """One number between two ends."""
    word = text.strip().lower().replace("_", "").replace(",", "")
    factor = 1.0
    if word and word[-1] in _MULTIPLES:
        factor, word = _MULTIPLES[word[-1]], word[:-1]
    try:
        value = float(word) * factor
    except ValueError:
        raise UsageError(
            f"{name} '{text}' is no number. Give one between {_show(low)} and {_show(high)}, such "
            "as "
            "128, 4k, 1.5T or 1..256."
        ) from None
    if not math.isfinite(value) or not low <= value <= high:
        raise UsageError(f"{name} is {text}; it must be between {_show(low)} and {_show(high)}.")
    return value


def parse_values(text: str, name: str, low: float, high: float) -> tuple[float, ...]:
    """One number, a list, or a range."""
    ends = re.split(r"\.\.", text)
    if len(ends) == 2:
        return _walk(
            parse_amount(ends[0], name, low, high), parse_amount(ends[1], name, low, high), name
        )
    if len(ends) > 2:
        raise UsageError(f"{name} '{text}' is no range. Give it as 1..256.")
    parts = text.split(",") if not re.fullmatch(r"\s*\d{1,3}(,\d{3})+\s*", text) else [text]
    if len(parts) > _MOST_VALUES:
        raise UsageError(f"{name} has {len(parts)} values; at most {_MOST_VALUES} are walked.")
    return tuple(parse_amount(part, name, low, high) for part in parts)


def _walk(first: float, last: float, name: str) -> tuple[float, ...]:
    if first >= last:
        raise UsageError(
            f"{name} runs from {_show(first)} to {_show(last)}; the first must be smaller."
        )
    if last / first < _DOUBLE_FROM:
        steps = 8 if last - first > 8 or first != int(first) else int(last - first)
        return tuple(first + (last - first) * step / steps for step in range(steps + 1))
    values = [first]
    while values[-1] * 2 < last and len(values) < _MOST_VALUES:
        values.append(values[-1] * 2)
    return (*values, last)


def parse_duration(text: str, name: str, low_s: float = 1e-6, high_s: float = 1e9) -> float:
    """`500ms`, `2s`, `3h`, in seconds; a bare number is seconds."""
    found = re.fullmatch(r"\s*([\d.]+(?:e-?\d+)?)\s*(us|ms|s|min|h|d)?\s*", text.lower())
    try:
        value = float(found[1]) * _SECONDS[found[2] or "s"] if found else math.nan
    except ValueError:
        value = math.nan
    if not low_s <= value <= high_s:
        raise UsageError(
            f"{name} '{text}' is no time between {_show(low_s)} s and {_show(high_s)} s. Write "
            "500ms, 2s or 3h."
        )
    return value


def parse_limits(text: str) -> dict[str, float]:
    """`ttft=500ms,tpot=40ms` in seconds."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name.strip().lower() not in ("ttft", "tpot") or not value:
            raise UsageError(
                f"--slo '{part}' is not understood. Write ttft=500ms,tpot=40ms, or one of them."
            )
        limits[name.strip().lower()] = parse_duration(value, f"--slo {name.strip()}", 1e-5, 1e5)
    return limits


def _show(value: float) -> str:
    if value and (abs(value) >= 1e7 or abs(value) < 1e-3):
        return f"{value:g}"
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
