"""`fuelline feed`: how fast can this input pipeline go, and which accelerator would it starve?"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from fuelline.cli.pages import add_junit, check_junit
from fuelline.cli.record.endings import clean_up_on_signals
from fuelline.cli.record.orphans import adopt_orphans, end_orphans
from fuelline.cli.record.run import add_no_command, resolve_command
from fuelline.fix.job_site import FEED_VARIABLE, put_on_path
from fuelline.record.launch import launch
from fuelline.schema.diagnosis.feeding import FeedAccount, FeedRequest
from fuelline.schema.diagnosis.workloads import WORKLOADS
from fuelline.schema.errors import InputError, RefusedError, UsageError

if TYPE_CHECKING:
    from fuelline.record.launch import JobOutcome
    from fuelline.schema.diagnosis.feeding import Feed, SeenLoader

DEFAULT_S = 15.0
"""Ten blocks of 1.5 s: the interval's batch means then outlast any burst of prefetched batches."""
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

_EPILOG = """\
examples:
  fuelline feed train.py --epochs 2               at full speed
  fuelline feed --step 45ms train.py              for a device of 45 ms per step
  fuelline feed --rate 2900/s train.py            or of 2,900 samples/s
  fuelline feed --workload resnet50 train.py      which chips could it feed?

The script's own setup runs unchanged. At the first batch of the training
loader the script stops: no model is run, nothing after that point runs, and
nothing is written. Its output goes to standard error.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "feed",
        help="measure how fast the input pipeline can go, and which chips it would starve",
        description="Run the training loader of an unmodified script without its model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fuelline feed [options] SCRIPT.py | -m MODULE | COMMAND ...",
    )
    device = parser.add_mutually_exclusive_group()
    device.add_argument(
        "--step",
        type=_step,
        metavar="45ms",
        help="emulate an accelerator that takes this long per batch (default: full speed)",
    )
    device.add_argument(
        "--rate",
        type=_rate,
        metavar="2900/s",
        help="emulate an accelerator that takes this many samples per second (default: full speed)",
    )
    parser.add_argument(
        "--workload",
        choices=[each.name for each in WORKLOADS],
        help="show which chips the pipeline could feed in this workload (default: none)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=DEFAULT_S,
        metavar="S",
        help=f"how long to measure, 1 to 3600 (default: {DEFAULT_S:g})",
    )
    parser.add_argument(
        "--loader",
        type=_loader,
        metavar="N",
        help="use the N-th loader that the script iterates (default: the training loader)",
    )
    parser.add_argument(
        "--at-least",
        type=_percent,
        metavar="PERCENT",
        help="exit with 1 if the accelerator's utilisation is below this (default: exit with 0)",
    )
    parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="keep the recording of the measurement here (default: not kept)",
    )
    add_no_command(parser)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON (default: a report)")
    shape.add_argument("--markdown", action="store_true", help="print Markdown (default: a report)")
    add_junit(parser)
    parser.add_argument("job", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Drive the loader, judge, print."""
    command = resolve_command(options.job)
    request = _request(options)
    check_junit(options.junit)
    if options.run_dir is not None and options.run_dir.exists():
        raise UsageError(
            f"{options.run_dir} already exists. Nothing was started. Name a new folder."
        )
    with (
        clean_up_on_signals(),
        tempfile.TemporaryDirectory(prefix="fuelline-feed-") as scratch,
    ):
        folder = Path(scratch)
        outcome = _run(command, folder, request, [] if options.no_command else None)
        accounts = _read_accounts(folder)
        _check(accounts, outcome, request)
        feed = _judge(folder / "run", accounts, request)
        if options.run_dir is not None:
            shutil.copytree(folder / "run", options.run_dir)
    _show(feed, options)
    return _exit_code(feed, options.at_least)


def _request(options: argparse.Namespace) -> FeedRequest:
    if options.at_least is not None and options.step is None and options.rate is None:
        raise UsageError(
            "--at-least needs an accelerator: --step 45ms or --rate 2900/s. Nothing was started."
        )
    if options.junit is not None and options.at_least is None:
        raise UsageError(
            "--junit says whether --at-least is met, which was not given. Nothing was started. "
            "Add --at-least 90."
        )
    return FeedRequest(
        seconds=options.seconds,
        step_seconds=options.step,
        samples_per_s=options.rate,
        loader=options.loader,
        workload=options.workload,
    )


def _run(
    command: list[str], folder: Path, request: FeedRequest, shown: list[str] | None
) -> JobOutcome:
    """Run the script until its loader is measured; whatever it leaves behind is ended."""
    adopt_orphans()
    more = {
        FEED_VARIABLE: str(_write_plan(folder, request)),
        **put_on_path(),
        "PYTHONDONTWRITEBYTECODE": "1",  # nothing changes on disk
    }
    try:
        outcome = launch(
            command, folder / "run", more=more, stdout=sys.stderr.fileno(), shown=shown
        )
    finally:
        end_orphans()
    if outcome.problem is not None:
        raise RefusedError(
            f"The loader could not be recorded: {outcome.problem}. Nothing was measured. "
            "`fuelline doctor` shows what this machine allows."
        )
    return outcome


