"""A process that has ended is over, also before anybody asked for its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fuelline.store.runs import is_alive


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_alive(child.pid)
    assert is_alive(os.getpid())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{child.pid}").exists()
    assert not is_alive(child.pid)
    child.communicate()
    assert not is_alive(child.pid)
