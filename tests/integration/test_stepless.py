"""Jobs without training steps: a verdict where somebody is at work, none where nobody is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SERVER = """
import http.server, threading
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Timer(8, server.shutdown).start()
server.serve_forever()
"""
CHILD = "import subprocess; subprocess.run(['sleep', '8'])"
POOL = """
import time
from concurrent.futures import ThreadPoolExecutor
def ask_service(number):
    time.sleep(0.05)
with ThreadPoolExecutor(2) as pool:
    list(pool.map(ask_service, range(400)))
"""
PARSER = """
import time
def count_words(text):
    return {word: text.count(word) for word in text.split()}
until = time.monotonic() + 10
while time.monotonic() < until:
    count_words("a number of words that are counted one by one " * 20)
"""


def verdict_of(folder: Path, script: str) -> dict[str, Any]:
    (folder / "job.py").write_text(script)
    ours = [sys.executable, "-m", "fuelline"]
    recorder = [*ours, "run", "--quiet", "--run-dir", str(folder / "run")]
    subprocess.run([*recorder, str(folder / "job.py")], check=True)
    told = [*ours, "diagnose", "--json", str(folder / "run")]
    done = subprocess.run(told, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("script", [SERVER, CHILD], ids=["server", "child"])
def test_who_waits_to_be_asked_prepares_nothing(tmp_path: Path, script: str) -> None:
    found = verdict_of(tmp_path, script)
    assert found["verdict"]["code"] is None
    assert found["budget"] == []


def test_threads_that_ask_a_service_are_blocked(tmp_path: Path) -> None:
    assert verdict_of(tmp_path, POOL)["verdict"]["stage"] == "fetch"


def test_a_loop_in_python_prepares_data(tmp_path: Path) -> None:
    assert verdict_of(tmp_path, PARSER)["verdict"]["stage"] == "transform"
