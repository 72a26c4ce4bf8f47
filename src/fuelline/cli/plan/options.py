"""Options that the planner's subcommands share, and what is read from them."""

from __future__ import annotations

import math
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuelline.cli.pages import add_page, check_page, say_page, write_page
from fuelline.cli.plots import say_plots, write_plot
from fuelline.cli.quantities import parse_amount, parse_choices, parse_limits, parse_values
from fuelline.cli.saying import say
from fuelline.schema.errors import UsageError
from fuelline.store.home import saved_chips

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from fuelline.plan.asked.request import PlanRequest
    from fuelline.report.document import Document

_UNITS = {
    "headroom": "%",
    "vary": "%",
    "attain": "%",
    "jitter": "%",
    "checkpoint": "s",
    "mtbf": "s",
}
"""Of flags that hold more than a bare number; a per cent stays one, a time is seconds."""
_WHOLE = ("batch", "in", "out", "tp", "pp", "ep", "cp", "chips", "seq", "interleave", "sites")
"""Flags that count things: a range of them is walked in whole numbers."""
DEFAULT_ENGINE = "vllm"
"""Of `plan.asked.request`, which the help need not load; a test holds the two together."""


def add_model(parser: argparse.ArgumentParser) -> None:
    """CONFIG and what describes it."""
    parser.add_argument(
        "config", metavar="CONFIG", help="config.json, its folder, or a public name (no default)"
    )
    parser.add_argument(
        "--precision", help="such as bf16, fp8, int4 (default: as published, else bf16)"
    )
    add_catalogue(parser)
    parser.add_argument("--json", action="store_true", help="print JSON (default: a report)")
    add_page(parser)


def add_catalogue(parser: argparse.ArgumentParser) -> None:
    """The user's own chips and models."""
    parser.add_argument(
        "--catalogue",
        action="append",
        default=[],
        metavar="FILE",
        help="TOML file with [[chip]] and [[model]] entries of your own (default: none)",
    )


def list_given(options: argparse.Namespace) -> list[str]:
    """Files that the user names, which may come from anybody: they are read in bounds."""
    named = (getattr(options, name, None) for name in ("config", "table", "trace"))
    return [each for each in (*named, *options.catalogue) if each and Path(each).exists()]


def add_numbers(parser: argparse.ArgumentParser, *entries: tuple[str, str]) -> None:
    """Flags that hold a number or a range."""
    for name, text in entries:
        parser.add_argument(f"--{name}", metavar="N", dest=name.replace("-", "_"), help=text)


def values_of(options: argparse.Namespace, name: str) -> tuple[float, ...] | None:
    """What a flag holds; None if it was not given."""
    from fuelline.plan.asked.request import CHOICES, LIMITS  # noqa: PLC0415 - not for the help

    if name in ("ttft", "tpot"):
        return parse_limits(options.slo).get(name) if options.slo else None
    text = getattr(options, name.replace("-", "_"))
    if text is None:
        return None
    if name in CHOICES:
        return parse_choices(text, f"--{name}", CHOICES[name])
    values = parse_values(text, f"--{name}", *LIMITS[name], _UNITS.get(name, ""))
    if name in _WHOLE and ".." in text:
        return tuple(dict.fromkeys(float(round(value)) for value in values))
    return values


def one_of(options: argparse.Namespace, name: str, default: float | None = None) -> float | None:
    """A flag that may hold one number only."""
    values = values_of(options, name)
    if values is None:
        return default
    if len(values) > 1:
        raise UsageError(
            f"--{name} takes one number here, not {len(values)}: `plan serve` and `plan train` "
            "walk a range for a chip."
        )
    return values[0]


def flag_of(name: str) -> str:
    """As the user types it."""
    return f"--slo {name}" if name in ("ttft", "tpot") else f"--{name}"


@cache
def _say_once(words: str) -> None:
    """A plan asks for the devices several times."""
    say(words)


def make_request(options: argparse.Namespace, flags: Sequence[str] = ()) -> PlanRequest:
    """What was asked, with the numbers of these flags."""
    from fuelline.plan.asked.request import PlanRequest  # noqa: PLC0415 - the help needs no planner

    check_page(getattr(options, "html", None))
    values = {flag: values_of(options, flag) for flag in flags}
    return PlanRequest(
        model=getattr(options, "config", ""),
        values={flag: found for flag, found in values.items() if found is not None},
        spell=_spell,
        chips=options.chip.split(",") if getattr(options, "chip", None) else (),
        precision=getattr(options, "precision", None),
        catalogues=[Path(name) for name in options.catalogue],
        devices=saved_chips(_say_once),
    )


def _spell(flag: str, value: str) -> str:
    return f"{flag_of(flag)} {value}" if value else flag_of(flag)


def show(options: argparse.Namespace, answer: Any, document: Document) -> None:
    """As JSON or as a report; a chart goes to a file if that is asked for."""
    from fuelline.report.renderers.terminal import render_terminal  # noqa: PLC0415
    from fuelline.schema.foreign import encode_json  # noqa: PLC0415 - the help needs none of these

    written = write_plot(options, document) if getattr(options, "plot", None) else ()
    write_page(options.html, document, Path(options.config).name)
    if options.json:
        sys.stdout.write(encode_json(answer, is_indented=False) + "\n")
    else:
        render_terminal(document, sys.stdout)
    say_plots(options, written)
    say_page(options.html, beside_data=options.json)


def check_counts(options: argparse.Namespace) -> None:
    """Refuse a fraction with the whole numbers beside it."""
    from fuelline.plan.asked.request import COUNTS, LIMITS  # noqa: PLC0415 - not for the help

    for name in COUNTS:
        text = getattr(options, name, None)
        if text is None or name not in LIMITS:
            continue
        low, high = LIMITS[name]
        ends = text.split("..")
        values = (
            parse_values(text, f"--{name}", low, high)
            if len(ends) == 1
            else tuple(parse_amount(end, f"--{name}", low, high) for end in ends if end)
        )
        for value in values:
            if value != int(value):
                below, above = max(math.floor(value), int(low)), math.ceil(value)
                raise UsageError(
                    f"--{name} is {value:g}; it must be a whole number between {low:,.0f} and "
                    f"{high:,.0f}. Give --{name} {below} or --{name} {above}."
                )
