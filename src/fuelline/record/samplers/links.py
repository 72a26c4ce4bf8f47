"""Network counters of ranks that live in a network namespace of their own, as in a container.

The host's counters do not show their traffic. Everyone else's is among the host's, so nothing is
read twice: one rank speaks for a namespace.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.record.samplers.host import parse_network, parse_tcp
from fuelline.record.samplers.procfs import find_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Links:
    """Reads what the ranks' own namespaces sent and received."""

    def __init__(self) -> None:
        self._home = _namespace("self")

    def read(self, pids: Iterable[int]) -> Iterator[tuple[str, float]]:
        """Counters named `ns.<namespace>.net...`; nothing for ranks that share ours."""
        seen = {self._home, None}
        for pid in pids:
            namespace = _namespace(str(pid))
            if namespace in seen:
                continue
            seen.add(namespace)
            for table, parse in (("dev", parse_network), ("snmp", parse_tcp)):
                content = find_text(f"/proc/{pid}/net/{table}") or ""
                for name, value in parse(content.encode()):
                    yield f"ns.{namespace}.{name}", value


def _namespace(pid: str) -> int | None:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None
