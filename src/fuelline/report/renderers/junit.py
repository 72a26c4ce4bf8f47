"""A check's outcome as JUnit XML, which every CI shows: a test case with the report as its output.

What could not be told is skipped, neither passed nor failed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal
from xml.sax.saxutils import escape, quoteattr

from fuelline.report.renderers.markdown import render_markdown
from fuelline.report.renderers.whole_file import write_named
from fuelline.schema.names import clean, encodable

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.report.document import Document

SIGN = b'<testsuite name="fuelline"'
_NO_XML = re.compile(r"[\ud800-\udfff\ufffe\uffff]")
Outcome = Literal["passed", "failure", "skipped"]


def render_junit(document: Document, case: str, outcome: Outcome, words: str) -> str:
    """`case`: what was checked; `words`: why it failed, or was skipped."""
    counts = f'tests="1" failures="{outcome == "failure":d}" skipped="{outcome == "skipped":d}"'
    told = "" if outcome == "passed" else f"<{outcome} message={_quoted(words)}/>"
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<testsuites><testsuite name="fuelline" {counts} errors="0">\n'
        f'<testcase classname="fuelline" name={_quoted(case)}>{told}\n'
        f"<system-out>{escape(_plain(render_markdown(document)))}</system-out>\n"
        "</testcase></testsuite></testsuites>\n"
    )


def write_junit(path: Path, document: Document, case: str, outcome: Outcome, words: str) -> None:
    """The file, all of it or nothing."""
    with write_named(path, SIGN) as file:
        file.write(render_junit(document, case, outcome, words).encode())


def _quoted(words: str) -> str:
    return quoteattr(_plain(words))


def _plain(words: str) -> str:
    """Without what XML cannot hold."""
    lines = clean(encodable(words)).splitlines()  # which shows control characters as escapes
    return "\n".join(_NO_XML.sub("?", line) for line in lines)
