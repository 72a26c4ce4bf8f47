"""Which part of a step a training thread is in, from the frames of one stack; library frames only.

    <module> (/home/me/train.py:31)
    _BaseDataLoaderIter.__next__ (…/torch/utils/data/dataloader.py:701)     input
    _MultiProcessingDataLoaderIter._get_data (…)

The user's own lines are never judged by their names. What no library frame tells is the loop's own;
before the line that runs the backward pass it belongs to the forward pass (the loss, as a rule).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Literal, NamedTuple

Part = Literal[
    "input",
    "queue",
    "epoch start",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "sync",
    "collectives",
    "checkpoint",
    "validation",
    "loop",
    "start-up",
]
PAUSES: tuple[Part, ...] = ("epoch start", "checkpoint", "validation", "start-up")
"""Parts that do not belong to one step, and lie where they were seen."""

_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3|^<|^$")
_IMPORTING = re.compile(
    r"^<frozen importlib\._bootstrap|/torch/_inductor/(codecache|compile_fx)\.py$"
)
"""Modules are loaded, or kernels compiled, also in the middle of the first step."""
_LOADER = re.compile(r"/torch/utils/data/dataloader\.py$")
_NEXT = re.compile(r"(^|\.)__next__$")
_ENDING = re.compile(r"(^|\.)(_shutdown_workers|__del__)$")
_SOURCE = re.compile(
    r"/tensorflow/python/data/ops/|/(grain|datasets|webdataset|torchdata|streaming|ray/data"
    r"|nvidia/dali|tensorflow_datasets|litdata|spdl|ffcv)/"
)
"""Libraries whose iterators hand out batches."""
_QUEUE = re.compile(
    r"/lib(64)?/python3[^/]*/(queue|threading|selectors|asyncio/\w+|concurrent/futures/_base"
    r"|multiprocessing/(queues|pool|connection))\.py$"
)
"""Where a thread waits for another thread or process, in Python's own library."""
_BACKWARD = re.compile(r"/torch/autograd/(__init__|graph)\.py$|/torch/_tensor\.py$")
_OPTIMIZER = re.compile(r"/torch/optim/(?!lr_scheduler)|/keras/src/optimizers/|/optax/")
_SAVING = re.compile(
    r"/torch/serialization\.py$|/torch/distributed/checkpoint/|/safetensors/|/orbax/"
    r"|/tensorflow/python/(checkpoint|training/saving)/|/keras/src/saving/"
)
_LOADS = re.compile(r"(^|\.)_?(load|restore)")
_COLLECTIVE = re.compile(
    r"/torch/distributed/(distributed_c10d|c10d_logger|_functional_collectives)\.py$"
)
_BUFFERS = re.compile(r"(^|\.)(_sync_buffers|_sync_module_buffers|_default_broadcast_coalesced)$")
_MODULE = "/torch/nn/modules/module.py"
_CALLS = re.compile(r"^(Module\.)?_(wrapped_)?call_impl$")
_GRAPH = re.compile(
    r"/tensorflow/python/(eager|framework)/|/keras/src/(layers|ops)/|/jax/_src/(pjit|api|interpreters)"
)
_FUNCTIONAL = re.compile(r"/torch/nn/functional\.py$|/torch/_dynamo/|/torch/_inductor/")
_SYNC_NAME = re.compile(r"(^|\.)(synchronize|wait_for_device|block_until_ready)$")
_SYNC_TEXT = re.compile(r"\.item\(\)|\.cpu\(\)|\.tolist\(\)|synchronize\(")
_COPY_TEXT = re.compile(r"\.to\(|\.cuda\(")
_SAVE_TEXT = re.compile(r"\bfsync\(|torch\.save\(")
_FRAME = re.compile(r"^(?P<function>.*?) \((?P<file>.*):(?P<line>\d+)\)$", re.DOTALL)


