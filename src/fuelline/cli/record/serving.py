"""`run --packed` and `run --cache`: files that the job reads from a pack or a local copy."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.saying import say
from fuelline.fix.job_site import PATHS_VARIABLE, put_on_path
from fuelline.schema.errors import UsageError
from fuelline.schema.units import count, size
from fuelline.store.home import compared_folder, home_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_UNITS = {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
DEFAULT_BUDGET = 20 << 30
PROGRESS_S = 10.0
"""Between two lines of progress: a terminal shows that it goes on, and the log of a terabyte at
1 GB/s grows by a hundred lines."""


def add_serving(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    parser.add_argument(
        "--packed",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="read the folder that `fuelline pack` packed into DIR from the pack; repeatable "
        "(default: none)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="keep copies of files from network and FUSE mounts here (default: that of the "
        "configuration file, else no cache)",
    )
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="no cache, whatever the configuration file says (default: off)",
    )
    parser.add_argument(
        "--cache-shared",
        action="store_true",
        help="the cache folder is shared with other users: every copy is checked by a "
        "hash before the job gets it (default: the folder must be yours alone)",
    )
    parser.add_argument(
        "--cache-size",
        type=_size,
        default=DEFAULT_BUDGET,
        metavar="20G",
        help="most bytes of copies, at least 1M (default: 20G)",
    )
    parser.add_argument(
        "--cache-from",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="cache files below this folder instead; repeatable (default: slow mounts)",
    )


@contextlib.contextmanager
def serve_files(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Variables that the job needs for it; none if nothing is to be served."""
    if options.cache is None and (options.cache_from or options.cache_shared):
        word = "--cache-from" if options.cache_from else "--cache-shared"
        raise UsageError(
            f"{word} says how to cache, but --cache was not given. Nothing was started. Add "
            "--cache DIR."
        )
    if options.cache is None and not options.packed:
        yield {}
        return
    with contextlib.ExitStack() as stack:
        plan: dict[str, object] = {}
        if options.packed:
            plan = _open_packs(options.packed)
        if options.cache is not None:
            plan["cache"] = _open_cache(options, stack)
        yield {PATHS_VARIABLE: json.dumps(plan), **put_on_path()}


def _open_packs(folders: list[Path]) -> dict[str, object]:
    from fuelline.fix.files.checking import compare_large, open_records  # noqa: PLC0415 - only for packs

    compared = open_records(compared_folder(), run=os.urandom(8).hex())
    for folder in folders:
        _look_at_source(folder)
        compare_large(folder, compared, _tell_progress(folder))
    if compared.problem is not None:
        say(
            f"the store of runs cannot record that these files were compared ({compared.problem}), "
            "so each process of the job that opens one of them compares it again. FUELLINE_HOME "
            "names another store."
        )
    return {
        "packed": [str(folder.absolute()) for folder in folders],
        "compared": {"folder": compared.folder, "run": compared.run},
    }


def _tell_progress(folder: Path) -> Callable[[int, int, int], None]:
    """A line at the beginning, and others if it takes long."""
    next_s = 0.0

    def report(files: int, done_bytes: int, of_bytes: int) -> None:
        nonlocal next_s
        now_s = time.monotonic()
        if not done_bytes:
            files_words = count(files, "large file")
            say(
                f"{folder}: comparing {files_words}, {size(of_bytes)}, with the checksums before "
                "the job starts"
            )
        elif now_s > next_s:
            say(f"{folder}: {size(done_bytes)} of {size(of_bytes)} compared")
        else:
            return
        next_s = now_s + PROGRESS_S

    return report


def _look_at_source(folder: Path) -> None:
    from fuelline.fix.files.checking import spot_check  # noqa: PLC0415 - as above

    spot = spot_check(folder)
    if spot.differs:
        looked = f"{spot.looked:,} of {spot.of:,}" if spot.looked < spot.of else f"{spot.of:,}"
        say(
            f"{folder} is older than its source: of {looked} files and folders looked at "
            f"{len(spot.differs):,} have changed since, such as {spot.differs[0]}. The job gets "
            "what was packed. `fuelline pack --check` lists them; pack again into another folder "
            "to get the new ones."
        )


def _open_cache(options: argparse.Namespace, stack: contextlib.ExitStack) -> dict[str, object]:
    from fuelline.fix.files.caching import open_cache, open_shared_cache  # noqa: PLC0415 - as above
    from fuelline.schema.mounts import find_slow_mounts  # noqa: PLC0415

    folder = options.cache.absolute()
    roots = [str(path.absolute()) for path in options.cache_from]
    if not roots:
        mounts = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
        roots = find_slow_mounts(mounts)
    inside = [root for root in roots if folder.is_relative_to(root)]
    if inside:
        raise UsageError(
            f"The cache {folder} is inside {inside[0]}, the slow storage it should replace. "
            "Nothing was started. Name a folder on a local disk."
        )
    if not roots:
        say(
            "no network or FUSE mount here, so nothing will be cached. "
            "--cache-from PATH names a folder."
        )
    plan: dict[str, object] = {
        "folder": str(folder),
        "budget_bytes": options.cache_size,
        "roots": roots,
        "run_began_ns": time.time_ns(),
    }
    if options.cache_shared:
        key_file = home_folder() / "cache.key"
        open_shared_cache(folder, options.cache_size, key_file)
        plan["key_file"] = str(key_file.absolute())
    else:
        stack.enter_context(open_cache(folder, options.cache_size))
    return plan


def _size(word: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([MGT])i?B?", word)
    value = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if value < 1 << 20:
        raise argparse.ArgumentTypeError(f"{word!r} is not a size such as 20G, at least 1M")
    return value
