"""Hooks that come into a running job: who is refused; that they go when who attached is gone."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuelline.record.attach.processes import look_at
from fuelline.record.attach.visits import explain_no_hooks
from fuelline.record.hooks import SITE_DIR

VISITOR = Path(SITE_DIR) / "fuelline_visitor.py"
_JOB = """
import importlib.util as u, os, sys, time
import queue
original = queue.Queue.get
run_dir, visitor = sys.argv[1:]
s = u.spec_from_file_location("fuelline_visitor", visitor)
m = u.module_from_spec(s); s.loader.exec_module(m); m.come(run_dir)
def tell():
    hooked = any("visiting" in str(f) for f in sys.meta_path)
    print(len(os.listdir(run_dir + "/visits")), hooked, flush=True)
tell()
sys.stdin.readline()
for _ in range(200):
    if not os.listdir(run_dir + "/visits"):
        break
    time.sleep(0.05)
tell()
"""


def test_below_3_14_nothing_is_put_in() -> None:
    seen = look_at(os.getpid())
    assert seen is not None
    why = explain_no_hooks(seen._replace(python="3.13"))
    assert "3.13" in why
    assert "3.14" in why


def test_a_process_without_python_gets_no_hooks() -> None:
    seen = look_at(os.getpid())
    assert seen is not None
    assert "no Python" in explain_no_hooks(seen._replace(python=""))


@pytest.mark.integration
def test_hooks_go_when_the_lock_is_free(tmp_path: Path) -> None:
    (tmp_path / "visits").mkdir()
    (tmp_path / "spool").mkdir()
    lock_fd = os.open(tmp_path / "attached.lock", os.O_WRONLY | os.O_CREAT)
    fcntl.flock(lock_fd, fcntl.LOCK_EX)
    job = subprocess.Popen(
        [sys.executable, "-c", _JOB, str(tmp_path), str(VISITOR)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert job.stdin is not None
    assert job.stdout is not None
    assert job.stdout.readline().split() == ["1", "True"]
    os.close(lock_fd)
    job.stdin.write("\n")
    job.stdin.flush()
    assert job.stdout.readline().split() == ["0", "False"]
    assert job.wait() == 0
    job.stdin.close()
    job.stdout.close()
