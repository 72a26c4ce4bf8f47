"""One training process: its steps, and where its last seconds went.

The parts are those of `timeline.segments`, with everything between a batch and its optimizer step
as `compute`. They are cut as records come, in the order in which events ended. Since the last event
the live phase tells: a checkpoint that still goes on has no record yet.

Also here: the pace of steps: how many, how often, how long, by the optimizer that leads.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from fuelline.schema.diagnosis.live import RankRow, Share
from fuelline.schema.wire import PART_OF_PAUSE, Flag, Kind, Phase
from fuelline.signals.live.window import WINDOW_NS, Buckets

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.live import LiveEvent, SourceWorker, SpoolGrowth, WorkerRow


PARTS = ("input", "epoch start", "collectives", "compute", "loop", "validation", "checkpoint")
_PART_OF_PHASE = {
    Phase.OUTSIDE: "loop",
    Phase.WAIT: "input",
    Phase.COMPUTE: "compute",
    Phase.CHECKPOINT: "checkpoint",
    Phase.EVAL_WAIT: "validation",
    Phase.EVAL: "validation",
    Phase.SOURCE_START: "epoch start",
}
_PART_OF_PAUSE = {int(kind): part for kind, part in PART_OF_PAUSE.items()}
_PHASE_WORDS = {**_PART_OF_PHASE, Phase.OUTSIDE: "outside"}
# Plain ints: every record comes by here, and arithmetic on enums takes ten times as long.
_WAIT, _SOURCE_START, _PAUSE = int(Kind.WAIT), int(Kind.SOURCE_START), int(Kind.PAUSE)
_BACKWARD, _STEP = int(Kind.BACKWARD), int(Kind.STEP)
_TRAINING, _END, _FAILED = int(Flag.TRAINING), int(Flag.END), int(Flag.END | Flag.ERROR)
_LEARNS = frozenset({_BACKWARD, _STEP})
_SEGMENTS = frozenset({_WAIT, _SOURCE_START, _PAUSE, *_LEARNS})
"""Other records lie inside these or in a gap and take its part; collectives are cut out of it."""
_TOGETHER = frozenset({int(Kind.COLLECTIVE), int(Kind.COLLECTIVE_WAIT)})
_SAMPLES = "samples"
MOST_COLLECTIVES = 10_000
"""Kept while no step ends; far more than a step has."""


class LiveTrainer:
    """What is known of one training process."""

    def __init__(self, growth: SpoolGrowth) -> None:
        self.pid = growth.pid
        self.workers: dict[tuple[int, int], SourceWorker] = {}
        """The last of each source and number."""
        self.tid = 0
        self._growth = growth
        self._rank: int | None = None
        self._pieces = Buckets()
        self._reached_ns = 0
        """End of the last event that was taken in."""
        self._after = ""
        """What the thread does since then, until the next event says otherwise."""
        self._unsure: tuple[int, int] | None = None
        """A batch taken without gradients: validation, unless learning follows."""
        self._collectives: deque[tuple[int, int]] = deque(maxlen=MOST_COLLECTIVES)
        """Those in what is not taken in yet: they end before the event that they are part of."""
        self._steps: dict[int, StepPace] = {}
        self._batches = StepPace()
        self._evaluated: set[int] = set()
        self._takes_batches = {True: False, False: False}
        self.add(growth)

    def add(self, growth: SpoolGrowth) -> None:
        """Take in what was written since the last look."""
        self._growth = growth
        self.tid = growth.trainer_tid
        self._rank = growth.rank if growth.rank is not None else self._rank
        for stepper, count in growth.past_steps.items():
            self._steps.setdefault(stepper, StepPace()).count += count
        self._batches.count += growth.past_batches
        for worker in growth.workers:
            self.workers[worker.source_id, worker.worker_id] = worker
        for event in growth.events:
            kind, is_own = event.kind, event.tid == self.tid
            if kind == _WAIT:
                self._takes_batches[is_own] = True
            if not is_own:
                continue
            if kind in _SEGMENTS:
                self._take(event)
            elif kind in _TOGETHER:
                self._collectives.append((event.start_ns, event.start_ns + event.dur_ns))

    @property
    def hides_waiting(self) -> bool:
        """Whether another thread takes the batches, so that waiting for them is not seen."""
        return self._takes_batches[False] and not self._takes_batches[True]

    def row(self, now_ns: int, workers: list[WorkerRow]) -> RankRow:
        """The process as it is shown."""
        is_gone = self._growth.is_alive is False
        is_deaf = self._growth.stopped_errno != 0
        now_ns = self._reached_ns if is_gone else now_ns
        steps, kind = self._count()
        lengths = steps.lengths_s()
        return RankRow(
            pid=self.pid,
            rank=self._rank,
            steps=steps.count if self._growth.is_counted else None,
            step_kind=kind,
            steps_per_s=None if is_deaf else steps.per_second(now_ns),
            step_mean_s=sum(lengths) / len(lengths) if lengths else None,
            step_p95_s=percentile(lengths, 0.95),
            samples_per_s=None if is_deaf else self._samples_per_s(now_ns),
            shares=[] if is_deaf or self.hides_waiting else self._shares(now_ns, is_gone=is_gone),
            phase="ended" if is_gone else "not recorded" if is_deaf else self._phase_words(),
            phase_s=max(0, now_ns - self._reached_ns) / 1e9
            if self._reached_ns and not is_gone and not is_deaf
            else None,
            workers=workers,
        )

    def _count(self) -> tuple[StepPace, Literal["train", "batch"]]:
        leader = find_leader(self._steps)
        return (self._batches, "batch") if leader is None else (leader, "train")

    def _take(self, event: LiveEvent) -> None:
        kind, end_ns = event.kind, event.start_ns + event.dur_ns
        start_ns = max(event.start_ns, self._reached_ns)
        if kind == _STEP:
            self._steps.setdefault(event.owner, StepPace()).add(end_ns)
        if self._reached_ns:
            self._settle(kind)
            self._add_span(self._reached_ns, start_ns, self._gap_part(kind))
        if kind == _WAIT:
            self._take_batch(event, start_ns, end_ns)
        elif kind == _PAUSE:
            self._add_span(start_ns, end_ns, _PART_OF_PAUSE.get(event.pause_kind, "loop"))
        elif kind == _SOURCE_START:
            part = "validation" if event.owner in self._evaluated else "epoch start"
            self._add_span(start_ns, end_ns, part)
        else:
            self._add_span(start_ns, end_ns, "compute")
            self._after = "loop"
        self._reached_ns = max(end_ns, self._reached_ns)

    def _add_span(self, start_ns: int, end_ns: int, part: str) -> None:
        """Add a stretch, with the collectives cut out that lie in it."""
        while self._collectives and self._collectives[0][0] < end_ns:
            from_ns, until_ns = self._collectives.popleft()
            if until_ns > end_ns:
                self._collectives.appendleft((end_ns, until_ns))
            cut_ns = max(from_ns, start_ns), min(until_ns, end_ns)
            if cut_ns[0] < cut_ns[1]:
                self._pieces.add_span(start_ns, cut_ns[0], part)
                self._pieces.add_span(*cut_ns, "collectives")
                start_ns = cut_ns[1]
        self._pieces.add_span(start_ns, end_ns, part)

    def _take_batch(self, event: LiveEvent, start_ns: int, end_ns: int) -> None:
        flags = event.flags
        if not flags & _FAILED:
            self._batches.add(end_ns)
            self._pieces.add(end_ns, _SAMPLES, max(0, event.samples))
        if not flags & _TRAINING and self._steps:
            self._unsure = (start_ns, end_ns)
            self._evaluated.add(event.owner)
            self._after = "loop" if flags & _END else "validation"
            return
        is_turn = event.position == 0 or flags & _END
        self._pieces.add_span(start_ns, end_ns, "epoch start" if is_turn else "input")
        self._after = "loop" if flags & _END else "compute"

    def _settle(self, kind: int) -> None:
        """Now it shows what the batch was for."""
        if self._unsure is not None:
            learns = kind in _LEARNS and self._after == "validation"
            self._pieces.add_span(*self._unsure, "input" if learns else "validation")
            self._after = "compute" if learns else self._after
            self._unsure = None

    def _gap_part(self, kind: int) -> str:
        """What the time between the last event and this one was."""
        if self._after == "loop":
            return "compute" if kind in _LEARNS else "loop"
        return self._after or "loop"

    def _phase(self) -> Phase:
        """The phase of this moment; what inference does is its work, not validation."""
        try:
            phase = Phase(self._growth.phase)
        except ValueError:  # damaged
            return Phase.OUTSIDE
        if self._steps:
            return phase
        return {Phase.EVAL_WAIT: Phase.WAIT, Phase.EVAL: Phase.COMPUTE}.get(phase, phase)

    def _phase_words(self) -> str:
        return _PHASE_WORDS[self._phase()]

    def _shares(self, now_ns: int, *, is_gone: bool) -> list[Share]:
        spent = self._pieces.total(now_ns)
        spent.pop(_SAMPLES, None)
        if self._unsure is not None:
            spent["validation"] += self._unsure[1] - self._unsure[0]
        if self._reached_ns and not is_gone:
            open_ns = min(now_ns - self._reached_ns, WINDOW_NS)
            spent[_PART_OF_PHASE[self._phase()]] += max(0, open_ns)
        whole = sum(spent.values())
        return [
            Share(part=part, frac=spent[part] / whole) for part in PARTS if spent[part] and whole
        ]

    def _samples_per_s(self, now_ns: int) -> float | None:
        spent = self._pieces.total(now_ns)
        samples = spent.pop(_SAMPLES, 0)
        seen_ns = min(WINDOW_NS, sum(spent.values()) + max(0, now_ns - self._reached_ns))
        return samples / (seen_ns / 1e9) if samples and seen_ns else None


FEWEST_STEPS = 6
"""Kept however old they are: slow steps have a pace, too."""


@dataclass
class StepPace:
    """Ends of the steps of one optimizer, or of batches."""

    count: int = 0
    first_ns: int = 0
    ends_ns: deque[int] = field(default_factory=deque)

    def add(self, end_ns: int) -> None:
        """One more step has ended."""
        self.first_ns = self.first_ns or end_ns
        self.count += 1
        self.ends_ns.append(end_ns)
        while len(self.ends_ns) > FEWEST_STEPS and self.ends_ns[0] < end_ns - WINDOW_NS:
            self.ends_ns.popleft()

    def lengths_s(self) -> list[float]:
        """From end to end, shortest first."""
        return sorted((after - before) / 1e9 for before, after in pairwise(self.ends_ns))

    def per_second(self, now_ns: int) -> float | None:
        """The pace; it falls as soon as a step is overdue."""
        lengths = self.lengths_s()
        if not lengths:
            return None
        overdue_s = max(0.0, (now_ns - self.ends_ns[-1]) / 1e9 - lengths[-1])
        span_s = sum(lengths) + overdue_s
        return len(lengths) / span_s if span_s > 0 else None


def find_leader(steps: dict[int, StepPace]) -> StepPace | None:
    """The optimizer that steps most; of several that take turns, the one that steps last."""
    most = max((each.count for each in steps.values()), default=0)
    leaders = [each for each in steps.values() if each.count >= most - 1]
    return max(leaders, key=lambda each: each.first_ns, default=None)


def percentile(ordered: list[float], frac: float) -> float | None:
    """A value that `frac` of the ordered ones do not exceed, interpolated; None without any."""
    if not ordered:
        return None
    at = frac * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
