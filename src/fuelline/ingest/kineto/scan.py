"""The compiled scanner, where the package was built with one: pieces in, columns out.

It reads what profilers usually write some ten times as fast as the readers in Python; single events
that are unlike the others come back and are read there, and so are pieces that it refuses. Without
it everything is read in Python, with the same result (tests/unit/ingest/kineto/test_same.py).
`fuelline doctor` says which it is. FUELLINE_NO_SCANNER=1 leaves it out, to compare.
"""

from __future__ import annotations

import importlib
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl
from msgspec import Raw

from fuelline.ingest.kineto.decode import Batch, FastReaderTrust
from fuelline.ingest.kineto.device import DTYPE_BYTES
from fuelline.ingest.kineto.sorts import CATEGORIES, IGNORED, OTHER, SORTS
from fuelline.schema.run.capabilities import Capability

if TYPE_CHECKING:
    from fuelline.ingest.kineto.decode import Decoder
    from fuelline.ingest.kineto.scan_state import Names, ScanState
    from fuelline.ingest.kineto.sorts import EventSort
    from fuelline.ingest.kineto.split import Piece

_LEFT_OUT = "FUELLINE_NO_SCANNER"
_HOW = "install gcc and Python's headers, then reinstall fuelline"
_LAYOUT = 1
"""What scanner/_scan.c and this file say to each other; another build than this is not used."""
_TAKEN, _COARSE = 0, 2
"""Outcomes of a piece; 1 is a refusal."""
_SPECIAL, _MARKED, _FLAG_BITS = 1, 2, 2
"""Flags beside a name's number."""
_STRING = msgspec.json.Decoder(str)


def find_compiled() -> Any:
    """The module, or None if the package was built without it."""
    if os.environ.get(_LEFT_OUT):
        return None
    try:
        found = importlib.import_module("fuelline.ingest.kineto._scan")
    except ImportError:
        return None
    return found if getattr(found, "LAYOUT", None) == _LAYOUT else None


def find_capability() -> Capability:
    """For `fuelline doctor`: whether traces are read at full speed, and what it costs if not."""
    found = find_compiled()
    is_left_out = bool(os.environ.get(_LEFT_OUT))
    absent = f"{'left out' if is_left_out else 'not built'}; Kineto traces are read in Python"
    how = f"unset {_LEFT_OUT}" if is_left_out else _HOW
    return Capability(
        name="compiled trace scanner",
        ok=found is not None,
        detail="built into this package" if found else absent,
        enables="they are imported in half the processor time",
        how_to_enable="" if found else how,
    )


def find_scan(book: ScanState, decoder: Decoder) -> Scan | None:
    """A scanner for one file."""
    module = find_compiled()
    return None if module is None else Scan(module, book, decoder)


class Scan:
    """Rows of one file that were scanned and wait to become columns."""

    def __init__(self, module: Any, book: ScanState, decoder: Decoder) -> None:
        sheets = {sort: number for number, sort in enumerate(SORTS)}
        categories = {cat: sheets[sort] for cat, sort in CATEGORIES.items()}
        categories |= dict.fromkeys(IGNORED, -1)
        self._scanner = module.Scanner(
            partial(_look, book.names),
            [(cat.encode(), sheet) for cat, sheet in categories.items()],
            [(name.encode(), size) for name, size in DTYPE_BYTES.items()],
            "".join(_letter(sort) for sort in SORTS).encode(),
            sheets[OTHER],
        )
        self._sheets = sheets
        self._book = book
        self._decoder = decoder
        self._patience = FastReaderTrust()

    def read(self, piece: Piece) -> Batch | None:
        """The events that it leaves to Python, read; None if it refuses the whole piece."""
        if not self._patience.lasts:
            return None
        batch = self._read(piece)
        if batch is not None and not batch.is_exact and batch.is_coarse:
            self._decoder.is_exact = True
            batch = self._read(piece)
        self._patience.count(given_up=batch is None)
        return batch

    def _read(self, piece: Piece) -> Batch | None:
        exact = self._decoder.is_exact
        outcome, events, odd = self._scanner.scan(piece.text, piece.start, exact)
        if outcome == _COARSE:
            self._decoder.is_exact = True
            return self._read(piece)
        if outcome != _TAKEN:
            return None
        if not odd:
            return Batch({}, events, is_exact=exact, is_scanned=True)
        text = b",".join(piece.text[start:end] for start, end in odd)
        try:
            left = self._decoder.decode_loose(
                b"[" + text + b"]", [piece.start + start for start, _ in odd]
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return Batch(
            left.complete,
            events + left.events,
            left.halves,
            left.places,
            is_exact=exact,
            is_scanned=True,
        )

    def keep(self) -> None:
        """What was scanned last is part of the trace."""
        before = self._scanner.negative()
        self._scanner.keep()
        self._book.negative += self._scanner.negative() - before

    def counts(self) -> list[int]:
        """Rows of each of SORTS, then steps and operators with work."""
        found: list[int] = self._scanner.counts()
        return found

    def take(self, sort: EventSort) -> pl.DataFrame:
        """Them as columns; nothing is left afterwards."""
        return pl.DataFrame(_Columns(self._scanner.take(self._sheets[sort])))

    def take_marks(self) -> tuple[pl.DataFrame, list[Raw]]:
        """Them, and their arguments as they are written."""
        args, capsules = self._scanner.take_marks()
        return pl.DataFrame(_Columns(capsules)), [Raw(each) for each in args]


class _Columns:
    """What polars asks for columns in Arrow's form: https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html."""

    def __init__(self, capsules: tuple[object, object]) -> None:
        self._capsules = capsules

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._capsules


def _letter(sort: EventSort) -> str:
    return "d" if sort.table == "device" else "l" if sort.is_linked else "h"


def _look(names: Names, written: bytes) -> int:
    """The number and the flags of a name as it is written; -1 if it is not a text."""
    try:
        number = names.number(_STRING.decode(b'"' + written + b'"'))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return -1
    special = _SPECIAL if number in names.special else 0
    marked = _MARKED if number in names.steps or number in names.counted else 0
    return number << _FLAG_BITS | special | marked
