"""One replica with continuous batching, from event to event.

Every step takes one token of each running sequence and fills what is left of its token budget with prompts
(chunked prefill); without chunks, waiting prompts get a step of their own and decoding stands still. A cache
that runs full drops the youngest sequence, which is read again later. While nothing can change, steps are
taken many at a time. Each request is served once or refused; time never runs backwards.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.schema.plans import Slice
from fuelline.schema.simulated import Request, Served

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    StepTime = Callable[[list[Slice]], float]
    """Seconds of one step with these sequences in it."""

STRIDE = 32
"""Decode steps taken at once at most: a context grows by so little that one step's time stands for all."""


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


class Run(Struct, frozen=True, kw_only=True):
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
    """A request in the replica."""

    __slots__ = ("first_s", "made", "past", "preempted", "request", "started_s", "todo")

    def __init__(self, request: Request) -> None:
        self.request = request
        elsewhere = request.first_s is not None
        self.first_s = request.first_s
        self.made = 1 if elsewhere else 0
        self.todo = 0 if elsewhere else request.prompt
        """Tokens that are still to be read."""
        self.past = request.prompt if elsewhere else 0
        """Tokens in the cache."""
        self.started_s: float | None = None
        self.preempted = 0

    @property
    def size(self) -> int:
        """Cache that it holds or is promised."""
        return self.past + self.todo


class _Replica:
    """The state between two steps."""

    def __init__(self, requests: Sequence[Request], step: StepTime, room: Room) -> None:
        self.step, self.room = step, room
        self.refused = tuple(each for each in requests if not room.can_hold(each))
        fitting = (each for each in requests if room.can_hold(each))
        self.coming = deque(sorted(fitting, key=lambda each: each.arrival_s))
        self.waiting: deque[_Sequence] = deque()
        self.running: list[_Sequence] = []
        self.held = 0
        self.now = self.busy_s = self.present_s = 0.0
        self.backlog = 0
        self.served: list[Served] = []

    def run(self) -> Run:
        while self.coming or self.waiting or self.running:
            self._take_in()
            self._advance()
        return Run(
            served=tuple(self.served),
            refused=self.refused,
            busy_s=self.busy_s,
            present_s=self.present_s,
            end_s=self.now,
            backlog=self.backlog,
        )

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
        self._admit_cached()
        decoding = [each for each in self.running if each.todo == 0]
        parts = self._choose_prompts(len(decoding))
        if parts and not self.room.chunked:
            decoding = []
        slices = [Slice(1, new, each.past) for each, new in parts]
        past = sum(each.past for each in decoding) / max(len(decoding), 1)
        if decoding:
            slices.append(Slice(len(decoding), 1, past))
        seconds, count = self.step(slices), 1
        if not parts:
            count = self._stride(decoding, seconds)
            # Time grows evenly with the context, so the middle step stands for all.
            seconds = self.step([Slice(len(decoding), 1, past + (count - 1) / 2)])
        self._pass(seconds * count)
        for each, new in parts:
            self._read(each, new)
        self._write(decoding, count)

    def _make_room(self) -> None:
        """Every decoding sequence needs one more token; the youngest give way."""
        while len(self.running) > 1:
            need = sum(each.todo == 0 for each in self.running)
            if self.held + need <= self.room.cache_tokens:
                return
            youngest = max(self.running, key=lambda each: each.request.arrival_s)
            self.running.remove(youngest)
            self.held -= youngest.size
            youngest.todo, youngest.past = youngest.size, 0
            youngest.preempted += 1
            self.waiting.appendleft(youngest)

    def _fits(self, sequence: _Sequence) -> bool:
        if len(self.running) >= self.room.most_sequences:
            return False
        # A token for everybody is kept free, or what comes in now would be thrown out at once.
        spare = len(self.running) + 1 if self.running else 0
        return self.held + sequence.size + spare <= self.room.cache_tokens

    def _admit(self) -> _Sequence:
        sequence = self.waiting.popleft()
        self.running.append(sequence)
        self.held += sequence.size
        if sequence.started_s is None:
            sequence.started_s = self.now
        return sequence

    def _admit_cached(self) -> None:
        """Sequences whose cache came over the network decode at once."""
        while self.waiting and self.waiting[0].todo == 0 and self._fits(self.waiting[0]):
            self._admit()

    def _choose_prompts(self, decoding: int) -> list[tuple[_Sequence, int]]:
        """Who is read in this step, and how much of it."""
        budget = self.room.chunk_tokens - (decoding if self.room.chunked else 0)
        parts: list[tuple[_Sequence, int]] = []
        for each in self.running:
            if each.todo and budget > 0:
                parts.append((each, min(each.todo, budget)))
                budget -= parts[-1][1]
        while budget > 0 and self.waiting and self._fits(self.waiting[0]):
            each = self._admit()
            if each.todo:
                parts.append((each, min(each.todo, budget)))
                budget -= parts[-1][1]
        return parts

    def _stride(self, decoding: list[_Sequence], seconds: float) -> int:
        """Steps until somebody ends, somebody arrives, or the cache is full."""
        count = min(STRIDE, *(each.request.output - each.made for each in decoding))
        if self.coming and len(self.running) < self.room.most_sequences:
            count = min(count, int((self.coming[0].arrival_s - self.now) / seconds) + 1)
        if len(self.running) > 1:
            count = min(count, int((self.room.cache_tokens - self.held) / len(decoding)))
        return max(count, 1)

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.busy_s += seconds
        self.present_s += seconds * (len(self.running) + len(self.waiting))

    def _read(self, sequence: _Sequence, new: int) -> None:
        sequence.todo -= new
        sequence.past += new
        if sequence.todo == 0:
            sequence.made += 1
            if sequence.first_s is None:
                sequence.first_s = self.now
            self._end(sequence)

    def _write(self, decoding: list[_Sequence], count: int) -> None:
        self.held += count * len(decoding)
        for each in decoding:
            each.made += count
            each.past += count
            self._end(each)

    def _end(self, sequence: _Sequence) -> None:
        if sequence.made < self.room.wanted(sequence.request):
            return
        self.running.remove(sequence)
        self.held -= sequence.size
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


def run_replica(requests: Sequence[Request], step: StepTime, room: Room) -> Run:
    """Serve all of them."""
    return _Replica(requests, step, room).run()
