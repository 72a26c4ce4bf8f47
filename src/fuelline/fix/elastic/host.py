"""The host's budget: ranks and jobs on the same cores, each seeing what the others need.

Every process that loads under --fix keeps one small file, which it alone writes, in a folder that
all processes of this user on this host can read. From the same files each works out the same
shares, so that nobody asks, decides or waits for another, and there is no daemon. Cores that a
rank does not use go to those that are late because of their input; no rank is left with less than
it can use of an equal share. Who ends takes its file along; that of one that was killed is known
by its start time, and deleted by the next who looks. Without such a folder each rank has an equal
share, as the launcher's variables say. Standard library only.

    /dev/shm/fuelline-UID/POOL/PID-STARTED      POOL: these cores, under these quotas
"""
# ruff: noqa: PTH115, PTH208 - a guest loads as little as it can; no pathlib

from __future__ import annotations

import math
import os
import re
import statistics
import struct
from dataclasses import dataclass, replace
from hashlib import blake2b
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from fuelline.fix.elastic.governor import STARVED
from fuelline.fix.elastic.resources import (
    count_cores,
    count_local_ranks,
    has_own_cores,
    list_quotas,
)
from fuelline.schema.files import is_own
from fuelline.schema.worker_count import HEADROOM, count_needed

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.fix.elastic.observation import Observation

__all__ = ["Claim", "HostBudget", "open_host", "share_out"]

SHELF = "/dev/shm"
"""The one place for files that every Linux host has, in memory and never on a network mount."""
SMOOTHED = 3
"""Looks, of wait and rate that others are told: one may have been at the end of an epoch."""
FRESH_NS = 2_000_000_000
"""Beyond that without a look, it is asked whether the process is still there."""
LONGEST_NS = 10_000_000_000
"""Beyond that a rank does not load: it validates, writes a checkpoint, or has stopped. And for that
long after the first look cores are kept for ranks that the launcher counts and nobody has seen."""
_FOREVER = (1 << 64) - 1
"""For the time of a look, in a file of a process with loaders that are left alone: it has none."""
FULL = 0.8
"""Of the cores in use, from which on they are what ranks compete for."""
_LAYOUT = struct.Struct("<Qddddd")
_SUM = struct.Struct("<I")
_NAME = re.compile(r"(\d+)-(\d+)")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER = 0o700


class Claim(NamedTuple):
    """What a rank tells the others of its last look."""

    at_ns: int
    wanted: float
    """Cores with which it would keep up; of one that does, those that it uses and a little more."""
    used: float
    held: float
    """Cores that its active workers could keep busy at once."""
    late: float
    """Share of its time that it waits for input."""
    rate: float
    """Batches a second; of ranks that step together it is the same."""

    def pack(self) -> bytes:
        """As a file: a reader that comes in the middle of a write can tell."""
        content = _LAYOUT.pack(*self)
        return content + _SUM.pack(crc32(content))


def _unpack(content: bytes) -> Claim | None:
    body, tail = content[: _LAYOUT.size], content[_LAYOUT.size :]
    if len(tail) != _SUM.size or _SUM.unpack(tail)[0] != crc32(body):
        return None
    claim = Claim(*_LAYOUT.unpack(body))
    return claim if all(0 <= each < math.inf for each in claim[1:]) else None


def share_out(cores: float, wanted: list[float]) -> list[float]:
    """Shares that are equal, except that nobody has more than it wants: the rest has that.

    8 cores, wanted 1, 2, 9  ->  1, 2, 5         8 cores, wanted 6, 6  ->  4, 4
    """
    shares = [0.0] * len(wanted)
    left = cores
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    for place, rank in enumerate(order):
        shares[rank] = min(wanted[rank], left / (len(order) - place))
        left -= shares[rank]
    return shares


@dataclass
class _Loader:
    """What is known of one loader of this process."""

    claim: Claim
    looks: list[tuple[float, float]]
    """Wait and rate of the last ones."""