class StackFrame(NamedTuple):
    """A line that a thread was in."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


Stack = tuple[StackFrame, ...]
"""Outermost frame first."""


def parse_frame(text: str) -> StackFrame:
    """As py-spy prints it; what is no frame has no file."""
    found = _FRAME.match(text)
    if found is None:
        return StackFrame(text, "", 0)
    return StackFrame(found["function"], found["file"], int(found["line"]))


def is_own(frame: StackFrame) -> bool:
    """Whether a frame is the user's code, not a library's."""
    return not _LIBRARY.search(frame.file)


def find_part(stack: Stack, texts: Mapping[tuple[str, int], str]) -> Part:
    """What the loop is in; `texts` has the source of lines that are known."""
    if any(_IMPORTING.search(frame.file) for frame in stack[1:]):
        return "start-up"
    for frame in stack:
        part = _part_of_frame(frame)
        if part is not None:
            return _refine(part, stack)
    leaf = stack[-1] if stack else StackFrame("", "", 0)
    text = texts.get((leaf.file, leaf.line), "")
    if _SAVE_TEXT.search(text) or _QUEUE.search(leaf.file):
        return "checkpoint" if _SAVE_TEXT.search(text) else "queue"
    is_model = any(_is_model(frame) for frame in stack)
    if _SYNC_TEXT.search(text) or any(_SYNC_NAME.search(each.function) for each in stack[-3:]):
        return "sync"
    if is_model or any(_FUNCTIONAL.search(frame.file) for frame in stack):
        return "forward"
    return "transfer" if _COPY_TEXT.search(text) else "loop"


def _part_of_frame(frame: StackFrame) -> Part | None:
    if _LOADER.search(frame.file):
        return "input" if _NEXT.search(frame.function) else "epoch start"
    if _SOURCE.search(frame.file) and _NEXT.search(frame.function):
        return "input"
    if _COLLECTIVE.search(frame.file) or _BUFFERS.search(frame.function):
        return "collectives"
    for pattern, part in _BY_FILE:
        if pattern.search(frame.file):
            return part
    return None


_BY_FILE: tuple[tuple[re.Pattern[str], Part], ...] = (
    (_BACKWARD, "backward"),
    (_OPTIMIZER, "optimizer"),
    (_SAVING, "checkpoint"),
)


def _refine(part: Part, stack: Stack) -> Part:
    """What an inner frame adds: the end of an epoch inside `next`, a backward in a closure."""
    if part == "input" and any(_is_ending(frame) for frame in stack):
        return "epoch start"
    if part == "checkpoint" and _LOADS.search(stack[-1].function):
        return "loop"
    if part == "optimizer":  # a closure: forward and backward run inside of the optimizer
        inner = next((each for each in map(_part_of_frame, stack) if each == "backward"), None)
        is_called = any(_is_model(frame) for frame in stack)
        return inner or ("forward" if is_called else part)
    return part


def _is_ending(frame: StackFrame) -> bool:
    """Of the loader: what a sample has opened is closed by a `__del__` as well."""
    return _LOADER.search(frame.file) is not None and _ENDING.search(frame.function) is not None


def _is_model(frame: StackFrame) -> bool:
    is_module = _MODULE in frame.file and _CALLS.match(frame.function) is not None
    return is_module or _GRAPH.search(frame.file) is not None


def find_validation(samples: Iterable[tuple[Stack, Part, int]]) -> frozenset[tuple[str, str]]:
    """Functions, as (name, file), that take batches and run the model but never learn.

    Judged by the stacks alone: a function is one of them if it was seen to call `next` and the
    model, and no backward pass or optimizer ever was below it. Only where learning was seen at all.
    What lies below `next` or the model takes nothing, and a call that was hardly ever seen on its
    line is no call: stacks that are read while they change mix frames of two moments.
    """
    samples = list(samples)
    is_sound = _find_sound_calls(samples)
    taking: set[tuple[str, str]] = set()
    running: Counter[tuple[str, str]] = Counter()
    learning: set[tuple[str, str]] = set()
    for stack, part, count in samples:
        if part == "input" and all(map(is_sound, pairwise(stack))):
            taking.update(_functions_above(stack, lambda each: _part_of_frame(each) is not None))
        elif part == "forward":
            running.update(dict.fromkeys(_functions_above(stack, _is_model), count))
        elif part in ("backward", "optimizer"):
            learning.update((frame.function, frame.file) for frame in stack)
    if not learning:
        return frozenset()
    library = re.compile(r"/torch/nn/|/torch/utils/data/|/torch/_")
    return frozenset(
        each
        for each in taking & running.keys() - learning
        if running[each] >= _FEW and not library.search(each[1])
    )


_FEW = 5
"""Samples of the model below a function, before it counts as one that validates."""
_RARE_CALL = 0.02
"""Of a line's samples: a call that was seen less often than that may be a torn stack."""


def _functions_above(stack: Stack, is_end: Callable[[StackFrame], bool]) -> set[tuple[str, str]]:
    """The functions that a stack passes before the first frame of a kind."""
    above = takewhile(lambda frame: not is_end(frame), stack)
    return {(frame.function, frame.file) for frame in above}


def _find_sound_calls(
    samples: Iterable[tuple[Stack, Part, int]],
) -> Callable[[tuple[StackFrame, StackFrame]], bool]:
    """Whether a line was seen to call a function in a fair share of its samples."""
    lines: Counter[StackFrame] = Counter()
    calls: Counter[tuple[StackFrame, str, str]] = Counter()
    for stack, _, count in samples:
        lines.update(dict.fromkeys(stack, count))
        pairs = {(one, other.function, other.file) for one, other in pairwise(stack)}
        calls.update(dict.fromkeys(pairs, count))

    def is_sound(call: tuple[StackFrame, StackFrame]) -> bool:
        one, other = call
        return calls[one, other.function, other.file] >= _RARE_CALL * lines[one]

    return is_sound


def comes_before(stack: Stack, other: Stack | None) -> bool | None:
    """Whether one stack's line stands above the other's where they part; None if in no function."""
    for mine, theirs in zip(stack, other or (), strict=False):
        if mine != theirs:
            is_same = mine[:2] == theirs[:2]
            return mine.line < theirs.line if is_same else None
    return None


def most_common(samples: Iterable[tuple[Stack, Part, int]], wanted: Sequence[Part]) -> Stack | None:
    """The stack that was seen most often in these parts."""
    counts: Counter[Stack] = Counter()
    for stack, part, count in samples:
        if part in wanted:
            counts[stack] += count
    return max(counts, key=lambda stack: counts[stack], default=None)
