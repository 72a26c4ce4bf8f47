"""The screen of a running job: every width, hostile names, ASCII, sorting, scrolling."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios
from typing import TYPE_CHECKING

import msgspec
import pytest
from rich.cells import cell_len

from fuelline.report import Painter, View, print_snapshot
from fuelline.report.live.columns import COLUMNS, RANK, brief, pace, sort_rows
from fuelline.report.live.lines import Canvas, draw_foot, draw_snapshot
from fuelline.schema.diagnosis.live import RankRow, Share, Snapshot
from tests.golden.watched import RUN, make_snapshots, place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

RUNNING = make_snapshots()["watch"][0]
EVIL = "\x1b[31mred\x07\n[bold]x[/] \u202e"


def drawn(snapshot: Snapshot, view: View, width: int, *, plain: bool = False) -> list[str]:
    paper = Canvas(width, plain=plain)
    head, body = draw_snapshot(snapshot, view, paper)
    return [text.plain for text in (*head, *(draw() for draw in body), *draw_foot(snapshot, paper))]


def with_names(name: str) -> Snapshot:
    run = msgspec.structs.replace(RUN, command=["python", name], host=name, run_id=name)
    ranks = [
        msgspec.structs.replace(
            row,
            workers=[
                msgspec.structs.replace(worker, place=place("/data/" + name))
                for worker in row.workers
            ],
        )
        for row in RUNNING.ranks
    ]
    return msgspec.structs.replace(RUNNING, run=run, ranks=ranks)


@pytest.mark.parametrize("width", [20, 80, 81, 100, 120, 200])
@pytest.mark.parametrize("workers", [True, False])
@pytest.mark.parametrize("name", ["train.py", "x" * 500, EVIL])
def test_no_line_is_wider_than_the_screen(width: int, workers: bool, name: str) -> None:
    for line in drawn(with_names(name), View(workers=workers), width):
        assert cell_len(line) <= width


@pytest.mark.parametrize("plain", [True, False])
def test_names_of_the_job_cannot_write_to_the_terminal(plain: bool) -> None:
    text = "".join(drawn(with_names(EVIL), View(workers=True), 200, plain=plain))
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", text)
    assert "[bold]x[/]" in text


def test_a_stream_of_ascii_gets_ascii() -> None:
    lines = drawn(RUNNING, View(workers=True), 80, plain=True)
    assert "".join(lines).isascii()
    assert any("######" in line for line in lines)


def test_wider_screens_show_more() -> None:
    narrow, wide = "".join(drawn(RUNNING, View(), 80)), "".join(drawn(RUNNING, View(), 140))
    assert "samples/s" not in narrow
    assert "samples/s" in wide
    assert wide.count("█") > narrow.count("█")


@pytest.mark.parametrize("width", [80, 140])
def test_a_bar_has_a_cell_for_every_part_of_the_time(width: int) -> None:
    lines = drawn(RUNNING, View(), width)
    title = next(line for line in lines if "steps/s" in line)
    bar_width = title.index("now") - title.index("last") - 1
    rows = [line for line in lines if re.match(r" +[01] ", line)]
    assert len(rows) == 2
    for line in rows:
        assert sum(line.count(sign) for sign in "█▓▚░▒·+") == bar_width


def test_a_rank_is_shown_only_if_any_process_has_one() -> None:
    without = [msgspec.structs.replace(row, rank=None) for row in RUNNING.ranks]
    lines = drawn(msgspec.structs.replace(RUNNING, ranks=without), View(), 80)
    assert not any("rank" in line for line in lines)


def test_unknown_numbers_are_dashes_and_come_last_either_way() -> None:
    steps = COLUMNS[3]
    up = sort_rows(RUNNING.ranks, steps, reverse=False)
    down = sort_rows(RUNNING.ranks, steps, reverse=True)
    assert [row.rank for row in up] == [1, 0, 2, None]
    assert [row.rank for row in down] == [0, 1, 2, None]
    assert [row.rank for row in sort_rows(RUNNING.ranks, RANK, reverse=True)] == [2, 1, 0, None]


def test_sorting_goes_round_through_the_columns_on_the_screen() -> None:
    view, seen = View(), []
    for _ in range(8):
        view.next_sort(RUNNING, 80)
        seen.append((COLUMNS[view.sort].name, view.reverse))
    assert seen == [
        ("pid", False),
        ("steps", True),
        ("steps/s", True),
        ("mean", True),
        ("p95", True),
        ("input", True),
        ("rank", False),
        ("pid", False),
    ]


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("running", None, "running for 12 min"),
        ("ended", 0, "ended with exit code 0 after 12 min"),
        ("ended", -15, "ended by signal 15"),
        ("lost", None, "how it ended is unknown"),
        ("elsewhere", None, "on another host"),
    ],
)
def test_the_first_line_says_whether_it_runs(state: str, code: int | None, said: str) -> None:
    run = msgspec.structs.replace(RUN, exit_code=code)
    shown = msgspec.structs.replace(RUNNING, run=run, state=state)
    assert said in drawn(shown, View(), 80)[0]


def test_a_job_that_has_not_begun_says_what_is_waited_for() -> None:
    lines = drawn(msgspec.structs.replace(RUNNING, ranks=[]), View(workers=True), 80)
    assert "No process of the job has taken a batch or run backward yet." in lines


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0123, "12.3 ms"), (59.97, "60 s"), (95, "95 s"), (3599.7, "3600 s"), (9000, "2.5 h")],
)
def test_durations_fit_their_column(seconds: float, words: str) -> None:
    assert brief(seconds) == words


@pytest.mark.parametrize(
    ("per_second", "words"), [(0.0812, "0.081"), (0.999, "1.0"), (12.42, "12.4"), (99.97, "100")]
)
def test_paces_keep_their_first_digits(per_second: float, words: str) -> None:
    assert pace(per_second) == words


@pytest.fixture
def terminal() -> Iterator[tuple[TextIO, int]]:
    """A terminal of 10 lines, and the other side of it."""
    master, slave = pty.openpty()
    resize(slave, 10, 80)
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        yield stream, master
    os.close(master)


def resize(fd: int, lines: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def read_frame(master: int) -> list[str]:
    written = b""
    while not written.endswith(b"\x1b[J"):  # a terminal hands over in pieces
        written += os.read(master, 65536)
    frame = written.decode()
    assert frame.startswith("\x1b[H")
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frame).replace("\r", "").split("\n")
    return [line.rstrip() for line in lines]


def many_ranks(count: int) -> Snapshot:
    rows = [
        RankRow(pid=number + 1, rank=number, shares=[Share(part="input", frac=1)], phase="input")
        for number in range(count)
    ]
    return msgspec.structs.replace(RUNNING, ranks=rows, blindspots=[], devices=[])


def test_a_frame_never_has_more_lines_than_the_terminal(terminal: tuple[TextIO, int]) -> None:
    stream, master = terminal
    painter, view = Painter(stream, 1.0), View()
    painter.paint(many_ranks(64), view, "run")
    lines = read_frame(master)
    assert len(lines) == 10
    assert lines[-3] == "  64 lines, 63 not shown: up, down"
    assert lines[-1].startswith("s sort")
    assert lines[-1].endswith("by rank, every 1 s")
    resize(stream.fileno(), 30, 100)
    painter.paint(many_ranks(64), view, "run")
    assert len(read_frame(master)) == 30
    assert painter.width == 100


def test_scrolling_stops_at_both_ends(terminal: tuple[TextIO, int]) -> None:
    stream, master = terminal
    resize(stream.fileno(), 12, 80)
    painter, view = Painter(stream, 1.0), View(first=1000)
    painter.paint(many_ranks(5), view, "run")
    read_frame(master)
    assert view.first == 1
    view.first = -3
    painter.paint(many_ranks(5), view, "run")
    assert view.first == 0


def test_help_and_pause_and_the_end_show(terminal: tuple[TextIO, int]) -> None:
    stream, master = terminal
    painter = Painter(stream, 2.5)
    painter.paint(RUNNING, View(help=True), "run")
    assert read_frame(master)[0] == "Keys"
    painter.paint(RUNNING, View(paused=True), "run")
    assert read_frame(master)[-1].endswith("paused")
    ended = msgspec.structs.replace(many_ranks(1), state="ended")
    resize(stream.fileno(), 20, 80)
    painter.paint(ended, View(), "my run")
    assert "The diagnosis: fuelline diagnose 'my run'" in read_frame(master)


def test_printed_once_it_is_plain_and_whole() -> None:
    stream = io.StringIO()
    print_snapshot(many_ranks(300), View(), stream, "run")
    text = stream.getvalue()
    assert "\x1b" not in text
    assert len(text.splitlines()) > 300
    assert text.endswith("The diagnosis so far: fuelline diagnose run\n")
