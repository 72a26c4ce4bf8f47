"""A diagnosis as notebooks show it: the first screen of its page.

In a frame of its own, without scripts: styles of the page and of the notebook do not meet.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Callable

_ROW_PX, _REST_PX = 34, 420
"""A frame without scripts cannot say how tall it is; the verdict may take some lines."""
_LINE = 75
"""Characters of the verdict that a notebook's width has room for."""


def draw_first_screen(diagnosis: Diagnosis) -> str:
    """HTML for a cell's output."""
    from fuelline.report import write_document  # noqa: PLC0415 - loads rich
    from fuelline.report.document import Summary  # noqa: PLC0415 - likewise
    from fuelline.report.renderers.page import render_first_screen  # noqa: PLC0415 - likewise

    blocks = write_document(diagnosis).blocks
    summary = next(block for block in blocks if isinstance(block, Summary))
    page = render_first_screen(summary, diagnosis.title())
    height = _REST_PX + _ROW_PX * (len(diagnosis.verdict.sentence) // _LINE)
    return (
        f'<iframe sandbox="" title="{html.escape(diagnosis.title())}" width="100%" '
        f'height="{height}" style="border: 0" srcdoc="{html.escape(page)}"></iframe>'
    )


def show_in_notebooks(draw: Callable[[Diagnosis], str] = draw_first_screen) -> None:
    """From now on."""
    Diagnosis.draw_html = staticmethod(draw)
