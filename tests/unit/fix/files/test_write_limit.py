"""A job with a limit on the length of files (`ulimit -f`) gets whole files, and is not killed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuelline.fix.files import packing
from fuelline.fix.files.caching import open_cache
from fuelline.fix.files.local_cache import RACY_S
from fuelline.fix.job_site import PATHS_VARIABLE, SITE_DIR
from fuelline.schema import files
from fuelline.schema.files import write_all

pytestmark = pytest.mark.integration

CONTENT = bytes(range(256)) * 400
JOB = """
import os, resource, signal, sys, time
time.sleep(float(sys.argv[3]))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
found = []
descriptor = os.open(sys.argv[1], os.O_RDONLY)
found.append(os.pread(descriptor, 1 << 20, 0))
with open(sys.argv[1], "rb") as file:
    found.append(os.pread(file.fileno(), 1 << 20, 0))
with open(sys.argv[1], "rb", buffering=0) as file:
    found.append(file.read())
print([part == bytes(range(256)) * 400 for part in found])
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    root.mkdir()
    (root / "file").write_bytes(CONTENT)
    os.utime(root / "file", (1, 1))
    return root


def run(
    source: Path, plan: dict[str, Any], limit_bytes: int, wait_s: float = 0
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, PATHS_VARIABLE: json.dumps(plan), "PYTHONPATH": SITE_DIR}
    command = [sys.executable, "-c", JOB, str(source / "file"), str(limit_bytes), str(wait_s)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("limit_bytes", [0, 4096, len(CONTENT) - 1, len(CONTENT)])
@pytest.mark.bare
def test_a_packed_file_is_whole(source: Path, tmp_path: Path, limit_bytes: int) -> None:
    packing.pack(source, tmp_path / "pack", lambda _done, _of: None)
    done = run(source, {"packed": [str(tmp_path / "pack")], "cache": None}, limit_bytes)
    assert (done.returncode, done.stdout) == (0, "[True, True, True]\n"), done.stderr
    assert ("ulimit -f" in done.stderr) == (limit_bytes < len(CONTENT))


@pytest.mark.bare
def test_a_packed_file_without_its_original_is_an_error(source: Path, tmp_path: Path) -> None:
    packing.pack(source, tmp_path / "pack", lambda _done, _of: None)
    (source / "file").unlink()
    done = run(source, {"packed": [str(tmp_path / "pack")], "cache": None}, 4096)
    assert done.returncode == 1
    assert "the original is gone" in done.stderr


@pytest.mark.parametrize("limit_bytes", [0, 4096])
@pytest.mark.bare
def test_a_cached_file_is_whole(source: Path, tmp_path: Path, limit_bytes: int) -> None:
    with open_cache(tmp_path / "cache", 64 << 20):
        plan = {"folder": str(tmp_path / "cache"), "budget_bytes": 64 << 20, "roots": [str(source)]}
        done = run(source, {"packed": [], "cache": plan}, limit_bytes, RACY_S + 0.2)
    assert (done.returncode, done.stdout) == (0, "[True, True, True]\n"), done.stderr


def test_what_is_written_in_parts_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.write
    with (tmp_path / "file").open("wb") as file:
        monkeypatch.setattr(files.os, "write", lambda to, left: plain(to, left[:7]))
        write_all(file.fileno(), CONTENT)
        monkeypatch.setattr(files.os, "write", lambda _to, _left: 0)
        with pytest.raises(OSError, match="nothing more"):
            write_all(file.fileno(), CONTENT)
    assert (tmp_path / "file").read_bytes() == CONTENT
