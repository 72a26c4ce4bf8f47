"""Degrees of parallelism that contradict the model or one another, and the nearest that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.cli.plan.options import values_of
from fuelline.schema.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from fuelline.schema.plan.models import Model


def check_degrees(options: argparse.Namespace, model: Model) -> None:
    """Degrees that contradict the model are refused with the nearest that do not.

    Of a range that has others, the table says it in their lines.
    """
    from fuelline.plan.models.shapes import why_uneven  # noqa: PLC0415 - not for the help

    if any(
        len(values) > 1 and not all(why_uneven(model, name, value) for value in values)
        for name in ("tp", "pp", "ep")
        if (values := values_of(options, name) or ())
    ):
        return
    for tp in values_of(options, "tp") or ():
        _check_divides("tp", int(tp), model.heads, "attention heads")
    for pp in values_of(options, "pp") or ():
        if pp > model.layers:
            raise UsageError(f"--pp {pp:g} is more than the {model.layers} layers that there are.")
    for ep in values_of(options, "ep") or ():
        if ep > 1 and not model.experts:
            raise UsageError(f"--ep {ep:g}: {model.name} has no experts to spread. Leave it out.")
        if ep > 1:
            _check_divides("ep", int(ep), model.experts, "experts")
    _check_together(options)


def _check_divides(flag: str, size: int, whole: int, what: str) -> None:
    if whole % size:
        raise UsageError(
            f"--{flag} {size} does not divide {whole} {what}. {_say(flag, size, whole)}."
        )


def _check_together(options: argparse.Namespace) -> None:
    """Experts are spread over whole attention groups, or groups over whole sets of experts."""
    for tp in values_of(options, "tp") or ():
        for ep in values_of(options, "ep") or ():
            small, large = sorted((int(tp), int(ep)))
            if large % small:
                flag = "tp" if tp < ep else "ep"
                raise UsageError(
                    f"--tp {tp:g} and --ep {ep:g} do not go together: one must divide the other. "
                    f"{_say(flag, small, large)}; or leave one of them out."
                )


def _say(flag: str, size: int, whole: int) -> str:
    """The divisors on both sides; above the whole there is none."""
    fit = [each for each in range(1, whole + 1) if whole % each == 0]
    below, above = max(each for each in fit if each < size), [each for each in fit if each > size]
    if not above:
        return f"The nearest that does is --{flag} {below}"
    return f"The nearest that do are --{flag} {below} and --{flag} {above[0]}"
