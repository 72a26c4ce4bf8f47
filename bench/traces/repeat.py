"""Repeats a real Kineto trace until it is as large as asked, with shifted times and ids.

    python -m bench.traces.repeat SOURCE.json.gz TARGET.json[.gz] --copies 6 [--rank 3]

Each copy starts where the one before ended; correlations, external ids and flow ids are moved on,
so that no two copies share one. The text keeps the layout of the original.
"""

from __future__ import annotations

import argparse
import gzip
import re
from pathlib import Path

_TIME = re.compile(rb'("ts": )(\d+)')
_ID = re.compile(rb'("(?:correlation|External id|external id|id)": )(\d+)')
_STEP = re.compile(rb'("ProfilerStep#)(\d+)')
_RANK = re.compile(rb'("rank": )\d+')
_START = b'"traceEvents": ['


def repeat(source: Path, target: Path, copies: int, rank: int | None = None) -> int:
    """Write the repeated trace; gives its size before packing."""
    text = gzip.decompress(source.read_bytes())
    begin = text.index(_START) + len(_START)
    end = text.rindex(b"]")
    header, body, footer = text[:begin], text[begin:end].rstrip(), text[end:]
    if rank is not None:
        header = _RANK.sub(rb"\g<1>%d" % rank, header)
    times = [int(found[2]) for found in _TIME.finditer(body)]
    length = max(times) - min(times) + 1000
    ids = max(int(found[2]) for found in _ID.finditer(body)) + 1
    size = len(header) + len(footer)
    open_packed = gzip.open if target.suffix == ".gz" else open
    with open_packed(target, "wb") as out:
        out.write(header)
        for copy in range(copies):
            piece = _shift(body, copy, length, ids)
            size += len(piece)
            out.write((b"," if copy else b"") + piece)
        out.write(footer)
    return size


def _shift(body: bytes, copy: int, length: int, ids: int) -> bytes:
    if not copy:
        return body
    moved = _TIME.sub(lambda found: found[1] + b"%d" % (int(found[2]) + copy * length), body)
    moved = _ID.sub(lambda found: found[1] + b"%d" % (int(found[2]) + copy * ids), moved)
    return _STEP.sub(lambda found: found[1] + b"%d" % (int(found[2]) + 1000 * copy), moved)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--copies", type=int, default=6)
    parser.add_argument("--rank", type=int)
    options = parser.parse_args()
    print(repeat(options.source, options.target, options.copies, options.rank))
