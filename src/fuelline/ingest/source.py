"""The text of the lines that stack samples hit most, read while the files are as the job saw them.

Only lines that appear in a sampled stack are read, and only the most frequent of them; a recording
carries no other part of the user's code.
"""

from __future__ import annotations

import linecache
import re

import polars as pl

from fuelline.schema.redaction import redact_code

MOST_LINES = 200
FRAME = re.compile(r"^(?P<function>.*?) \((?P<file>.*):(?P<line>\d+)\)$")
"""`function (file:line)`, as py-spy prints it."""


def read_source_lines(stacks: pl.DataFrame) -> dict[str, str]:
    """Map `file:line` to source text for the most frequent frames."""
    frequent = (
        stacks.select(pl.col("frames"), pl.col("count"))
        .explode("frames")
        .group_by("frames")
        .agg(pl.col("count").sum())
        .sort("count", "frames", descending=[True, False])
        .head(MOST_LINES)
    )
    lines = {}
    for frame in frequent["frames"].drop_nulls():
        found = FRAME.match(frame)
        if found:
            text = linecache.getline(found["file"], int(found["line"])).strip()
            if text:
                lines[f"{found['file']}:{found['line']}"] = redact_code(text)[:200]
    linecache.clearcache()
    return lines
