"""Datasets as sources of batches: their numbers, their threads, and what tf.data says of its nodes.

tf.data keeps a model of every pipeline: how long each node worked, what it holds, how many calls it
runs at once, and how long the job kept away between two batches (`gap_times`, the last hundred).
It is asked on the thread that trains, between two steps, once a second (30 us; 0.3 ms with reading
it): there is no thread of ours that a fork could leave behind. A pipeline without a model, because
its autotuning is off, is a blindspot, unless Python makes its batches (`Production`).
"""

import json
import os
import sys
from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.identities import Identities
from fuelline.record.hooks.tensorflow import seam
from fuelline.schema.wire import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NOTE", "NO_MODEL", "Datasets", "PipelineNote", "Production", "list_threads"]

NOTE = "_fuelline_note"
POLL_NS = 1_000_000_000
EARLY_NS = 100_000_000
QUICK_POLLS = 4
"""Of a new iterator, each after twice the time of the one before: an epoch may be over soon."""
GAPS_KEPT = 100
"""Gaps that tf.data keeps; it is asked earlier, at most every tenth of a second, if more pass."""
_MOST_PARALLEL = 0xFFFF
_MOST_NODES = 256

_SOURCE, _NODE, _CREW = int(Kind.SOURCE), int(Kind.NODE), int(Kind.CREW)
_WORKER = int(Kind.WORKER)
NO_MODEL = "tf.data keeps no account of this pipeline (its autotuning is off)"


