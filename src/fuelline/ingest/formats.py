"""The foreign formats that can be imported, sorted by name, and how a file's own is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.ingest.dcgm import Dcgm
from fuelline.ingest.importer import HEAD_BYTES
from fuelline.ingest.kineto import Kineto
from fuelline.ingest.nsight import Nsight
from fuelline.ingest.straggler import Straggler
from fuelline.ingest.unpack import read_head
from fuelline.ingest.xplane import XPlane
from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.ingest.importer import Importer

IMPORTERS: tuple[Importer, ...] = (Dcgm(), Kineto(), Nsight(), Straggler(), XPlane())

_HTML = (b"<!doctype html", b"<html", b"<?xml")


def find_importer(path: Path) -> Importer | None:
    """The importer of a file by its first bytes; None if nobody knows them."""
    head = read_head(path, HEAD_BYTES)
    return next((importer for importer in IMPORTERS if importer.recognises(head)), None)


def recognise(path: Path) -> Importer:
    """The same, or an error that says what the file looks like."""
    try:
        found = find_importer(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}). Nothing was imported. Check the name and "
            "the permissions."
        ) from None
    if found is not None:
        return found
    known = ", ".join(importer.format for importer in IMPORTERS)
    raise InputError(
        f"{path} {_looks(path)} at byte 0, no format that can be imported ({known}). Nothing was "
        f"imported. {_hint(path)}"
    )


def _hint(path: Path) -> str:
    """What to do next; a name may tell what content does not."""
    if path.suffix in (".nsys-rep", ".qdrep"):
        return f"Export the report first: `nsys export --type sqlite {path.name}`."
    return "docs/import.md says how to make each."


def _looks(path: Path) -> str:
    head = read_head(path, 64).lstrip()
    if not head:
        return "is empty or damaged"
    if head.lower().startswith(_HTML):
        return f"is a web page, perhaps an error message that was saved as a trace ({head[:24]!r})"
    return f"begins with {head[:24]!r}"