def _write_plan(folder: Path, request: FeedRequest) -> Path:
    step = request.step_seconds
    plan = {
        "folder": str(folder),
        "seconds": request.seconds,
        "step_ns": None if step is None else round(step * 1e9),
        "samples_per_s": request.samples_per_s,
        "loader": request.loader,
    }
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    return path


def _read_accounts(folder: Path) -> list[FeedAccount]:
    return [
        msgspec.json.decode(path.read_bytes(), type=FeedAccount)
        for path in sorted(folder.glob("feed-*.json"))
    ]


def _check(accounts: list[FeedAccount], outcome: JobOutcome, request: FeedRequest) -> None:
    """Raise, with what is known, if no loader was driven to a result."""
    driven = [account for account in accounts if account.number is not None]
    problem = next((each.problem for each in driven if each.problem), None)
    refusal = next(
        (each.problem for each in accounts if each.number is None and each.problem), None
    )
    if any(len(account.waits_ns) > account.warm for account in driven):
        return
    if problem is not None:
        raise InputError(
            f"The loader failed before there was anything to measure: {problem}. The script was "
            "ended. `python SCRIPT` shows the same error with its traceback."
        )
    if refusal is not None:
        raise InputError(
            f"There is no loader to feed: {refusal}. The script was ended when that was seen, and "
            "nothing of it ran after that. `fuelline run` records what it does."
        )
    code = outcome.returncode
    ending = f"exit code {code}" if code >= 0 else f"signal {-code}"
    if any(account.driving for account in accounts):
        raise InputError(
            f"The script was killed ({ending}) while its loader was measured, perhaps for lack of "
            "memory. There is no result. Fewer workers or a smaller batch need less."
        )
    which = "a training loader" if request.loader is None else f"loader {request.loader}"
    seen = [loader for account in accounts for loader in account.seen]
    raise InputError(
        f"The script ended ({ending}) before it iterated {which}. {_advise(seen, code=code)}"
    )


def _advise(seen: list[SeenLoader], *, code: int) -> str:
    """What was seen instead, and the next command."""
    if not seen:
        return (
            "It never iterated a torch DataLoader, so there is nothing to feed. "
            "`fuelline run SCRIPT` records what it does."
        )
    names = ", ".join(f"{at}. {each.dataset}" for at, each in enumerate(seen, start=1))
    if code:
        return (
            f"It iterated {names} and then failed by itself, as its output above shows. "
            "Fix that first: `python SCRIPT` shows the same."
        )
    return (
        f"It iterated {names}, in fixed order, and ran no backward pass that would show training. "
        "`fuelline feed --loader 1 SCRIPT` measures the first one anyway."
    )


def _judge(run_dir: Path, accounts: list[FeedAccount], request: FeedRequest) -> Feed:
    from fuelline import pipeline  # noqa: PLC0415 - polars takes 0.3 s to import

    driven = [account for account in accounts if len(account.waits_ns) > account.warm]
    return pipeline.judge_feed(run_dir, driven, request)


def _show(feed: Feed, options: argparse.Namespace) -> None:
    from fuelline import pipeline  # noqa: PLC0415 - as in `_judge`

    shape: Literal["json", "markdown", "report"] = "report"
    if options.json or options.markdown:
        shape = "json" if options.json else "markdown"
    pipeline.show_feed(feed, sys.stdout, shape=shape)
    if options.junit is not None:
        pipeline.check_feed(feed, options.at_least, options.junit)


def _exit_code(feed: Feed, at_least: float | None) -> int:
    if feed.problem == "KeyboardInterrupt":
        return 130
    busy = getattr(feed.utilisation, "value", None)
    return 1 if at_least is not None and (busy is None or busy < at_least) else 0


def _step(word: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", word)
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 1e-6 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{word!r} is not a time such as 45ms (us, ms or s)")
    return value


def _rate(word: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/s)?", word)
    value = float(found[1]) if found else 0.0
    if not 0 < value <= 1e9:
        raise argparse.ArgumentTypeError(f"{word!r} is not a rate such as 2900/s")
    return value


def _seconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds from 1 to 3600")
    return value


def _loader(word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= 1000:
        raise argparse.ArgumentTypeError(f"{word!r} is not a loader's number from 1 to 1000")
    return int(word)


def _percent(word: str) -> float:
    try:
        value = float(word.rstrip("%"))
    except ValueError:
        value = -1.0
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"{word!r} is not a percentage from 0 to 100")
    return value / 100
