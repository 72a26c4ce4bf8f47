"""The foreign formats that can be imported, sorted by name, and how a file's own is detected.

Importers of other packages are asked about files that none of ours knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.ingest.ascend import Ascend
from fuelline.ingest.dcgm import Dcgm
from fuelline.ingest.importer import HEAD_BYTES
from fuelline.ingest.kineto import Kineto
from fuelline.ingest.kineto.execution import is_execution_trace
from fuelline.ingest.nsight import SUFFIXES, Nsight, NsightReport, is_report
from fuelline.ingest.outsiders import find_outsider, list_lost, list_outsiders
from fuelline.ingest.perfetto import Perfetto
from fuelline.ingest.rocm import Rocpd, Rocprof
from fuelline.ingest.straggler import StragglerTraces
from fuelline.ingest.unpack import GZIP_MAGIC, ZSTD_MAGIC, read_blocks, read_head
from fuelline.ingest.xplane import XPlane
from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.ingest.importer import Importer

IMPORTERS: tuple[Importer, ...] = (
    Ascend(),
    Dcgm(),
    Kineto(),
    Nsight(),
    Perfetto(),
    Rocpd(),
    Rocprof(),
    StragglerTraces(),
    XPlane(),
)

LFS_MAGIC = b"version https://git-lfs.github.com/spec/"
"""What stands in place of a large file until it is fetched
(https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md)."""
_HTML = (b"<!doctype html", b"<html", b"<?xml")
_PACKERS = (
    (b"PK\3\4", "a zip archive", "unzip"),
    (b"\xfd7zXZ", "packed by xz", "unxz"),
    (b"BZh", "packed by bzip2", "bunzip2"),
    (b"\x04\x22\x4d\x18", "packed by lz4", "unlz4"),
    (GZIP_MAGIC, "packed twice", "gunzip"),
    (ZSTD_MAGIC, "packed twice", "unzstd"),
)
"""Ways to pack that are not read, by the first bytes once unpacked, and what unpacks them."""


def find_importer(path: Path) -> Importer | None:
    """The importer of a file by its first bytes; None if nobody knows them."""
    try:
        head = read_head(path, HEAD_BYTES)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}). Nothing was imported. Check the name and "
            "the permissions."
        ) from None
    own = next((importer for importer in IMPORTERS if importer.recognises(head)), None)
    # No bytes tell a report: the format is Nvidia's own.
    return own or find_outsider(head) or (NsightReport() if is_report(path) else None)


def recognise(path: Path) -> Importer:
    """The same, or an error that says what the file looks like."""
    found = find_importer(path)
    if found is not None:
        return found
    head = _read_head_or_fail(path)
    known = ", ".join(importer.format for importer in (*IMPORTERS, *list_outsiders()))
    lost = "".join(f" {spot.what[0].upper()}{spot.what[1:]}: {spot.why}." for spot in list_lost())
    what = "" if _is_no_trace(head) else f", no format that can be imported ({known})"
    raise InputError(
        f"{path} {_looks(head)}{what}. Nothing was imported.{lost} {_hint(path, head)}"
    )


def _is_no_trace(head: bytes) -> bool:
    """Whether it is clear that a trace was meant, and is not in the file."""
    return not head.strip() or head.startswith(LFS_MAGIC)


def _read_head_or_fail(path: Path) -> bytes:
    """The unpacked head of a file that nobody knows; raises if its packing is what is damaged."""
    head = b""
    for block in read_blocks(path, lambda _: None):
        head += block
        if len(head) >= HEAD_BYTES:
            break
    return head


def _find_packer(head: bytes) -> tuple[str, str] | None:
    if head[257:262] == b"ustar":
        return "a tar archive", "tar -xf"
    return next(((what, tool) for magic, what, tool in _PACKERS if head.startswith(magic)), None)


def _hint(path: Path, head: bytes) -> str:
    """What to do next; a name may show what content does not."""
    if head.startswith(LFS_MAGIC):
        return f"Fetch what it stands for: `git lfs pull --include {path.name}`."
    if is_execution_trace(head):
        return "Import it together with the profiler's trace that was recorded beside it."
    packer = _find_packer(head)
    if packer:
        return f"Unpack it first: `{packer[1]} {path.name}`."
    if path.suffix in SUFFIXES:
        return (
            "Nsight Systems is not installed here (no `nsys` on PATH). Where it is, export the "
            f"report: `nsys export --type sqlite {path.name}`, and import that."
        )
    if not head.strip():
        return "Copy it again, or record it again: what wrote it did not finish."
    return "docs/import.md says how to make each."


def _looks(head: bytes) -> str:
    text = head.lstrip()
    if not text:
        return "is empty: it ends at byte 0" if not head else "holds nothing but blanks from byte 0"
    if text.lower().startswith(_HTML):
        begin = f"{text[:24]!r} at byte 0"
        return f"is a web page, perhaps an error message that was saved as a trace ({begin})"
    if head.startswith(LFS_MAGIC):
        return "is a pointer of Git LFS, from byte 0, and not the trace itself"
    if is_execution_trace(head):
        return "is an execution trace from byte 0 (operators and shapes, without times)"
    packer = _find_packer(head)
    return f"is {packer[0]} at byte 0" if packer else f"begins with {text[:24]!r} at byte 0"
