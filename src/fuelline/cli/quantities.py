"""Numbers as people type them: `4k`, `1.5T`, `500ms`, `1..256`; absurd ones are refused.

A flag may hold several values (`1,2,4` or `1..256`, which doubles), so every flag is read as a
tuple.
"""

from __future__ import annotations

import math
import re

from fuelline.schema.errors import UsageError
from fuelline.schema.units import duration

_MULTIPLES = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MOST_VALUES = 64
_DOUBLE_FROM = 4.0
"""A range whose ends differ by at least this factor is walked by doubling, else in even steps."""
_MOST_STEPS = 10


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
            f"{name} '{text}' is not a number. Give one between {_show(low)} and {_show(high)}, "
            "such as 128, 4k or 1.5T."
        ) from None
    if not math.isfinite(value) or not low <= value <= high:
        raise UsageError(f"{name} is {text}; it must be between {_show(low)} and {_show(high)}.")
    return value


def parse_values(
    text: str, name: str, low: float, high: float, unit: str = ""
) -> tuple[float, ...]:
    """One number, a list, or a range; `unit` is `%` (given and kept as such) or `s` (a time)."""
    ends = re.split(r"\.\.", text)
    if len(ends) == 2:
        first, last = (_parse_one(end, name, low, high, unit) for end in ends)
        return _walk(first, last, name)
    if len(ends) > 2:
        raise UsageError(f"{name} '{text}' is not a range. Give it as FIRST..LAST.")
    parts = [text] if _is_one(text, name) else text.split(",")
    if len(parts) > _MOST_VALUES:
        raise UsageError(f"{name} has {len(parts)} values; at most {_MOST_VALUES} are allowed.")
    return tuple(_parse_one(part, name, low, high, unit) for part in parts)


def _is_one(text: str, name: str) -> bool:
    """Whether commas only mark thousands, as in 1,024; 96,128 may be meant either way."""
    if not re.fullmatch(r"\s*\d{1,3}(,\d{3})+\s*", text):
        return False
    if ",0" not in text:
        whole, several = text.replace(",", "").strip(), text.replace(",", ", ").strip()
        raise UsageError(
            f"{name} {text} could be one number or several. Write {whole}, or '{several}'."
        )
    return True


def _parse_one(text: str, name: str, low: float, high: float, unit: str) -> float:
    if unit == "s":
        return parse_duration(text, name, low, high)
    return parse_amount(text.rstrip("% ") if unit == "%" else text, name, low, high)


def parse_choices(text: str, name: str, allowed: tuple[int, ...]) -> tuple[float, ...]:
    """Like `parse_values`, of a flag that knows a few whole numbers only; a range holds those."""
    ends = parse_values(text, name, allowed[0], allowed[-1])
    if ".." in text:
        return tuple(float(each) for each in allowed if ends[0] <= each <= ends[-1])
    for value in ends:
        if value not in allowed:
            known = ", ".join(str(each) for each in allowed)
            raise UsageError(f"{name} is {value:g}; it can be one of {known}.")
    return ends


def _walk(first: float, last: float, name: str) -> tuple[float, ...]:
    if first >= last:
        raise UsageError(
            f"{name} runs from {_show(first)} to {_show(last)}; the first must be smaller."
        )
    if last < _DOUBLE_FROM * first or first <= 0:
        return _evenly(first, last)
    values = [first]
    while values[-1] * 2 < last and len(values) < _MOST_VALUES:
        values.append(values[-1] * 2)
    return (*values, last)


def _evenly(first: float, last: float) -> tuple[float, ...]:
    """In round steps, at most ten of them; whole numbers in whole steps."""
    whole = first == int(first) and last == int(last) and last - first <= _MOST_STEPS
    step = 1.0 if whole else _round_up((last - first) / _MOST_STEPS)
    count = math.ceil((last - first) / step - 1e-9)
    return (*(round(first + step * each, 12) for each in range(count)), last)


def _round_up(value: float) -> float:
    """To one, two or five times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        (power * each for each in (1, 2, 5) if power * each >= value * (1 - 1e-9)), 10 * power
    )


def parse_duration(text: str, name: str, low_s: float = 1e-6, high_s: float = 1e9) -> float:
    """`500ms`, `2s`, `3h`, in seconds; a bare number is seconds."""
    found = re.fullmatch(r"\s*([\d.]+(?:e-?\d+)?)\s*(us|ms|s|min|h|d)?\s*", text.lower())
    try:
        value = float(found[1]) * _SECONDS[found[2] or "s"] if found else math.nan
    except ValueError:
        value = math.nan
    if not low_s <= value <= high_s:
        raise UsageError(
            f"{name} '{text}' is not a time between {duration(low_s)} and {duration(high_s)}. "
            "Write 500ms, 2s, 3h or 30d."
        )
    return value


def parse_limits(text: str) -> dict[str, tuple[float, ...]]:
    """`ttft=500ms,tpot=40ms` in seconds; each may be a range, `tpot=20ms..80ms`."""
    limits: dict[str, tuple[float, ...]] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        word = name.strip().lower()
        if word not in ("ttft", "tpot") or not value:
            raise UsageError(
                f"--slo '{part}' is not understood. Write ttft=500ms,tpot=40ms, or one of them."
            )
        limits[word] = parse_values(value, f"--slo {word}", 1e-5, 1e5, "s")
    return limits


def _show(value: float) -> str:
    """As it may be typed."""
    for letter, step in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if value >= 10 * step or (letter != "M" and value >= step):
            return f"{value / step:g}{letter}" if value < 1e16 else f"{value:g}"
    if value and abs(value) < 1e-3:
        return f"{value:g}"
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
