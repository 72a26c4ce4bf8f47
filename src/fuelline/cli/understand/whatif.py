"""`fuelline whatif`: the pipeline model of a recorded run, asked by hand."""

from __future__ import annotations

import argparse
import re
import sys

from fuelline.api.questions import MOST_WORKERS, read_probe
from fuelline.cli.record.run import add_price
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.storages import STORAGE_NAMES
from fuelline.schema.errors import InputError, UsageError
from fuelline.schema.parts import PAUSES, Pause
from fuelline.schema.plan.catalogue import nearest
from fuelline.schema.plan.chips import find_chip, list_chips
from fuelline.store.runs import RUN_HELP, find_run, name_run

_EPILOG = """\
examples:
  fuelline whatif                              what would help the last run most
  fuelline whatif --workers 8 --prefetch 4
  fuelline whatif RUN --workers 8 --storage nvme --chip 3x
  fuelline whatif --chip B200                  a chip other than the recorded
  fuelline whatif --storage warm --transform 2x   data in memory, half the CPU
  fuelline whatif --storage probe.json         this disk, as `probe` measured it
  fuelline whatif --rarer checkpoint=10        ten times fewer checkpoints

Every answer is a speedup in samples per second against the recording, with a
90 % interval, and the limit that comes next. Where the recording has no
evidence, the answer is "cannot tell", and why. docs/predict.md explains how.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "whatif",
        help="predict the effect of other settings, storage or hardware",
        description="Predict how a recorded run would change. Options combine freely.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", nargs="?", help=RUN_HELP)
    _add_loader(parser)
    _add_machine(parser)
    parser.add_argument("--json", action="store_true", help="print JSON (default: sentences)")
    add_price(parser)
    parser.set_defaults(act=act, reads=lambda options: [find_run(options.run)])


def _add_loader(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the loader")
    group.add_argument(
        "--workers",
        type=_Count(0, MOST_WORKERS),
        metavar="N",
        help="loader processes (default: as recorded)",
    )
    group.add_argument(
        "--prefetch",
        type=_Count(1, 1000),
        metavar="N",
        help="batches that each worker keeps ready (default: as recorded)",
    )
    group.add_argument("--pin", choices=("on", "off"), help="pinned memory (default: as recorded)")
    group.add_argument(
        "--persistent",
        choices=("on", "off"),
        help="workers live through all epochs (default: as recorded)",
    )
    group.add_argument(
        "--batch-size",
        type=_Count(1, 10**7),
        metavar="N",
        help="samples in a batch (default: as recorded)",
    )
    group.add_argument(
        "--storage",
        type=_storage,
        metavar="KIND",
        help=f"{', '.join(STORAGE_NAMES)}, a factor such as 2x, or the JSON of a probe "
        "(default: as recorded)",
    )
    group.add_argument(
        "--transform",
        type=_factor,
        metavar="2x",
        help="preparing samples takes half the CPU time (default: 1x)",
    )
    group.add_argument(
        "--handoff",
        type=_factor,
        metavar="2x",
        help="handing batches over takes half the time (default: 1x)",
    )
    group.add_argument(
        "--rarer",
        type=_rarer,
        action="append",
        default=[],
        metavar="PART=N",
        help=f"N times fewer pauses: {', '.join(PAUSES)}; repeatable (default: none)",
    )


def _add_machine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the machine")
    group.add_argument(
        "--chip",
        type=_chip,
        metavar="3x",
        help="a device 3 times as fast, or a chip from the catalogue such as H100-SXM-80GB instead "
        "of the recorded one (default: 1x)",
    )
    group.add_argument(
        "--cores",
        type=_cores,
        metavar="N",
        help="CPU cores that the job may use (default: as recorded)",
    )
    group.add_argument(
        "--alone", action="store_true", help="nobody else uses the cores and storage (default: off)"
    )
    group.add_argument(
        "--ranks",
        type=_Count(1, 64),
        metavar="N",
        help="number of such training processes on this host (default: 1)",
    )


def act(options: argparse.Namespace) -> int:
    """Print the answer."""
    from fuelline import pipeline  # noqa: PLC0415 - `fuelline --help` need not load polars

    run_dir = find_run(options.run)
    question = _question(options)
    if options.json:
        sys.stdout.write(pipeline.ask_as_json(run_dir, question, options.price) + "\n")
    else:
        pipeline.show_forecasts(
            run_dir,
            question,
            name=name_run(run_dir),
            price=options.price,
            stream=sys.stdout,
        )
    return 0


def _question(options: argparse.Namespace) -> WhatIf:
    if options.workers == 0 and options.prefetch is not None:
        raise UsageError(
            "--prefetch needs workers, and --workers is 0. Nothing was asked. "
            "Leave one of the two out."
        )
    return WhatIf(
        workers=options.workers,
        prefetch=options.prefetch,
        pin=_switch(options.pin),
        persistent=_switch(options.persistent),
        batch_size=options.batch_size,
        storage=options.storage,
        transform_factor=options.transform,
        handoff_factor=options.handoff,
        chip_factor=options.chip if isinstance(options.chip, float) else None,
        cores=options.cores,
        alone=options.alone,
        ranks=options.ranks,
        rarer=dict(options.rarer),
        measured=read_probe(options.storage),
        chip=options.chip if isinstance(options.chip, str) else None,
    )


def _switch(word: str | None) -> bool | None:
    return None if word is None else word == "on"


class _Count:
    """A whole number between two others."""

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def __call__(self, word: str) -> int:
        if not word.isdecimal() or not self.least <= int(word) <= self.most:
            raise argparse.ArgumentTypeError(
                f"{word!r} is not a whole number from {self.least} to {self.most:,}"
            )
        return int(word)


def _factor(word: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)x?", word)
    value = float(found[1]) if found else 0.0
    if not 0.01 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{word!r} is not a factor such as 3x (0.01x to 1000x)")
    return value


def _chip(word: str) -> float | str:
    if re.fullmatch(r"[\d.]+x?", word):
        return _factor(word)
    try:
        return find_chip(word).name
    except InputError:
        close = ", ".join(nearest(word, (chip.name for chip in list_chips()))) or "none"
        raise argparse.ArgumentTypeError(
            f"{word!r} is neither a factor such as 3x nor a chip of the catalogue; nearest: {close}"
        ) from None


def _storage(word: str) -> str:
    if word in STORAGE_NAMES:
        return word
    if re.fullmatch(r"\d+(?:\.\d+)?x", word):
        return f"{_factor(word):g}x"
    if word.endswith(".json"):
        return word
    raise argparse.ArgumentTypeError(
        f"{word!r} is neither a kind of storage ({', '.join(STORAGE_NAMES)}) nor a factor (2x) "
        "nor what `fuelline probe --json` wrote (probe.json)"
    )


def _cores(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0.1 <= value <= 4096:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of cores from 0.1 to 4096")
    return value


def _rarer(word: str) -> tuple[Pause, float]:
    name, _, factor = word.partition("=")
    part = next((pause for pause in PAUSES if pause == name), None)
    if part is None or not factor:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not PART=N with one of {', '.join(PAUSES)}, such as checkpoint=10"
        )
    return part, _factor(factor)
