"""A table on a terminal: columns as wide as their widest cell, at most 80 columns in all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuelline.report.document import Table

_GAP = 2
_WIDTH = 80
_LEAST = 6
_NUMBER = re.compile(r"[-+~<>]?[\d.,]+( ?\S{1,6})?|-|[\d.,]+ to [\d.,]+( ?\S{1,6})?")


def draw_table(table: Table) -> list[str]:
    """Lines; the widest column of words is cut where they do not fit, so that numbers never are."""
    rows = [table.head, *table.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.head))]
    right = [_is_numeric([row[column] for row in table.rows]) for column in range(len(widths))]
    while sum(widths) + _GAP * (len(widths) - 1) > _WIDTH - 2:
        words = [column for column in range(len(widths)) if not right[column]] or [0]
        widest = max(words, key=lambda column: widths[column])
        if widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
    return [_line(row, widths, right) for row in rows]


def _is_numeric(cells: list[str]) -> bool:
    return all(_NUMBER.fullmatch(cell.strip()) for cell in cells if cell.strip())


def _line(cells: tuple[str, ...], widths: list[int], right: list[bool]) -> str:
    shown = [
        cell[:width].rjust(width) if flush else cell[:width].ljust(width)
        for cell, width, flush in zip(cells, widths, right, strict=True)
    ]
    return ("  " + (" " * _GAP).join(shown)).rstrip()
