"""One training process of a job that was attached to: what was seen of it, and what that means."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from fuelline.record.attach.counters import Look
from fuelline.record.attach.estimate import (
    OWN_SOURCE_ID,
    Activity,
    PartSpan,
    StepWriter,
    WorkerWriter,
)
from fuelline.record.attach.frames import (
    Part,
    Stack,
    comes_before,
    find_part,
    find_validation,
    most_common,
)
from fuelline.record.attach.loops import LoopCounter, SeenTurns
from fuelline.record.attach.pieces import StackPiece
from fuelline.record.attach.spools import EstimatedSpool
from fuelline.record.observer import S

RATE = 50
"""Of stack samples a second of one trainer: 3 % of a core (bench/attach.py). Of several trainers
each gets its part of it."""
_FEW_BATCHES = 5
_LONG_START_NS = S // 10


class TrainerView:
    """One training process: what was seen of it, and what is written of that."""

    def __init__(self, pid: int, ppid: int, folder: Path, framework: str) -> None:
        self.pid = pid
        self.spool = EstimatedSpool(folder, pid, ppid, pid)
        self.steps = StepWriter(self.spool, pid)
        self.looks: list[Look] = []
        self.first: Look | None = None
        self.spans: list[PartSpan] = []
        self.feeders: set[int] = set()
        self.workers: dict[int, tuple[WorkerWriter, EstimatedSpool]] = {}
        self.slots: dict[int, int] = {}
        self.collate: Counter[bool] = Counter()
        self.known: Counter[tuple[Stack, Part]] = Counter()
        self.laid_ns = self.met_ns = 0
        self.turns = SeenTurns()
        self.left_over = 0.0
        """Of a batch, not laid out yet."""
        self.counter: LoopCounter | None = None
        self.takes_from_queue = False
        self.asked = self.laid = 0
        """Batches that the workers were asked for so far; those that steps were laid out for."""
        self.known_ns = 0
        self.ranks = 1
        self.has_device = False
        self.settings: dict[str, object] = {}
        self.framework = framework
        self.is_described = False
        self.activity = Activity()
        self.problems: list[str] = []

    def skip_start_up(self) -> None:
        """What lies before the end of a long start-up is not training: it is not laid out."""
        starting = [
            each
            for each in self.spans
            if each.part == "start-up" and each.end_ns - each.start_ns >= _LONG_START_NS
        ]
        if starting and starting[-1].end_ns > self.laid_ns:
            after = [each.at_ns for each in self.looks if each.at_ns >= starting[-1].end_ns]
            self.laid_ns = after[0] if after else starting[-1].end_ns

    def first_look(self, from_ns: int) -> Look | None:
        """The first look from a moment on."""
        return next((each for each in self.looks if each.at_ns >= from_ns), None)

    def find_look(self, at_ns: int) -> Look | None:
        """The look of this moment; all trainers are looked at in one turn."""
        return next((each for each in self.looks if each.at_ns == at_ns), None)

    def messages_per_batch(self) -> int:
        """Messages that a worker's busiest helper thread writes for each batch.

        Its queue writes one; where tensors are handed over as descriptors, another thread writes
        some for each tensor.
        """
        sent = sum(writer.messages for writer, _ in self.workers.values())
        return max(1, round(sent / self.asked)) if self.asked >= _FEW_BATCHES else 1

    def find_spans(
        self, piece: StackPiece, texts: Mapping[tuple[str, int], str]
    ) -> list[tuple[PartSpan, Stack]]:
        """What the main thread did, piece by piece of time, and by which stack that is known."""
        raw = [(each, find_part(each.stack, texts)) for each in piece.threads.get(self.pid, ())]
        for each, part in raw:
            self.known[each.stack, part] += max(1, (each.end_ns - each.start_ns) * RATE // S)
        samples = [(stack, part, count) for (stack, part), count in self.known.items()]
        validating = find_validation(samples)
        learning = most_common(samples, ("backward",))
        found = []
        for each, part in raw:
            is_validating = any((frame.function, frame.file) in validating for frame in each.stack)
            is_early = part == "loop" and comes_before(each.stack, learning)
            told: Part = "validation" if is_validating else "forward" if is_early else part
            found.append((PartSpan(each.start_ns, each.end_ns, told), each.stack))
        return found

    def settle_source(self) -> None:
        """Where the training thread itself never asks a loader, it takes batches from a queue."""
        parts = {part for _, part in self.known}
        self.takes_from_queue = "queue" in parts and "input" not in parts and self.steps.learns
        if self.takes_from_queue and not self.workers:
            self.steps.source_id = OWN_SOURCE_ID
        self.steps.has_input = self.steps.has_input or self.takes_from_queue
        told: Part = "input" if self.takes_from_queue else "loop"
        self.spans = [
            each._replace(part=told) if each.part == "queue" else each for each in self.spans
        ]

    def find_loops(self) -> set[tuple[str, str]]:
        """Functions below which batches were taken, and something was done with them."""
        taking: set[tuple[str, str]] = set()
        working: set[tuple[str, str]] = set()
        for stack, part in self.known:
            functions = {(frame.function, frame.file) for frame in stack}
            if part in ("input", "queue"):
                taking |= functions
            elif part in ("forward", "backward", "optimizer"):
                working |= functions
        return taking & working
