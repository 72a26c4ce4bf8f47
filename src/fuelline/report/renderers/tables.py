"""A table on a terminal: columns as wide as their widest cell, and nothing beyond the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuelline.report.document import Table

_GAP = 2
_LEAST = 6
"""A column of words is cut down to this at most."""
_NUMBER = re.compile(r"[-+~<>]?[\d.,]+( ?\S{1,6})?|-|[\d.,]+ (to|of) [\d.,]+( ?\S{1,6})?")


def draw_table(table: Table, width: int, ellipsis: str) -> list[str]:
    """Lines, the header first; the widest column of words is cut, so that numbers never are."""
    rows = [table.header, *table.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.header))]
    right = [_is_numeric([row[column] for row in table.rows]) for column in range(len(widths))]
    over = 2 + sum(widths) + _GAP * (len(widths) - 1) - width
    spans = [_is_span([row[column] for row in table.rows]) for column in range(len(widths))]
    words = [each for each in range(len(widths)) if not right[each] and not spans[each]]
    if over > 0 and words:
        widest = max(words, key=lambda column: widths[column])
        widths[widest] = max(widths[widest] - over, _LEAST)
    return [_line(row, widths, right, ellipsis) for row in rows]


def _is_numeric(cells: list[str]) -> bool:
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
