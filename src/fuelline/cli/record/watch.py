"""`fuelline watch`: a running job, live, from another terminal."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from fuelline.cli.record.keyboard import Keyboard, keep_terminal
from fuelline.cli.record.so_far import VerdictSoFar
from fuelline.store.runs import find_run, list_runs, name_run

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.pipeline import RunWatch
    from fuelline.report import View
    from fuelline.schema.diagnosis.live import Snapshot

_EPILOG = """\
examples:
  fuelline watch                    the job that is running now
  fuelline watch --once             one snapshot; plain text in a pipe
  fuelline watch --json             for programs: a snapshot a line
  fuelline watch 20260412-0930      a run by the start of its id

keys: s sort, r reverse, w workers, p pause, ? help, q quit. The job does not
notice any of it.
"""
_LEAVE = frozenset({"q", "Q", "escape", "\x03"})


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "watch",
        help="watch a running job live, from another terminal",
        description="Show a running job: its pace, where its last seconds went, its workers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "run",
        nargs="?",
        help="a run's folder or id (default: the newest running one, else the last)",
    )
    parser.add_argument(
        "--once", action="store_true", help="print one snapshot and exit (default: off)"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print snapshots as JSON, one a line, until the job has ended (default: the screen)",
    )
    parser.add_argument(
        "--workers", action="store_true", help="show the loaders' workers as well (default: off)"
    )
    parser.add_argument(
        "--interval",
        type=_interval,
        default=1.0,
        metavar="SECONDS",
        help="seconds between updates, 0.2 to 60 (default: 1)",
    )
    parser.set_defaults(
        act=act,
        reads=lambda options: [_choose(options)],
        takes=lambda: keep_terminal(sys.stdin, sys.stdout),
    )


def _interval(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0.2 <= value <= 60:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds from 0.2 to 60")
    return value


def act(options: argparse.Namespace) -> int:
    """Watch until asked to quit, or look once."""
    from fuelline import pipeline  # noqa: PLC0415 - `fuelline --help` need not load polars
    from fuelline.report import View, print_snapshot  # noqa: PLC0415

    run_dir = _choose(options)
    watch = pipeline.RunWatch(run_dir)
    if options.json:
        return _print_json(watch, options)
    view = View(workers=options.workers)
    if not options.once and sys.stdin.isatty() and sys.stdout.isatty():
        with VerdictSoFar(run_dir) as verdict:
            follows = options.run is None
            session = _WatchSession(watch, view, verdict, options.interval, follows=follows)
            left_by = session.run()
        if left_by not in {None, signal.SIGINT}:  # Ctrl-C is a key like the others
            return _die_of(left_by)
        print_snapshot(session.snapshot, view, sys.stdout, name_run(session.watch.run_dir))
        return 0
    with VerdictSoFar(run_dir) as verdict:
        verdict.follow(run_dir, is_over=False)
        watch.look_at_all()
        verdict.wait()
    snapshot = verdict.put_into(watch.snapshot(workers=view.workers))
    print_snapshot(snapshot, view, sys.stdout, name_run(run_dir))
    return 0


def _print_json(watch: RunWatch, options: argparse.Namespace) -> int:
    """For programs, `fuelline serve` among them: a line now and then, the last when it is over."""
    from fuelline.schema.foreign import encode_json  # noqa: PLC0415 - as above

    wait = threading.Event().wait
    with VerdictSoFar(watch.run_dir, growing=3) as verdict:
        while True:
            if options.once:
                watch.look_at_all()
            else:
                watch.look()
            snapshot = watch.snapshot(workers=options.workers)
            is_over = snapshot.state in {"ended", "lost"}
            verdict.follow(watch.run_dir, is_over=is_over)
            if options.once:
                verdict.wait()
            print(encode_json(verdict.put_into(snapshot), is_indented=False), flush=True)
            if is_over or options.once:
                return 0
            wait(options.interval)


def _choose(options: argparse.Namespace) -> Path:
    return (_find_running() if options.run is None else None) or find_run(options.run)


def _find_running() -> Path | None:
    from fuelline.store.listing import find_running  # noqa: PLC0415 - loads msgspec

    return find_running(list_runs())


def _die_of(number: int) -> int:
    """Let the signal do what it would have done without us."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


class _WatchSession:
    """One person at one terminal."""

    def __init__(
        self,
        watch: RunWatch,
        view: View,
        verdict: VerdictSoFar,
        interval_s: float,
        *,
        follows: bool,
    ) -> None:
        from fuelline.report import Painter  # noqa: PLC0415

        self.watch = watch
        self.snapshot: Snapshot = watch.snapshot(workers=view.workers)
        self._view = view
        self._verdict = verdict
        self._interval_s = interval_s
        self._follows = follows
        """Whether to go on with the next run when this one has ended."""
        self._painter = Painter(sys.stdout, interval_s)

    def run(self) -> int | None:
        """Look, draw and listen until asked to quit; gives the signal that asked, if one did."""
        with Keyboard(sys.stdin, sys.stdout) as keyboard:
            due_s = time.monotonic() + self._interval_s
            while True:
                try:
                    self._painter.paint(self.snapshot, self._view, name_run(self.watch.run_dir))
                except OSError:  # the terminal has gone
                    return signal.SIGHUP
                key = keyboard.read(due_s - time.monotonic())
                if keyboard.signal is not None or key in _LEAVE:
                    return keyboard.signal
                self._obey(key)
                if time.monotonic() >= due_s:
                    self._look()
                    due_s = time.monotonic() + self._interval_s

    def _look(self) -> None:
        newer = (
            _find_running() if self._follows and self.snapshot.state in {"ended", "lost"} else None
        )
        if newer is not None and newer != self.watch.run_dir:
            from fuelline import pipeline  # noqa: PLC0415

            self.watch = pipeline.RunWatch(newer)
        self.watch.look()
        if not self._view.paused:
            self._show()

    def _show(self) -> None:
        snapshot = self.watch.snapshot(workers=self._view.workers)
        is_over = snapshot.state in {"ended", "lost"}
        self._verdict.follow(self.watch.run_dir, is_over=is_over)
        self.snapshot = self._verdict.put_into(snapshot)

    def _obey(self, key: str | None) -> None:
        view = self._view
        if key == "s":
            view.next_sort(self.snapshot, self._painter.width)
        elif key == "r":
            view.reverse = not view.reverse
        elif key == "w":
            view.workers = not view.workers
            self._show()
        elif key == "p":
            view.paused = not view.paused
        elif key == "?":
            view.help = not view.help
        elif key in {"up", "k", "down", "j"}:
            view.first += -1 if key in {"up", "k"} else 1
