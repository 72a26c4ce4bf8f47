"""The results page: every bench owns a section of bench/RESULTS.md between its two markers."""

from __future__ import annotations

import datetime
import os
import platform
import re
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
HEAD = (
    "# Results\n\nMeasured by `python -m bench`; each section is written by the script it names.\n"
)


def write_section(name: str, body: str, page: Path = RESULTS) -> None:
    """Put a section in its place, or at the end of the page when it is new."""
    section = f"<!-- {name}:begin -->\n{body.strip()}\n<!-- {name}:end -->"
    text = page.read_text() if page.exists() else HEAD
    marked = re.compile(rf"<!-- {re.escape(name)}:begin -->.*?<!-- {re.escape(name)}:end -->", re.S)
    if marked.search(text):
        text = marked.sub(lambda _: section, text, count=1)
    else:
        text = f"{text.rstrip()}\n\n{section}\n"
    page.write_text(text)


def machine() -> str:
    """Where and when a figure was measured."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    cores = len(os.sched_getaffinity(0))
    return f"{today}, {cores} cores, Linux {platform.release()}, Python {platform.python_version()}"
