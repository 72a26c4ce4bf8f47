"""What a fault is: something that can be planted around a job and is always undone.

A fault says what it needs, so that a case can be reported as not planted where that is missing.
Planting gives back how the job must then be started: a command prefix, environment, a data folder.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTER = 'for group in $ZOO_GROUPS; do echo 0 > "$group/cgroup.procs" || exit 90; done; exec "$@"'
"""A shell that enters the groups and becomes the job, so that no observer is throttled with it."""


class NotPlanted(Exception):  # noqa: N818  a finding about this machine, not an error of the bench
    """The machine lacks what the fault needs; the message says what."""


@dataclass(frozen=True)
class Namespaces:
    """Network namespaces, one a rank."""

    names: tuple[str, ...]
    first_address: str
    """Of rank 0, where the ranks find each other."""
    interface: str
    """The same in all of them."""


@dataclass(frozen=True)
class Planted:
    """How the job is started while the fault is there."""

    data: Path
    groups: tuple[Path, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    rank_groups: tuple[int, tuple[Path, ...]] | None = None
    """A rank, and the groups that only it enters."""
    namespaces: Namespaces | None = None

    def command(self, command: list[str]) -> list[str]:
        """The command that runs `command` inside the fault."""
        return [*enter(self.groups), *command] if self.groups else command


def enter(groups: tuple[Path, ...], condition: str = "true") -> list[str]:
    """The start of a command that runs the rest in these groups, if a shell condition holds."""
    shell = shutil.which("sh") or "/bin/sh"
    names = " ".join(str(group) for group in groups)
    return [shell, "-c", f"ZOO_GROUPS=$({condition} && echo '{names}'); {ENTER}", "sh"]


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


@dataclass(frozen=True)
class OneRank:
    """A fault that hits one rank only: its groups, or its folder of the data."""

    fault: Fault
    rank: int
    ranks: int = 2

    def missing(self) -> str | None:
        """What the fault lacks."""
        return self.fault.missing()

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """A folder for each rank's data, one of them the fault's."""
        with (
            self.fault.plant(data) as planted,
            tempfile.TemporaryDirectory(prefix="fuelline-zoo-") as folder,
        ):
            for rank in range(self.ranks):
                target = planted.data if rank == self.rank else data
                (Path(folder) / f"rank{rank}").symlink_to(target.absolute())
            yield Planted(Path(folder), rank_groups=(self.rank, planted.groups))
