"""A running job on the screen, or once into a pipe: Snapshot in, lines out, 80 columns or more.

Every line is cut to the width, names from the job are untrusted and shown with escapes, and a bar
can be read without its colours. What is not known is a dash.

Also here: the accelerators, as many to a line as fit: reported utilisation, what is behind it,
power.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.text import Text

from fuelline.report.live.columns import COLUMNS, UNKNOWN, columns_for, sort_rows
from fuelline.report.live.workers import worker_line, worker_title
from fuelline.report.renderers.terminal import WIDEST_TEXT, shown
from fuelline.schema.units import duration, number, percent, rate, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.report.live.columns import Column
    from fuelline.schema.diagnosis.live import DeviceRow, HostLine, RankRow, Snapshot, WorkerRow


PHASE_WIDTH = 16
LEAST_BAR, WIDEST_BAR = 8, 60
LONG_PHASE_S = 2.0
"""From here on it is said how long the present phase lasts."""
GLYPHS = {
    "input": ("█", "#", "red"),
    "epoch start": ("▓", "e", "magenta"),
    "checkpoint": ("▚", "c", "blue"),
    "validation": ("░", "v", "cyan"),
    "compile": ("▞", "j", "bright_blue"),
    "loop": ("▒", "l", "yellow"),
    "collectives": ("+", "+", "bright_magenta"),
    "compute": ("·", ".", "green"),
}
"""Part to its sign, its sign in ASCII, its colour; in the order of the bar."""
LEGEND = {"epoch start": "epoch"}


@dataclass
class View:
    """What the person at the keyboard has chosen."""

    sort: int = 0
    """Index in COLUMNS."""
    reverse: bool = False
    workers: bool = False
    paused: bool = False
    help: bool = False
    first: int = 0
    """Lines scrolled away at the top of the table."""

    def next_sort(self, snapshot: Snapshot, width: int) -> None:
        """Sort by the next column that is on the screen, largest first."""
        there = [COLUMNS.index(column) for column in columns_for(snapshot.ranks, width)]
        later = [index for index in there if index > self.sort]
        self.sort = (later or there)[0]
        self.reverse = COLUMNS[self.sort].name not in {"rank", "pid"}


@dataclass(frozen=True)
class Canvas:
    """What is drawn on."""

    width: int
    plain: bool = False
    """Only ASCII."""

    def line(self, words: str, style: str = "") -> Text:
        """A line of it."""
        text = Text(shown(words, plain=self.plain), style=style)
        text.truncate(self.width, overflow="crop" if self.plain else "ellipsis")
        return text

    def pair(self, left: str, right: str, style: str = "") -> Text:
        """A line with something at its right end, which stays whole."""
        room = max(0, self.width - len(right) - 2)
        words = shown(left, plain=self.plain)
        mark = ".." if self.plain else "…"
        words = words if len(words) <= room else words[: max(0, room - len(mark))] + mark
        return self.line(f"{words:<{room}}  {right}", style)


def draw_snapshot(
    snapshot: Snapshot, view: View, paper: Canvas
) -> tuple[list[Text], list[Callable[[], Text]]]:
    """The head, which is always on the screen, and the table's lines, drawn when they are seen."""
    head = [*_head(snapshot, paper), paper.line("")]
    if not snapshot.ranks:
        return head, [partial(paper.line, _why_empty(snapshot))]
    columns = columns_for(snapshot.ranks, paper.width)
    bar_width = _bar_width(columns, paper.width)
    head.append(_title(columns, view, bar_width, snapshot, paper))
    if view.workers:
        head.append(paper.line(worker_title(paper.width), "dim"))
    body: list[Callable[[], Text]] = []
    for row in sort_rows(snapshot.ranks, COLUMNS[view.sort], reverse=view.reverse):
        body.append(partial(_row, row, columns, bar_width, paper))
        if view.workers:
            body += [partial(_worker, worker, paper) for worker in row.workers]
    return head, body


