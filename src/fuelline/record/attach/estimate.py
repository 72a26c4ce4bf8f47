"""Records as hooks would have written them, estimated from stacks, thread states and counters.

Between two looks at the counters there were so many batches, and the training thread was seen in
each part of a step for such a share of the time: that many equal steps are written, each with its
share of every part. What belongs to no step (a checkpoint, the start of an epoch) lies where it was
seen. So sums, shares and rates are those that were seen; the length of one single step is not.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from fuelline.record.attach.counters import Look, Work, count_messages
from fuelline.record.attach.frames import PAUSES, Part
from fuelline.record.attach.spools import EstimatedSpool
from fuelline.schema.wire import Collective, Flag, Kind, PauseKind

SOURCE_ID = 1
OWN_SOURCE_ID = 1 << 20
"""Of a queue of the job's own, as hooks number it (`record/hooks/waits.py`)."""
_LEARNING: tuple[Part, ...] = ("backward", "optimizer")
_BEHIND: tuple[Part, ...] = ("loop", "sync")
"""What follows the optimizer; stack samples separate the two afterwards."""
_BEFORE: tuple[Part, ...] = ("transfer", "forward")
LEAST_NS = 1_000_000_000
"""Of one stretch that steps are laid out in: shorter ones hold too few samples."""


class PartSpan(NamedTuple):
    """The training thread was in one part of its loop."""

    start_ns: int
    end_ns: int
    part: Part


class Stay(NamedTuple):
    """How often a worker's, or the trainer's, own thread was seen in each state in one second."""

    window_ns: int
    waits: bool
    """Whether the trainer waited for input meanwhile."""
    state: str
    looks: int


def clip(spans: Iterable[PartSpan], start_ns: int, end_ns: int) -> list[PartSpan]:
    """The parts of spans that lie inside."""
    return [
        PartSpan(max(each.start_ns, start_ns), min(each.end_ns, end_ns), each.part)
        for each in spans
        if each.end_ns > start_ns and each.start_ns < end_ns
    ]


def close_gaps(spans: list[PartSpan], start_ns: int) -> list[PartSpan]:
    """Let each span last until the next begins: between two samples nothing else was seen."""
    closed: list[PartSpan] = []
    for span, following in zip(spans, [*spans[1:], None], strict=True):
        begin_ns = closed[-1].end_ns if closed else min(start_ns, span.start_ns)
        end_ns = span.end_ns if following is None else following.start_ns
        if end_ns > begin_ns:
            closed.append(PartSpan(begin_ns, end_ns, span.part))
    return closed


def with_epoch_starts(spans: list[PartSpan], most_ns: float = inf) -> list[PartSpan]:
    """The first wait of an epoch belongs to its start: workers begin with nothing prepared.

    `most_ns`: as long as a batch takes to prepare. Where steps are short, samples see one wait
    after the other and nothing in between; what lasts longer than one of them is several.
    """
    found: list[PartSpan] = []
    left_ns = 0.0
    for span in spans:
        if span.part == "epoch start":
            left_ns = most_ns
        elif span.part == "input" and left_ns > 0:
            until_ns = int(min(span.end_ns, span.start_ns + left_ns))
            left_ns -= until_ns - span.start_ns
            found.append(PartSpan(span.start_ns, until_ns, "epoch start"))
            span = span._replace(start_ns=until_ns)  # noqa: PLW2901 - the rest of it
        else:
            left_ns = 0.0
        if span.end_ns > span.start_ns:
            found.append(span)
    return found


