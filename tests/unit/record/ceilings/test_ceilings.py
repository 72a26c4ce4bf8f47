"""A probe measures within its bounds, leaves nothing behind, and refuses what it must not do."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fuelline.record.ceilings import Place, prepare_place, probe_peer, probe_storage, serve
from fuelline.record.ceilings.place import PREFIX
from fuelline.record.ceilings.storage import why_still_warm
from fuelline.schema.errors import InputError, RefusedError
from fuelline.schema.readings import Missing, Reading

SMALL = 16 << 20


def quiet(_: str) -> None:
    pass


def test_storage_is_measured_within_its_size_and_deleted(tmp_path: Path) -> None:
    largest = 0

    def watch(_: str) -> None:
        nonlocal largest
        used = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
        largest = max(largest, used)

    with prepare_place(tmp_path, SMALL, 0.1) as place:
        ceilings = probe_storage(place, watch)
    assert 0 < largest <= 1.25 * SMALL
    assert list(tmp_path.iterdir()) == []
    names = [each.name for each in ceilings]
    assert len(names) == len(set(names)) == 10
    for each in ceilings:
        if isinstance(each.signal, Reading):
            each.signal.check()
            assert each.signal.value > 0


def test_files_that_stay_in_memory_are_not_called_cold() -> None:
    if not Path("/dev/shm").is_dir():
        pytest.skip("no tmpfs")
    with prepare_place(Path("/dev/shm"), SMALL, 0.1) as place:
        (place.folder / "page").write_bytes(bytes(8192))
        assert why_still_warm(place.folder / "page") is not None
        cold = [each for each in probe_storage(place, quiet) if "cold" in each.name]
    assert all(isinstance(each.signal, Missing) for each in cold)


def test_the_folder_is_gone_after_ctrl_c(tmp_path: Path) -> None:
    def interrupt() -> None:
        with prepare_place(tmp_path, SMALL, 1.0) as place:
            (place.folder / "large").write_bytes(b"x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert list(tmp_path.iterdir()) == []


def test_a_probe_that_is_terminated_cleans_up(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuelline", "probe", str(tmp_path), "--seconds", "60"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob(f"{PREFIX}*/large")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_probe_left_is_removed_by_the_next(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f"{PREFIX}{gone.pid}").mkdir()
    (tmp_path / f"{PREFIX}{os.getppid()}").mkdir()
    with prepare_place(tmp_path, SMALL, 0.1):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [f"{PREFIX}{os.getppid()}"]


@pytest.mark.parametrize(
    ("flag", "free", "words"),
    [(os.ST_RDONLY, 10**6, "is read-only"), (0, 100, "would leave less than")],
)
def test_a_disk_without_room_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: int, free: int, words: str
) -> None:
    status = SimpleNamespace(f_flag=flag, f_bavail=free, f_frsize=4096, f_blocks=10**6)
    monkeypatch.setattr(os, "statvfs", lambda _: status)
    with pytest.raises(RefusedError, match=words), prepare_place(tmp_path, SMALL, 0.1):
        pytest.fail("it went on")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_no_folder_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError), prepare_place(tmp_path / "none", SMALL, 0.1):
        pytest.fail("it went on")


def test_a_disk_that_fills_up_meanwhile_is_told_and_cleaned(tmp_path: Path) -> None:
    def fill(place: Place) -> None:
        (place.folder / "large").write_bytes(b"x")
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(RefusedError, match="No space left"),
        prepare_place(tmp_path, SMALL, 0.1) as place,
    ):
        fill(place)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("", 0)) as listener:
        return int(listener.getsockname()[1])


def test_two_hosts_measure_the_network_between_them(free_port: int) -> None:
    ready = threading.Event()
    answered: list[int] = []
    server = threading.Thread(
        target=lambda: answered.append(serve(free_port, 2.0, lambda _: ready.set()))
    )
    server.start()
    ready.wait()
    ceilings = probe_peer("localhost", free_port, 0.1)
    server.join()
    assert [each.name for each in ceilings] == ["round_trip", "upload", "download"]
    assert all(isinstance(each.signal, Reading) for each in ceilings)
    assert answered == [3]


def test_a_peer_that_does_not_answer_is_told_with_the_command_to_start_it(free_port: int) -> None:
    with pytest.raises(InputError, match=f"probe --serve {free_port}"):
        probe_peer("localhost", free_port, 0.1)


def test_the_json_has_what_a_question_about_storage_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuelline", "probe", str(tmp_path), "--json"]
    done = subprocess.run(
        [*command, "--seconds", "0.1", "--size", "16M"], capture_output=True, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["storage"] is None or answer["storage"]["request_seconds"] > 0
    assert {each["group"] for each in answer["ceilings"]} >= {"storage", "memory", "cores"}
