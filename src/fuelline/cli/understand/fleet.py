"""`fuelline fleet`: what waiting costs over many runs, by whatever they have in common."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from fuelline.cli.pages import add_page, check_page, say_page, write_page
from fuelline.cli.quantities import parse_duration
from fuelline.schema.errors import UsageError
from fuelline.store.config import check_store, read_config
from fuelline.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH_VARIABLE = "SLURM_JOB_ID"
_MOST_USD = 1e6
_DESCRIPTION = """\
Sum up the runs that `fuelline run --store STORE` left in a folder or a bucket:
what accelerators waited for, which jobs would gain most and what to change in
them, trends, jobs that became slower, hosts that are worse than their peers.
"""
_EPILOG = """\
examples:
  fuelline run --store /shared/fleet train.py    leaves a row of this run
  fuelline fleet /shared/fleet                   what accelerators waited for
  fuelline fleet s3://bucket/fleet --since 30d --by user
  fuelline fleet /shared/fleet --price h100=2.5,a100=1.6
  fuelline fleet /shared/fleet --add train       a run that was recorded before
  fuelline fleet /shared/fleet --epilog          one line, in Slurm's epilog

A row holds who, what, where, the verdict, and time lost by cause: no command
line, no code, no output. Buckets take credentials from the environment, as the
tools of their makers do.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "fleet",
        help="sum up many runs: hours and money lost, by cause, user, job, host or chip",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("store", help="a folder, or a bucket: s3://, gs://, az:// (no default)")
    parser.add_argument(
        "--since",
        metavar="AGE",
        help="only runs that were started within this time, such as 30d or 12h (default: all)",
    )
    parser.add_argument(
        "--by",
        choices=("cause", "user", "job", "host", "chip"),
        default="cause",
        help="what runs are grouped by (default: cause)",
    )
    parser.add_argument(
        "--price",
        metavar="USD",
        help="price of an accelerator-hour in USD, by chip: h100=2.5,a100=1.6; a number alone is "
        "for all (default: that of the configuration file; without one, hours only)",
    )
    parser.add_argument(
        "--add",
        nargs="+",
        default=[],
        metavar="RUN",
        help="first add these runs, by id, name or folder; with --epilog as runs of the present "
        "batch job (default: none)",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON (default: a report)")
    shape.add_argument(
        "--epilog",
        action="store_true",
        help=f"print one line about the run of the batch job in {BATCH_VARIABLE}, else about the "
        "newest run of this host (default: a report)",
    )
    add_page(parser)
    parser.set_defaults(act=act, reads=lambda options: [options.store, *map(find_run, options.add)])


def act(options: argparse.Namespace) -> int:
    """Print it."""
    check_page(options.html)
    prices = _parse_prices(options.price)
    check_store(options.store, "STORE")
    since_s = None
    if options.since is not None:
        since_s = time.time_ns() / 1e9 - parse_duration(options.since, "--since")
    from fuelline.fleet.reckoning import reckon  # noqa: PLC0415 - loads polars
    from fuelline.fleet.shelf import load_rows  # noqa: PLC0415 - likewise
    from fuelline.report.diagnosis.fleet import write_fleet  # noqa: PLC0415 - loads rich
    from fuelline.report.renderers.terminal import render_terminal  # noqa: PLC0415 - likewise

    _add(options)
    if options.epilog:
        return _print_epilog(options.store, prices)
    answer = reckon(
        load_rows(options.store, since_s),
        options.store,
        by=options.by,
        prices=prices,
        since_s=since_s,
    )
    document = write_fleet(answer)
    if options.json:
        from fuelline.schema.foreign import encode_json  # noqa: PLC0415 - likewise

        sys.stdout.write(encode_json(answer) + "\n")
    else:
        render_terminal(document, sys.stdout)
    write_page(options.html, document, "fleet")
    say_page(options.html, beside_data=options.json)
    return 0


def _add(options: argparse.Namespace) -> None:
    from fuelline.fleet.sending import add_row  # noqa: PLC0415 - loads polars

    batch_id = os.environ.get(BATCH_VARIABLE, "") if options.epilog else ""
    for run_dir in map(find_run, options.add):
        place = add_row(run_dir, options.store, batch_id)
        if not options.epilog:
            print(f"added {place}", file=sys.stderr if options.json else sys.stdout)


def _print_epilog(store: str, prices: Mapping[str, float]) -> int:
    from fuelline.fleet.reckoning import find_price  # noqa: PLC0415 - loads polars
    from fuelline.fleet.shelf import find_row  # noqa: PLC0415 - likewise
    from fuelline.report.diagnosis.fleet import write_epilog  # noqa: PLC0415 - loads rich

    batch_id = os.environ.get(BATCH_VARIABLE, "")
    run = find_row(store, batch_id)
    if run is None:
        which = f"batch job {batch_id}" if batch_id else "this host"
        print(f"fuelline: no run of {which} in {store}")
    else:
        print(write_epilog(run, find_price(run.chip, prices)))
    return 0


def _parse_prices(words: str | None) -> dict[str, float]:
    """`h100=2.5,a100=1.6`, or one number for all chips."""
    from fuelline.schema.diagnosis.fleet import EVERY_CHIP  # noqa: PLC0415 - loads msgspec

    if words is None:
        price = read_config().price
        return {} if price is None else {EVERY_CHIP: price}
    prices = {}
    for part in words.split(","):
        chip, _, price_word = part.rpartition("=")
        try:
            price = float(price_word)
        except ValueError:
            price = -1.0
        if not 0 < price < _MOST_USD:
            raise UsageError(
                f"--price {part!r} is not a price in USD between 0 and 1,000,000. Nothing was "
                "summed up. Write --price 2.5, or --price h100=2.5,a100=1.6."
            )
        prices[chip.strip().lower() or EVERY_CHIP] = price
    return prices