class Activity:
    """In which parts the training thread runs, and in which it is blocked.

    A sampler gets a core when the job leaves one: on full cores it sees too much of the job's
    waiting. How long the thread ran or was ready to is known exactly, by the scheduler's clock:
    that time is divided by the samples of running, and the rest by the samples of being blocked.
    """

    def __init__(self) -> None:
        self._running: Counter[Part] = Counter()
        self._seen: Counter[Part] = Counter()

    def add(self, part: Part, *, is_running: bool) -> None:
        """One sample of the thread's state whose part is known."""
        self._seen[part] += 1
        self._running[part] += is_running

    def correct(self, spans: Iterable[PartSpan], wall_ns: int, active_ns: int) -> dict[Part, float]:
        """Time of each part that is no pause, by samples, with the clock's word on running."""
        spent: Counter[Part] = Counter()
        for span in spans:
            spent[span.part] += span.end_ns - span.start_ns
        scale = wall_ns / (sum(spent.values()) or 1)
        paused = {part: ns * scale for part, ns in spent.items() if part in PAUSES}
        plain = {part: ns * scale for part, ns in spent.items() if part not in PAUSES}
        if active_ns < 0:
            return plain
        ready_ns = active_ns - sum(ns * self._readiness(part) for part, ns in paused.items())
        clear_ns = sum(plain.values())
        ready_ns = min(max(ready_ns, 0.0), clear_ns)
        running = {part: ns * self._readiness(part) for part, ns in plain.items()}
        blocked = {part: ns - running[part] for part, ns in plain.items()}
        return {
            part: ready_ns * running[part] / (sum(running.values()) or 1)
            + (clear_ns - ready_ns) * blocked[part] / (sum(blocked.values()) or 1)
            for part in plain
        }

    def with_waits_in_backward(self, spent: Mapping[Part, float]) -> dict[Part, float]:
        """Ranks that compute on the host wait for each other inside of their backward pass."""
        back = spent.get("backward", 0.0)
        waited = back * (1 - self._readiness("backward"))
        return {
            **spent,
            "backward": back - waited,
            "collectives": spent.get("collectives", 0.0) + waited,
        }

    def _readiness(self, part: Part) -> float:
        """Of a part's time: running or ready to; before anything was seen, what is usual."""
        usual = 0.05 if part == "input" else 0.95
        return (self._running[part] + usual * _USUAL_SEEN) / (self._seen[part] + _USUAL_SEEN)


_USUAL_SEEN = 2
"""Samples that the usual share of running is worth."""