class HostBudget:
    """This process's place among those that share its cores."""

    def __init__(
        self,
        cores: float,
        ranks: int,
        folder: int | None,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.cores = cores
        """Of all who share them."""
        self._ranks = ranks
        self._folder = folder
        self._clock = clock
        self._start()

    def _start(self) -> None:
        """In this process; a rank that was forked by another begins anew."""
        self._pid = os.getpid()
        self._own = f"{self._pid}-{_find_start(self._pid)}"
        self._file: int | None = None
        self._loaders: dict[int, _Loader] = {}
        self._reserved = 0.0
        self._others: dict[str, Claim] = {}
        self._since_ns = self._clock()

    def _follow_fork(self) -> None:
        if os.getpid() != self._pid:
            self._start()

    def find_cores(self) -> float:
        """Cores that this rank may use now: its own part of them, and what the others leave."""
        self._follow_fork()
        return self._share(self._look_around())

    def weigh(self, number: int, look: Observation, active: int, *, is_asking: bool) -> Observation:
        """Tell the others of a look; one that asks hears what they leave to it."""
        self._follow_fork()
        self._tell(number, look, active)
        if not is_asking:
            return look
        others = self._look_around()
        if not others and self._ranks == 1:
            return look
        cores = self._share(others)
        return replace(
            look,
            cores=cores,
            is_claimed=self._is_claimed(others),
            others=tuple((name, each.rate) for name, each in others.items()),
            late=1 + sum(each.late > STARVED for each in others.values()),
        )

    def reserve(self, workers: int) -> None:
        """Keep cores for a loader that is left alone, no more than an equal share in all."""
        self._follow_fork()
        share = self.cores / max(1, self._ranks)
        self._reserved = min(share, self._reserved + workers)
        self._write()

    def sweep(self) -> None:
        """Delete what killed ranks have left, when nobody was there to see it."""
        for name in self._list():
            if not _is_alive(name):
                self._remove(name)

    def leave(self, number: int) -> None:
        """A loader is done with; with the last of them the others have all of its part."""
        if os.getpid() == self._pid and self._loaders.pop(number, None) is not None:
            self._write()

    def close(self) -> None:
        """The process ends."""
        if os.getpid() != self._pid or self._folder is None:
            return
        self._loaders.clear()
        self._remove(self._own)
        for descriptor in (self._file, self._folder):
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._folder = None

    def _tell(self, number: int, look: Observation, active: int) -> None:
        known = self._loaders.get(number)
        earlier = known.looks if known is not None else []
        looks = [*earlier[1 - SMOOTHED :], (look.starved, look.rate)]
        self._loaders[number] = _Loader(_claim(look, active, looks, self._clock()), looks)
        self._write()

    def _write(self) -> None:
        if self._folder is None:
            return
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._own, flags, 0o600, dir_fd=self._folder)
            os.pwrite(self._file, self._sum_up().pack(), 0)
        except OSError:
            return  # no memory for a page, or the folder is gone: the others go on without us

    def _sum_up(self) -> Claim:
        """Of all loaders that are in use; one of them may wait while the others are read."""
        now = self._clock()
        recent = [
            each.claim
            for each in list(self._loaders.values())
            if now - each.claim.at_ns < LONGEST_NS
        ]
        return Claim(
            at_ns=_FOREVER if self._reserved else now,
            wanted=self._reserved + sum(each.wanted for each in recent),
            used=self._reserved + sum(each.used for each in recent),
            held=self._reserved + sum(each.held for each in recent),
            late=max((each.late for each in recent), default=0.0),
            rate=sum(each.rate for each in recent),
        )

    def _look_around(self) -> dict[str, Claim]:
        """What the others have told, by name; who has not looked for long needs nothing."""
        found: dict[str, Claim] = {}
        for name in self._list():
            claim = self._read(name)
            if claim is None:
                continue
            age_ns = self._clock() - claim.at_ns
            is_doubtful = age_ns > FRESH_NS or claim.at_ns == _FOREVER
            if is_doubtful and not _is_alive(name):
                self._remove(name)
                continue
            is_idle = age_ns > LONGEST_NS
            found[name] = Claim(claim.at_ns, 0.0, 0.0, 0.0, 0.0, 0.0) if is_idle else claim
        self._others = found
        return found

    def _list(self) -> list[str]:
        """The files of the others."""
        try:
            names = os.listdir(self._folder) if self._folder is not None else []
        except OSError:
            return []  # the folder is gone
        return [name for name in names if name != self._own and _NAME.fullmatch(name)]

    def _read(self, name: str) -> Claim | None:
        """None while there is nothing to be read that is whole."""
        try:
            descriptor = os.open(
                name,
                os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
                dir_fd=self._folder,
            )
        except OSError:
            return None
        try:
            content = os.pread(descriptor, _LAYOUT.size + _SUM.size + 1, 0)
        except OSError:
            content = b""
        finally:
            os.close(descriptor)
        return _unpack(content) or self._others.get(name)

    def _remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._folder)
        except OSError:
            return  # another one was quicker

    def _count_missing(self, others: dict[str, Claim]) -> int:
        """Ranks that were started and have not loaded anything yet."""
        if self._clock() - self._since_ns > LONGEST_NS and self._folder is not None:
            return 0
        return max(0, self._ranks - 1 - len(others))

    def _share(self, others: dict[str, Claim]) -> float:
        """Cores for this rank, which could use them all."""
        missing = [self.cores] * self._count_missing(others)
        wanted = [math.inf, *(each.wanted for each in others.values()), *missing]
        return share_out(self.cores, wanted)[0]

    def _is_claimed(self, others: dict[str, Claim]) -> bool:
        """Whether a late rank's workers do not get what it is due, while all cores are in use.

        One that has too few workers for its part starts more, and is in nobody's debt.
        """
        own = self._sum_up()
        claims = [own, *others.values()]
        if sum(each.used for each in claims) < FULL * self.cores:
            return False
        due = share_out(self.cores, [each.wanted for each in claims])
        return any(
            each.late > STARVED and each.used < FULL * min(share, each.held)
            for each, share in zip(claims[1:], due[1:], strict=True)
        )


