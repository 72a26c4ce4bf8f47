"""Which line of user code the time goes to, from stack samples. Library frames only give the stage.

A stack of a worker, outermost first, and what is read from it:

    _worker_loop (…/torch/utils/data/_utils/worker.py:349)
    fetch (…/torch/utils/data/_utils/fetch.py:54)          the fetch: everything below is its work
    __getitem__ (/home/me/train.py:31)                     the deepest line of user code
    convert (…/site-packages/PIL/Image.py:1100)
    load (…/site-packages/PIL/ImageFile.py:390)            a decoder: the stage is decode
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from fuelline.schema.readings import Missing, Signal
from fuelline.signals.recorded.fetching.stack_samples import (
    SampleKey,
    comes_before,
    find_backward,
    find_loop_stage,
    find_stacks,
    find_user_line,
    rank_lines,
)
from fuelline.signals.statistics import total

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.schema.diagnosis.facts import Encoding, HotLine
    from fuelline.signals.recorded.fetching.stack_samples import Frame
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

_FETCH = re.compile(
    r"/torch/utils/data/_utils/fetch\.py$|/tensorflow/python/ops/script_ops\.py$"
    r"|/keras/src/trainers/data_adapters/py_dataset_adapter\.py$"
)
"""A stack below it prepares samples: a DataLoader's fetch, Python that tf.data calls, a worker of a
PyDataset."""
_COLLATE = re.compile(r"/torch/utils/data/_utils/collate\.py$")
_COLLATE_HOOK = re.compile(r"/fuelline/record/hooks/(torch/)?worker\.py$")
"""Without the folder in recordings of earlier versions."""
_DECODER_FILES: tuple[tuple[Encoding, re.Pattern[str]], ...] = (
    (
        "compressed",
        re.compile(r"/(gzip|bz2|lzma|zipfile|_compression)(/__init__|/_path)?\.py$|/zstandard/"),
    ),
    ("json", re.compile(r"/json/decoder\.py$")),
    (
        "picture",
        re.compile(
            r"/PIL/\w*ImagePlugin\.py$|/PIL/ImageFile\.py$|/(imageio|tifffile)/|/torchvision/io/"
        ),
    ),
    (
        "other",
        re.compile(
            r"/tarfile\.py$|/(soundfile|librosa|av|decord|h5py|pydicom|nibabel)/|/torchaudio/"
        ),
    ),
)
_DECODER_TEXTS: tuple[tuple[Encoding, re.Pattern[str]], ...] = (
    ("compressed", re.compile(r"decompress")),
    ("json", re.compile(r"json\.loads")),
    ("picture", re.compile(r"imdecode|decode_(jpeg|png|image)")),
    ("other", re.compile(r"decode_|\.decode\(|pickle\.loads|frombuffer")),
)
"""By the innermost frame that is one of these, else by the text: a picture may come from a tar."""
_READER_TEXT = re.compile(
    r"\bopen\(|\.read(into|line|lines|all)?\(|\bread_|np\.load\(|memmap|torch\.load\(|\.get_object\("
)
_SLEEP_TEXT = re.compile(r"\bsleep\(")
_SOCKET_FILE = re.compile(r"/(socket|ssl)\.py$")
_SOCKET_TEXT = re.compile(r"\.recv\w*\(")
_STORE_FILE = re.compile(
    r"/(http/client\.py$|urllib3/|requests/|botocore/|aiohttp/|httpx/|fsspec/|s3fs/|gcsfs/)"
)
"""Clients that fetch files: what they wait for on a socket is a read."""


_CALL = re.compile(r"(\w+)\(")
_MOVER = re.compile(
    r"array|asarray|ascontiguousarray|as_tensor|astype|byte|cat|clone|concatenate|contiguous|copy"
    r"|copyto|float|flip|fliplr|flipud|from_numpy|half|hstack|pad|permute|repeat|reshape|roll|rot90"
    r"|stack|tensor|tile|to|transpose|view|vstack"
)
"""Functions of numpy and torch that compute nothing, or next to nothing, from what they move."""


def measure_moving(lines: list[HotLine]) -> Signal:
    """Share of the samples in lines whose calls only move bytes."""
    if not lines:
        return Missing(reason="no stack samples of fetching")
    moving = [line for line in lines if _only_moves(line.source or "")]
    share = min(1.0, sum(line.share for line in moving))
    return total(share, "frac", "stack samples", sum(line.samples for line in lines))


def _only_moves(text: str) -> bool:
    calls = _CALL.findall(text)
    return bool(calls) and all(_MOVER.fullmatch(call) for call in calls)


def find_fetch_lines(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> list[HotLine]:
    """Hottest lines of user code inside fetches, in workers or in the trainer with 0 workers."""
    pids = trainer.worker_pids or (trainer.pid,)
    hits: Counter[SampleKey] = Counter()
    for frames, count in find_stacks(timeline, segments, pids, tids=trainer.crew_tids):
        start = next((at for at, frame in enumerate(frames) if _FETCH.search(frame.file)), None)
        if start is not None:
            hits[find_spot(frames[start:], timeline.source_lines)] += count
    return rank_lines(hits, timeline.source_lines)


def find_loop_lines(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> list[HotLine]:
    """Hottest lines of the trainer's own loop: outside loader, backward, optimizer, saving.

    A model that is called after the backward pass is evaluated there, which is the loop's own.
    """
    hits: Counter[SampleKey] = Counter()
    stacks = list(find_stacks(timeline, segments, (trainer.pid,), tid=trainer.tid))
    backward = find_backward(stacks, timeline, trainer.pid)
    for frames, count in stacks:
        spot, stage = find_user_line(frames), find_loop_stage(frames, timeline.source_lines)
        if stage == "forward" and comes_before(frames, backward) is False:
            stage = "loop"
        if spot is not None and stage in ("loop", "sync", "forward"):
            hits[spot._replace(stage=stage)] += count
    return rank_lines(hits, timeline.source_lines)


def find_spot(frames: list[Frame], sources: Mapping[str, str]) -> SampleKey:
    """The line of user code, and the stage, of a stack whose first frame is the fetch itself."""
    fetch, below = frames[0], frames[1:] or frames
    spot = find_user_line(below) or SampleKey(fetch.place, fetch.function, own=False, stage="")
    innermost = sources.get(below[-1].place, "") if below else ""
    text = sources.get(spot.place, "") if spot.own else innermost
    stage, encoding = _fetch_stage(below, text)
    return spot._replace(stage=stage, encoding=encoding)


def _fetch_stage(frames: list[Frame], text: str) -> tuple[str, Encoding | None]:
    """The stage of one stack below fetch, and what is decoded if it is that.

    `text` is the user's line, or the innermost one.
    """
    if any(_COLLATE.search(frame.file) or _is_timed_collate(frame) for frame in frames):
        return "collate", None
    for frame in reversed(frames):
        for encoding, files in _DECODER_FILES:
            if files.search(frame.file):
                return "decode", encoding
    if _calls_service(frames, text):
        return "service", None
    if _SLEEP_TEXT.search(text):
        return "sleep", None
    for encoding, words in _DECODER_TEXTS:
        if words.search(text):
            return "decode", encoding
    return ("read" if _READER_TEXT.search(text) else "transform"), None


def _calls_service(frames: list[Frame], text: str) -> bool:
    """At a socket, for something that is not a file."""
    if any(_STORE_FILE.search(frame.file) for frame in frames) or _READER_TEXT.search(text):
        return False
    is_there = bool(frames) and bool(_SOCKET_FILE.search(frames[-1].file))
    return is_there or bool(_SOCKET_TEXT.search(text))


def _is_timed_collate(frame: Frame) -> bool:
    """The hook's stand-in for the loader's collate function, the user's own one included."""
    return frame.function == "__call__" and bool(_COLLATE_HOOK.search(frame.file))