class StepWriter:
    """Lays out the steps of one training thread."""

    def __init__(self, spool: EstimatedSpool, tid: int) -> None:
        self._spool = spool
        self._tid = tid
        self.source_id = SOURCE_ID
        self.learns = False
        """Whether a backward pass or an optimizer was ever seen."""
        self.has_input = False
        """Whether a source of batches was ever seen, or its workers."""
        self.ranks = 1
        """Processes that step together; their collectives are counted alike."""
        self._collectives = 0
        self.steps = 0
        self.seconds: dict[Part, float] = {}
        """Of each part, over everything that was laid out."""

    def notice(self, parts: Iterable[Part]) -> None:
        """What the loop was seen in, before any of it is laid out."""
        for part in parts:
            self.has_input = self.has_input or part in ("input", "epoch start")
            self.learns = self.learns or part in _LEARNING

    def lay(
        self,
        spans: Sequence[PartSpan],
        spent: Mapping[Part, float],
        start_ns: int,
        end_ns: int,
        steps: int,
        *,
        per_step: int = 1,
        fetch: Mapping[str, float] | None = None,
    ) -> None:
        """Write `steps` steps of `per_step` batches each into a stretch, and its pauses.

        `spent`: weights of the parts that are no pauses. `fetch`: of the wait, where the trainer
        itself prepares the batch.
        """
        pauses = _join(span for span in spans if span.part in PAUSES)
        clear_ns = end_ns - start_ns - sum(each.end_ns - each.start_ns for each in pauses)
        seen_ns = float(sum(spent.values()))
        if steps < 1 or (not seen_ns and clear_ns > 0):
            return
        scale = clear_ns / seen_ns / steps if seen_ns else 0.0
        each_ns = {part: ns * scale for part, ns in spent.items()}
        for part, ns in spent.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + ns * scale * steps / 1e9
        cursor, pending = float(start_ns), list(pauses)
        step_ns = clear_ns / steps
        paused_ns = 0.0
        for number in range(steps + 1):
            while pending and (
                number == steps
                or pending[0].start_ns - start_ns - paused_ns <= (number + 0.5) * step_ns
            ):
                pause = pending.pop(0)
                length_ns = pause.end_ns - pause.start_ns
                self._pause(pause.part, int(cursor), length_ns)
                cursor += length_ns
                paused_ns += length_ns
            if number < steps:
                self._step(cursor, each_ns, per_step, fetch)
                cursor += step_ns
        self.steps += steps

    def _pause(self, part: Part, start_ns: int, length_ns: int) -> None:
        self.seconds[part] = self.seconds.get(part, 0.0) + length_ns / 1e9
        if part == "start-up":
            return
        if part == "epoch start":
            self._add(Kind.SOURCE_START, start_ns, length_ns, (self.source_id,))
            return
        kind = PauseKind.CHECKPOINT if part == "checkpoint" else PauseKind.VALIDATION
        self._add(Kind.PAUSE, start_ns, length_ns, (-1, 0, int(kind)))

    def _step(
        self,
        start_ns: float,
        each_ns: Mapping[Part, float],
        batches: int,
        fetch: Mapping[str, float] | None,
    ) -> None:
        at = start_ns
        for _ in range(batches):
            at = self._batch(at, {part: ns / batches for part, ns in each_ns.items()}, fetch)
        together = each_ns.get("collectives", 0.0)
        if together >= 1 or self.ranks > 1:
            number = self._collectives if self.ranks > 1 else -1
            fields = (int(Collective.ALL_REDUCE), 0, 0, number, self.ranks)
            self._add(Kind.COLLECTIVE, int(at), int(together), fields)
            self._collectives += 1
        at += together
        if self.learns:
            learned = each_ns.get("optimizer", 0.0)
            self._add(Kind.STEP, int(at), int(learned), (1, 0, -1))

    def _batch(
        self, at: float, each_ns: Mapping[Part, float], fetch: Mapping[str, float] | None
    ) -> float:
        """What is done once a batch; gives the moment of its end."""
        waited = each_ns.get("input", 0.0)
        if self.has_input:
            fields = (self.source_id, -1, -1, -1, 1)
            self._add(Kind.WAIT, int(at), int(waited), fields, flags=int(Flag.TRAINING))
            if fetch is not None and waited >= 1:
                self._fetch(int(at), int(waited), fetch)
        at += waited
        copied = each_ns.get("transfer", 0.0)
        if copied >= 1:
            self._add(Kind.COPY, int(at), int(copied), (0, 0))
        at += copied + each_ns.get("forward", 0.0)
        back = each_ns.get("backward", 0.0)
        if back >= 1 or self.learns:  # what lies before it is forward, however short it is
            self._add(Kind.BACKWARD, int(at), int(back), (0, -1, -1))
        return at + back

    def _fetch(self, at: int, length_ns: int, share: Mapping[str, float]) -> None:
        cpu_ns, queued_ns = int(length_ns * share["cpu"]), int(length_ns * share["queued"])
        collate_ns = int(length_ns * share["collate"])
        self._add(Kind.FETCH, at, length_ns, (-1, -1, cpu_ns, queued_ns, collate_ns))
        counted = tuple(
            int(share[name]) for name in ("read_bytes", "disk_bytes", "calls", "faults")
        )
        self._add(Kind.FETCH_IO, at, length_ns, (*counted, -1))

    def _add(
        self, kind: Kind, start_ns: int, length_ns: int, fields: tuple[int, ...], *, flags: int = 0
    ) -> None:
        self._spool.add(kind, start_ns, length_ns, fields, flags=flags, tid=self._tid)

    def describe_source(self, settings: Mapping[str, object], now_ns: int) -> None:
        """The loader's settings, as far as they are known; the last description counts."""
        text = self._spool.text(json.dumps(settings))
        self._add(Kind.SOURCE, now_ns, 0, (self.source_id, text))

    def describe_process(self, facts: Mapping[str, object], now_ns: int) -> None:
        """The framework, and what else is known of the process."""
        self._add(Kind.PROCESS, now_ns, 0, (self._spool.text(json.dumps(facts)),))

    def describe_rank(self, rank: int, ranks: int, local: int, now_ns: int) -> None:
        """Its place among the ranks of a distributed job."""
        self._add(Kind.RANK, now_ns, 0, (rank, ranks, local, 0))

    def introduce_worker(self, number: int, pid: int, now_ns: int) -> None:
        """A worker that was met."""
        self._add(Kind.WORKER, now_ns, 0, (SOURCE_ID, number, pid))


