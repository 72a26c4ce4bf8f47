"""Texts to numbers while a file is read: each text is kept once, however many events carry it.

Names are untrusted. They are kept as they are up to a length that no real kernel needs; what is
longer is cut, so that one hostile name costs neither memory nor a screen.
"""

from __future__ import annotations

import zlib

import polars as pl

from fuelline.schema.redaction import SUSPICIOUS, redact

MOST_CHARACTERS = 16 * 1024
"""Demangled template names reach 5,100 in published traces."""


class NameBook:
    """Texts to numbers, in the order of appearance."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text, a new one if it was not seen before."""
        kept = text if len(text) <= MOST_CHARACTERS else shorten(text)
        return self.numbers.setdefault(kept, len(self.numbers))

    def frame(self) -> pl.DataFrame:
        """The table `names`, without the secrets in them: ranges are named as users like."""
        texts = pl.Series(values=list(self.numbers), dtype=pl.String)
        suspects = texts.str.contains_any(list(SUSPICIOUS), ascii_case_insensitive=True)
        if suspects.any():
            pairs = zip(texts, suspects, strict=True)
            shown = [redact(text) if suspect else text for text, suspect in pairs]
            texts = pl.Series(values=shown, dtype=pl.String)
        numbers = pl.Series(values=list(self.numbers.values()), dtype=pl.UInt32)
        return pl.DataFrame({"name": numbers, "text": texts})


def shorten(text: str) -> str:
    """The beginning, and a mark that separates it from others that begin the same."""
    mark = zlib.crc32(text.encode("utf-8", "backslashreplace"))
    return f"{text[:MOST_CHARACTERS]}... ({len(text)} characters, {mark:08x})"
