"""One replica with continuous batching, from event to event.

Every step takes one token of each running sequence and fills what is left of its token budget with
prompts
(chunked prefill); without chunks, waiting prompts get their own step and decoding stands
still. A cache
that runs full drops the youngest sequence, which is read again later. While nothing can change,
steps are
taken many at a time. Each request is served once or refused; time never runs backwards.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.schema.plan.estimates import Slice
from fuelline.schema.plan.simulated import Request, Served

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    StepTime = Callable[[list[Slice]], float]
    """Seconds of one step with these sequences in it."""

STRIDE = 32
"""Decode steps taken at once at most: a context grows by so little that one step's time stands for
all."""


class Room(Struct, frozen=True, kw_only=True):
    """What a replica can hold."""

    cache_tokens: float
    """Of all sequences together."""
    most_sequences: int
    chunk_tokens: int = 8192
    """Tokens of a step at most. Small: decoding is smooth and prompts take longer."""
    chunked: bool = True
    prompts_only: bool = False
    """Requests leave with their first token: another pool writes the rest."""

    def wanted(self, request: Request) -> int:
        """Tokens that are made here."""
        return 1 if self.prompts_only else request.output

    def can_hold(self, request: Request) -> bool:
        """Whether it could ever be served."""
        return request.prompt + self.wanted(request) <= self.cache_tokens


class ReplicaRun(Struct, frozen=True, kw_only=True):
    """What one replica did."""

    served: tuple[Served, ...]
    refused: tuple[Request, ...]
    busy_s: float
    """In steps."""
    present_s: float
    """Seconds of every request in the replica, summed step by step."""
    end_s: float
    backlog: int
    """Requests that waited for their first step when the last one arrived."""


class _Sequence:
    """A request in the replica; ticks give what it has made since it began to decode."""

    __slots__ = (
        "entered",
        "first_s",
        "leaves",
        "made",
        "past",
        "preempted",
        "request",
        "started_s",
        "todo",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        elsewhere = request.first_s is not None
        self.first_s = request.first_s
        self.made = 1 if elsewhere else 0
        self.todo = 0 if elsewhere else request.prompt
        """Tokens that are still to be read."""
        self.past = request.prompt if elsewhere else 0
        """Tokens in the cache."""
        self.entered = self.leaves = 0
        """The ticks between which it decodes."""
        self.started_s: float | None = None
        self.preempted = 0

    @property
    def size(self) -> int:
        """Cache that it holds or is promised before it decodes."""
        return self.past + self.todo


class _Replica:
    """The state between two steps. A tick is one token for every decoding sequence."""

    def __init__(self, requests: Sequence[Request], step: StepTime, room: Room) -> None:
        self.step, self.room = step, room
        self.refused = tuple(each for each in requests if not room.can_hold(each))
        fitting = (each for each in requests if room.can_hold(each))
        self.coming = deque(sorted(fitting, key=lambda each: each.arrival_s))
        self.waiting: deque[_Sequence] = deque()
        self.reading: list[_Sequence] = []
        self.decoding: set[_Sequence] = set()
        self.exits: list[tuple[int, int, _Sequence]] = []
        """A heap of who leaves at which tick; preempted ones stay in it and are passed over."""
        self.by_age: list[tuple[float, int, _Sequence]] = []
        """A heap of who decodes, the youngest first; those who left are passed over too."""
        self.tick = self.entries = 0
        self.past = self.promised = 0
        """Cache tokens of those that decode, and of those that are read."""
        self.now = self.busy_s = self.present_s = 0.0
        self.backlog = 0
        self.served: list[Served] = []

    def run(self) -> ReplicaRun:
        while self.coming or self.waiting or self.running:
            self._take_in()
            self._advance()
        return ReplicaRun(
            served=tuple(self.served),
            refused=self.refused,
            busy_s=self.busy_s,
            present_s=self.present_s,
            end_s=self.now,
            backlog=self.backlog,
        )

    @property
    def running(self) -> int:
        return len(self.reading) + len(self.decoding)

    @property
    def free(self) -> float:
        return self.room.cache_tokens - self.past - self.promised

    def _take_in(self) -> None:
        """Requests that have arrived by now; if the replica is empty, wait for the next."""
        if not self.waiting and not self.running:
            self.now = max(self.now, self.coming[0].arrival_s)
        came = bool(self.coming) and self.coming[0].arrival_s <= self.now
        while self.coming and self.coming[0].arrival_s <= self.now:
            request = self.coming.popleft()
            self.present_s += self.now - request.arrival_s
            self.waiting.append(_Sequence(request))
        if came and not self.coming:
            self.backlog = sum(each.started_s is None for each in self.waiting)

    def _advance(self) -> None:
        self._make_room()
        parts = self._choose_prompts()
        count = len(self.decoding) if self.room.chunked or not parts else 0
        past = self.past / max(count, 1)
        slices = [Slice(1, new, each.past) for each, new in parts]
        if count:
            slices.append(Slice(count, 1, past))
        seconds, ticks = self.step(slices), min(count, 1)
        if not parts:
            ticks = self._stride(seconds)
            if ticks > 1:
                # Time grows evenly with the context, so the middle step stands for all.
                seconds = ticks * self.step([Slice(count, 1, past + (ticks - 1) / 2)])
        self._pass(seconds)
        self.tick += ticks
        self.past += ticks * count
        for each, new in parts:
            self._read(each, new)
        self._let_go()

    def _make_room(self) -> None:
        """Every decoding sequence needs one more token; the youngest give way."""
        while self.decoding and self.running > 1 and self.free < len(self.decoding):
            if len(self.decoding) > 1:
                youngest = self._youngest()
                self._leave(youngest)
            else:
                youngest = self.reading.pop()
                self.promised -= youngest.size
            youngest.todo, youngest.past = youngest.size, 0
            youngest.preempted += 1
            self.waiting.appendleft(youngest)

    def _youngest(self) -> _Sequence:
        while self.by_age[0][2] not in self.decoding:
            heapq.heappop(self.by_age)
        return heapq.heappop(self.by_age)[2]

    def _fits(self, sequence: _Sequence) -> bool:
        if self.running >= self.room.most_sequences:
            return False
        # A token for everybody is kept free, or what comes in now would be thrown out at once.
        spare = self.running + 1 if self.running else 0
        return sequence.size + spare <= self.free

    def _choose_prompts(self) -> list[tuple[_Sequence, int]]:
        """Who is read in this step, and how much of it."""
        budget = self.room.chunk_tokens - (len(self.decoding) if self.room.chunked else 0)
        parts: list[tuple[_Sequence, int]] = []
        for each in self.reading:
            if budget > 0:
                parts.append((each, min(each.todo, budget)))
                budget -= parts[-1][1]
        while self.waiting and self._fits(self.waiting[0]):
            if budget <= 0 and self.waiting[0].todo:
                break
            each = self._admit()
            if each.todo:
                parts.append((each, min(each.todo, budget)))
                budget -= parts[-1][1]
        return parts

    def _admit(self) -> _Sequence:
        sequence = self.waiting.popleft()
        if sequence.started_s is None:
            sequence.started_s = self.now
        if sequence.todo:
            self.reading.append(sequence)
            self.promised += sequence.size
        else:
            self._enter(sequence)
        return sequence

    def _enter(self, sequence: _Sequence) -> None:
        """Start to decode."""
        sequence.entered = self.tick
        sequence.leaves = self.tick + self.room.wanted(sequence.request) - sequence.made
        self.decoding.add(sequence)
        self.past += sequence.past
        self.entries += 1
        heapq.heappush(self.exits, (sequence.leaves, self.entries, sequence))
        heapq.heappush(self.by_age, (-sequence.request.arrival_s, self.entries, sequence))

    def _leave(self, sequence: _Sequence) -> None:
        """Stop decoding, with the tokens that were made."""
        made = self.tick - sequence.entered
        sequence.made += made
        sequence.past += made
        sequence.leaves = -1
        self.decoding.remove(sequence)
        self.past -= sequence.past

    def _stride(self, seconds: float) -> int:
        """Steps until somebody ends, somebody arrives, or the cache is full."""
        count = min(STRIDE, self._next_exit() - self.tick)
        if self.coming and self.running < self.room.most_sequences:
            count = min(count, int((self.coming[0].arrival_s - self.now) / seconds) + 1)
        if len(self.decoding) > 1:
            count = min(count, int(self.free / len(self.decoding)))
        return max(count, 1)

    def _next_exit(self) -> int:
        while self.exits[0][2].leaves != self.exits[0][0]:
            heapq.heappop(self.exits)
        return self.exits[0][0]

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.busy_s += seconds
        self.present_s += seconds * (self.running + len(self.waiting))

    def _read(self, sequence: _Sequence, new: int) -> None:
        sequence.todo -= new
        sequence.past += new
        if sequence.todo:
            return
        self.reading.remove(sequence)
        self.promised -= sequence.past
        sequence.made += 1
        if sequence.first_s is None:
            sequence.first_s = self.now
        self._enter(sequence)

    def _let_go(self) -> None:
        """Everybody who has all tokens."""
        while self.decoding and self._next_exit() <= self.tick:
            sequence = heapq.heappop(self.exits)[2]
            self._leave(sequence)
            first_s, started_s = sequence.first_s, sequence.started_s
            self.served.append(
                Served(
                    sequence.request,
                    self.now if started_s is None else started_s,
                    self.now if first_s is None else first_s,
                    self.now,
                    sequence.preempted,
                )
            )


def run_replica(requests: Sequence[Request], step: StepTime, room: Room) -> ReplicaRun:
    """Serve all of them."""
    return _Replica(requests, step, room).run()
