"""What ranks do together: when this rank arrives at a collective, how large it is, when it ends.

Calls of `torch.distributed` are watched one by one; what DDP exchanges by itself is in ddp.py. The
same collective has the same group, kind and number on every rank, which is how their records are
matched afterwards. No synchronisation is added: where a call only enqueues work on a device, the
record says when the host came by, and marks before and after it when the device did.
"""

import functools
import inspect
import itertools
import os
import weakref
import zlib
from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, NamedTuple

import torch
from torch import distributed
from torch.distributed import distributed_c10d as c10d

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.batches import measure
from fuelline.record.hooks.torch.seam import is_tracing
from fuelline.schema.wire import Collective, Flag, Kind, MarkPlace, tail

__all__ = [
    "KEPT_HANDLES",
    "Fields",
    "Group",
    "Handles",
    "Part",
    "RankGroups",
    "find_rank_groups",
    "install",
    "keep_record",
]

KEPT_HANDLES = 256
"""Asynchronous collectives whose handle may still be waited for; more are forgotten."""

_RANK, _COLLECTIVE, _WAIT = int(Kind.RANK), int(Kind.COLLECTIVE), int(Kind.COLLECTIVE_WAIT)
_ERROR, _ASYNC = int(Flag.ERROR), int(Flag.ASYNC)
_CALL_TAIL, _ASYNC_TAIL, _WAIT_TAIL = tail(_COLLECTIVE), tail(_COLLECTIVE, _ASYNC), tail(_WAIT)
_NAMELESS, _UNMATCHED = 0, -1
"""A group of which only this rank knows which it is: its collectives have no number to match."""
_BEGIN, _END, _ABOUT_TO_WAIT = (
    int(MarkPlace.COLLECTIVE_BEGIN),
    int(MarkPlace.COLLECTIVE_END),
    int(MarkPlace.COLLECTIVE_WAIT),
)

_CALLS = {
    "all_reduce": (Collective.ALL_REDUCE, "tensor"),
    "broadcast": (Collective.BROADCAST, "tensor"),
    "reduce": (Collective.REDUCE, "tensor"),
    "all_gather": (Collective.ALL_GATHER, "tensor_list"),
    "all_gather_into_tensor": (Collective.ALL_GATHER, "output_tensor"),
    "all_gather_single": (Collective.ALL_GATHER, "output_tensor"),
    "reduce_scatter": (Collective.REDUCE_SCATTER, "input_list"),
    "reduce_scatter_tensor": (Collective.REDUCE_SCATTER, "input"),
    "reduce_scatter_single": (Collective.REDUCE_SCATTER, "input"),
    "all_to_all": (Collective.ALL_TO_ALL, "input_tensor_list"),
    "all_to_all_single": (Collective.ALL_TO_ALL, "input"),
    "gather": (Collective.GATHER, "tensor"),
    "scatter": (Collective.SCATTER, "tensor"),
    "barrier": (Collective.BARRIER, None),
}
"""Function to what it is and the argument that holds all of its data."""

_RENAMED = {
    "all_gather_into_tensor": "all_gather_single",
    "reduce_scatter_tensor": "reduce_scatter_single",
}
"""Where torch has the new name, the old one calls it and would be counted twice."""

_member = c10d.GroupMember
_Tensor = torch.Tensor
_WORLD, _DEFAULT_GROUP = seam.attribute_of(seam.PARTS["world"]), seam.name_default_group()
_count_modes = seam.count_modes


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch all collectives that are called from Python."""
    roll = find_rank_groups(guest, patches)
    hooks: list[Hook] = [roll.handles]
    for name, (kind, argument) in _CALLS.items():
        original = getattr(c10d, name, None)
        if original is None or hasattr(c10d, _RENAMED.get(name, "")):
            continue
        hook = CollectiveCall(guest, roll, kind, _Arguments.of(original, argument))
        watched = hook.wrap(original)
        for owner in (c10d, distributed):
            patches.replace(owner, name, watched)
        hooks.append(hook)
    return hooks


Fields = tuple[int, int, int, int, int]
"""The five fields of a record about a collective."""


def keep_record(  # noqa: PLR0917 - the fields of a record
    guest: Guest, kind: int, start_ns: int, dur_ns: int, fields: Fields, flags: int
) -> None:
    """Keep a record: held for a moment, as `Spool` says, if this is the trainer's thread."""
    if get_ident() != guest.trainer:
        guest.append(kind, start_ns, dur_ns, *fields, flags)
        return
    if guest.spool.buffer.keep(start_ns, start_ns + dur_ns, *fields, tail(kind, flags)):
        guest.spool.write_buffered()


class Group(NamedTuple):
    """A process group."""

    number: int
    """The same on all ranks of the group."""
    size: int


class Part(NamedTuple):
    """A collective that is only noted, to be made with others."""

    kind: int
    size_bytes: int
    group: int
    size: int
    next_number: Callable[[], int]