def draw_foot(snapshot: Snapshot, paper: Canvas) -> list[Text]:
    """What the signs mean, and what could not be seen."""
    lines = []
    if snapshot.ranks:
        lines.append(_legend(paper))
    if any(row.step_kind == "batch" for row in snapshot.ranks):
        lines.append(paper.line("No optimizer step was seen: batches are counted instead.", "dim"))
    if snapshot.blindspots:
        count = len(snapshot.blindspots)
        what = f"{count} {'things' if count > 1 else 'thing'} could not be seen"
        first = snapshot.blindspots[0]
        lines.append(paper.line(f"{what}: {first.what} ({first.why})", "dim"))
    return lines


def next_command(snapshot: Snapshot, path: str) -> str:
    """What to type when one has seen enough."""
    words = "The diagnosis" if snapshot.state in {"ended", "lost"} else "The diagnosis so far"
    return f"{words}: fuelline diagnose {shlex.quote(path)}"


def _head(snapshot: Snapshot, paper: Canvas) -> list[Text]:
    run = snapshot.run
    words = [Path(run.command[0]).name, *run.command[1:]] if run.command else [run.run_id]
    since = time.strftime("%H:%M:%S", time.localtime(run.started_wall_ns / 1e9))
    return [
        paper.pair(shlex.join(words), _state(snapshot), "bold"),
        paper.line(f"{run.host}  ·  since {since}  ·  {run.run_id}", "dim"),
        paper.line(_cores(snapshot.host)),
        paper.line(_traffic(snapshot.host)),
        *(paper.line(words) for words in device_lines(snapshot.devices, paper.width)),
        *_verdict(snapshot, paper),
    ]


_MOST_VERDICT_LINES = 3


def _verdict(snapshot: Snapshot, paper: Canvas) -> list[Text]:
    """What the diagnosis would say now, set apart from the figures of the last seconds."""
    if not snapshot.verdict:
        return []
    when = "Verdict" if snapshot.state in {"ended", "lost"} else "Verdict so far"
    words = shown(f"{when}: {snapshot.verdict}", plain=paper.plain)
    lines = wrap(words, max(20, min(paper.width, WIDEST_TEXT)), break_long_words=False)
    return [paper.line(""), *(paper.line(line, "bold") for line in lines[:_MOST_VERDICT_LINES])]


def _state(snapshot: Snapshot) -> str:
    run_s, code = duration(snapshot.run_s), snapshot.run.exit_code
    if snapshot.state == "running":
        return f"running for {run_s}"
    if snapshot.state == "elsewhere":
        return "on another host; only what it writes is seen"
    if snapshot.state == "lost" or code is None:
        return "no process is left; how it ended is unknown"
    return f"ended {f'by signal {-code}' if code < 0 else f'with exit code {code}'} after {run_s}"


def _cores(host: HostLine) -> str:
    allowed = f" of {number(host.cores_allowed)}" if host.cores_allowed is not None else ""
    pressures = (
        ("cpu", host.cpu_pressure_frac),
        ("io", host.io_pressure_frac),
        ("memory", host.memory_pressure_frac),
    )
    words = "  ".join(f"{name} {_known(frac, percent)}" for name, frac in pressures)
    used, others = _known(host.cores_used, _tenths), _known(host.cores_others, _tenths)
    return f"cores {used}{allowed}, others {others}   waiting for {words}"


def _traffic(host: HostLine) -> str:
    read, write = host.disk_read_bytes_per_s, host.disk_write_bytes_per_s
    coming, going = host.net_in_bytes_per_s, host.net_out_bytes_per_s
    return (
        f"disks read {_known(read, rate)}, write {_known(write, rate)}   "
        f"network in {_known(coming, rate)}, out {_known(going, rate)}"
    )


