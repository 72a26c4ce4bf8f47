"""Where workers on other hosts are started: by Ray, which knows nodes and their free cores.

Runs in the helper process, never in the trainer. `ray.init` takes over signals, hooks and threads
of its process, and ends it when the cluster's head dies: here that costs no more than the workers.
Actors are ordinary ones, which Ray ends with their driver. Nothing is started for `auto`: where no
cluster runs, that is the answer. `processes:JSON` starts them by a command each instead: for tests.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fuelline.fix.remote import bootstrap

__all__ = ["Node", "NowhereError", "Placer", "find_own_address", "make_placer"]

_TEXT = Path(bootstrap.__file__).read_text(encoding="utf-8")
_RUN = "scope = {'__name__': 'fuelline_bootstrap'}; exec(TEXT, scope); scope['start'](GIVEN)"
_FROM_STDIN = (
    "import sys, pickle; TEXT, GIVEN = pickle.load(sys.stdin.buffer); " + _RUN
)  # Ray passes them as arguments instead
PROCESSES = "processes:"
_MOST_SAID_BYTES = 1 << 16


class NowhereError(Exception):
    """There is no place for workers, in words."""


@dataclass(frozen=True)
class Node:
    """A host with free cores."""

    name: str
    address: str
    cores: int


class Placer(Protocol):
    """Starts workers elsewhere."""

    def connect(self) -> list[Node]:
        """Other hosts with free cores; NowhereError if there are none, or nobody to ask."""

    def place(self, node: Node, number: int, given: bytes) -> None:
        """Start a worker there; it will connect."""

    def find_end(self, number: int) -> str:
        """Why it will not, if that is known."""

    def close(self) -> None:
        """End all that were started."""


def make_placer(address: str) -> Placer:
    """For what --ray was given."""
    if address.startswith(PROCESSES):
        return _ProcessPlacer(json.loads(address.removeprefix(PROCESSES)))
    return _RayPlacer(address)


def find_own_address(there: str) -> str:
    """Our address as that host sees it: of the interface that leads there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((there, 9))  # sends nothing
        return str(asked.getsockname()[0])


class _RayPlacer:
    def __init__(self, address: str) -> None:
        self._address = address
        self._ray: Any = None
        self._running: dict[int, tuple[Any, Any]] = {}

    def connect(self) -> list[Node]:
        try:
            import ray  # noqa: PLC0415 - an extra, looked for when it is needed
        except ImportError:
            raise NowhereError(
                "Ray is not installed in the job's Python (pip install 'fuelline[ray]')"
            ) from None
        self._ray = ray
        said = _Said()
        try:
            ray.init(
                address=self._address,
                log_to_driver=False,
                logging_level="ERROR",
                namespace="fuelline",
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as refusal:
            why = _first_line(refusal)
            if said.has("AuthToken"):
                why = "it wants a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN for the job"
            raise NowhereError(f"Ray at {self._address} refused: {why}") from None
        finally:
            said.end()
        return self._list_nodes()

    def _list_nodes(self) -> list[Node]:
        free = self._find_free()
        nodes, is_alone = [], True
        for each in self._ray.nodes():
            address = each["NodeManagerAddress"]
            if not each["Alive"] or _is_own(address):
                continue
            is_alone = False
            left = free.get(each["NodeID"], each["Resources"]).get("CPU", 0)
            if left >= 1:
                nodes.append(Node(each["NodeID"], address, int(left)))
        if is_alone:
            raise NowhereError("the Ray cluster has no other host")
        if not nodes:
            raise NowhereError("no other host of the Ray cluster has a free core")
        return nodes

    def _find_free(self) -> dict[str, dict[str, float]]:
        """By node; Ray has no public function for it. Without it an actor waits for its core."""
        try:
            found = self._ray._private.state.available_resources_per_node()
        except AttributeError:
            return {}
        return dict(found)

    def place(self, node: Node, number: int, given: bytes) -> None:
        from ray.util.scheduling_strategies import (  # noqa: PLC0415 - as above
            NodeAffinitySchedulingStrategy,
        )

        ray = self._ray

        class Worker:  # pickled by value: there is nothing of us on the other host
            def run(self, text: str, given: bytes, code: str) -> None:
                exec(code, {"TEXT": text, "GIVEN": given})

        actor = (
            ray.remote(Worker)
            .options(
                num_cpus=1,
                max_restarts=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.name, soft=False),
            )
            .remote()
        )
        self._running[number] = (actor, actor.run.remote(_TEXT, given, _RUN))

    def find_end(self, number: int) -> str:
        done, _ = self._ray.wait([self._running[number][1]], timeout=0)
        if not done:
            return ""
        try:
            self._ray.get(done[0], timeout=1)
        except Exception as failure:  # noqa: BLE001 - whatever ended it is what is asked
            return _first_line(failure)
        return "its actor ended"

    def close(self) -> None:
        for actor, _ in self._running.values():
            self._ray.kill(actor, no_restart=True)


class _Said:
    """What Ray's compiled part prints meanwhile: only there does it say that it wants a token."""

    def __init__(self) -> None:
        self._own = os.dup(2)
        self._kept = os.memfd_create("fuelline-ray", os.MFD_CLOEXEC)
        os.dup2(self._kept, 2)

    def has(self, word: str) -> bool:
        """Whether it was said."""
        return word.encode() in os.pread(self._kept, _MOST_SAID_BYTES, 0)

    def end(self) -> None:
        """Pass it on, and listen no more."""
        os.write(self._own, os.pread(self._kept, _MOST_SAID_BYTES, 0))
        os.dup2(self._own, 2)
        os.close(self._own)
        os.close(self._kept)


class _ProcessPlacer:
    """`[{"address": "10.0.0.2", "cores": 2, "command": ["ip", "netns", ..., "python"]}]`."""

    def __init__(self, hosts: list[dict[str, Any]]) -> None:
        self._hosts = hosts
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def connect(self) -> list[Node]:
        return [Node(str(n), each["address"], each["cores"]) for n, each in enumerate(self._hosts)]

    def place(self, node: Node, number: int, given: bytes) -> None:
        import pickle  # noqa: PLC0415 - for tests

        command = [*self._hosts[int(node.name)]["command"], "-c", _FROM_STDIN]
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert process.stdin is not None
        try:
            with process.stdin as stdin:
                stdin.write(pickle.dumps((_TEXT, given)))
        except BrokenPipeError:
            pass  # it has ended: `find_end` says how
        self._running[number] = process

    def find_end(self, number: int) -> str:
        code = self._running[number].poll()
        return "" if code is None else f"its process ended with {code}"

    def close(self) -> None:
        for each in self._running.values():
            each.kill()


def _is_own(address: str) -> bool:
    """Whether it is this host's: one of its own addresses can be bound."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asked:
        try:
            asked.bind((address, 0))
        except OSError:
            return False
    return True


def _first_line(failure: Exception) -> str:
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    return f"{type(failure).__name__}: {' '.join(lines)[:300]}" if lines else type(failure).__name__
