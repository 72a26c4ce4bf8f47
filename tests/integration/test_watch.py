"""`fuelline watch` on a real terminal beside a real job: keys, signals, all of it given back."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import pytest

from fuelline.store.home import HOME_VARIABLE
from tests.integration.harness import JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.torch

PATIENCE_S = 60
OWN_SCREEN, SHARED_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
CURSOR = "\x1b[?25h"


class Terminal:
    """A terminal with `fuelline watch` in it, and somebody who reads and types."""

    def __init__(self, home: Path, *, can_stop: bool = False) -> None:
        """Its own, so that keys make signals; but a session of its own cannot be stopped."""
        self.master, self.slave = pty.openpty()
        self.resize(30, 80)
        self.before = termios.tcgetattr(self.slave)
        self.text = ""
        self.watch = subprocess.Popen(
            [sys.executable, "-m", "fuelline", "watch", "--interval", "0.2"],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**os.environ, HOME_VARIABLE: str(home), "TERM": "xterm"},
            preexec_fn=os.setpgrp if can_stop else self._own,  # noqa: PLW1509 - no threads here
        )

    def _own(self) -> None:
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    @property
    def frame(self) -> str:
        """The last frame that is whole."""
        whole = re.findall(r"\x1b\[H(.*?)\x1b\[J", self.text, re.DOTALL)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", whole[-1]) if whole else ""

    def wait_for(self, is_there: Callable[[Terminal], bool]) -> None:
        """Read until something shows; a test that waits in vain shows what there was instead."""
        end_s = time.monotonic() + PATIENCE_S
        while not is_there(self):
            assert time.monotonic() < end_s, self.text[-3000:]
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 65536).decode(errors="replace")

    def leave(self) -> int:
        """Wait for the end; gives the exit code."""
        self.wait_for(lambda _: self.watch.poll() is not None)
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")
        return self.watch.returncode

    def is_given_back(self) -> bool:
        return (
            termios.tcgetattr(self.slave) == self.before
            and self.text.count(SHARED_SCREEN) == self.text.count(OWN_SCREEN) == 1
            and CURSOR in self.text
        )

    def close(self) -> None:
        if self.watch.poll() is None:
            self.watch.kill()
        self.watch.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run store in which a job runs for as long as the tests of this file."""
    home = tmp_path_factory.mktemp("home")
    command = ["-m", "fuelline", "run", "--quiet", "steady.py"]  # a long path would be cut short
    job = subprocess.Popen(
        [sys.executable, *command],
        cwd=JOBS,
        stdin=subprocess.PIPE,
        env={**os.environ, HOME_VARIABLE: str(home), "RANK": "5"},
    )
    end_s = time.monotonic() + PATIENCE_S
    while not list(home.glob("runs/*/run.json")):
        assert time.monotonic() < end_s
        time.sleep(0.1)
    yield home
    job.communicate(b"\n", timeout=PATIENCE_S)
    assert job.returncode == 0


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    opened = Terminal(home)
    yield opened
    opened.close()


@pytest.fixture
def stoppable(home: Path) -> Iterator[Terminal]:
    opened = Terminal(home, can_stop=True)
    yield opened
    opened.close()


def has_steps(terminal: Terminal) -> bool:
    return (
        re.search(r"^ +5 +\d+ +[\d,]+ +[\d.]+ +[\d.]+ ms", terminal.frame, re.MULTILINE) is not None
    )


def test_a_running_job_is_shown_and_left_with_q(terminal: Terminal) -> None:
    terminal.wait_for(has_steps)
    assert "steady.py" in terminal.frame
    assert "running for" in terminal.frame
    settings = termios.tcgetattr(terminal.slave)
    assert not settings[3] & (termios.ECHO | termios.ICANON)
    terminal.type("q")
    assert terminal.leave() == 0
    assert terminal.is_given_back()
    assert "The diagnosis so far: fuelline diagnose" in terminal.text.rpartition(SHARED_SCREEN)[2]


def test_keys_sort_show_workers_pause_and_help(terminal: Terminal) -> None:
    terminal.wait_for(has_steps)
    terminal.type("w")
    terminal.wait_for(lambda shown: len(re.findall(r"^ +[01] +\d+ ", shown.frame, re.M)) == 2)
    assert " trainer " in terminal.frame
    terminal.type("s")
    terminal.wait_for(lambda shown: "pid▲" in shown.frame)
    terminal.type("sr")
    terminal.wait_for(lambda shown: "steps▲" in shown.frame)
    terminal.type("?")
    terminal.wait_for(lambda shown: shown.frame.startswith("Keys"))
    terminal.type("?p")
    terminal.wait_for(lambda shown: "paused" in shown.frame)
    held = terminal.frame
    seen = len(terminal.text)
    terminal.wait_for(lambda shown: shown.text.count("\x1b[J", seen) > 3)
    assert terminal.frame == held
    terminal.type("p")
    terminal.wait_for(lambda shown: "paused" not in shown.frame)
    terminal.type("\x1b[A\x1b[B")  # arrows begin like Escape
    terminal.wait_for(lambda shown: shown.frame != held)
    terminal.type("\x1b")
    assert terminal.leave() == 0
    assert terminal.is_given_back()


def test_a_resized_window_is_filled_anew(terminal: Terminal) -> None:
    terminal.wait_for(has_steps)
    terminal.resize(30, 130)
    terminal.watch.send_signal(signal.SIGWINCH)
    terminal.wait_for(lambda shown: "samples/s" in shown.frame)
    terminal.type("\x03")  # Ctrl-C
    assert terminal.leave() == 0
    assert terminal.is_given_back()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it_with_the_terminal_given_back(
    terminal: Terminal, number: signal.Signals
) -> None:
    terminal.wait_for(lambda shown: shown.frame != "")
    terminal.watch.send_signal(number)
    assert terminal.leave() == -number
    assert terminal.is_given_back()


def test_when_stopped_it_gives_the_terminal_back_and_then_takes_it_again(
    stoppable: Terminal,
) -> None:
    terminal = stoppable
    terminal.wait_for(lambda shown: shown.frame != "")
    terminal.watch.send_signal(signal.SIGTSTP)
    terminal.wait_for(lambda shown: SHARED_SCREEN in shown.text)
    pid, status = os.waitpid(terminal.watch.pid, os.WUNTRACED)
    assert (pid, os.WIFSTOPPED(status)) == (terminal.watch.pid, True)
    assert termios.tcgetattr(terminal.slave) == terminal.before
    terminal.watch.send_signal(signal.SIGCONT)
    terminal.wait_for(lambda shown: shown.text.count(OWN_SCREEN) == 2)
    terminal.type("q")
    assert terminal.leave() == 0
    assert termios.tcgetattr(terminal.slave) == terminal.before


def test_an_exception_of_our_own_leaves_the_terminal_as_it_was(
    terminal: Terminal, home: Path
) -> None:
    """A run that turns into something unreadable under our eyes."""
    (run_dir,) = home.glob("runs/*")
    terminal.wait_for(has_steps)
    facts = run_dir / "run.json"
    content = facts.read_bytes()
    facts.write_bytes(b"{")
    try:
        assert terminal.leave() == 3
    finally:
        facts.write_bytes(content)
    assert terminal.is_given_back()
    assert "readable JSON" in terminal.text.rpartition(SHARED_SCREEN)[2]


def test_into_a_pipe_it_prints_once(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuelline", "watch", "--workers"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, HOME_VARIABLE: str(home)},
        check=True,
    )
    assert "\x1b" not in done.stdout
    assert "running for" in done.stdout
