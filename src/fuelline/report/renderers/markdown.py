"""The document as Markdown, for a pull request; markup in names is shown as it is, not obeyed."""

from __future__ import annotations

import re

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
from fuelline.schema.names import clean, encodable

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~$@])")
"""What GitHub would take for formatting, a link, a tag or a mention."""


def render_markdown(document: Document) -> str:
    """Headings of the third level, so that it fits under anybody's title."""
    return "\n\n".join(text for block in document.in_text() if (text := _draw(block))) + "\n"


def _draw(block: Plain) -> str:
    if isinstance(block, Heading):
        return f"### {escape(block.text)}"
    if isinstance(block, Statement):
        label = f" ({escape(block.label)})" if block.label else ""
        mark = "**" if block.alarm or block.label else ""
        return f"{mark}{escape(block.text)}{mark}{label}"
    if isinstance(block, Bars):
        rows = ((bar.label, _share(bar.share), bar.detail) for bar in block.bars)
        return _draw_table(Table(("part", "share", ""), tuple(rows)))
    if isinstance(block, Table):
        return _draw_table(block)
    if isinstance(block, Chart):
        return "\n".join(["```", *(clean(line) for line in draw_chart(block, plain=True)), "```"])
    return _draw_items(block)


def _draw_items(block: Items) -> str:
    lines = []
    for place, item in enumerate(block.items, start=1):
        mark = f"{place}." if block.numbered else "-"
        lines.append(f"{mark} {escape(item.text)}")
        lines += [f"    - {escape(detail)}" for detail in item.details]
    return "\n".join(lines)


def _draw_table(table: Table) -> str:
    sides = [
        "---" if place in (0, len(table.header) - 1) else "---:"
        for place in range(len(table.header))
    ]
    rows = [table.header, tuple(sides), *table.rows]
    return "\n".join(
        "| " + " | ".join(cell if row is rows[1] else escape(cell) for cell in row) + " |"
        for row in rows
    )


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f} %"


def escape(text: str) -> str:
    """Text as text, on one line."""
    return _MARKUP.sub(r"\\\1", clean(encodable(text)))
