"""A question in plain Python types: keywords with their units become flags within their limits.

Mistakes are reported in the words of the caller: `tp=3`, not `--tp 3`.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from fuelline.plan.asked.request import CHOICES, COUNTS, LIMITS, PlanRequest
from fuelline.schema.errors import FuellineError, UsageError
from fuelline.store.home import saved_chips

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fuelline.plan.asked.request import Values

Number = int | float | Sequence[int] | Sequence[float]
"""One number, or several: a table of answers."""
_MOST_VALUES = 64
_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def name_keywords(
    flags: Mapping[str, tuple[str, float]],
) -> Callable[[Callable[_Given, _Answer]], Callable[_Given, _Answer]]:
    """For a function of Python: an error that names flags of the command line names keywords."""

    def decorate(function: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
        @wraps(function)
        def named(*args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
            try:
                return function(*args, **kwargs)
            except FuellineError as error:
                words = _FLAG.sub(lambda found: _spell(found[1], found[2] or "", flags), str(error))
                error.args = (words,)
                raise

        return named

    return decorate


_FLAG = re.compile(r"--([a-z][a-z-]*)(?: (FILE|full|\d+(?:[.,]\d+)*))?")
"""A flag in a sentence, and its value if there is one."""


def _spell(flag: str, value: str, flags: Mapping[str, tuple[str, float]]) -> str:
    """As a keyword, in its own unit."""
    known = ((keyword, factor) for keyword, (name, factor) in flags.items() if name == flag)
    keyword, factor = next(known, (flag.replace("-", "_"), 1.0))
    number = value.replace(",", "")
    if not number.replace(".", "").isdecimal():
        return f"{keyword}={value!r}" if value else keyword
    return f"{keyword}={number}" if factor == 1 else f"{keyword}={float(number) / factor:g}"


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
    values: Values = {}
    for keyword, number in given.items():
        if number is not None:
            flag, factor = flags[keyword]
            values[flag] = _read(keyword, number, flag, factor)
    files = [catalogue] if isinstance(catalogue, (str, os.PathLike)) else list(catalogue)
    return PlanRequest(
        model=os.fspath(model),
        values=values,
        spell=lambda flag, value: _spell(flag, value, flags),
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
