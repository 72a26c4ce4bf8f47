"""Faults of the network between ranks: each rank in a network namespace of its own, as on a host.

A plain link is a veth pair into a bridge; a rate limit is a token bucket at each rank's end of it.
Where the kernel has no netem, delay, jitter and loss come from a small forwarding process between
tunnel devices. Names carry the id of this process; everything goes when the context is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.zoo.fault import Namespaces, NotPlanted, Planted
from bench.zoo.faults.processes import end

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_name("slow_link.c")
INTERFACE = "link0"
BURST = "64kb"


@dataclass(frozen=True)
class Link:
    """Ranks that are joined by a network of their own, healthy unless told otherwise."""

    ranks: int = 2
    rate_mbit: float | None = None
    delay_ms: float = 0.0
    """One way."""
    extra_ms: float = 0.0
    """At most so much later, in some windows of time."""
    extra_share: float = 0.0
    """How many of the windows."""
    loss_share: float = 0.0

    def missing(self) -> str | None:
        """What namespaces, bridges and tunnels need."""
        if os.geteuid() != 0:
            return "root"
        tools = ["ip", *(["tc"] if self.rate_mbit else []), *(["gcc"] if self._forwards else [])]
        absent = [tool for tool in tools if not shutil.which(tool)]
        if absent:
            return f"{' and '.join(absent)} (packages iproute2, gcc)"
        if self._forwards and not Path("/dev/net/tun").exists():
            return "/dev/net/tun"
        return None

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """Make the namespaces and join them."""
        with contextlib.ExitStack() as stack:
            names = [stack.enter_context(namespace(str(rank))) for rank in range(self.ranks)]
            if self._forwards:
                self._join_by_tunnels(stack, names)
            else:
                self._join_by_bridge(stack, names)
            for rank, name in enumerate(names):
                _ip("-n", name, "addr", "add", f"{_address(rank)}/24", "dev", INTERFACE)
                _ip("-n", name, "link", "set", INTERFACE, "up")
            yield Planted(data, namespaces=Namespaces(tuple(names), _address(0), INTERFACE))

    @property
    def _forwards(self) -> bool:
        return bool(self.delay_ms or self.extra_ms or self.loss_share)

    def _join_by_bridge(self, stack: contextlib.ExitStack, names: list[str]) -> None:
        hub = stack.enter_context(namespace("hub"))
        _ip("-n", hub, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", hub, "link", "set", "bridge0", "up")
        for rank, name in enumerate(names):
            port = f"port{rank}"
            end_of_rank = ("name", INTERFACE, "netns", name)
            _ip("-n", hub, "link", "add", port, "type", "veth", "peer", *end_of_rank)
            _ip("-n", hub, "link", "set", port, "master", "bridge0", "up")
            if self.rate_mbit:
                bucket = ("tbf", "rate", f"{self.rate_mbit}mbit", "burst", BURST, "latency", "50ms")
                _run("tc", "-n", name, "qdisc", "replace", "dev", INTERFACE, "root", *bucket)

    def _join_by_tunnels(self, stack: contextlib.ExitStack, names: list[str]) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fuelline-zoo-")))
        program = folder / "slow_link"
        _run("gcc", "-O2", "-o", str(program), str(SOURCE))
        prefix = f"zoo{os.getpid()}r"
        numbers = (
            self.delay_ms * 1000,
            self.extra_ms * 1000,
            self.extra_share * 1e6,
            self.loss_share * 1e6,
        )
        command = [str(program), prefix, str(self.ranks), *(str(int(each)) for each in numbers)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        stack.callback(end, process)
        if process.stdout is None or process.stdout.readline() != b"ready\n":
            raise NotPlanted("tunnel devices")
        for rank, name in enumerate(names):
            _ip("link", "set", f"{prefix}{rank}", "netns", name, "name", INTERFACE)


@contextlib.contextmanager
def namespace(suffix: str) -> Iterator[str]:
    """A network namespace with nothing in it but a loopback that works."""
    name = f"fuelline-zoo-{os.getpid()}-{suffix}"
    _ip("netns", "add", name)
    try:
        _ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)


def _address(rank: int) -> str:
    return f"10.77.0.{1 + rank}"


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPlanted(f"`{' '.join(command)}` to work: {done.stderr.strip()}")
