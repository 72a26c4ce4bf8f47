"""An Nsight Systems export as a database that nobody trusts: read-only, in parts, types checked.

SQLite stores any type in any column, and a report may be cut off, flipped or made by hand. Tables
are kept apart from views, numbers from texts, and each error names the file with the byte where it
ends, or with the table, the row, and the byte where the first page of that table lies: SQLite gives
no more.
"""

from __future__ import annotations

import os
import re
import sqlite3
import struct
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fuelline.ingest.nsight.tables import Source

MAGIC = b"SQLite format 3\0"
_MOST_TEXT = 200
_ROWS = 50_000
"""Rows in memory at a time: about 20 MB as Python objects."""
_LIMIT_LENGTH = 0
"""SQLITE_LIMIT_LENGTH (https://sqlite.org/c3ref/c_limit_attached.html)."""
_LONGEST_BYTES = 16 * 1024 * 1024
"""No value of an export is longer; a damaged length must not become an allocation."""


_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""SQLite quotes a damaged schema in its messages, and Python cannot make text of all of them."""


class Database:
    """One export, open until `close`."""

    def __init__(self, path: Path, *, partial: bool) -> None:
        self.path = path
        self.partial = partial
        self.problems: list[str] = []
        """What could not be read, if `partial` lets it pass."""
        self.size_bytes = path.stat().st_size
        self._page_bytes = self._check_length()
        self._roots: dict[str, int] = {}
        """Number of the first page of each table."""
        address = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
        try:
            self._connection = sqlite3.connect(address, uri=True)
            self._tables = self._prepare()
        except _ERRORS as error:
            raise self.error(
                f"what begins at byte 0 cannot be opened as a database ({_brief(error)})"
            ) from None

    def _prepare(self) -> dict[str, set[str]]:
        """Its tables, once they can be read without harm; closed if they cannot."""
        try:
            self._connection.text_factory = _decode
            if hasattr(self._connection, "setlimit"):  # Python 3.11
                self._connection.setlimit(_LIMIT_LENGTH, _LONGEST_BYTES)
            self._connection.execute("PRAGMA trusted_schema = OFF")
            return self._find_tables()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def error(self, what: str) -> InputError:
        """A file that is not what it should be."""
        return InputError(
            f"{self.path}: {what}. Nothing was imported. `nsys export --type sqlite "
            "REPORT.nsys-rep` writes it again."
        )

    def has(self, table: str) -> bool:
        """Whether there is such a table; views do not count."""
        return table in self._tables

    def columns(self, table: str) -> set[str]:
        """Names of its columns; empty if there is no such table."""
        return self._tables.get(table, set())

    def count(self, table: str) -> int:
        """Rows, or 0 if there is no such table or it cannot be read."""
        if not self.has(table):
            return 0
        return int(next(iter(self.select(f'SELECT COUNT(*) FROM "{table}"', table)), (0,))[0])

    def select(self, query: str, table: str) -> Iterator[tuple[Any, ...]]:
        """Rows of a query over one table; an unreadable table is an error, or a problem noted."""
        try:
            yield from self._connection.execute(query)
        except _ERRORS as error:
            self._refuse(f"{self._say(table)} cannot be read ({_brief(error)})")

    def parts(self, source: Source) -> Iterator[list[tuple[Any, ...]]]:
        """Events of a table in lists: row, start, end, owner, our numbers, names, and a mark.

        Rows whose times are no numbers are an error: what they mean cannot be guessed.
        """
        there = self.columns(source.table)
        if not {"start", "end"} <= there:
            if there:
                self._refuse(f"{self._say(source.table)} has no columns start and end")
            return
        part: list[tuple[Any, ...]] = []
        for row in self.select(_query(source, there), source.table):
            if row[-1]:
                part.append(row)
            else:
                times = f"{row[1]!r:.40} and {row[2]!r:.40}"
                self._refuse(
                    f"{self._say(source.table)}, row {row[0]}: start and end are {times}, not "
                    "numbers"
                )
            if len(part) == _ROWS:
                yield part
                part = []
        if part:
            yield part

    def _say(self, table: str) -> str:
        root = self._roots.get(table, 1)
        return f"table {table} (its first page is at byte {(root - 1) * self._page_bytes})"

    def _refuse(self, what: str) -> None:
        if not self.partial:
            raise self.error(what)
        self.problems.append(what)

    def _check_length(self) -> int:
        """Bytes of a page, if there are as many as the header says.

        https://sqlite.org/fileformat.html, 1.3. SQLite reads nothing of a file with fewer, so
        neither can we, `partial` or not.
        """
        with self.path.open("rb") as file:
            head = file.read(100)
        if len(head) < 100:
            raise self.error(f"it ends at byte {len(head)}, inside the header of the database")
        (written,) = struct.unpack_from(">H", head, 16)
        page_bytes = 65536 if written == 1 else int(written)
        counter, pages = struct.unpack_from(">II", head, 24)
        (valid_for,) = struct.unpack_from(">I", head, 92)
        expected = pages * page_bytes
        if counter == valid_for and self.size_bytes < expected:
            raise self.error(
                f"it ends at byte {self.size_bytes}, but its header announces {expected} bytes, "
                "and SQLite reads nothing of a file that was cut, --partial or not"
            )
        return page_bytes

    def _find_tables(self) -> dict[str, set[str]]:
        found = self._connection.execute(
            "SELECT name, rootpage FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        ).fetchall()
        self._roots = {name: int(root) for name, root in found if isinstance(name, str)}
        return {
            name: {row[0] for row in self._connection.execute(_COLUMNS, (name,))}
            for name in self._roots
        }


_COLUMNS = "SELECT name FROM pragma_table_info(?)"


def _query(source: Source, there: set[str]) -> str:
    wanted = [
        "rowid",
        "start",
        "end",
        _number(source.owner, there),
        *(_number(theirs, there) for theirs in source.columns.values()),
        *(f'"{name}"' if name in there else "NULL" for name in source.names),
        "typeof(start) = 'integer' AND typeof(end) = 'integer'",
    ]
    asked = source.where and set(source.needs) <= there
    where = f" WHERE {source.where}" if asked else ""
    return f'SELECT {", ".join(wanted)} FROM "{source.table}"{where}'


def _number(theirs: str, there: set[str]) -> str:
    """A column, or a product or sum of columns, as a whole number; null if it is none.

    SQLite turns a product that overflows into a real number, which is null, too.
    """
    parts = re.split(r"([*+])", theirs)
    if not set(parts[::2]) <= there:
        return "NULL"
    value = "".join(_whole(f'"{part}"') if part not in "*+" else part for part in parts)
    return value if len(parts) == 1 else _whole(value)


def _whole(value: str) -> str:
    return f"(CASE WHEN typeof({value}) = 'integer' THEN {value} END)"


def _brief(error: sqlite3.Error | UnicodeDecodeError) -> str:
    """What SQLite says; it may quote a damaged schema at any length."""
    return str(error)[:_MOST_TEXT]


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
