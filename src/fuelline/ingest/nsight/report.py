"""Nsight Systems' own reports (`.nsys-rep`), which only its own program can read: exported first.

The format of a report is not published, so it is the one file that is told by its name.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from fuelline.ingest.nsight.importer import Nsight
from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.ingest.importer import Imported, PartWriter

SUFFIXES = (".nsys-rep", ".qdrep")
_PROGRAM = "nsys"
_MOST_SECONDS = 3600
_MOST_SAID = 300


class NsightReport:
    """The importer of reports, where `nsys` is installed."""

    format = Nsight.format

    def recognises(self, head: bytes) -> bool:
        """Never: see `is_report`."""
        del head
        return False

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """See `Importer`: the export is read and removed."""
        with tempfile.TemporaryDirectory(prefix="fuelline-nsys-") as folder:
            database = Path(folder) / "report.sqlite"
            _export(path, database)
            found = Nsight().read(database, rank, writer, partial=partial, advance=lambda _: None)
        size_bytes = path.stat().st_size
        advance(size_bytes)
        source = structs.replace(found.source, file=path.name, size_bytes=size_bytes)
        return replace(found, source=source)


def is_report(path: Path) -> bool:
    """Whether its name says so and its program is there."""
    return path.suffix in SUFFIXES and shutil.which(_PROGRAM) is not None


def _export(path: Path, database: Path) -> None:
    command = [_PROGRAM, "export", "--type", "sqlite", "--force-overwrite", "true"]
    command += ["--output", str(database), str(path.resolve())]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=_MOST_SECONDS,
            check=False,
            preexec_fn=_lift_limit,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"{path}: `nsys export` could not be run to its end ({error}). Nothing was imported. "
            f"Export it by hand: `nsys export --type sqlite {path.name}`."
        ) from None
    if done.returncode or not database.is_file():
        said = (done.stderr or done.stdout).strip()[-_MOST_SAID:] or "it said nothing"
        raise InputError(
            f"{path}: `nsys export` ended with {done.returncode} and made no database before byte "
            f"{path.stat().st_size} ({said}). Nothing was imported. The report may be damaged, or "
            "of a newer Nsight Systems than the one that is installed."
        )


def _lift_limit() -> None:
    """Our own readers may take little memory; Nvidia's program needs what it needs."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
