"""A file that holds several ranks, as profile mergers write it: each gets tables of its own.

A merger puts the rank into the process, `"pid": "[TP03-DP00] 1234"` (SGLang), or names processes
after ranks, as `fuelline export --perfetto` does. Numbers of calls and operators are a rank's own,
so what was merged must be taken apart before anything is joined by them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.ingest.kineto.decode import Batch, Decoder
from fuelline.ingest.kineto.scan_state import ScanState
from fuelline.ingest.kineto.tables import TraceTables

if TYPE_CHECKING:
    from typing import Any

    from fuelline.ingest.importer import PartWriter
    from fuelline.ingest.kineto.sorts import EventSort
    from fuelline.ingest.kineto.split import Piece
    from fuelline.schema.run.trace import RankFacts

_LABEL = re.compile(r"^\[([A-Za-z][\w-]{0,60})\] ")
_LABELLED = re.compile(rb'"pid"\s*:\s*"\[[A-Za-z][\w-]{0,60}\] ')
_NAMED = re.compile(
    rb'"process_name"\s*,\s*"pid"\s*:\s*(\d{1,9})\s*,[^{}]*"args"\s*:\s*'
    rb'\{\s*"name"\s*:\s*"rank (\d{1,6})\b'
)
_ONLY_NUMBER = re.compile(r"^(?:rank|TP)[-_]?(\d{1,6})$", re.IGNORECASE)


def is_merged(text: bytes) -> bool:
    """Whether events that begin with this are of several ranks, or may be."""
    return bool(_LABELLED.search(text) or _NAMED.search(text))


class MergedDecoder:
    """Events with their processes, which the faster readers leave out."""

    def __init__(self) -> None:
        self._decoder = Decoder()

    def decode(self, text: bytes) -> Batch:
        """See `Decoder`."""
        batch = self._decoder.decode_loose(text)
        if not self._decoder.is_exact and batch.is_coarse:
            self._decoder.is_exact = True
            batch = self._decoder.decode_loose(text)
        return batch


class MergedTables:
    """Tables for each rank, made when its first event comes."""

    def __init__(self, writer: PartWriter) -> None:
        self._writer = writer
        self._tables: dict[int, TraceTables] = {}
        self._books: dict[int, ScanState] = {}
        self._ranks: dict[str, int] = {}
        """Labels to ranks."""
        self._processes: dict[str, int] = {}
        """Processes that are named after ranks."""
        self.since = 0

    @property
    def negative(self) -> int:
        """Events that end before they start."""
        return sum(book.negative for book in self._books.values())

    def add(self, batch: Batch, piece: Piece) -> None:
        """The events of a piece, each to its rank; what belongs to none is left out."""
        for pid, rank in _NAMED.findall(piece.text):
            self._processes[pid.decode()] = int(rank)
        own: dict[int, dict[EventSort, list[Any]]] = {}
        for sort, events in batch.complete.items():
            for event in events:
                rank = self._find_rank(str(event.pid))
                if rank is not None:
                    own.setdefault(rank, {}).setdefault(sort, []).append(event)
        for rank, complete in own.items():
            self._of(rank).add(Batch(complete, 0, is_exact=batch.is_exact), piece)
        self.since = piece.start

    def finish(self) -> None:
        """There are no more."""
        for tables in self._tables.values():
            tables.finish()

    def describe(self, facts: RankFacts) -> list[RankFacts]:
        """Every rank, from what the file says of all."""
        chips = list({chip.device: chip for chip in reversed(facts.chips)}.values())[::-1]
        known = set(self._processes.values())
        return [
            replace(facts, rank=rank, chips=chips, is_rank_known=rank in known)
            for rank in sorted(self._tables) or [facts.rank]
        ]

    def _find_rank(self, pid: str) -> int | None:
        """A label that is a number is the rank; others are counted as they come."""
        found = _LABEL.match(pid)
        if found is None:
            return self._processes.get(pid)
        label = found[1]
        if label not in self._ranks:
            number = _ONLY_NUMBER.match(label)
            self._ranks[label] = int(number[1]) if number else len(self._ranks)
        return self._ranks[label]

    def _of(self, rank: int) -> TraceTables:
        if rank not in self._tables:
            self._books[rank] = ScanState()
            self._tables[rank] = TraceTables(rank, self._writer, self._books[rank], None)
        return self._tables[rank]