def find_rank_groups(guest: Guest, patches: Patches) -> "RankGroups":
    """The one that all hooks of a process count with; waits for its handles are watched."""
    if guest.rank_groups is None:
        made = guest.rank_groups = RankGroups(guest)
        patches.replace(c10d.Work, "wait", made.handles.wrap(c10d.Work.wait))
        patches.on_undo(lambda: setattr(guest, "rank_groups", None))
    groups: RankGroups = guest.rank_groups
    return groups


class RankGroups:
    """Numbers collectives, and writes down once which rank this process is."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self.handles = Handles(guest)
        self.coalescing: dict[int, list[Part]] = {}
        """Thread to what it has called so far that is to be exchanged together."""
        guest.on_fork(self.coalescing.clear)
        self._counters: dict[tuple[int, int], itertools.count[int]] = {}
        guest.on_fork(self._counters.clear)

    def group(self, group: Any) -> Group | None:
        """The group that a call is for; None before there is any, or if we are not in it."""
        known = _member.WORLD if group is None else group
        if known is None or known is _member.NON_GROUP_MEMBER:
            return None
        return self.introduce(known)

    def introduce(self, group: Any) -> Group:
        """The group by its number, after this process has told its rank."""
        if self._guest.ranked_by != "job":
            self._tell_rank(group)
        name = getattr(group, "group_name", "")
        return Group(zlib.crc32(name.encode()) if name else _NAMELESS, group.size())

    def counter(self, group: Group, kind: int) -> Callable[[], int]:
        """Counts the collectives of this kind in a group that other ranks know as well."""
        if group.number == _NAMELESS:
            return lambda: _UNMATCHED
        counter = self._counters.get((group.number, kind))
        if counter is None:
            counter = self._counters[group.number, kind] = itertools.count()
        return counter.__next__

    def next_number(self, group: Group, kind: int) -> int:
        """How many collectives of this kind the group had before."""
        return self.counter(group, kind)()

    def note(self, part: Part) -> int:
        """The part's size, or 0 after it was noted as one of several."""
        parts = self.coalescing.get(get_ident())
        if parts is None:
            return part.size
        parts.append(part)
        return 0

    def _tell_rank(self, group: Any) -> None:
        """Write down the rank in the job, or in this group while the job has no group of all.

        A library may make groups of its own without `init_process_group`.
        """
        guest, everyone = self._guest, _member.WORLD
        teller = "group" if everyone is None else "job"
        if guest.ranked_by == teller:
            return
        guest.ranked_by = teller
        asked = group if everyone is None else everyone
        backend = asked.name() if everyone is None else c10d.get_backend()
        if backend == "undefined":  # one for each kind of device
            backend = c10d.get_backend_config()
        local = os.environ.get("LOCAL_RANK", "")
        guest.append(
            _RANK, monotonic_ns(), 0, asked.rank(), asked.size(),
            int(local) if local.isdecimal() else -1, guest.spool.text(str(backend)),
        )  # fmt: skip


class _Arguments(NamedTuple):
    """Where a function takes its data and its group."""

    data: str
    data_at: int
    group_at: int

    @classmethod
    def of(cls, function: Callable[..., Any], data: str | None) -> "_Arguments":
        names = list(inspect.signature(function).parameters)
        at = names.index(data) if data else len(names)
        return cls(data or "", at, names.index("group"))


class Handles(Hook):
    """`Work.wait()`: an asynchronous collective is waited for."""

    name = "collective handles"
    forbids = "telling how long asynchronous collectives are waited for"
    key: Callable[[Any], int] = staticmethod(id)
    """What a handle is known by, so that the object itself is not kept alive."""

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self.open: dict[int, Fields] = {}
        guest.on_fork(self.open.clear)

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The callable to put in the original's place.

        Calls that are not asynchronous wait as well, inside of torch: nothing is open then.
        """
        is_open, key, guest, spool = self.open, self.key, self.guest, self.guest.spool
        buffer, keep = spool.buffer, spool.buffer.keep

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not is_open or is_tracing() or not self.is_on:
                return original(*args, **kwargs)
            fields = is_open.pop(key(args[0]), None) if args else None
            if fields is None:
                return original(*args, **kwargs)
            clock = guest.device_clock
            if clock is not None:
                clock.mark_here(_ABOUT_TO_WAIT)
            start_ns = monotonic_ns()
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                self.close((fields, start_ns), None, error)
                raise
            now_ns = monotonic_ns()
            if clock is not None:
                clock.mark_here(_END)
            try:
                if get_ident() != buffer.trainer:
                    guest.append(_WAIT, start_ns, now_ns - start_ns, *fields)
                else:
                    kind, size_bytes, number, count, size = fields
                    if keep(start_ns, now_ns, kind, size_bytes, number, count, size, _WAIT_TAIL):
                        spool.write_buffered()
            except BaseException as fault:  # noqa: BLE001 - the guard
                self.answer_for(fault)
            return result

        return watched

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record a wait that failed."""
        fields, start_ns = ticket
        keep_record(self.guest, _WAIT, start_ns, monotonic_ns() - start_ns, fields, _ERROR)


