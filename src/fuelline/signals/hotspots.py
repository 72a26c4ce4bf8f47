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
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from fuelline.schema.facts import HotLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fuelline.timeline import Timeline
    from fuelline.timeline.tiles import Tiling
    from fuelline.timeline.trainer import Trainer

_FRAME = re.compile(r"^(?P<function>.*?) \((?P<file>.*):(?P<line>\d+)\)$", re.DOTALL)
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3|^<|/fuelline/record/hooks/")
_TOOLKIT = re.compile(r"/(numpy|torch|fuelline)/")
"""Array operations are how users write transforms: time in them is the calling line's own time."""
_FETCH = re.compile(r"/torch/utils/data/_utils/fetch\.py$")
_COLLATE = re.compile(r"/torch/utils/data/_utils/collate\.py$")
_COLLATE_HOOK = "/fuelline/record/hooks/worker.py"
_DECODER_FILE = re.compile(
    r"/PIL/\w*ImagePlugin\.py$|/PIL/ImageFile\.py$|/(gzip|bz2|lzma|zipfile|tarfile|_compression)(/__init__|/_path)?\.py$"
    r"|/(zstandard|imageio|tifffile|soundfile|librosa|av|decord|h5py|pydicom|nibabel)/"
    r"|/json/decoder\.py$|/torchvision/io/|/torchaudio/"
)
_DECODER_TEXT = re.compile(
    r"decompress|imdecode|decode_|\.decode\(|json\.loads|pickle\.loads|frombuffer"
)
_READER_TEXT = re.compile(
    r"\bopen\(|\.read(into|line|lines|all)?\(|\bread_|np\.load\(|memmap|torch\.load\(|\.get_object\("
)
_SLEEP_TEXT = re.compile(r"\bsleep\(")
_SYNC_NAME = re.compile(r"^(synchronize|wait_for_device|block_until_ready)$")
_SYNC_TEXT = re.compile(r"\.item\(\)|\.cpu\(\)|\.tolist\(\)|synchronize\(")
_HOOKED = re.compile(
    r"/torch/(utils/data|autograd/(__init__|graph)\.py|_tensor|optim|serialization)"
)
"""Not torch/autograd/function.py: the forward of the user's own functions runs in it."""


class _Frame(NamedTuple):
    function: str
    file: str
    line: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


class _Key(NamedTuple):
    place: str
    function: str
    own: bool
    stage: str


def find_fetch_lines(timeline: Timeline, trainer: Trainer, tiling: Tiling) -> list[HotLine]:
    """Hottest lines of user code inside fetches, in workers or in the trainer with 0 workers."""
    pids = trainer.worker_pids or (trainer.pid,)
    hits: Counter[_Key] = Counter()
    for frames, count in _stacks(timeline, tiling, pids):
        start = next((at for at, frame in enumerate(frames) if _FETCH.search(frame.file)), None)
        if start is not None:
            hits[_fetch_key(frames[start + 1 :], frames[start], timeline.source_lines)] += count
    return _hottest(hits, timeline.source_lines)


def find_loop_lines(timeline: Timeline, trainer: Trainer, tiling: Tiling) -> list[HotLine]:
    """Hottest lines of the trainer's own loop: outside loader, backward, optimizer, saving."""
    hits: Counter[_Key] = Counter()
    for frames, count in _stacks(timeline, tiling, (trainer.pid,), tid=trainer.tid):
        if not any(_HOOKED.search(frame.file) for frame in frames):
            key = _deepest_user_line(frames)
            if key is not None:
                hits[key._replace(stage=_loop_stage(frames, timeline.source_lines))] += count
    return _hottest(hits, timeline.source_lines)


def _stacks(
    timeline: Timeline, tiling: Tiling, pids: Iterable[int], tid: int | None = None
) -> Iterable[tuple[list[_Frame], int]]:
    rows = timeline.table("stacks").filter(
        pl.col("pid").is_in(list(pids))
        & (pl.col("until_ns") > tiling.start_ns)
        & (pl.col("from_ns") < tiling.end_ns)
    )
    if tid is not None:
        rows = rows.filter(pl.col("tid") == tid)
    for names, count in rows.select("frames", "count").iter_rows():
        frames = [_Frame(*found.groups()) for name in names if (found := _FRAME.match(name))]
        if frames:
            yield frames, count


def _fetch_key(below: list[_Frame], fetch: _Frame, sources: Mapping[str, str]) -> _Key:
    key = _deepest_user_line(below) or _Key(fetch.place, fetch.function, own=False, stage="")
    innermost = sources.get(below[-1].place, "") if below else ""
    text = sources.get(key.place, "") if key.own else innermost
    return key._replace(stage=_fetch_stage(below, text))


def _deepest_user_line(frames: list[_Frame]) -> _Key | None:
    for depth in range(len(frames) - 1, -1, -1):
        frame = frames[depth]
        if not _LIBRARY.search(frame.file):
            inner = [other for other in frames[depth + 1 :] if not _TOOLKIT.search(other.file)]
            return _Key(frame.place, frame.function, own=not inner, stage="")
    return None


def _fetch_stage(frames: list[_Frame], text: str) -> str:
    """The stage of one stack below fetch; `text` is the innermost line and the user's line."""
    if any(_COLLATE.search(frame.file) or _is_timed_collate(frame) for frame in frames):
        return "collate"
    if any(_DECODER_FILE.search(frame.file) for frame in frames):
        return "decode"
    for stage, words in (("sleep", _SLEEP_TEXT), ("decode", _DECODER_TEXT), ("read", _READER_TEXT)):
        if words.search(text):
            return stage
    return "transform"


def _is_timed_collate(frame: _Frame) -> bool:
    """The hook's stand-in for the loader's collate function, the user's own one included."""
    return frame.function == "__call__" and frame.file.endswith(_COLLATE_HOOK)


def _loop_stage(frames: list[_Frame], sources: Mapping[str, str]) -> str:
    syncs = any(
        _SYNC_NAME.match(frame.function) or _SYNC_TEXT.search(sources.get(frame.place, ""))
        for frame in frames[-3:]
    )
    module = any("/torch/nn/modules/module.py" in frame.file for frame in frames)
    return "sync" if syncs else "forward" if module else "loop"


def _hottest(hits: Counter[_Key], sources: Mapping[str, str]) -> list[HotLine]:
    total = sum(hits.values())
    return [
        HotLine(
            line=key.place,
            function=key.function,
            source=sources.get(key.place),
            share=count / total,
            samples=count,
            own=key.own,
            stage=key.stage,
        )
        for key, count in hits.most_common()
    ]