def _known(value: float | None, show: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else show(value)


def _tenths(value: float) -> str:
    return f"{value:.1f}"


def _why_empty(snapshot: Snapshot) -> str:
    if snapshot.state in {"ended", "lost"}:
        return "No process of the job took a batch or ran backward."
    return "No process of the job has taken a batch or run backward yet."


def _bar_width(columns: list[Column], width: int) -> int:
    taken = sum(column.width + 1 for column in columns) + 1 + PHASE_WIDTH
    return max(LEAST_BAR, min(WIDEST_BAR, width - taken - 1))


def _title(
    columns: list[Column], view: View, bar_width: int, snapshot: Snapshot, paper: Canvas
) -> Text:
    down, up = ("v", "^") if paper.plain else ("▼", "▲")
    sign = down if view.reverse else up
    words = ""
    for column in columns:
        words += f"{column.name:>{column.width}}"
        words += sign if column is COLUMNS[view.sort] else " "
    last = f"last {snapshot.window_s:.0f} s"
    return paper.line(f"{words} {last:<{bar_width}} now".rstrip(), "bold")


def _row(row: RankRow, columns: list[Column], bar_width: int, paper: Canvas) -> Text:
    line = Text()
    for column in columns:
        value = column.value(row)
        text = UNKNOWN if value is None else column.show(value)
        line.append(f"{text:>{column.width}} ")
    line.append(" ")
    line.append_text(_bar(row, bar_width, paper))
    line.append(f" {_phase(row)}")
    line.rstrip()
    line.truncate(paper.width)
    return line


def _worker(worker: WorkerRow, paper: Canvas) -> Text:
    return paper.line(worker_line(worker, paper.width))


def _phase(row: RankRow) -> str:
    if row.phase_s is None or row.phase_s < LONG_PHASE_S:
        return row.phase
    return f"{row.phase} {row.phase_s:.0f} s"


def _bar(row: RankRow, width: int, paper: Canvas) -> Text:
    """Cells by share; what is rounded off goes to the parts that lost most by it."""
    bar = Text()
    exact = {part: (row.frac(part) or 0.0) * width for part in GLYPHS}
    cells = {part: int(value) for part, value in exact.items()}
    left = round(sum(exact.values())) - sum(cells.values())
    for part in sorted(exact, key=lambda part: cells[part] - exact[part])[:left]:
        cells[part] += 1
    for part, (sign, ascii_sign, colour) in GLYPHS.items():
        bar.append((ascii_sign if paper.plain else sign) * cells[part], colour)
    bar.pad_right(width - len(bar))
    return bar


def _legend(paper: Canvas) -> Text:
    line = Text()
    for part, (sign, ascii_sign, colour) in GLYPHS.items():
        line.append(ascii_sign if paper.plain else sign, colour)
        line.append(f" {LEGEND.get(part, part)}  ", "dim")
    line.rstrip()
    line.truncate(paper.width)
    return line


_CELL_WIDTH = 39
_NOTABLE = 0.05
"""Share of time from which being slowed down is said."""


def device_lines(devices: list[DeviceRow], width: int) -> list[str]:
    """`gpu0  97 %  sm 34 %  410 W  61 GB`, side by side."""
    in_a_line = max(1, (width + 1) // (_CELL_WIDTH + 1))
    cells = [f"{_cell(device):<{_CELL_WIDTH}}" for device in devices]
    return [" ".join(cells[at : at + in_a_line]).rstrip() for at in range(0, len(cells), in_a_line)]


def _cell(device: DeviceRow) -> str:
    if device.is_lost:
        return f"{device.device}  lost by the driver"
    words = [f"{device.device:<5} {_percent(device.reported_frac):>5}"]
    if device.sm_frac is not None:
        words.append(f"sm {_percent(device.sm_frac)}")
    if device.watts is not None:
        words.append(f"{device.watts:.0f} W")
    if device.memory_bytes is not None:
        words.append(size(device.memory_bytes))
    if device.throttled_frac is not None and device.throttled_frac >= _NOTABLE:
        words.append("slowed")
    return "  ".join(words)[:_CELL_WIDTH]


def _percent(frac: float | None) -> str:
    return UNKNOWN if frac is None else percent(frac)
