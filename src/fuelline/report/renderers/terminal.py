"""The report on a terminal, as wide as reads well; plain, stable and 80 columns wide in a pipe.

Names from a recording are untrusted: control characters are shown as escapes, markup as text.

Also here: A table on a terminal: columns as wide as their widest cell, and nothing beyond the page.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.text import Text

from fuelline.report.document import (
    Bars,
    Chart,
    Document,
    Heading,
    Items,
    Plain,
    Statement,
    Table,
)
from fuelline.report.renderers.charts import draw_chart
from fuelline.schema.names import clean

if TYPE_CHECKING:
    from fuelline.report.document import Bar, Item


WIDTH = 80
"""Of what goes to a pipe."""
WIDEST_TEXT = 100
"""Beyond this the eye loses the next line; tables and bars may be wider."""
WIDEST_TABLE = 160
_BAR_WIDTH = 32
_LABEL_WIDTH = 18
_LEAST_BAR = 8
_BAR_FRAME = 13
"""Columns of a line that are neither label, bar nor detail: margins and the share."""


class Page(Console):
    """A console that does not end the program when its reader leaves: that is the caller's word."""

    def on_broken_pipe(self) -> None:
        """Raise what rich would answer with exit code 1, a job's exit code or not."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def render_terminal(document: Document, stream: TextIO) -> None:
    """Draw the document."""
    console = Page(
        file=stream, width=None if stream.isatty() else WIDTH, highlight=False, emoji=False
    )
    width = min(console.width, WIDEST_TABLE)
    console.width = min(console.width, WIDEST_TEXT)
    plain = not speaks_unicode(stream)
    for block in document.in_text():
        _draw(console, block, width, plain=plain)


def speaks_unicode(stream: TextIO) -> bool:
    """Whether more than ASCII can be written to a stream."""
    try:
        return codecs.lookup(stream.encoding or "ascii").name.startswith("utf")
    except LookupError:
        return False


def _draw(console: Console, block: Plain, width: int, *, plain: bool) -> None:
    """`width` is that of tables and bars; the console has that of text."""
    if isinstance(block, Heading):
        console.print()
        _print(console, block.text, "bold", plain=plain)
    elif isinstance(block, Statement):
        _draw_statement(console, block, plain=plain)
    elif isinstance(block, Bars):
        label_width, bar_width = _bar_widths(block, width, plain=plain)
        for bar in block.bars:
            drawn = _bar_line(bar, label_width, bar_width, plain=plain)
            drawn.truncate(width)
            console.print(drawn, soft_wrap=True)
    elif isinstance(block, Table):
        _draw_table(console, block, width, plain=plain)
    elif isinstance(block, Chart):
        for line in draw_chart(block, plain=plain):
            console.print(Text(shown(line, plain=plain)[:width]), soft_wrap=True)
    else:
        _draw_items(console, block, plain=plain)


def _draw_statement(console: Console, block: Statement, *, plain: bool) -> None:
    console.print()
    style = "bold red" if block.alarm else "bold green" if block.label else ""
    if block.is_whole:
        console.print(_text(block.text, style, plain=plain), soft_wrap=True)
        return
    _print(console, block.text, style, plain=plain)
    if block.label:
        _print(console, block.label, "dim", plain=plain)


def _bar_widths(block: Bars, width: int, *, plain: bool) -> tuple[int, int]:
    """Of labels and bars: bars give way to long words at either side, all of one block alike."""
    labels = [len(shown(bar.label, plain=plain)) for bar in block.bars]
    details = [len(shown(bar.detail, plain=plain)) for bar in block.bars]
    label = max(_LABEL_WIDTH, *labels, 0)
    left = width - _BAR_FRAME - label - max(details, default=0)
    wanted = _BAR_WIDTH + max(0, min(width, WIDEST_TEXT) - WIDTH)
    return label, max(_LEAST_BAR, min(wanted + _LABEL_WIDTH - label, left))


def _bar_line(bar: Bar, label_width: int, width: int, *, plain: bool) -> Text:
    full, empty = ("#", ".") if plain else ("█", "·")
    if bar.share is None:
        return Text(f"  {shown(bar.label, plain=plain):<{label_width}} unknown", "dim")
    filled = round(bar.share * width)
    style = "red" if bar.marked else "green"
    line = Text(f"  {shown(bar.label, plain=plain):<{label_width}} ")
    line.append(full * filled, style)
    line.append(empty * (width - filled), "dim")
    line.append(f" {100 * bar.share:5.1f} %  {shown(bar.detail, plain=plain)}".rstrip())
    return line


def _draw_table(console: Console, block: Table, width: int, *, plain: bool) -> None:
    rows = tuple(tuple(shown(cell, plain=plain) for cell in row) for row in block.rows)
    table = Table(block.header, rows, block.gives_way)
    lines = draw_table(table, width, "..." if plain else "…")
    for position, line in enumerate(lines):
        shortened = line if table.gives_way is not None else line[:width]
        console.print(Text(shortened, "dim" if position == 0 else ""), soft_wrap=True)


def _draw_items(console: Console, block: Items, *, plain: bool) -> None:
    for position, item in enumerate(block.items, start=1):
        mark = f"{position}." if block.numbered else "-"
        _draw_item(console, item, mark, plain=plain)


def _draw_item(console: Console, item: Item, mark: str, *, plain: bool) -> None:
    style = "bold" if mark != "-" else ""
    _print(console, item.text, style, first=f"  {mark} ", rest="    ", plain=plain)
    for detail in item.details:
        _print(console, detail, "dim", first="      ", rest="      ", plain=plain)


def _print(
    console: Console, words: str, style: str, *, first: str = "", rest: str = "", plain: bool
) -> None:
    """Wrap to the console's width with a hanging indent and no trailing blanks."""
    lines = _text(words, style, plain=plain).wrap(console, console.width - len(first))
    for position, line in enumerate(lines):
        line.rstrip()
        console.print(Text(rest if position else first).append(line), soft_wrap=True)


