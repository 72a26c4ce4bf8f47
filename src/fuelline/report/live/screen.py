"""Puts a snapshot on a terminal, whole frames at a time, or prints it once.

A frame is one write: the cursor goes home, every line is written and the rest of it erased, so that
nothing flickers and nothing is left of the frame before, whatever its size was.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from rich.text import Text

from fuelline.report.live.columns import COLUMNS
from fuelline.report.live.lines import Canvas, draw_foot, draw_snapshot, next_command
from fuelline.report.renderers.terminal import WIDTH, Page, speaks_unicode
from fuelline.schema.names import clean

if TYPE_CHECKING:
    from typing import TextIO

    from fuelline.report.live.lines import View
    from fuelline.schema.diagnosis.live import Snapshot

HELP = """\
Keys
  q, Esc, Ctrl-C   quit; the job goes on
  s                sort by the next column, largest first
  r                reverse the order
  w                show or hide the workers, and what each is blocked on
  p                pause the screen
  up, down         scroll
  ?                this page

All shares are of the last seconds.
input       the training thread waits for a batch, in next() of a loader
compute     from a batch to its optimizer step, without collectives
collectives calls in which all ranks take part
loop        code between a step and the next batch
epoch       an iterator starts
A dash is a number that is not known (yet), never a zero. For a worker, core %
is its time on a core, wait % its time ready to run without one, and idle % its
time without work.
"""
_HOME, _ERASE_LINE, _ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_WIDEST = 200


def print_snapshot(snapshot: Snapshot, view: View, stream: TextIO, path: str) -> None:
    """One snapshot, all of it, and what to type next; plain when it goes to a pipe."""
    console = Page(file=stream, highlight=False, emoji=False)
    width = min(max(console.width, WIDTH), _WIDEST) if stream.isatty() else WIDTH
    console.width = width
    paper = Canvas(width, plain=not speaks_unicode(stream))
    head, body = draw_snapshot(snapshot, view, paper)
    foot = [paper.line(""), *draw_foot(snapshot, paper)]
    for line in (*head, *(draw() for draw in body), *foot):
        line.rstrip()
        console.print(line, soft_wrap=True)
    stream.write(clean(next_command(snapshot, path)) + "\n")


class Painter:
    """Draws frames on one terminal."""

    def __init__(self, stream: TextIO, interval_s: float) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._plain = not speaks_unicode(stream)
        self.width = WIDTH

    def paint(self, snapshot: Snapshot, view: View, path: str) -> None:
        """Draw the state of this moment at the size of this moment."""
        self.width, height = os.get_terminal_size(self._stream.fileno())
        paper = Canvas(self.width, plain=self._plain)
        lines = (
            [paper.line(words) for words in HELP.splitlines()]
            if view.help
            else self._lines(snapshot, view, paper, height, path)
        )
        if len(lines) > height:
            lines = [*lines[: height - 1], lines[-1]]  # the keys are the last thing to go
        self._stream.write(_HOME + self._ansi(lines) + _ERASE_BELOW)
        self._stream.flush()

    def _lines(
        self, snapshot: Snapshot, view: View, paper: Canvas, height: int, path: str
    ) -> list[Text]:
        head, body = draw_snapshot(snapshot, view, paper)
        foot = [*draw_foot(snapshot, paper), *self._bottom(snapshot, view, paper, path)]
        room = max(1, height - len(head) - len(foot))
        view.first = max(0, min(view.first, len(body) - room))
        hidden = len(body) - room
        shown = [draw() for draw in body[view.first : view.first + room]]
        if hidden > 0:
            shown[-1] = paper.line(f"  {len(body)} lines, {hidden + 1} not shown: up, down", "dim")
        return [*head, *shown, *foot]

    def _bottom(self, snapshot: Snapshot, view: View, paper: Canvas, path: str) -> list[Text]:
        keys = "s sort  r reverse  w workers  p pause  ? help  q quit"
        how = "paused" if view.paused else f"every {self._interval_s:g} s"
        lines = [paper.pair(keys, f"by {COLUMNS[view.sort].name}, {how}", "reverse")]
        if snapshot.state in {"ended", "lost"}:
            lines.insert(0, paper.line(next_command(snapshot, path), "bold"))
        return lines

    def _ansi(self, lines: list[Text]) -> str:
        """Lines as a terminal takes them that does not add the carriage return itself."""
        buffer = io.StringIO()
        console = Page(
            file=buffer,
            width=max(1, self.width),
            force_terminal=True,
            highlight=False,
            emoji=False,
            legacy_windows=False,
        )
        console.print(Text("\n").join(lines), end=_ERASE_LINE, soft_wrap=True)
        return buffer.getvalue().replace("\n", _ERASE_LINE + "\r\n")