def _claim(look: Observation, active: int, looks: list[tuple[float, float]], now_ns: int) -> Claim:
    used = look.cpu_s / look.seconds
    wanted = HEADROOM * used
    if look.starved > STARVED:
        needed = count_needed(look.service_s, (look.seconds - look.wait_s) / look.batches)
        wanted = max(needed, active) * look.computing
    late, rate = (statistics.fmean(each) for each in zip(*looks, strict=True))
    return Claim(now_ns, wanted, used, active * look.computing, late, rate)


def open_host() -> HostBudget:
    """The budget of the cores that this process may use.

    A rank with cores of its own shares nothing but the quotas, and those equally.
    """
    ranks = count_local_ranks()
    try:
        folder = _open_folder(_name_pool())
    except OSError:
        folder = None  # no /dev/shm, or somebody else's folder has our name
    is_bound = has_own_cores()
    cores = count_cores(ranks=ranks if is_bound else 1)
    budget = HostBudget(cores, 1 if is_bound else ranks, folder)
    budget.sweep()
    return budget


def _name_pool() -> str:
    """The same for all who share cores, and whose process numbers mean the same."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    space = os.readlink("/proc/self/ns/pid")
    return blake2b("|".join((space, cores, *list_quotas())).encode(), digest_size=8).hexdigest()


def _open_folder(pool: str) -> int:
    """A descriptor of the pool's folder; OSError if it is not ours alone."""
    outer = _enter(f"{SHELF}/fuelline-{os.geteuid()}", None)
    try:
        return _enter(pool, outer)
    finally:
        os.close(outer)


def _enter(name: str, above: int | None) -> int:
    try:
        os.mkdir(name, _OWNER, dir_fd=above)
    except FileExistsError:
        pass  # made by an earlier rank; what it is, is seen next
    descriptor = os.open(name, _FOLDER, dir_fd=above)
    status = os.fstat(descriptor)
    if is_own(status) and not status.st_mode & 0o077:
        return descriptor
    os.close(descriptor)
    raise PermissionError(name)


def _find_start(pid: int) -> int:
    """Ticks since boot at which a process began: its number may be used again, this is not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return -1


def _is_alive(name: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and _find_start(int(found[1])) == int(found[2])