def _join(spans: Iterable[PartSpan]) -> list[PartSpan]:
    """Spans of one part that touch each other as one."""
    joined: list[PartSpan] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last is not None and last.part == span.part and last.end_ns == span.start_ns:
            joined[-1] = last._replace(end_ns=span.end_ns)
        else:
            joined.append(span)
    return joined


class WorkerWriter:
    """Fetches of one worker: as many as it sent messages, each with its share of the time."""

    def __init__(self, spool: EstimatedSpool, number: int) -> None:
        self._spool = spool
        self._number = number
        self._since: tuple[int, Work] | None = None
        self._busy_frac: list[tuple[int, float]] = []
        self._last_messages = -1
        self.messages = 0
        """All that it was seen to write."""

    def take(
        self,
        at_ns: int,
        work: Work,
        stays: Sequence[Stay],
        *,
        collate_frac: float,
        per_batch: int,
        batch_size: int = -1,
    ) -> None:
        """A look at its counters, and the states that it was seen in since the last one.

        `per_batch`: how many messages it writes for a batch.
        """
        if self._last_messages >= 0:
            self.messages += max(0, work.messages - self._last_messages)
        self._last_messages = work.messages
        if self._since is None:
            self._since = at_ns, work
            return
        seen = sum(stay.looks for stay in stays)
        if seen:
            idle = sum(stay.looks for stay in stays if stay.state == "pipe")
            self._busy_frac.append((seen, 1 - idle / seen))
        since_ns, before = self._since
        sent = (work.messages - before.messages) // per_batch
        if sent < 1 or at_ns - since_ns < LEAST_NS:
            return
        self._write((since_ns, before), (at_ns, work), sent, batch_size, collate_frac)
        self._since, self._busy_frac = (at_ns, work), []

    def _write(
        self,
        since: tuple[int, Work],
        until: tuple[int, Work],
        sent: int,
        batch_size: int,
        collate_frac: float,
    ) -> None:
        (since_ns, before), (at_ns, work) = since, until
        grown = Work(*(max(0, new - old) for new, old in zip(work, before, strict=True)))
        room_ns = (at_ns - since_ns) / sent
        at_work_ns = grown.cpu_ns + grown.queued_ns
        looks = sum(count for count, _ in self._busy_frac)
        busy = sum(count * share for count, share in self._busy_frac) / looks if looks else 0.0
        length_ns = min(room_ns, max(busy * room_ns, at_work_ns / sent))
        on_core = min(1.0, length_ns * sent / at_work_ns) if at_work_ns else 0.0
        cpu_ns, queued_ns = grown.cpu_ns * on_core / sent, grown.queued_ns * on_core / sent
        handoff_ns = grown.helper_cpu_ns / sent
        for number in range(sent):
            start_ns = int(since_ns + number * room_ns)
            fields = (
                self._number, batch_size, int(cpu_ns), int(queued_ns), int(length_ns * collate_frac)
            )  # fmt: skip
            self._spool.add(Kind.FETCH, start_ns, int(length_ns), fields)
            counted = (grown.read_bytes, grown.disk_bytes, grown.read_calls, grown.faults)
            each = (
                tuple(round(value / sent) for value in counted)
                if work.read_bytes >= 0
                else (-1,) * 4
            )
            self._spool.add(Kind.FETCH_IO, start_ns, int(length_ns), (*each, -1))
            sent_bytes = round(grown.message_bytes / sent)
            self._spool.add(
                Kind.HANDOFF,
                start_ns,
                int(handoff_ns),
                (sent_bytes, int(handoff_ns), self._number, -1),
            )


def count_batches(before: Look, after: Look, feeders: Iterable[int]) -> int:
    """Batches that the trainer asked its workers for between two looks."""
    return sum(
        count_messages(before.writes.get(tid, (0, 0)), after.writes[tid])
        for tid in feeders
        if tid in after.writes
    )
