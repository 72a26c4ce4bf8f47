"""The terminal while we have it: keys one by one, our own screen, and all of it given back.

Whatever ends us, the terminal is as it was: signals that would kill us are noted and obeyed after
it was given back; Ctrl-Z gives it back for as long as we are stopped. After SIGKILL or a crash the
parent gives it back (`keep_terminal`).
"""

from __future__ import annotations

import os
import re
import select
import signal
import termios
import tty
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import TextIO

    from typing_extensions import Self

_DEADLY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_OWN_SCREEN, _SHARED_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_ESCAPE = b"\x1b"
_ESCAPE_S = 0.05
"""An arrow key is an escape with more behind it; the key alone has nothing."""
_KEY = re.compile(rb"\x1b[\[O][0-9;]*[@-~]|.", re.DOTALL)
_NAMES = {b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down", _ESCAPE: "escape"}


def keep_terminal(keys: TextIO, screen: TextIO) -> Callable[[], None] | None:
    """For the parent of a process that may be killed while it has the terminal: how to undo that.

    None if there is no terminal. Nothing is done to one that the process had not taken.
    """
    if not (keys.isatty() and screen.isatty()):
        return None
    fd, saved = keys.fileno(), termios.tcgetattr(keys.fileno())

    def give_back() -> None:
        try:
            if termios.tcgetattr(fd) != saved:
                termios.tcsetattr(fd, termios.TCSANOW, saved)
                screen.write(_SHARED_SCREEN)
                screen.flush()
        except (OSError, termios.error):
            pass  # it has gone

    return give_back


class Keyboard:
    """A context in which keys arrive unbuffered and the screen is ours."""

    def __init__(self, keys: TextIO, screen: TextIO) -> None:
        self.signal: int | None = None
        """The signal that asked us to leave."""
        self._fd = keys.fileno()
        self._screen = screen
        self._saved = termios.tcgetattr(self._fd)
        self._before: dict[int, Any] = {}
        self._bell = (-1, -1)
        self._typed = b""

    def __enter__(self) -> Self:
        self._bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._bell[1], warn_on_full_buffer=False)
        for number in (*_DEADLY, signal.SIGTSTP, signal.SIGWINCH):
            self._before[number] = signal.signal(number, self._notice)
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._give_back()
        signal.set_wakeup_fd(-1)
        for number, before in self._before.items():
            signal.signal(number, before)
        for fd in self._bell:
            os.close(fd)

    def read(self, timeout_s: float) -> str | None:
        """The next key by its name; None if there was none, or if the window has changed."""
        if not self._typed:
            ready, _, _ = select.select([self._fd, self._bell[0]], [], [], max(0.0, timeout_s))
            if self._bell[0] in ready:
                os.read(self._bell[0], 512)
            if self._fd not in ready:
                return None
            self._listen()
        if self._typed == _ESCAPE and select.select([self._fd], [], [], _ESCAPE_S)[0]:
            self._listen()
        key = _KEY.match(self._typed)
        if key is None:
            return None
        self._typed = self._typed[key.end() :]
        return _NAMES.get(key[0], key[0].decode("ascii", "replace"))

    def _listen(self) -> None:
        try:
            typed = os.read(self._fd, 64)
        except OSError:
            typed = b""
        if not typed:  # the terminal has gone
            self.signal = signal.SIGHUP
        self._typed += typed

    def _notice(self, number: int, _frame: object) -> None:
        if number == signal.SIGTSTP:
            self._stop()
        elif number != signal.SIGWINCH:
            self.signal = number

    def _stop(self) -> None:
        """Be stopped like any other program, and come back to our own screen."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._notice)
        self._take()

    def _take(self) -> None:
        tty.setcbreak(self._fd, termios.TCSANOW)
        self._screen.write(_OWN_SCREEN)
        self._screen.flush()

    def _give_back(self) -> None:
        try:
            self._screen.write(_SHARED_SCREEN)
            self._screen.flush()
        except OSError:
            pass  # it takes no more output, but may still take its settings
        try:
            termios.tcsetattr(self._fd, termios.TCSANOW, self._saved)
        except termios.error:
            pass  # it has gone: there is nothing to give back to
