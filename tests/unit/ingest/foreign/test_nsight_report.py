"""Reports of Nsight Systems, with a stand-in for its program: it is installed nowhere here."""

from __future__ import annotations

import stat
import sys
from typing import TYPE_CHECKING

import pytest

from fuelline.ingest import find_sources
from fuelline.schema.errors import InputError
from tests.unit.ingest.foreign.nsight_maker import make
from tests.unit.ingest.kineto.texts import load

if TYPE_CHECKING:
    from pathlib import Path

_STAND_IN = """#!{python}
import shutil, sys
words = sys.argv[1:]
assert words[:3] == ["export", "--type", "sqlite"], words
if {fails}:
    sys.exit("the report is of a newer version")
shutil.copy({database!r}, words[words.index("--output") + 1])
"""


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> Path:
    """A program called nsys, and a report beside it."""
    database = make(tmp_path / "made.sqlite")
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nsys"
    words = {"python": sys.executable, "fails": fails, "database": str(database)}
    program.write_text(_STAND_IN.format(**words), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    report = tmp_path / "report.nsys-rep"
    report.write_bytes(b"\x01NSYS, as far as anybody knows")
    return report


@pytest.mark.integration
def test_a_report_is_exported_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = install(tmp_path, monkeypatch)
    trace = load(tmp_path, report)
    direct = load(tmp_path, tmp_path / "made.sqlite")
    (source,) = trace.facts.sources
    assert (source.file, source.format) == ("report.nsys-rep", "nsys")
    rank = trace.ranks[0]
    assert trace.table("device", rank).equals(direct.table("device", direct.ranks[0]))


@pytest.mark.integration
def test_what_the_program_says_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = install(tmp_path, monkeypatch, fails=True)
    with pytest.raises(InputError, match="of a newer version"):
        load(tmp_path, report)


def test_without_the_program_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.nsys-rep"
    report.write_bytes(b"\x01NSYS, as far as anybody knows")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="nsys export --type sqlite"):
        find_sources([report])
