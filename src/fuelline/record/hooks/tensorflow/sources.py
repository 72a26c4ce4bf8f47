"""Datasets as sources of batches: their numbers, their threads, and what tf.data says of its nodes.

tf.data keeps a model of every pipeline: how long each node worked, what it holds, how many calls it
runs at once, and how long the job kept away between two batches (`gap_times`, the last hundred).
It is asked on the thread that trains, between two steps, once a second (30 us; 0.3 ms with reading
it): there is no thread of ours that a fork could leave behind. A pipeline without a model, because
its autotuning is off, is a blindspot.
"""

import json
import os
import sys
from time import monotonic_ns
from typing import Any

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.identities import Identities
from fuelline.record.hooks.tensorflow import seam
from fuelline.schema.wire import Kind

__all__ = ["NOTE", "NO_MODEL", "Datasets", "PipelineNote", "list_threads"]

NOTE = "_fuelline_note"
POLL_NS = 1_000_000_000
EARLY_NS = 100_000_000
GAPS_KEPT = 100
"""Gaps that tf.data keeps; it is asked earlier, at most every tenth of a second, if more pass."""
_MOST_PARALLEL = 0xFFFF
_MOST_NODES = 256

_SOURCE, _NODE, _CREW = int(Kind.SOURCE), int(Kind.NODE), int(Kind.CREW)
NO_MODEL = "tf.data keeps no account of this pipeline (its autotuning is off, as under PyDataset)"


class PipelineNote:
    """What is known of one iterator; lives in its dictionary and dies with it."""

    __slots__ = (
        "batch_size", "gets", "gets_polled", "guest", "has_model", "polled_ns", "serial",
        "source_id",
    )  # fmt: skip

    def __init__(self, guest: Guest, source_id: int, serial: int) -> None:
        self.guest = guest
        self.source_id = source_id
        self.serial = serial
        self.gets = self.gets_polled = self.polled_ns = 0
        """Batches taken so far and when the model was asked last; when that was."""
        self.has_model = True
        self.batch_size = -1
        """By the model; -1 is unknown."""


class Datasets:
    """All datasets of the process that were iterated over."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self._datasets = Identities()
        self._told: dict[int, str] = {}
        self._serial = 0
        self._parser = seam.find_parser()
        guest.on_fork(self._told.clear)

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
        vars(iterator)[NOTE] = note
        if source_id not in self._told:
            self._tell(source_id, {"dataset": type(dataset).__name__})
        return note

    def add_crew(self, note: PipelineNote, tids: set[int]) -> None:
        """Write down the threads that tf.data has started for an iterator."""
        for tid in sorted(tids):
            self.guest.append(_CREW, monotonic_ns(), 0, note.source_id, tid)

    def is_due(self, note: PipelineNote, now_ns: int) -> bool:
        """Whether the model is to be asked again."""
        since_ns = now_ns - note.polled_ns
        is_early = note.gets - note.gets_polled > GAPS_KEPT - 20 and since_ns > EARLY_NS
        return note.has_model and (since_ns > POLL_NS or is_early)

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
            self.guest.report_blindspot(
                "what the stages of the input pipeline do",
                NO_MODEL,
                "telling one stage of the pipeline from another",
            )
            return []
        note.polled_ns, note.gets_polled = now_ns, note.gets
        self._write_nodes(note, model, now_ns)
        return [gap * 1000 for gap in model.gap_times]

    def _write_nodes(self, note: PipelineNote, model: Any, now_ns: int) -> None:
        places = _find_places(model)
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
        text = json.dumps({"loader": "tf.data", "framework": "tf.data", **settings})
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


def list_threads() -> set[int]:
    """Native ids of this process's threads."""
    if not sys.platform.startswith("linux"):
        return set()
    return {int(name) for name in os.listdir("/proc/self/task")}  # noqa: PTH208 - /proc
