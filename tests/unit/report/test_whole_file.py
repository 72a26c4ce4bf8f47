"""A file that the user names is replaced only if we wrote it; every command that writes one."""

from __future__ import annotations

import gzip
import os
from typing import TYPE_CHECKING

import pytest

from fuelline.cli import main
from fuelline.cli.plan import roofline
from fuelline.report.perfetto.writer import SIGN, write_tracks
from fuelline.report.renderers.whole_file import write_named
from fuelline.schema.errors import UsageError
from tests.unit.ingest.remains import training_records, write_run

if TYPE_CHECKING:
    from pathlib import Path

SERVE = ("plan", "serve", "llama-3.1-8b", "--chip", "h100", "--batch", "1..64", "--plot")
FOREIGN = (b"", b"mine", b"\x1f\x8bnot gzip", b'{"traceEvents":[]}', b"<svg>mine</svg>")


def export(run_dir: Path, path: Path) -> int:
    return main(["export", str(run_dir), "--perfetto", str(path)])


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", records=training_records(steps=12))


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_an_earlier_export_is_replaced_and_a_foreign_file_is_not(
    tmp_path: Path, run_dir: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    assert export(run_dir, path) == export(run_dir, path) == 0
    for content in (*FOREIGN, gzip.compress(b"mine")):
        path.write_bytes(content)
        assert export(run_dir, path) == 2
        assert "was not written by this command" in capsys.readouterr().err
        assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["x.svg", "x.png"])
def test_an_earlier_plot_is_replaced_and_a_foreign_picture_is_not(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "x.png":
        pytest.importorskip("PIL")
    path = tmp_path / name
    assert main([*SERVE, str(path)]) == main([*SERVE, str(path)]) == 0
    second = path.with_stem("x-2")
    for foreign in (second, path):
        ours = foreign.read_bytes()
        foreign.write_bytes(b"mine")
        path_before = path.read_bytes()
        assert main([*SERVE, str(path)]) == 2
        assert foreign.read_bytes() == b"mine"
        assert path.read_bytes() == path_before
        foreign.write_bytes(ours)


def test_a_chip_that_the_user_wrote_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUELLINE_HOME", str(tmp_path))
    (tmp_path / "chips").mkdir()
    (tmp_path / "chips" / "mine.toml").write_text("[[chip]]\n")
    monkeypatch.setattr(roofline, "_load_torch", lambda _: pytest.fail("it went on"))
    assert main(["roofline", "--save", "mine"]) == 2
    assert (tmp_path / "chips" / "mine.toml").read_text() == "[[chip]]\n"


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "folder"])
def test_what_is_no_file_is_neither_replaced_nor_written_through(tmp_path: Path, kind: str) -> None:
    victim, path = tmp_path / "victim", tmp_path / "out.json"
    if kind == "link":
        with write_named(victim, SIGN) as file:
            write_tracks([], file, "fuelline 1")
    if kind in ("link", "dangling"):
        path.symlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    before = path.lstat()
    with pytest.raises(UsageError, match="exists"), write_named(path, SIGN):
        pytest.fail("it went on")
    assert path.lstat() == before
    assert victim.exists() == (kind == "link")


def test_drafts_do_not_meet_files_of_others(tmp_path: Path) -> None:
    planted = tmp_path / f".out.json.{os.getpid()}"
    planted.write_bytes(b"mine")
    with write_named(tmp_path / "out.json", SIGN) as file:
        file.write(b"content")
    assert planted.read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == [planted.name, "out.json"]
