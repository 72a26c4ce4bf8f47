"""Options that the planner's subcommands share, and what is read from them."""

from __future__ import annotations

import math
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fuelline.cli.plots import say_plots, write_plot
from fuelline.cli.quantities import parse_amount, parse_choices, parse_limits, parse_values
from fuelline.cli.saying import say
from fuelline.schema.errors import InputError, UsageError
from fuelline.schema.plan.chips import Chip, find_chip, list_chips, read_chips
from fuelline.schema.plan.models import read_models
from fuelline.schema.plan.precision import Precision, parse_precision
from fuelline.store.home import saved_chips

if TYPE_CHECKING:
    import argparse

    from fuelline.plan.models.configs import Loaded
    from fuelline.plan.physics.constants import Constants, Engine
    from fuelline.report.document import Document
    from fuelline.schema.plan.models import Model

LIMITS: dict[str, tuple[float, float]] = {
    # Lowest and highest value that makes sense, by flag.
    "batch": (1, 1e6),
    "in": (1, 1e8),
    "out": (1, 1e7),
    "rate": (1e-6, 1e6),
    "tp": (1, 1024),
    "pp": (1, 1024),
    "ep": (1, 1024),
    "cp": (1, 1024),
    "chips": (1, 1e7),
    "tokens": (1e3, 1e18),
    "seq": (1, 1e8),
    "batch-tokens": (1, 1e12),
    "microbatch": (1, 1e6),
    "measured": (1e-6, 1e9),
    "price": (1e-6, 1e6),
    "headroom": (0, 90),
    "vary": (0, 300),
    "attain": (50, 99.9),
    "interleave": (1, 64),
    "jitter": (0.01, 100),
    "checkpoint": (1e-6, 1e9),
    "mtbf": (1, 1e12),
    "sample-bytes": (1, 1e12),
    "sites": (1, 1000),
    "link": (1e-6, 1e5),
}
_UNITS = {
    "headroom": "%",
    "vary": "%",
    "attain": "%",
    "jitter": "%",
    "checkpoint": "s",
    "mtbf": "s",
}
"""Of flags that hold more than a bare number; a per cent stays one, a time is seconds."""
_CHOICES = {"kv": (8, 16), "zero": (0, 1, 2, 3)}
_WHOLE = ("batch", "in", "out", "tp", "pp", "ep", "cp", "chips", "seq", "interleave", "sites")
"""Flags that count things: a range of them is walked in whole numbers."""
DEFAULT_ENGINE = "vllm"


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


def add_catalogue(parser: argparse.ArgumentParser) -> None:
    """The user's own chips and models."""
    parser.add_argument(
        "--catalogue",
        action="append",
        default=[],
        metavar="FILE",
        help="TOML file with [[chip]] and [[model]] entries of your own (default: none)",
    )


def add_numbers(parser: argparse.ArgumentParser, *entries: tuple[str, str]) -> None:
    """Flags that hold a number or a range."""
    for name, text in entries:
        parser.add_argument(f"--{name}", metavar="N", dest=name.replace("-", "_"), help=text)


def values_of(options: argparse.Namespace, name: str) -> tuple[float, ...] | None:
    """What a flag holds; None if it was not given."""
    if name in ("ttft", "tpot"):
        return parse_limits(options.slo).get(name) if options.slo else None
    text = getattr(options, name.replace("-", "_"))
    if text is None:
        return None
    if name in _CHOICES:
        return parse_choices(text, f"--{name}", _CHOICES[name])
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


def find_range(options: argparse.Namespace, names: tuple[str, ...]) -> str:
    """The flag that holds several values; empty if none does."""
    ranges = [name for name in names if len(values_of(options, name) or ()) > 1]
    if len(ranges) > 1:
        first, second = (flag_of(name) for name in ranges[:2])
        raise UsageError(
            f"{first} and {second} are both ranges, and a table has one. Give one of them one "
            "value."
        )
    return ranges[0] if ranges else ""


def flag_of(name: str) -> str:
    """As the user types it."""
    return f"--slo {name}" if name in ("ttft", "tpot") else f"--{name}"


def catalogues(options: argparse.Namespace) -> list[Path]:
    """The files that were named, then the devices that were measured here."""
    return [*(Path(name) for name in options.catalogue), *saved_chips(_say_once)]


