"""`fuelline tune`: find the loader settings that feed the device with the least, and the patch."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline import __version__
from fuelline.cli.fix.trial_runs import Report, Turns, record_baseline, run_turns
from fuelline.cli.record.endings import clean_up_on_signals
from fuelline.cli.record.run import resolve_command
from fuelline.cli.saying import ProgressLine, say
from fuelline.fix.tune.patching import NoPatch, Patch, make_patch
from fuelline.fix.tune.search import Seed, choose, confirm, count_resources, explain, tune
from fuelline.fix.tune.undoing import apply_change
from fuelline.schema.diagnosis.trials import Setting, Tuning
from fuelline.schema.errors import InputError
from fuelline.schema.foreign import encode_json
from fuelline.schema.names import clean
from fuelline.store.runs import undo_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.fix.tune.search import MeasuredSetting

_EPILOG = """\
examples:
  fuelline tune train.py --data /data    try settings and print a patch
  fuelline tune --apply train.py         and apply it; `fuelline undo` reverts

The script runs twice, for about a minute of training: once unchanged and
recorded, for the pipeline model; once with the recommended setting and some
around it, in turns inside its own loop. It is ended by SystemExit, so anything
it writes before that stays. The script is not changed without --apply; if the
patch cannot be written then, the exit code is 3.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "tune",
        help="find the smallest loader settings that keep the device busy; prints a patch",
        description="Try loader settings on the job itself, starting from the pipeline model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fuelline tune [options] SCRIPT.py | -m MODULE ...",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=3.0,
        metavar="S",
        help="seconds of training per trial (default: 3)",
    )
    parser.add_argument(
        "--rounds", type=_rounds, default=2, metavar="N", help="trials of each setting (default: 2)"
    )
    parser.add_argument("--apply", action="store_true", help="write the patch (default: print it)")
    parser.add_argument("--json", action="store_true", help="print JSON (default: sentences)")
    parser.add_argument("job", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(act=act)


def _seconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0.5 <= value <= 120:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds from 0.5 to 120")
    return value


def _rounds(word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= 20:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of rounds from 1 to 20")
    return int(word)


def act(options: argparse.Namespace) -> int:
    """Record, predict, try, choose, print."""
    command = resolve_command(options.job)
    with (
        clean_up_on_signals(),
        tempfile.TemporaryDirectory(prefix="fuelline-tune-") as folder,
    ):
        session = _TuneSession(command, Path(folder), options)
        tuning, patch = session.tune()
    if options.json:
        sys.stdout.write(encode_json(tuning) + "\n")
    else:
        _show(tuning, is_written=options.apply)
    if options.apply:
        _apply(tuning, patch)
    return 0


class _TuneSession:
    """One tuning: what was recorded, tried and chosen."""

    def __init__(self, command: list[str], folder: Path, options: argparse.Namespace) -> None:
        self._command = command
        self._folder = folder
        self._options = options
        self._said: list[str] = []
        self._trial_s = 0.0
        self._report: Report | None = None
        self._job_batches: int | None = None
        self._progress = ProgressLine()

    def tune(self) -> tuple[Tuning, Patch | NoPatch]:
        """The whole of it."""
        from fuelline import pipeline  # noqa: PLC0415 - `fuelline --help` need not load polars

        say("Recording the job as it is ...")
        baseline = record_baseline(self._command, self._folder)
        self._trial_s += baseline.seconds
        cores = float(len(os.sched_getaffinity(0)))
        self._job_batches = baseline.job_batches
        workers = int(count_resources((), baseline.report.settings())[0])
        found, predicted = pipeline.seed_run(
            baseline.run_dir, cores, workers, job_batches=baseline.job_batches
        )
        seeds = [Seed(each.settings, each.predicted, each.most) for each in found]
        turns = self._options.rounds * (len(seeds) + 1)
        say(f"Trying {len(seeds)} settings against it, {turns} turns in all ...")
        trials = tune(seeds, self._measure)
        self._progress.end()
        report = self._report or baseline.report
        now = report.settings()
        chosen = choose(trials, now)
        patch = _find_patch(report, chosen)
        return Tuning(
            fuelline_version=__version__,
            now=now,
            trials=trials,
            chosen=chosen,
            steps=[*_about(baseline.report), *explain(trials)],
            trial_seconds=self._trial_s,
            patch=patch.diff() if isinstance(patch, Patch) else "",
            paste=f"DataLoader(..., {', '.join(each.text() for each in chosen)})" if chosen else "",
            script=report.script(),
            recommended=confirm(trials, chosen, now, predicted),
        ), patch

    def _measure(self, settings: Sequence[tuple[Setting, ...]]) -> list[MeasuredSetting]:
        rounds = self._options.rounds
        turns = Turns(settings, self._options.seconds, rounds, self._job_batches)

        def tell(number: int, position: int) -> None:
            words = ", ".join(each.text() for each in settings[position]) or "as it is"
            place = number * len(settings) + position + 1
            if number % 2:
                place = (number + 1) * len(settings) - position
            self._progress.show(f"turn {place} of {rounds * len(settings)}: {words}")

        self._report = run_turns(self._command, self._folder, turns, tell)
        self._trial_s += self._report.seconds
        return self._report.measured(len(settings))


def _about(report: Report) -> list[str]:
    now = ", ".join(setting.text() for setting in report.settings())
    return [f"The job's loader has {now}, made at {report.site or 'an unknown place'}."]


def _find_patch(report: Report, chosen: list[Setting]) -> Patch | NoPatch:
    if not chosen:
        return NoPatch("nothing need change")
    path, line = report.place()
    if path is None:
        return NoPatch("the line that makes the loader is not known")
    try:
        source = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as problem:
        return NoPatch(f"{path} cannot be read ({problem})")
    return make_patch(str(path), source, line, chosen)


def _show(tuning: Tuning, *, is_written: bool) -> None:
    from fuelline import pipeline  # noqa: PLC0415 - as above

    pipeline.show_tuning(tuning, sys.stdout, is_written=is_written)
    if tuning.patch:
        print(f"\n{clean_lines(tuning.patch)}")


def clean_lines(text: str) -> str:
    """A diff as it is, but nothing that a terminal would act on."""
    return "\n".join(clean(line) for line in text.split("\n"))


def _apply(tuning: Tuning, patch: Patch | NoPatch) -> None:
    if isinstance(patch, NoPatch):
        if not tuning.chosen:
            say(f"Nothing was written: {patch.reason}.")
            return
        raise InputError(
            f"Nothing was written: {patch.reason}, which only you can change. The trials still "
            f"hold: write {tuning.paste} there by hand, and `fuelline run` shows what it gains."
        )
    script = Path(patch.path)
    made_ns = time.time_ns()
    apply_change(script, patch.before.encode(), patch.after.encode(), undo_folder(), made_ns)
    say(f"{script} was changed. `fuelline undo` restores it. Next: fuelline run {script}")