def _text(words: str, style: str, *, plain: bool) -> Text:
    return Text(shown(words, plain=plain), style=style)


def shown(words: str, *, plain: bool) -> str:
    """Clean, and with escapes for what a stream that only knows ASCII cannot show."""
    if not plain:
        return clean(words)
    return clean(words).replace("·", "|").encode("ascii", "backslashreplace").decode("ascii")


_GAP = 2
_LEAST = 6
"""A column of words is cut down to this at most."""
_NUMBER = re.compile(r"[-+~<>]?[\d.,]+( ?\S{1,6})?|-|[\d.,]+ (to|of) [\d.,]+( ?\S{1,6})?")


def draw_table(table: Table, width: int, ellipsis: str) -> list[str]:
    """Lines, the header first; the widest column of words is cut, so that numbers never are."""
    rows = [table.header, *table.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.header))]
    right = [is_numeric([row[column] for row in table.rows]) for column in range(len(widths))]
    over = 2 + sum(widths) + _GAP * (len(widths) - 1) - width
    spans = [_is_span([row[column] for row in table.rows]) for column in range(len(widths))]
    words = [each for each in range(len(widths)) if not right[each] and not spans[each]]
    if over > 0 and words:
        widest = max(words, key=lambda column: widths[column])
        cut = widest if table.gives_way is None else table.gives_way
        widths[cut] = min(widths[cut], max(widths[cut] - over, _LEAST))
    return [_line(row, widths, right, ellipsis) for row in rows]


def is_numeric(cells: list[str]) -> bool:
    """Whether a column holds numbers, which stand on its right."""
    return all(_NUMBER.fullmatch(cell.strip()) for cell in cells if cell.strip())


def _is_span(cells: list[str]) -> bool:
    """Numbers with an interval in brackets: as little to be cut as bare ones."""
    return all("(" in cell or cell.strip() in ("", "-") for cell in cells)


def _line(cells: tuple[str, ...], widths: list[int], right: list[bool], ellipsis: str) -> str:
    shown = [
        _fit(cell, width, ellipsis).rjust(width)
        if flush
        else _fit(cell, width, ellipsis).ljust(width)
        for cell, width, flush in zip(cells, widths, right, strict=True)
    ]
    return ("  " + (" " * _GAP).join(shown)).rstrip()


def _fit(cell: str, width: int, ellipsis: str) -> str:
    return cell if len(cell) <= width else cell[: width - len(ellipsis)] + ellipsis
