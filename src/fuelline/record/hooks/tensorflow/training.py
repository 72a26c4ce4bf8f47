"""Keras on TensorFlow: a step is one call of the train function, with its waits inside.

The function takes its batches within a graph, so a call is wait and computing together. tf.data's
model tells them apart: `gap_times` has how long the job kept away between two batches, to the
microsecond. With the calls' own times that is the computing of each step, and the rest of the call
was waiting. Steps whose gap is not known, because more than a hundred passed between two looks or
the epoch ended, get the usual computing time. A call may hold several steps
(`steps_per_execution`); TensorFlow then asks for its next batches while it still computes.
Where tf.data keeps no such account, as under a PyDataset with workers,
Python makes the batches one by one, and what of that lies within the call was waited for.

    call      |--wait--|---compute---|
    next call                          |--wait--|---compute---|
    gap                |--------------|

`predict` and `evaluate` take batches the same way. Where nothing was trained before, they are what
the job does, and their batches its steps; after a training `evaluate` is a pause of it.
"""

import functools
import sys
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from statistics import median
from time import monotonic_ns
from typing import Any, NamedTuple

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.tensorflow import seam
from fuelline.record.hooks.tensorflow.pauses import Pause
from fuelline.record.hooks.tensorflow.sources import NO_MODEL, Datasets, PipelineNote, Production
from fuelline.schema.wire import Flag, Kind, PauseKind, Phase

__all__ = ["install"]

UNTOLD = "telling waiting for input from computing inside the steps of fit"
NO_STEPS = "the batches come from no tf.data"
USUAL_OF = 200
"""Steps that the usual computing time is the median of."""

_WAIT_KIND, _STEP_KIND = int(Kind.WAIT), int(Kind.STEP)
_TRAINING = int(Flag.TRAINING)
_COMPUTE, _OUTSIDE = int(Phase.COMPUTE), int(Phase.OUTSIDE)


def install(guest: Guest, patches: Patches, sources: Datasets) -> list[Hook]:
    """Watch every model of Keras 3 that runs on TensorFlow."""
    return _watch(guest, patches, sources, sys.modules[seam.TRAINER].TensorFlowTrainer)


def install_legacy(guest: Guest, patches: Patches, sources: Datasets) -> list[Hook]:
    """The same of Keras 2, which goes on as tf_keras."""
    return _watch(guest, patches, sources, sys.modules[seam.LEGACY].Model)


def _watch(guest: Guest, patches: Patches, sources: Datasets, owner: Any) -> list[Hook]:
    hooks: list[Hook] = []
    for what, loop in (("train", "fit"), ("test", "evaluate"), ("predict", "predict")):
        make = Make(guest, sources, what)
        end = LoopEnd(guest, make)
        patches.replace(owner, make.maker, make.wrap(getattr(owner, make.maker)))
        patches.replace(owner, loop, end.wrap(getattr(owner, loop)))
        hooks += [make, end]
    evaluate = Evaluation(guest, PauseKind.VALIDATION, Phase.EVAL)
    patches.replace(owner, "evaluate", evaluate.wrap(owner.evaluate))
    return [*hooks, evaluate]


class Evaluation(Pause):
    """`evaluate`: a pause of the training, if there was one."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start."""
        return super().begin(args, kwargs) if self.guest.is_proven else None


class Make(Hook):
    """`make_train_function` and its like: whatever they make is watched."""

    name = "train function"
    code = "step-hook"
    forbids = "counting steps"

    def __init__(self, guest: Guest, sources: Datasets, what: str) -> None:
        super().__init__(guest)
        self._sources = sources
        self._is_training = what == "train"
        self.maker = f"make_{what}_function"
        self._kept_as = f"{what}_function"
        self._steps: list[Step] = []

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """As any hook; but Keras 2 goes on with what is returned, which is then ours."""
        watched = super().wrap(original)

        @functools.wraps(original)
        def make(model: Any, *args: Any, **kwargs: Any) -> Any:
            result = watched(model, *args, **kwargs)
            return None if result is None else getattr(model, self._kept_as, None) or result

        return make

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The model, and the function that it has."""
        return args[0], getattr(args[0], self._kept_as)

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Put ours around a new one."""
        model, before = ticket
        made = getattr(model, self._kept_as)
        if error is None and made is not None and made is not before:
            step = Step(
                self.guest, self._sources, _count_steps(model), is_training=self._is_training
            )
            self._steps.append(step)
            setattr(model, self._kept_as, step.wrap(made))

    def settle(self) -> None:
        """Write the waits that are left, of all models."""
        for step in self._steps:
            step.settle([], is_over=True)

    def switch_off(self) -> None:
        """Stop, with the functions that models hold on to."""
        super().switch_off()
        for step in self._steps:
            step.switch_off()


