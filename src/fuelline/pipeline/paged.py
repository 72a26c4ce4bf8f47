"""Answers as a page: one HTML file, all of it or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.ingest import is_trace
from fuelline.report import Drawn, render_page, write_document
from fuelline.report.renderers.page import SIGN
from fuelline.report.renderers.whole_file import write_named
from fuelline.schema.names import encodable

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.report import Document
    from fuelline.schema.diagnosis.findings import Diagnosis


def write_run_page(
    diagnosis: Diagnosis, run_dir: Path, path: Path, *, name: str, python: str | None = None
) -> None:
    """The page of a run that was diagnosed; the rest as of `show_report`."""
    drawn = _look(run_dir, diagnosis.price_usd_per_hour)
    document = write_document(diagnosis, encodable(name), python, drawn)
    write_document_page(document, path, diagnosis.title())


def write_document_page(document: Document, path: Path, title: str) -> None:
    """Any document as a page."""
    drawn = render_page(document, title).encode()
    with write_named(path, SIGN) as file:
        file.write(drawn)


def _look(run_dir: Path, price: float | None) -> Drawn:
    if is_trace(run_dir):
        from fuelline.pipeline.imported import picture_import  # noqa: PLC0415 - others need none

        return Drawn(picture_import(run_dir))
    from fuelline.pipeline.recorded import look_closer  # noqa: PLC0415 - likewise

    return Drawn(*look_closer(run_dir, price))
