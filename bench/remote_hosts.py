"""Hosts on this machine: network namespaces on a bridge, with links of a set rate that can be cut.

    with Hosts(2, "1gbit") as hosts:
        hosts.start(0, ["python", "train.py"])    # 10.77.0.1, where the job runs
        hosts.start(1, ["ray", "start", ...])     # 10.77.0.2
        hosts.cut(1)

Names carry this process's number, so that several can run side by side; all is gone at the end.
Needs root and iproute2. The cores are shared: work elsewhere has to be such that occupies none.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

__all__ = ["Hosts", "can_make_hosts", "list_children"]


def can_make_hosts() -> bool:
    """Whether this user may make namespaces, and has the tools."""
    if os.geteuid() or shutil.which("ip") is None or shutil.which("tc") is None:
        return False
    name = f"flx{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode == 0:
        _call("ip", "netns", "del", name)
    return made.returncode == 0


class Hosts:
    """The first one is where the job runs; the others are reached through links of this rate."""

    def __init__(self, others: int, rate: str = "") -> None:
        self.names = [f"fl{os.getpid()}h{number}" for number in range(others + 1)]
        self.addresses = [f"10.77.0.{number + 1}" for number in range(others + 1)]
        self._rate = rate
        self._started: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Hosts:  # noqa: PYI034 - Python 3.10 has no Self
        for name in self.names:
            _call("ip", "netns", "add", name)
            self._do(name, "ip", "link", "set", "lo", "up")
        home = self.names[0]
        self._do(home, "ip", "link", "add", "br0", "type", "bridge")
        self._do(home, "ip", "addr", "add", f"{self.addresses[0]}/24", "dev", "br0")
        self._do(home, "ip", "link", "set", "br0", "up")
        for number, name in enumerate(self.names[1:], 1):
            link = f"l{number}"
            self._do(
                home, "ip", "link", "add", link, "type", "veth", "peer", "name", "e0", "netns", name
            )
            self._do(home, "ip", "link", "set", link, "master", "br0", "up")
            self._do(name, "ip", "addr", "add", f"{self.addresses[number]}/24", "dev", "e0")
            self._do(name, "ip", "link", "set", "e0", "up")
            if self._rate:
                shape = ("root", "tbf", "rate", self._rate, "burst", "256kb", "latency", "50ms")
                self._do(name, "tc", "qdisc", "add", "dev", "e0", *shape)
                self._do(home, "tc", "qdisc", "add", "dev", link, *shape)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            _end(process)
        for name in self.names:
            _call("ip", "netns", "del", name)

    def command(self, number: int, words: list[str]) -> list[str]:
        """The words that run a command on a host."""
        return ["ip", "netns", "exec", self.names[number], *words]

    def start(self, number: int, words: list[str], **options: Any) -> subprocess.Popen[Any]:
        """A process on a host, ended with it and with all that it has started."""
        process = subprocess.Popen(self.command(number, words), start_new_session=True, **options)
        self._started.append(process)
        return process

    def cut(self, number: int) -> None:
        """Packets to and from this host are lost from now on; nobody is told."""
        self._do(self.names[0], "ip", "link", "set", f"l{number}", "nomaster")

    def _do(self, name: str, *words: str) -> None:
        _call("ip", "netns", "exec", name, *words)


def list_children(root: int) -> list[int]:
    """Processes below this one, and itself, as long as they live."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, NotADirectoryError):
            continue
        if entry.name.isdecimal() and status[0] != "Z":
            parents[int(entry.name)] = int(status[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return [pid for pid in found if pid in parents]


def _end(process: subprocess.Popen[Any]) -> None:
    pids = list_children(process.pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            _kill(pid, number)
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
    process.wait()


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has gone


def _call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