class LoopEnd(Hook):
    """`fit` and its like: when one is over, so is the last step."""

    name = "fit"
    forbids = "the waits of the last steps"

    def __init__(self, guest: Guest, make: Make) -> None:
        super().__init__(guest)
        self._make = make

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Every call is of interest."""
        return ()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Tell what is left by what is usual."""
        self._make.settle()
        self.guest.enter(_OUTSIDE)


class Call(NamedTuple):
    """One call of a train function."""

    start_ns: int
    end_ns: int
    position: int
    """Of its first batch in the epoch."""
    batches: int
    """That it took: fewer than usual at the end of an epoch."""

    @property
    def lasted_ns(self) -> int:
        return self.end_ns - self.start_ns


class Step(Hook):
    """Calls of one train function."""

    name = "train step"
    code = "step-hook"
    forbids = "counting steps, and saying how long the training waited for data"

    def __init__(
        self, guest: Guest, sources: Datasets, count: int, *, is_training: bool = True
    ) -> None:
        super().__init__(guest)
        self._sources = sources
        self._is_training = is_training
        self._count = count
        """Batches that a call takes."""
        self._calls: list[Call] = []
        """Of one iterator, whose waits are not written yet."""
        self._of: PipelineNote | None = None
        self._usual: deque[int] = deque(maxlen=USUAL_OF)
        """Computing times of calls, ns."""
        guest.on_fork(self._calls.clear)

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start; the batches taken inside are this call's own."""
        guest, ident = self.guest, get_ident()
        if self._is_training:
            guest.prove()
        elif guest.is_proven:
            return None
        elif not guest.trainer:
            guest.appoint()
        guest.enter(_COMPUTE)
        guest.fetching.add(ident)
        return ident, args[0], monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record the steps, and the waits of those before once tf.data has told them."""
        now_ns = monotonic_ns()
        ident, taken_from, start_ns = ticket
        self.guest.fetching.discard(ident)
        if not (self._is_training or hasattr(taken_from, "__next__")):
            return  # `predict` of Keras 3 takes its batches in Python
        iterator = _find_owned(taken_from)
        note = None if iterator is None else self._sources.note(iterator)
        if note is not self._of:
            self.settle([], is_over=True)
            self._of = note
            if note is not None:
                self._sources.bind(note)
        if error is None:
            self._add(start_ns, now_ns, note)
        else:
            self.guest.enter(_OUTSIDE)
        if note is not None and (error is not None or self._sources.is_due(note, now_ns)):
            gaps_ns = self._sources.poll(iterator, note, now_ns)
            self.settle(gaps_ns, is_over=error is not None)
        if note is not None and note.had_model:
            self.settle([], is_over=True)
        elif note is not None and note.production is not None and not note.has_model:
            self._write_made(note, note.production)
        elif note is None or not note.has_model:
            why = NO_STEPS if note is None else NO_MODEL
            self.guest.report_blindspot(UNTOLD, why, "saying how long it waited", self.code)

    def withdraw(self) -> None:
        """This thread is in no step."""
        self.guest.fetching.discard(get_ident())
        self.guest.enter(_OUTSIDE)

    def _add(self, start_ns: int, end_ns: int, note: PipelineNote | None) -> None:
        count = self._count
        if note is not None and note.most_gets > note.gets:
            count = min(count, note.most_gets - note.gets)
        for number in range(1, count * self._is_training + 1):
            at_ns = start_ns + (end_ns - start_ns) * number // count
            self.guest.append(_STEP_KIND, at_ns, 0, 1)
        if note is not None and (note.has_model or note.had_model or note.production):
            self._calls.append(Call(start_ns, end_ns, note.gets, count))
            note.gets += count

    def _write_made(self, note: PipelineNote, production: Production) -> None:
        """The waits of all calls by when Python made their batches."""
        for call in self._calls:
            for number in range(call.position, call.position + call.batches):
                made = production.take(number)
                if made is None:
                    continue
                begun_ns, made_ns, samples = made
                begun_ns = max(begun_ns, call.start_ns)
                wait_ns = max(0, min(made_ns, call.end_ns) - begun_ns)
                self.guest.append(
                    _WAIT_KIND, begun_ns, wait_ns, note.source_id, samples, -1, -1, number,
                    _TRAINING,
                )  # fmt: skip
        self._calls.clear()
        self._sources.add_members(note)

    def settle(self, gaps_ns: list[int], *, is_over: bool) -> None:
        """Write the waits of all calls; but the last, whose gap is not over, unless it is."""
        calls = self._calls
        if not (gaps_ns or is_over):
            return
        told = self._match(calls, gaps_ns) if calls else {}
        self._usual.extend(busy_ns // calls[number].batches for number, busy_ns in told.items())
        keep = 0 if is_over else 1
        if self._usual and self._of is not None:
            usual_ns = int(median(self._usual))
            for number, call in enumerate(calls[: len(calls) - keep]):
                busy_ns = told.get(number, usual_ns * call.batches)
                self._write(call, max(0, call.lasted_ns - busy_ns), self._of)
        del calls[: len(calls) - keep]

    def _match(self, calls: list[Call], gaps_ns: list[int]) -> dict[int, int]:
        """Computing time by the number of the call, for those whose gaps are known.

        The last gap that is over belongs to the last call but one. Those within the last call are
        of no use yet; a call that found the end of the data has asked once more.
        """
        told: dict[int, int] = {}
        last = calls[-1].batches
        within = last - 1 + (last < self._count)
        gaps_ns = gaps_ns[: max(0, len(gaps_ns) - within)]
        for number in range(len(calls) - 2, -1, -1):
            call = calls[number]
            if len(gaps_ns) < call.batches:
                break
            mine_ns, gaps_ns = gaps_ns[-call.batches :], gaps_ns[: -call.batches]
            away_ns = calls[number + 1].start_ns - call.end_ns
            mine_ns[-1] = max(0, mine_ns[-1] - away_ns)
            told[number] = min(_find_computing(mine_ns, call.lasted_ns), call.lasted_ns)
        return told

    def _write(self, call: Call, wait_ns: int, note: PipelineNote) -> None:
        count = call.batches
        for number in range(count):
            start_ns = call.start_ns + (call.end_ns - call.start_ns) * number // count
            self.guest.append(
                _WAIT_KIND, start_ns, wait_ns // count, note.source_id, note.batch_size, -1, -1,
                call.position + number, _TRAINING,
            )  # fmt: skip


def _find_computing(gaps_ns: list[int], lasted_ns: int) -> int:
    """Computing time of a call with these gaps after its batches.

    A call with several batches asks for the next one while it computes with the last, so that most
    of its computing shows in no gap. What follows its last batch does: one batch's computing where
    batches come slowly, all of them where they are there at once. In between, with waits of w and
    a computing of c for each of n batches, the last gap is n c - (n - 1) w.
    """
    count, after_ns = len(gaps_ns), gaps_ns[-1]
    waited_ns = max(0, lasted_ns - sum(gaps_ns))
    hidden_ns = (count - 1) * min(waited_ns // count, after_ns)
    return max(sum(gaps_ns), after_ns + hidden_ns)


def _find_owned(iterator: Any) -> Any:
    """The iterator of one device behind what Keras hands over; None if there is none.

    Of several devices the first: all get their batches in turn from one pipeline.
    """
    if hasattr(iterator, seam.RESOURCE):
        return iterator
    for each in getattr(iterator, "_iterators", None) or ():
        inner = getattr(each, "_iterator", None)
        for found in (inner, *(getattr(inner, "_device_iterators", None) or ())):
            if hasattr(found, seam.RESOURCE):
                return found
    return None


def _count_steps(model: Any) -> int:
    """Batches that one call of a model's function takes; Keras 2 keeps it in a variable."""
    count: Any = getattr(model, "steps_per_execution", None)
    if count is None:
        count = getattr(model, "_steps_per_execution", None)
    return int(count.numpy() if hasattr(count, "numpy") else count or 1)
