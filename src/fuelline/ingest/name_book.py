"""Texts to numbers while a file is read: each text is kept once, however many events carry it.

Names are untrusted. They are kept as they are up to a length that no real kernel needs; what is
longer is cut, so that one hostile name costs neither memory nor a screen.
"""

from __future__ import annotations

import polars as pl

MOST_CHARACTERS = 4096
"""Demangled template names of CUTLASS kernels reach about 3,000."""


class NameBook:
    """One numbering of names; the numbers are dense and start at 0."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text, a new one if it was not seen before."""
        if len(text) > MOST_CHARACTERS:
            text = text[:MOST_CHARACTERS]
        return self._numbers.setdefault(text, len(self._numbers))

    def frame(self) -> pl.DataFrame:
        """The table `names`."""
        return pl.DataFrame(
            {"name": list(self._numbers.values()), "text": list(self._numbers)},
            schema={"name": pl.UInt32(), "text": pl.String()},
        )