@cache
def _say_once(words: str) -> None:
    """A plan asks for the devices several times."""
    say(words)


def own_chips(options: argparse.Namespace) -> tuple[Chip, ...]:
    """Of the user's catalogues."""
    return tuple(chip for path in catalogues(options) for chip in read_chips(path))


def read_constants(options: argparse.Namespace) -> Constants:
    """Ours, and what was measured on the user's own devices."""
    from fuelline.plan.physics.constants import shipped_constants  # noqa: PLC0415 - not for the help
    from fuelline.plan.roofline.measured import read_entries, with_entries  # noqa: PLC0415

    entries = tuple(entry for path in catalogues(options) for entry in read_entries(path))
    return with_entries(shipped_constants(), entries)


def load(options: argparse.Namespace) -> Loaded:
    """The model."""
    from fuelline.plan.models.configs import load_model  # noqa: PLC0415 - the help needs no planner

    return load_model(options.config, own_models(options))


def own_models(options: argparse.Namespace) -> tuple[Model, ...]:
    """Of the user's catalogues."""
    return tuple(model for name in options.catalogue for model in read_models(Path(name)))


def read_precision(
    options: argparse.Namespace, loaded: Loaded, kv_bits: float | None = None
) -> Precision:
    """As told, as published, or half."""
    if options.precision:
        found = parse_precision(options.precision)
    elif loaded.unclear:
        raise InputError(
            f"the weights of {loaded.model.name} are quantised by '{loaded.unclear}', and how many "
            "bits that leaves is not known here. Say it: --precision int4, or fp8, int8-wo."
        )
    else:
        found = loaded.precision or parse_precision("bf16")
    return replace(found, kv_bits=found.kv_bits if kv_bits is None else kv_bits)


def is_native(options: argparse.Namespace, loaded: Loaded) -> bool:
    """The precision is not the user's choice but the release's: a chip may lack its unit."""
    return not options.precision and loaded.quantised


def read_chip_list(options: argparse.Namespace) -> tuple[Chip, ...]:
    """`--chip a,b`; all of the catalogue without it."""
    own = own_chips(options)
    if not options.chip:
        return (*own, *list_chips())
    found = [find_known(name, own) for name in options.chip.split(",")]
    return tuple({chip.name: chip for chip in found}.values())


def find_known(name: str, own: tuple[Chip, ...]) -> Chip:
    """A chip whose bandwidth and math rate are known: nothing can be said without."""
    chip = find_chip(name.strip(), own)
    for figure, value in (
        ("memory size", chip.mem_bytes),
        ("memory bandwidth", chip.mem_bytes_per_s),
        ("math rate", chip.peak_flops("bf16")),
    ):
        if value is None:
            raise InputError(
                f"the {figure} of {chip.name} is not known, and no other chip's is taken for it. "
                "Give a "
                "[[chip]] entry that has it: --catalogue FILE."
            )
        if not 1e6 <= value <= 1e22:
            raise InputError(
                f"the {figure} of {chip.name} is {value:g}, which no chip has. Correct its entry."
            )
    return chip


def read_engine(options: argparse.Namespace, constants: Constants) -> Engine:
    """By name."""
    from fuelline.plan.physics.constants import BARE  # noqa: PLC0415 - the help needs no planner

    known = {"none": BARE, **{engine.name: engine for engine in constants.engine}}
    if options.engine not in known:
        raise UsageError(f"no engine '{options.engine}'. Known: {', '.join(known)}.")
    return known[options.engine]


def show(options: argparse.Namespace, answer: Any, document: Document) -> None:
    """As JSON or as a report; a chart goes to a file if that is asked for."""
    import msgspec  # noqa: PLC0415 - the help needs none of these

    from fuelline.report.renderers.terminal import render_terminal  # noqa: PLC0415

    written = write_plot(options, document) if getattr(options, "plot", None) else ()
    if options.json:
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        render_terminal(document, sys.stdout)
    say_plots(options, written)


COUNTS = (
    "batch", "in", "out", "tp", "pp", "ep", "cp", "chips", "seq", "microbatch", "interleave",
    "sites",
)  # fmt: skip


def check_counts(options: argparse.Namespace) -> None:
    """Refuse a fraction with the whole numbers beside it."""
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
