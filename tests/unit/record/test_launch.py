"""What the launcher writes down, and how it ends the observer, whatever that hangs in."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fuelline.record import launch
from fuelline.record.headroom import Extent
from fuelline.schema.run.recording import RUN_FILE, RunFacts


class Stuck:
    """An observer in a system call of a driver that does not return: no signal reaches it."""

    returncode = None

    def __init__(self) -> None:
        self.signals: list[str] = []

    def poll(self) -> None:
        return None

    def terminate(self) -> None:
        self.signals.append("TERM")

    def kill(self) -> None:
        self.signals.append("KILL")

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None, "the job's end must not wait for ever"
        raise subprocess.TimeoutExpired("observer", timeout)


def test_an_observer_that_hangs_in_a_driver_does_not_keep_the_job_from_ending() -> None:
    stuck = Stuck()
    assert launch.stop_observer(stuck) == -signal.SIGKILL  # type: ignore[arg-type]
    assert stuck.signals == ["TERM", "KILL"]


def test_an_observer_that_ended_by_itself_is_not_asked_to() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert launch.stop_observer(ended) == 0


def test_without_an_observer_there_is_no_code() -> None:
    assert launch.stop_observer(None) is None


class Facts(RunFacts, forbid_unknown_fields=True):
    """Nothing is written that nobody reads."""


@pytest.mark.parametrize("kind", ["whole", "inside"])
def test_what_the_launcher_writes_is_what_readers_know(tmp_path: Path, kind: str) -> None:
    facts = launch.describe_run(["train.py", "--token", "x"], None, tmp_path, Extent(kind, "why"))
    read = msgspec.json.decode(json.dumps(facts).encode(), type=Facts)
    plain = RunFacts(run_id="", command=[], host="", started_wall_ns=0, started_ns=0)
    assert (read.format, read.version) == (plain.format, plain.version)
    assert read.command == ["train.py", "--token", "***"]
    assert len(read.blindspots) == (kind == "inside")
    spot = launch.explain_observer(-9)
    assert msgspec.convert(facts | {"blindspots": [spot]}, Facts).blindspots[0].what


@pytest.mark.bare
def test_the_process_that_holds_the_exit_code_loads_nothing_heavy() -> None:
    heavy = ["msgspec", "polars", "rich", "inspect", "dataclasses", "socket", "hashlib", "ctypes"]
    code = "import sys; from fuelline.cli.parser import build_parser; build_parser(['run']); "
    code += f"print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"[]\n"


def test_our_processes_find_modules_where_we_do(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('the job has a module of this name')")
    command = launch.own_python("queue", [])
    command[4] = "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); import queue"
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0


class TestFullDisk:
    """`write_whole` is refused; the file that is there may be written over."""

    @pytest.fixture(autouse=True)
    def full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(launch, "write_whole", refuse)

    def test_how_the_job_ended_is_written_over_what_was_there(self, tmp_path: Path) -> None:
        facts = launch.describe_run(["train.py"], None, tmp_path, Extent())
        (tmp_path / RUN_FILE).write_text(json.dumps(facts))
        assert launch.finish_facts(tmp_path, facts, 5) is None
        assert json.loads((tmp_path / RUN_FILE).read_text())["exit_code"] == 5

    def test_what_was_there_stays_if_there_is_no_room_for_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        facts = launch.describe_run(["train.py"], None, tmp_path, Extent())
        before = json.dumps(facts)
        (tmp_path / RUN_FILE).write_text(before)
        write = os.pwrite
        monkeypatch.setattr(os, "pwrite", lambda fd, text, at: write(fd, text[:300], at))
        monkeypatch.setattr(os, "ftruncate", lambda *_: None)
        assert launch.finish_facts(tmp_path, facts, 5) == os.strerror(errno.ENOSPC)
        assert (tmp_path / RUN_FILE).read_text() == before


def test_our_processes_look_for_nothing_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", *sys.path])
    (tmp_path / "json.py").write_text("raise SystemExit(5)")
    words = launch.own_python("fuelline.record.launch", [])
    start = words[4].partition("from fuelline")[0] + "import json"
    done = subprocess.run([*words[:4], start, *words[5:]], check=False)
    assert done.returncode == 0