class _Latest(NamedTuple):
    """The group of the latest call, which mostly is that of the next one. Not kept alive."""

    group: Callable[[], Any]
    number: int
    size: int
    """0 if we are not in it."""
    next_number: Callable[[], int]


_NOBODY = _Latest(lambda: _Latest, 0, 0, lambda: 0)
"""Before the first call; stands for no group at all."""


class CollectiveCall(Hook):
    """One collective of `torch.distributed`.

    A step may have hundreds of them, each of which has just emptied the caches by handing over to
    another thread. So there is little in functions of its own, and what does not change from call
    to call is kept; bench/collective_overhead.py states the price.
    """

    name = "collective"
    forbids = "telling how long ranks wait for each other"

    def __init__(self, guest: Guest, roll: RankGroups, kind: Collective, place: _Arguments) -> None:
        super().__init__(guest)
        self._roll = roll
        self._handles = roll.handles
        self._kind = int(kind)
        self._place = place
        self._latest = _NOBODY
        guest.on_fork(self._forget)

    def wrap(  # noqa: C901, PLR0915 - calling another function costs more than what it does
        self, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        """The callable to put in the original's place."""
        guest, spool, is_open, kind = self.guest, self.guest.spool, self._handles.open, self._kind
        buffer, keep = spool.buffer, spool.buffer.keep
        data_name, data_at, group_at = self._place
        coalescing, names = self._roll.coalescing, vars(c10d)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:  # noqa: C901, PLR0912 - as above
            if is_tracing() or not self.is_on:
                return original(*args, **kwargs)
            size = size_bytes = number = count = 0
            try:
                group = args[group_at] if len(args) > group_at else kwargs.get("group")
                world = names[_WORLD]  # another may take its place
                known = getattr(world, _DEFAULT_GROUP) if group is None else group
                ref, number, size, next_number = self._latest
                if known is not ref():
                    ref, number, size, next_number = self._meet(known)
                if size:
                    data: Any = args[data_at] if len(args) > data_at else kwargs.get(data_name)
                    try:
                        is_plain = type(data) is _Tensor and not _count_modes()
                        size_bytes = data.nbytes if is_plain else _size_bytes(data)
                    except RuntimeError:  # a layout without a plain size
                        size_bytes = measure(data, None)[1]
                    if coalescing:
                        size = self._roll.note(Part(kind, size_bytes, number, size, next_number))
                    count = next_number() if size else 0
            except BaseException as fault:  # noqa: BLE001 - the guard
                size = 0
                self.answer_for(fault)
            if not size:
                return original(*args, **kwargs)
            clock = guest.device_clock
            if clock is not None:
                clock.mark_here(_BEGIN)
            start_ns = monotonic_ns()
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                self.close(((kind, size_bytes, number, count, size), start_ns), None, error)
                raise
            now_ns = monotonic_ns()
            if clock is not None and result is None:
                clock.mark_here(_END)
            try:
                flags = 0 if result is None else _ASYNC
                if flags:
                    if len(is_open) >= KEPT_HANDLES:
                        del is_open[next(iter(is_open))]
                    is_open[id(result)] = (kind, size_bytes, number, count, size)
                if get_ident() != buffer.trainer:
                    guest.append(
                        _COLLECTIVE, start_ns, now_ns - start_ns,
                        kind, size_bytes, number, count, size, flags,
                    )  # fmt: skip
                else:
                    ending = _ASYNC_TAIL if flags else _CALL_TAIL
                    if keep(start_ns, now_ns, kind, size_bytes, number, count, size, ending):
                        spool.write_buffered()
            except BaseException as fault:  # noqa: BLE001 - the guard
                self.answer_for(fault)
            return result

        return watched

    def _meet(self, group: Any) -> _Latest:
        """Take note of another group than the last time; of size 0 if we are not in it."""
        if group is None or group is _member.NON_GROUP_MEMBER:
            self._latest = _NOBODY
        else:
            known = self._roll.introduce(group)
            counter = self._roll.counter(known, self._kind)
            self._latest = _Latest(weakref.ref(group), known.number, known.size, counter)
        return self._latest

    def _forget(self) -> None:
        self._latest = _NOBODY

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record a call that failed."""
        fields, start_ns = ticket
        keep_record(self.guest, _COLLECTIVE, start_ns, monotonic_ns() - start_ns, fields, _ERROR)


def _size_bytes(data: Any) -> int:
    """Of a tensor or a list of them; the usual cases without the price of `measure`."""
    if data is None:
        return 0
    parts = data if type(data) is list else (data,)
    size_bytes = 0
    for part in parts:
        if type(part) is not _Tensor or _count_modes():
            return measure(data, None)[1]
        try:
            size_bytes += part.nbytes
        except RuntimeError:  # a layout without a plain size
            return measure(data, None)[1]
    return size_bytes