class Production:
    """Batches that Python makes for one iterator, one after the other."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        """Of the source, as far as Python knows them."""
        self.threads: set[int] = set()
        """Native ids of threads that made batches and are not written down yet."""
        self.list_processes: Callable[[], list[int]] = list
        """The pids of worker processes."""
        self._made: deque[tuple[int, int, int]] = deque(maxlen=BATCHES_KEPT)
        self._count = 0

    def add(self, begun_ns: int, made_ns: int, samples: int) -> None:
        """One more batch."""
        self._made.append((begun_ns, made_ns, samples))
        self._count += 1

    def take(self, number: int) -> tuple[int, int, int] | None:
        """When the batch of this number was begun and ready, and its samples; None if unknown."""
        place = number - self._count + len(self._made)
        return self._made[place] if 0 <= place < len(self._made) else None


BATCHES_KEPT = 4096
"""More than any buffer between the making and the taking holds."""


class PipelineNote:
    """What is known of one iterator; lives in its dictionary and dies with it."""

    __slots__ = (
        "batch_size",
        "crew",
        "gets",
        "gets_polled",
        "guest",
        "had_model",
        "has_model",
        "most_gets",
        "polled_ns",
        "polls",
        "produced",
        "production",
        "serial",
        "source_id",
    )  # fmt: skip

    def __init__(self, guest: Guest, source_id: int, serial: int) -> None:
        self.guest = guest
        self.source_id = source_id
        self.serial = serial
        self.gets = self.gets_polled = self.polled_ns = self.polls = 0
        """Batches taken so far and when the model was asked last; when that was, and how often."""
        self.produced = 0
        """Elements of its last stage when the model was asked last."""
        self.most_gets = -1
        """Batches that the iterator has in all; -1: no end, or none that is known."""
        self.crew: set[int] = set()
        """Native ids of the threads that prepare them."""
        self.has_model = True
        self.had_model = False
        """It is gone: an iterator that was restored, as by `--fix`, has none."""
        self.batch_size = -1
        """By the model; -1 is unknown."""
        self.production: Production | None = None


class Datasets:
    """All datasets of the process that were iterated over."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self._datasets = Identities()
        self._told: dict[int, str] = {}
        self._known: dict[int, dict[str, Any]] = {}
        """What a source's description always has."""
        self._crews: dict[int, set[int]] = {}
        self._serial = 0
        self._parser = seam.find_parser()
        self._started: Production | None = None
        """Of the iterator that was started last, until its first batch is taken."""
        self._members: set[tuple[int, int]] = set()
        guest.on_fork(self._told.clear)
        guest.on_fork(self._crews.clear)
        guest.on_fork(self._members.clear)

    def start(self, production: Production) -> None:
        """Python begins to make batches, for an iterator that is not known yet."""
        self._started = production

    def bind(self, note: PipelineNote) -> None:
        """The first batch of an iterator was taken: what was started last is its production."""
        started, self._started = self._started, None
        if started is not None and note.production is None:
            note.production = started
            self._known[note.source_id] = started.settings
            self._tell(note.source_id, {})

    def add_members(self, note: PipelineNote) -> None:
        """Write down the threads and processes that have begun to make batches."""
        made = note.production
        if made is None:
            return
        while made.threads:
            self.add_crew(note, {made.threads.pop()})
        if note.gets and note.gets & (note.gets - 1):
            return  # processes are asked for at the first batches, and ever more seldom
        for number, pid in enumerate(made.list_processes()):
            if (note.source_id, pid) not in self._members:
                self._members.add((note.source_id, pid))
                self.guest.append(_WORKER, monotonic_ns(), 0, note.source_id, number, pid)

    def note(self, iterator: Any) -> PipelineNote:
        """The note on an iterator; one that was made around our hook gets a number of its own."""
        note = vars(iterator).get(NOTE)
        if note is None or note.guest is not self.guest:
            note = self.enter(iterator, vars(iterator).get("_dataset"))
        return note  # type: ignore[no-any-return]

    def enter(self, iterator: Any, dataset: Any) -> PipelineNote:
        """Note a new iterator over a dataset."""
        self._serial += 1
        if dataset is None:
            source_id = self._datasets.add_nameless()
        else:
            source_id = self._datasets.find(dataset) or self._datasets.add(dataset)
        note = PipelineNote(self.guest, source_id, self._serial)
        note.most_gets = seam.count_batches(dataset)
        note.crew = self._crews.setdefault(source_id, set())
        vars(iterator)[NOTE] = note
        if source_id not in self._told:
            self._tell(source_id, {"dataset": type(dataset).__name__})
        return note

    def add_crew(self, note: PipelineNote, tids: set[int]) -> None:
        """Write down the threads that tf.data has started for an iterator."""
        note.crew |= tids
        for tid in sorted(tids):
            self.guest.append(_CREW, monotonic_ns(), 0, note.source_id, tid)

    def _write_clocks(self, note: PipelineNote, now_ns: int) -> None:
        """What the crew has computed: it may be gone before the observer looks at it again."""
        for tid in sorted(note.crew):
            clock = _read_clock(tid)
            if clock is None:
                note.crew.discard(tid)
            else:
                self.guest.append(_CREW, now_ns, 0, note.source_id, tid, *clock)

    def is_due(self, note: PipelineNote, now_ns: int) -> bool:
        """Whether the model is to be asked again."""
        since_ns = now_ns - note.polled_ns
        is_early = note.gets - note.gets_polled > GAPS_KEPT - 20 and since_ns > EARLY_NS
        pause_ns = min(POLL_NS, EARLY_NS << note.polls)
        is_last = note.gets == note.most_gets
        return note.has_model and (since_ns > pause_ns or is_early or is_last)

    def poll(self, iterator: Any, note: PipelineNote, now_ns: int) -> list[int]:
        """Ask the model; writes down its nodes and gives the last gaps in ns."""
        if self._parser is None or not note.has_model:
            return []
        ask, parse = self._parser
        try:
            model = parse(ask(getattr(iterator, seam.RESOURCE)).numpy())
        except Exception as refusal:
            note.has_model = False
            if type(refusal).__name__ != "NotFoundError":
                raise
            note.had_model = note.produced > 0
            if note.production is None and not note.had_model:
                self.guest.report_blindspot(
                    "what the stages of the input pipeline do",
                    NO_MODEL,
                    "telling one stage of the pipeline from another",
                )
            return []
        note.polled_ns, note.gets_polled = now_ns, note.gets
        note.polls += note.polls < QUICK_POLLS
        self._write_nodes(note, model, now_ns)
        self._write_clocks(note, now_ns)
        return [gap * 1000 for gap in model.gap_times]

    def _write_nodes(self, note: PipelineNote, model: Any, now_ns: int) -> None:
        places = _find_places(model)
        produced = model.nodes[model.output].num_elements if places else 0
        if produced < note.produced:  # `--fix` went on with another iterator in its place
            self._serial += 1
            note.serial = self._serial
        note.produced = produced
        nodes = [(place, key, model.nodes[key]) for key, place in places.items()]
        batch = next((node.ratio for _, _, node in nodes if "Batch" in node.name), 0)
        note.batch_size = int(batch) or -1
        known = [_describe(place, node, places) for place, _, node in nodes]
        if len(known) > 1:
            self._tell(note.source_id, {"nodes": known, "batch_size": int(batch) or None})
        for place, key, node in nodes:
            parallel = next((p.state_value for p in node.parameters if p.name == "parallelism"), 0)
            self.guest.append(
                _NODE, now_ns, 0, note.source_id, note.serial << 32 | key << 8 | place,
                node.processing_time, node.num_elements, node.buffered_elements,
                min(int(parallel), _MOST_PARALLEL),
            )  # fmt: skip

    def _tell(self, source_id: int, settings: dict[str, Any]) -> None:
        note = {"loader": "tf.data", "framework": "tf.data"}
        text = json.dumps({**note, **self._known.setdefault(source_id, {}), **settings})
        if self._told.get(source_id) == text:
            return
        self._told[source_id] = text
        self.guest.append(_SOURCE, monotonic_ns(), 0, source_id, self.guest.spool.text(text))


def _find_places(model: Any) -> dict[int, int]:
    """Where each node stands, from the end of the pipeline on; its own key changes with epochs."""
    places: dict[int, int] = {}
    ahead = [model.output]
    while ahead and len(places) < _MOST_NODES:
        key = ahead.pop()
        if key in model.nodes and key not in places:
            places[key] = len(places)
            ahead += reversed(model.nodes[key].inputs)
    return places


def _describe(place: int, node: Any, places: dict[int, int]) -> dict[str, Any]:
    """What does not change from one moment to the next."""
    tunable = any(each.name == "parallelism" and each.tunable for each in node.parameters)
    return {
        "id": place,
        "name": node.name,
        "inputs": [places[key] for key in node.inputs if key in places],
        "ratio": node.ratio,
        "tunable": tunable,
    }


def _read_clock(tid: int) -> tuple[int, int] | None:
    """Nanoseconds that a thread has had a core and has waited for one; None if it is gone."""
    try:
        file = os.open(f"/proc/self/task/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        oncpu, queued, _ = os.read(file, 100).split()
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)
    return int(oncpu), int(queued)


def list_threads() -> set[int]:
    """Native ids of this process's threads."""
    if not sys.platform.startswith("linux"):
        return set()
    return {int(name) for name in os.listdir("/proc/self/task")}  # noqa: PTH208 - /proc
