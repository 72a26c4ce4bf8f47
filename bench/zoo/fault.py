"""What a fault is: something that can be planted around a job and is always undone.

A fault says what it needs, so that a case can be reported as not planted where that is missing.
Planting gives back how the job must then be started: a command prefix, environment, a data folder.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENTER = 'for group in $ZOO_GROUPS; do echo $$ > "$group/cgroup.procs" || exit 90; done; exec "$@"'
"""A shell that enters the groups and becomes the job, so that no observer is throttled with it."""


class NotPlanted(Exception):  # noqa: N818  a finding about this machine, not an error of the bench
    """The machine lacks what the fault needs; the message says what."""


@dataclass(frozen=True)
class Planted:
    """How the job is started while the fault is there."""

    data: Path
    groups: tuple[Path, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    def command(self, command: list[str]) -> list[str]:
        """The command that runs `command` inside the fault."""
        if not self.groups:
            return command
        groups = " ".join(str(group) for group in self.groups)
        shell = shutil.which("sh") or "/bin/sh"
        return [shell, "-c", f"ZOO_GROUPS='{groups}'; {ENTER}", "sh", *command]


class Fault(Protocol):
    """Planted around one run of a job whose data is in a folder."""

    def missing(self) -> str | None:
        """What this machine lacks for it, in words; None if nothing."""
        ...

    def plant(self, data: Path) -> contextlib.AbstractContextManager[Planted]:
        """Plant it; undone when the context is left."""
        ...


@dataclass(frozen=True)
class Nothing:
    """No fault from outside: the job is healthy, or its own settings are the fault."""

    def missing(self) -> str | None:
        """Nothing is needed."""
        return None

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """The data as it is."""
        yield Planted(data)


NOTHING = Nothing()


@dataclass(frozen=True)
class Both:
    """Two faults at once, the second planted inside the first."""

    outer: Fault
    inner: Fault

    def missing(self) -> str | None:
        """What either lacks."""
        return self.outer.missing() or self.inner.missing()

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """Both, with all their groups and variables."""
        with self.outer.plant(data) as outer, self.inner.plant(outer.data) as inner:
            yield Planted(inner.data, outer.groups + inner.groups, {**outer.env, **inner.env})
