"""A question in plain Python types: keywords with their units become flags within their limits.

Mistakes are reported in the words of the caller: `tp=3`, not `--tp 3`.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.plan.asked.request import CHOICES, COUNTS, LIMITS, PlanRequest
from fuelline.schema.errors import UsageError
from fuelline.store.home import saved_chips

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.plan.asked.request import Values

Number = int | float | Sequence[int] | Sequence[float]
"""One number, or several: a table of answers."""
_MOST_VALUES = 64


def make_request(
    model: str | os.PathLike[str],
    chip: str | Sequence[str] | None,
    precision: str | None,
    *,
    catalogue: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    given: Mapping[str, Number | None],
    flags: Mapping[str, tuple[str, float]],
) -> PlanRequest:
    """The same question as the command line would ask; `flags` says what each keyword is there."""
    names = {flag: (keyword, factor) for keyword, (flag, factor) in flags.items()}

    def spell(flag: str, value: str) -> str:
        keyword = names.get(flag, (flag, 1.0))[0]
        if not value:
            return keyword
        is_text = not value.replace(".", "").isdecimal()
        return f"{keyword}={value!r}" if is_text else f"{keyword}={value}"

    values: Values = {}
    for keyword, number in given.items():
        if number is not None:
            flag, factor = flags[keyword]
            values[flag] = _read(keyword, number, flag, factor)
    files = [catalogue] if isinstance(catalogue, (str, os.PathLike)) else list(catalogue)
    return PlanRequest(
        model=os.fspath(model),
        values=values,
        spell=spell,
        chips=() if chip is None else chip.split(",") if isinstance(chip, str) else tuple(chip),
        precision=precision,
        catalogues=[Path(file) for file in files],
        devices=saved_chips(lambda words: warnings.warn(words, stacklevel=5)),
    )


def _read(keyword: str, number: Number, flag: str, factor: float) -> tuple[float, ...]:
    several = list(number) if isinstance(number, Sequence) else [number]
    if not 1 <= len(several) <= _MOST_VALUES or isinstance(number, (str, bytes)):
        raise UsageError(
            f"{keyword}={number!r} is neither a number nor 1 to {_MOST_VALUES} of them. Nothing "
            f"was planned. Give {keyword}=8, say, or {keyword}=[4, 8]."
        )
    return tuple(_check(keyword, each, flag, factor) for each in several)


def _check(keyword: str, number: float, flag: str, factor: float) -> float:
    given: object = number  # Python checks no types
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    value = float(number) * factor if is_number else math.nan
    if flag in CHOICES:
        if value not in CHOICES[flag]:
            known = ", ".join(map(str, CHOICES[flag]))
            raise UsageError(
                f"{keyword}={number!r}; it can be one of {known}. Nothing was planned. Leave it "
                "out for the default."
            )
        return value
    low, high = LIMITS[flag]
    if not low <= value <= high or (flag in COUNTS and value != int(value)):
        kind = "a whole number" if flag in COUNTS else "a number"
        raise UsageError(
            f"{keyword}={number!r}; it must be {kind} between {low / factor:g} and "
            f"{high / factor:g}. Nothing was planned. docs/plan.md says what it means."
        )
    return value
