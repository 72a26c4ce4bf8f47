"""`fuelline pack`: many small files into shards that the unmodified data set reads."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.fix.files.checking import check_pack, open_records
from fuelline.fix.files.packing import pack
from fuelline.schema.errors import InputError, UsageError
from fuelline.schema.names import clean
from fuelline.schema.units import percent, size
from fuelline.store.home import compared_folder

if TYPE_CHECKING:
    from collections.abc import Callable

_EPILOG = """\
examples:
  fuelline pack data/train -o /fast/train.pack
  fuelline run --packed /fast/train.pack train.py --data data/train
  fuelline pack data/train -o /fast/train.pack --check

The source is only read. If packing is interrupted, run the same command again:
it goes on where it stopped.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "pack",
        help="pack many small files into shards that the unmodified data set reads",
        description="Pack a folder of many files into shards that can be read fast.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", type=Path, help="the folder to pack (default: none, needed)")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder for the pack; created if it does not exist (no default)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare an existing pack with its source, byte for byte (default: make one)",
    )
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Make or check one."""
    source, target = options.source.absolute(), options.output.absolute()
    if options.check:
        return _check(source, target)
    if not source.is_dir():
        raise InputError(f"{source} is not a folder. Nothing was packed. Name the data's folder.")
    if target.resolve().is_relative_to(source.resolve()):
        raise UsageError(
            f"{target} is inside {source}, which is never written to. Nothing was packed. "
            "Name a folder elsewhere with -o."
        )
    with _Progress() as progress:
        done = pack(source, target, progress, open_records(compared_folder()))
    overhead = done.pack_bytes / max(1, done.content_bytes) - 1
    count = "1 file" if done.files == 1 else f"{done.files:,} files"
    print(
        f"{count}, {size(done.content_bytes)}, checked byte for byte; "
        f"the pack takes {percent(max(0.0, overhead))} more."
        + (f"\n{done.resumed:,} of them were packed by an earlier attempt." if done.resumed else "")
    )
    if done.skipped:
        some = clean(done.skipped[0])
        print(f"Left out, neither file nor folder: {len(done.skipped)}, e.g. {some}")
    print(clean(f"Next: fuelline run --packed {shlex.quote(str(options.output))} train.py ..."))
    return 0


def _check(source: Path, target: Path) -> int:
    compared = open_records(compared_folder(), believes=False)
    with _Progress() as progress:
        differs = check_pack(source, target, progress, compared)
    for name, why in differs[:20]:
        print(clean(f"{name}: {why}"))
    if differs:
        print(f"{len(differs):,} files differ. Pack anew into another folder.")
        return 1
    print(clean(f"{target} has the bytes of {source}, every file."))
    return 0


class _Progress:
    """A bar on a terminal; nothing elsewhere."""

    def __enter__(self) -> Callable[[int, int], None]:
        if not sys.stderr.isatty():
            return lambda _done, _of: None
        from rich.console import Console  # noqa: PLC0415 - only where someone looks
        from rich.progress import Progress  # noqa: PLC0415 - as above

        self._bar = Progress(console=Console(stderr=True), transient=True)
        self._bar.start()
        task = self._bar.add_task("packing", total=None)

        def report(done: int, of: int) -> None:
            if done % 64 == 0 or done == of:
                word = "checking" if self._is_second(done, of) else "packing"
                self._bar.update(task, completed=done, total=of, description=word)

        return report

    _was_done = False

    def _is_second(self, done: int, of: int) -> bool:
        """The same count runs twice: once packing, once reading back."""
        second = self._was_done
        self._was_done = self._was_done or done == of
        return second

    def __exit__(self, *_: object) -> None:
        bar = getattr(self, "_bar", None)
        if bar is not None:
            bar.stop()
