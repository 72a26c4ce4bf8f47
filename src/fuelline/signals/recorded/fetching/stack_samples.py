"""Stack samples as frames, and what all readers of them ask: whose line, which stage of a loop.

Samples of the trainer count whether it runs or waits, so that their shares are shares of time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from fuelline.schema.diagnosis.facts import HotLine

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping, Sequence

    from fuelline.schema.diagnosis.facts import Encoding
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments

_FRAME = re.compile(r"^(?P<function>.*?) \((?P<file>.*):(?P<line>\d+)\)$", re.DOTALL)
OURS = re.compile(r"/fuelline/(api|fix|probe|record|schema)/")
"""What of us runs inside a job; a user's project may be called the same. What stands in for a
function written in C hides the line that called it."""
LIBRARY = re.compile(rf"/(site|dist)-packages/|/lib(64)?/python3|^<|{OURS.pattern}")
_TOOLKIT = re.compile(r"/(numpy|torch|tensorflow|keras|fuelline)/")
"""Array operations are how users write transforms: time in them is the calling line's own time."""
_SYNC_NAME = re.compile(r"(^|\.)(synchronize|wait_for_device|block_until_ready)$")
_SYNC_TEXT = re.compile(r"\.item\(\)|\.cpu\(\)|\.tolist\(\)|synchronize\(")
_HOOKED = re.compile(
    r"/torch/(utils/data|autograd/(__init__|graph)\.py|optim|serialization)"
    r"|/tensorflow/python/(data/|checkpoint/)|/keras/src/saving/"
)
"""Not torch/autograd/function.py: the forward of the user's own functions runs in it."""
_BACKWARD = re.compile(r"/torch/autograd/(__init__|graph)\.py")
_MODULE = "/torch/nn/modules/module.py"
_GRAPH = re.compile(r"/tensorflow/python/(eager|framework)/|/keras/src/(layers|ops)/")
"""TensorFlow computes, be it a graph or one operation: the model, whichever way it is called."""
WAITING_FILE = re.compile(
    r"/(threading|queue|selectors)\.py$|/(asyncio|concurrent|multiprocessing)/"
)
"""Python's own library, where a thread waits for another thread or process."""
_CALLS = re.compile(r"^(Module\.)?_(wrapped_)?call_impl$")
"""Of a module; its other functions, such as load_state_dict, are no forward pass."""


class Frame(NamedTuple):
    """A line that a thread was in."""

    function: str
    file: str
    line: str

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"


class SampleKey(NamedTuple):
    """What samples are counted by."""

    place: str
    function: str
    own: bool
    """The sample was in this line itself, not in a library that it called."""
    stage: str
    encoding: Encoding | None = None


def find_stacks(
    timeline: Timeline,
    segments: StepSegments,
    pids: Iterable[int],
    tid: int | None = None,
    tids: Sequence[int] = (),
) -> Iterable[tuple[list[Frame], int]]:
    """Stacks in the window, outermost frame first, with their counts.

    Of all threads of these processes; of one; or of those that are named.
    """
    rows = timeline.table("stacks").filter(
        pl.col("pid").is_in(list(pids))
        & (pl.col("until_ns") > segments.start_ns)
        & (pl.col("from_ns") < segments.end_ns)
    )
    wanted = list(tids) if tid is None else [tid]
    if wanted:
        rows = rows.filter(pl.col("tid").is_in(wanted))
    for names, count in rows.select("frames", "count").iter_rows():
        frames = parse_frames(names)
        if frames:
            yield frames, count


def parse_frames(names: Iterable[str]) -> list[Frame]:
    """The frames of one stack, outermost first, without our own at its end."""
    frames = [Frame(*found.groups()) for name in names if (found := _FRAME.match(name))]
    while frames and OURS.search(frames[-1].file):
        frames.pop()
    return frames


def find_user_line(frames: list[Frame]) -> SampleKey | None:
    """The deepest line of user code."""
    for depth in range(len(frames) - 1, -1, -1):
        frame = frames[depth]
        if not LIBRARY.search(frame.file):
            inner = [other for other in frames[depth + 1 :] if not _TOOLKIT.search(other.file)]
            return SampleKey(frame.place, frame.function, own=not inner, stage="")
    return None


def find_loop_stage(frames: list[Frame], sources: Mapping[str, str]) -> str:
    """What the trainer is in: backward, hooked, sync, forward or loop.

    hooked: another call that has its own event. forward: the model. loop: none of these.
    """
    if any(_HOOKED.search(frame.file) for frame in frames):
        return "backward" if any(_BACKWARD.search(frame.file) for frame in frames) else "hooked"
    # The text of the innermost line alone: a caller's line may read a value and then do other work.
    reads = _SYNC_TEXT.search(sources.get(frames[-1].place, ""))
    if reads or any(_SYNC_NAME.search(frame.function) for frame in frames[-3:]):
        return "sync"
    return "forward" if any(_is_model_call(frame) for frame in frames) else "loop"


def _is_model_call(frame: Frame) -> bool:
    is_module = _MODULE in frame.file and _CALLS.match(frame.function) is not None
    return is_module or _GRAPH.search(frame.file) is not None


def find_most_common(
    stacks: Iterable[tuple[list[Frame], int]], stage: str, sources: Mapping[str, str]
) -> list[Frame] | None:
    """The stack of a stage of the loop that was seen most often."""
    of_stage = [(n, frames) for frames, n in stacks if find_loop_stage(frames, sources) == stage]
    return max(of_stage, key=lambda pair: pair[0], default=(0, None))[1]


def is_compiled(timeline: Timeline, pid: int) -> bool:
    """Whether steps are calls of a compiled function, below which a stack has no frames."""
    return any(facts.framework == "jax" for facts in timeline.processes if facts.pid == pid)


def find_told(timeline: Timeline, pid: int) -> list[Frame] | None:
    """The stack of a step that hooks have told, outermost frame first."""
    told = (facts.step_frames for facts in timeline.processes if facts.pid == pid)
    return next((parse_frames(frames) for frames in told if frames), None)


def find_backward(
    stacks: Iterable[tuple[list[Frame], int]], timeline: Timeline, pid: int
) -> list[Frame] | None:
    """The backward pass as it was mostly seen; where it is too short for that, as hooks told it."""
    texts = timeline.source_lines
    found, told = find_most_common(stacks, "backward", texts), find_told(timeline, pid)
    if found is not None or told is None or find_loop_stage(told, texts) != "backward":
        return found
    return told


def comes_before(frames: list[Frame], other: list[Frame] | None) -> bool | None:
    """Whether one stack's line stands above the other's where they part; None if in no function."""
    for mine, theirs in zip(frames, other or [], strict=False):
        if mine != theirs:
            is_same = (mine.function, mine.file) == (theirs.function, theirs.file)
            return int(mine.line) < int(theirs.line) if is_same else None
    return None


def rank_lines(hits: Counter[SampleKey], sources: Mapping[str, str]) -> list[HotLine]:
    """The hottest first."""
    total = sum(hits.values())
    return [
        HotLine(
            line=spot.place,
            function=spot.function,
            source=sources.get(spot.place),
            share=count / total,
            samples=count,
            own=spot.own,
            stage=spot.stage,
            encoding=spot.encoding,
        )
        for spot, count in hits.most_common()
    ]
