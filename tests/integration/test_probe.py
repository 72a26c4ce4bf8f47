"""`fuelline probe` as a command: what it prints, what it leaves behind, whom it serves."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fuelline.probe import prepare_place
from fuelline.probe.network import probe_peer
from fuelline.probe.place import PREFIX

SMALL = 16 << 20
COMMAND = [sys.executable, "-m", "fuelline", "probe"]


def test_a_path_that_is_no_utf_8_can_be_told_as_json(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(folder)  # noqa: PTH102
    command = [sys.executable, "-m", "fuelline", "probe", folder, "--size", "16M"]
    done = subprocess.run(
        [*command, "--seconds", "0.1", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["path"].endswith("\\udcff")


@pytest.mark.parametrize("ends", [(signal.SIGTERM,), (signal.SIGHUP, signal.SIGINT)])
def test_a_probe_that_is_ended_leaves_nothing_behind(
    tmp_path: Path, ends: tuple[signal.Signals, ...]
) -> None:
    command = [sys.executable, "-m", "fuelline", "probe", str(tmp_path), "--size", "16M"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as probe:
        while not list(tmp_path.iterdir()):
            assert probe.poll() is None
        for each in ends:
            probe.send_signal(each)
        _, said = probe.communicate()
    assert probe.returncode == 130
    assert b"Traceback" not in said
    assert not list(tmp_path.iterdir())


def start_probe(folder: Path) -> subprocess.Popen[bytes]:
    """One that has begun to write."""
    command = [sys.executable, "-m", "fuelline", "probe", str(folder), "--seconds", "60"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(folder.glob(f"{PREFIX}*/large")):
        assert process.poll() is None
        time.sleep(0.02)
    return process


def test_a_probe_that_is_terminated_cleans_up(tmp_path: Path) -> None:
    process = start_probe(tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_probe_left_is_removed_by_the_next(tmp_path: Path) -> None:
    process = start_probe(tmp_path)
    (left,) = tmp_path.iterdir()
    with prepare_place(tmp_path, SMALL, 0.1):
        assert left.exists()  # another probe's, and that one runs
    process.kill()
    process.wait()
    with prepare_place(tmp_path, SMALL, 0.1):
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []


def test_the_json_has_what_a_question_about_storage_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuelline", "probe", str(tmp_path), "--json"]
    done = subprocess.run(
        [*command, "--seconds", "0.1", "--size", "16M"], capture_output=True, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["storage"] is None or answer["storage"]["request_seconds"] > 0
    assert {each["group"] for each in answer["ceilings"]} >= {"storage", "memory", "cores"}


def test_the_command_serves_on_loopback_alone_until_a_signal_and_prints_what_to_paste() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    serving = subprocess.Popen(
        [*COMMAND, "--serve", str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert serving.stdout is not None
    line = serving.stdout.readline()
    found = re.fullmatch(
        rf"FUELLINE_PROBE_TOKEN=(\S{{22}}) fuelline probe --peer (\S+:{port})\n", line
    )
    assert found is not None
    assert found[2] == f"127.0.0.1:{port}"
    assert find_listeners(port) == ["0100007F"]  # 127.0.0.1, and nothing on tcp6
    probe_peer("127.0.0.1", port, found[1], 0.1)
    serving.send_signal(signal.SIGTERM)
    rest, said = serving.communicate(timeout=60)
    assert serving.returncode == 130
    assert rest == ""
    assert found[1] not in said
    assert "reachable from this host only" in said
    assert "Traceback" not in said


def find_listeners(port: int) -> list[str]:
    """Local addresses, as the kernel's tables have them, of what listens on a port."""
    rows = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}") as file:  # noqa: PTH123
            rows += [line.split() for line in file.readlines()[1:]]
    listening = [row[1].split(":") for row in rows if row[3] == "0A"]
    return [address for address, known in listening if int(known, 16) == port]


@pytest.mark.parametrize("token", ["", "short"])
def test_the_command_measures_nothing_without_a_token(token: str) -> None:
    done = subprocess.run(
        [*COMMAND, "--peer", "127.0.0.1"],
        env={**os.environ, "FUELLINE_PROBE_TOKEN": token},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "FUELLINE_PROBE_TOKEN" in done.stderr
