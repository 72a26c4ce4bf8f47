"""`--html FILE.html`: a report as a page, one file to look at and to pass on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.schema.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from fuelline.report.document import Document

_ENDINGS = (".html", ".htm")


def add_page(parser: argparse.ArgumentParser) -> None:
    """The option."""
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="also write the report as one page that needs no network (default: none)",
    )


def add_junit(parser: argparse.ArgumentParser) -> None:
    """`--junit`, for commands whose exit code is a check."""
    parser.add_argument(
        "--junit",
        type=Path,
        metavar="FILE",
        help="also write the check's outcome as JUnit XML (default: none)",
    )


def check_junit(path: Path | None) -> None:
    """Before anything is measured: somebody's file is not overwritten."""
    if path is not None:
        from fuelline.report.renderers.junit import SIGN  # noqa: PLC0415 - as below
        from fuelline.report.renderers.whole_file import check_free  # noqa: PLC0415

        check_free(path, SIGN)


def check_page(path: Path | None) -> None:
    """Before anything is computed: a name that cannot be written is refused at once."""
    if path is None:
        return
    if path.suffix.lower() not in _ENDINGS:
        raise UsageError(
            f"--html {path} must end in .html. Nothing was written. Try --html report.html."
        )
    from fuelline.report.renderers.page import SIGN  # noqa: PLC0415 - only where a page is asked for
    from fuelline.report.renderers.whole_file import check_free  # noqa: PLC0415

    check_free(path, SIGN)


def write_page(path: Path | None, document: Document, title: str) -> None:
    """The page, if one is asked for, of an answer that is a document already."""
    if path is None:
        return
    check_page(path)
    from fuelline.pipeline.paged import write_document_page  # noqa: PLC0415 - as above

    write_document_page(document, path, title)


def say_page(path: Path | None, *, beside_data: bool) -> None:
    """Where it is; beside data for programs on the standard error."""
    if path is not None:
        print(f"\nPage written to {path}", file=sys.stderr if beside_data else sys.stdout)
