"""The user's own code between a batch and its backward pass, outside of the model.

The hooks cannot separate a loop that tokenises, augments or computes metrics from a forward pass;
stack samples can. All samples of the trainer count, also those in which it waits, so that their
shares are shares of time:

    main (train.py:31) > tokenise (train.py:12)                     own code, before the model
    main (train.py:33) > _call_impl (torch/nn/modules/module.py)    the model
    main (train.py:35) > backward (torch/_tensor.py)                a hook's, known by its clock

Where two stacks part, in lines of one function, the upper line comes first. Not counted: waits for
the device or for another thread or process, sleeping or spinning in place of a device, and lines
that compute with tensors.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
from msgspec import structs

from fuelline.schema.readings import Missing, Reading, value_of
from fuelline.signals.recorded.fetching.stack_samples import (
    WAITING_FILE,
    SampleKey,
    comes_before,
    find_backward,
    find_loop_stage,
    find_most_common,
    find_stacks,
    find_user_line,
    is_compiled,
    rank_lines,
)
from fuelline.signals.statistics import proportion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.schema.diagnosis.facts import ComputeFacts, HotLine
    from fuelline.schema.diagnosis.findings import BudgetPart
    from fuelline.schema.parts import StepPart
    from fuelline.schema.readings import Signal
    from fuelline.signals.recorded.fetching.stack_samples import Frame
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

_KERAS = re.compile(r"/(keras|tensorflow)/")
_NOT_OURS_TO_COUNT = ("loop", "validation", "compile", "garbage collection")
"""Parts in which own code runs as well, and which the hooks' clock knows already."""
_TENSORS = re.compile(
    r"\btorch\.|\bF\.|\bnn\.|@|\bloss|\.(mm|bmm|matmul|sum|mean|softmax|log_softmax|exp|log|pow|sqrt"
    r"|norm|clamp|relu|tanh|sigmoid|view|reshape|permute|transpose|detach|backward|to|t)\("
)
_IN_PLACE_OF_A_DEVICE = re.compile(r"sleep|perf_counter|monotonic|\btime\(|\btime\.time")
_COPIES = re.compile(r"^(Module\.)?(load_state_dict|state_dict)$|^deepcopy$")
"""Of a model, by the loop: inside of torch, and no part of a forward pass."""
_FEW_SAMPLES = 20
_HELD_UP = 0.8
"""Of backward, on a core: with less the host waits there for a device whose queue is full, and
whatever else it does meanwhile costs nothing."""


@dataclass(frozen=True)
class OwnCode:
    """Time in own code within steps."""

    forward_frac: float = 0.0
    """Of the part that the hooks take for the forward pass."""
    lines: tuple[HotLine, ...] = ()
    """`transform`: before the model is called, `loop`: after it. Shares are of own code."""


def measure_queue_wait(
    timeline: Timeline, trainer: Trainer, segments: StepSegments
) -> Signal | None:
    """Of the window: the trainer waits for another thread, which takes the batches from the loader.

    None if it takes them itself. By stack samples alone, because the hooks see the other thread's
    waits, which may be hidden.
    """
    if not trainer.train_sources or trainer.reader_tid == trainer.tid:
        return None
    waiting = everything = 0
    for frames, count in find_stacks(timeline, segments, (trainer.pid,), tid=trainer.tid):
        is_waiting = WAITING_FILE.search(frames[-1].file)
        is_loop = find_loop_stage(frames, timeline.source_lines) == "loop"
        waiting += count if is_waiting and is_loop else 0
        everything += count
    if everything < _FEW_SAMPLES:
        return Missing(
            reason="another thread takes the batches from the loader, and only "
            f"{everything} stack samples show what the training thread does"
        )
    pieces = segments.pieces.filter(pl.col("part") == "forward")
    most = float((pieces["end_ns"] - pieces["start_ns"]).sum()) / segments.wall_ns
    return proportion(
        min(waiting, most * everything), everything, "stacks: waiting for another thread"
    )


