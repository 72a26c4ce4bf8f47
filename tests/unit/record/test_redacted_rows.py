"""Paths, stacks and failures are written down without the secrets in them."""

import json
import os
import stat
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from fuelline.fix.elastic.journal import FixJournal
from fuelline.record.hooks import SITE_DIR
from fuelline.record.samplers.mounts import UNKNOWN
from fuelline.record.samplers.places import Places
from fuelline.record.samplers.stacks import Stacks, parse_raw

TOKEN = "hf_" + "aB3" * 12


def test_a_token_in_a_path_is_not_in_its_place() -> None:
    places = Places()
    number = places.add_file(f"/data/{TOKEN}/x.bin", UNKNOWN)
    assert [place.path for place in places.drain()] == ["/data/***/x.bin"]
    assert places.add_file(f"/data/{TOKEN}/x.bin", UNKNOWN) == number


def test_a_token_in_a_path_is_not_in_its_stacks() -> None:
    (row,) = parse_raw(f"thread (12): Main;main (/a/{TOKEN}/t.py:3);f (/b.py:7) 5", 1, 0, 1)
    assert row.frames == ["main (/a/***/t.py:3)", "f (/b.py:7)"]


def test_what_py_spy_says_is_redacted() -> None:
    stacks = Stacks(None)
    stacks._give_up(f"py-spy failed: no file /a/{TOKEN}")
    (blind,) = stacks.collect(0)
    assert TOKEN not in repr(blind)


def load_watch(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = util.spec_from_file_location("fuelline_watch", Path(SITE_DIR) / "fuelline_watch.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_note_of_a_failure_is_redacted_and_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = load_watch(monkeypatch)
    watch.leave_note(str(tmp_path), f"torch: OSError('https://me:{TOKEN}@h')")
    (note,) = tmp_path.iterdir()
    assert note.read_text() == "torch: OSError('https://***@h')\n"
    assert stat.S_IMODE(note.stat().st_mode) == 0o600


def test_a_note_is_redacted_also_where_our_package_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = load_watch(monkeypatch)
    monkeypatch.setitem(sys.modules, "fuelline.schema.redaction", None)
    watch.leave_note(str(tmp_path), f"torch: OSError('{TOKEN}')")
    (note,) = tmp_path.iterdir()
    assert note.read_text() == "torch: OSError('***')\n"


def test_what_fix_did_is_private_and_redacted_and_makes_no_run_again(tmp_path: Path) -> None:
    FixJournal(str(tmp_path / "gone" / "fix")).write("left", why="x")
    assert not (tmp_path / "gone").exists()
    FixJournal(str(tmp_path / "fix")).write("left", why=f"failed at {TOKEN}", loader=3)
    (line,) = (tmp_path / "fix" / f"{os.getpid()}.jsonl").read_text().splitlines()
    assert json.loads(line)["why"] == "failed at ***"
    paths = (tmp_path / "fix", tmp_path / "fix" / f"{os.getpid()}.jsonl")
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o700, 0o600]