def find_own_code(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    asking: frozenset[str] = frozenset(),
) -> OwnCode:
    """What stack samples show of it; nothing if that may be chance.

    What is at or below the lines in `asking` makes batches, and is no other code.
    """
    stacks = list(find_stacks(timeline, segments, (trainer.pid,), tid=trainer.tid))
    total = sum(count for _, count in stacks)
    own = [
        (frames, n)
        for frames, n in stacks
        if _is_own(frames, timeline.source_lines)
        and not any(frame.place in asking for frame in frames)
    ]
    model = find_most_common(stacks, "forward", timeline.source_lines)
    backward = find_backward(stacks, timeline, trainer.pid)
    within = [(frames, n) for frames, n in own if comes_before(frames, backward) is not False]
    shares = _shares_while_sampled(timeline, trainer, segments)
    elsewhere = sum(shares.get(part, 0.0) for part in _NOT_OURS_TO_COUNT)
    if is_compiled(timeline, trainer.pid):
        # Waiting for such a step shows as a line of the loop, with no frame below it.
        elsewhere += shares.get("sync", 0.0)
    forward = shares.get("forward", 0.0)
    everywhere = proportion(sum(n for _, n in own), total, "stacks: own code")
    if not isinstance(everywhere, Reading) or (everywhere.low or 0.0) <= elsewhere or not forward:
        return OwnCode()
    share = min(everywhere.value - elsewhere, sum(n for _, n in within) / total)
    hits: Counter[SampleKey] = Counter()
    for frames, count in within:
        spot = find_user_line(frames)
        if spot is not None:
            stage = "transform" if comes_before(frames, model) else "loop"
            hits[spot._replace(stage=stage)] += count
    step = {(frame.function, frame.file) for frame in (*(model or ()), *(backward or ()))}
    lines = tuple(
        structs.replace(line, in_loop=(line.function, line.line.rpartition(":")[0]) in step)
        for line in rank_lines(hits, timeline.source_lines)
    )
    return OwnCode(min(1.0, share / forward), lines)


def measure_hidden_code(
    compute: ComputeFacts,
    budget: list[BudgetPart],
    most_idle: float,
    part: StepPart = "own code",
) -> float:
    """How much of own code a device hides that works meanwhile, 0 to 1.

    Likewise of another part that stack samples show, and no hook has timed.

    All of it if the host waits for the device in its backward passes, whatever it does between
    them; and no more is felt than the device was idle, where the host could see that.
    """
    computing = value_of(compute.host_cpu_share)
    share = sum(each.share for each in budget if each.part == part)
    if computing is not None and computing < _HELD_UP:
        return 1.0
    return max(0.0, 1 - most_idle / share) if share > 0 else 0.0


def _is_own(frames: list[Frame], sources: Mapping[str, str]) -> bool:
    innermost = frames[-1].file
    if find_loop_stage(frames, sources) != "loop" or WAITING_FILE.search(innermost):
        return False
    if any(_COPIES.match(frame.function) for frame in frames):
        return True
    if "/torch/" in innermost:
        return False
    spot = find_user_line(frames)
    if spot is None or _is_in_keras(frames, spot):
        return False
    text = sources.get(spot.place, "")
    is_other = _IN_PLACE_OF_A_DEVICE.search(text) or (spot.own and _TENSORS.search(text))
    return not is_other


def _is_in_keras(frames: list[Frame], spot: SampleKey) -> bool:
    """Keras runs the loop of `fit`: what it does below the line that called it is its own."""
    at = max(depth for depth, frame in enumerate(frames) if frame.place == spot.place)
    return any(_KERAS.search(frame.file) for frame in frames[at + 1 :])


def _shares_while_sampled(
    timeline: Timeline, trainer: Trainer, segments: StepSegments
) -> dict[str, float]:
    """Of the time in which stacks were sampled: spent in each part."""
    rows = timeline.table("stacks").filter(
        (pl.col("pid") == trainer.pid) & (pl.col("tid") == trainer.tid)
    )
    spent: Counter[str] = Counter()
    for from_ns, until_ns in rows.select("from_ns", "until_ns").unique().iter_rows():
        start, end = max(from_ns, segments.start_ns), min(until_ns, segments.end_ns)
        length = pl.col("end_ns").clip(None, end) - pl.col("start_ns").clip(start, None)
        inside = segments.pieces.filter((pl.col("end_ns") > start) & (pl.col("start_ns") < end))
        spent.update(dict(inside.group_by("part").agg(length.sum()).iter_rows()))
    whole = sum(spent.values())
    return {part: ns / whole for part, ns in spent.items()}
