"""Jobs without steps: a map over a data set, tokenising, packing, parsing documents, ingestion.

Nothing is trained and no batch is taken, so the unit of work is time itself: the window is cut into
seconds. What of it a model computes is useful; the rest is preparing data, by whoever does that:

    main thread     dataset.map(f), for document in documents: parse, chunk, embed, write
    its threads     ThreadPoolExecutor.map(...), while the main thread waits
    its processes   Pool.imap(...), dataset.map(f, num_proc=8), likewise

What these do is described as for the workers of a loader, so that the same rules judge it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.run.recording import PYTHON_SOURCE, LoaderFacts
from fuelline.signals.recorded.counters import thread_growth
from fuelline.signals.recorded.fetching.feeders import Feeders, rank_spots
from fuelline.signals.recorded.fetching.fetches import (
    SERVICE,
    Fetches,
    fetch_table,
    share_of,
)
from fuelline.signals.recorded.fetching.found_crew import find_crew, is_idle
from fuelline.signals.recorded.fetching.stack_samples import find_loop_stage, find_stacks
from fuelline.signals.recorded.start_up import list_stays
from fuelline.signals.statistics import proportion
from fuelline.timeline.segments import NO_EVENT, StepSegments
from fuelline.timeline.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.schema.diagnosis.facts import HotLine
    from fuelline.signals.recorded.fetching.stack_samples import Frame
    from fuelline.timeline import Timeline

    Stacks = list[tuple[list[Frame], int]]

UNIT_NS = 10**9
FEW_UNITS = 5
"""Seconds of work; less is no more than a start."""
_SETTLED_NS = 10**9
"""So much work in a row that the start is over."""
_STARTING = (
    *("interpreter", "imports", "download", "model build", "model load", "to device", "compile"),
    *("process group", "tracking"),
)
_FEW_SAMPLES = 20
_MOSTLY = 0.5
_RARELY = 0.05
_IDLE_STATES = ("sleep", "lock", "pipe", "other")
_LISTENING = r"^tcp6? .*:0$"
"""A socket without a peer: a server that nobody asks."""
_MODELS = re.compile(
    r"/(onnxruntime|tensorrt|ctranslate2|llama_cpp|vllm|sglang|openvino|paddle|mxnet|mlx|jax|flax|"
    r"sklearn|xgboost|lightgbm|catboost|faiss|cupy|thinc)/"
)
"""Libraries whose work is the model's, whichever function it is in."""
_MODEL_TEXT = re.compile(
    r"\btorch\.\w+\(|\bF\.\w+\(|\bmodel\w*\(|\bencoder\(|\.(generate|predict)\("
)
_LIBRARY_MAPS = re.compile(r"/datasets/(arrow_dataset|iterable_dataset|dataset_dict)\.py$")


def find_stepless(timeline: Timeline) -> tuple[Trainer, StepSegments] | None:
    """The process that does the work, or waits for those who do, and its seconds.

    None if there are too few, if nobody could look into it, or if nobody was at work.
    """
    pid = _find_main(timeline)
    if pid is None:
        return None
    looks = timeline.table("states").filter((pl.col("pid") == pid) & (pl.col("tid") == pid))
    last = looks["window_ns"].max()
    if not isinstance(last, int):
        return None
    ended_ns = timeline.ended_ns or last + UNIT_NS
    end_ns = min(last + UNIT_NS, ended_ns)
    start_ns = _find_begin(timeline, pid, end_ns)
    units = (end_ns - start_ns) // UNIT_NS
    if units < FEW_UNITS:
        return None
    bounds = [start_ns + number * UNIT_NS for number in range(units + 1)]
    pieces = pl.DataFrame(
        {
            "start_ns": bounds[:-1],
            "end_ns": bounds[1:],
            "part": ["forward"] * units,
            "kind": pl.Series([NO_EVENT] * units, dtype=pl.UInt8),
            "step": list(range(units)),
        }
    )
    trainer = Trainer(
        pid=pid,
        tid=pid,
        step_kind="time",
        train_sources=(),
        worker_pids=(),
        workers=0,
        reader_tid=pid,
    )
    segments = StepSegments(
        pid=pid,
        start_ns=start_ns,
        end_ns=bounds[-1],
        boundaries=pl.Series("end_ns", bounds),
        kept_frac=timeline.kept_frac,
        pieces=pieces,
    )
    return (trainer, segments) if _is_at_work(timeline, trainer, segments) else None


def _is_at_work(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> bool:
    """Whether more is seen than threads that sleep, or wait to be asked: that prepares nothing."""
    texts = timeline.source_lines
    stacks = list(find_stacks(timeline, segments, (trainer.pid,), tid=trainer.tid))
    if sum(n for _, n in stacks) < _FEW_SAMPLES:
        return False
    if any(_is_map(frames) or computes_model(frames, texts) for frames, _ in stacks):
        return True
    looks = timeline.table("states").filter(
        pl.col("window_ns").is_between(segments.start_ns, segments.end_ns)
    )
    places = timeline.table("places")
    unasked = places.filter(pl.col("path").str.contains(_LISTENING))["id"]
    is_idle = pl.col("state").is_in(_IDLE_STATES) | pl.col("place").is_in(unasked.implode())
    worked = looks.filter(~is_idle)["count"].sum()
    if worked > _RARELY * max(1, int(looks.filter(pl.col("tid") == trainer.tid)["count"].sum())):
        return True
    crew = find_crew(timeline, trainer, segments)
    return crew is not None and bool(crew.stacks)


def _is_map(frames: list[Frame]) -> bool:
    return any(_LIBRARY_MAPS.search(frame.file) for frame in frames)


def _find_main(timeline: Timeline) -> int | None:
    """Of the Python processes that nobody of them has started: the one that used most CPU."""
    parents = dict(timeline.table("seen").select("pid", "ppid").iter_rows())
    seen = set(timeline.table("stacks")["pid"].unique())
    roots = [pid for pid in seen if not _ancestors(pid, parents) & seen]
    spent = dict(
        timeline.table("processes").group_by("pid").agg(pl.col("cpu_ns").max()).iter_rows()
    )
    return max(roots, key=lambda pid: spent.get(pid, 0), default=None)


def _ancestors(pid: int, parents: Mapping[int, int]) -> set[int]:
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found


def _find_begin(timeline: Timeline, pid: int, end_ns: int) -> int:
    """When it first worked for a second without importing, loading a model and the like."""
    began_ns: int | None = None
    for stay in list_stays(timeline, pid, 0, end_ns):
        if stay.doing.part in _STARTING:
            began_ns = None
        else:
            began_ns = stay.start_ns if began_ns is None else began_ns
            if stay.end_ns - began_ns >= _SETTLED_NS:
                return began_ns
    return end_ns


def find_working(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> Feeders:
    """Who prepares data, and what they did meanwhile; without `wait` if that is not seen."""
    texts = timeline.source_lines
    mine = list(find_stacks(timeline, segments, (trainer.pid,), tid=trainer.tid))
    seen = sum(n for _, n in mine)
    idle = sum(n for frames, n in mine if _waits(frames, texts))
    crew = find_crew(timeline, trainer, segments) if idle >= _MOSTLY * seen else None
    stacks = mine if crew is None else crew.stacks
    total = sum(n for _, n in stacks)
    computed = sum(n for frames, n in stacks if computes_model(frames, texts))
    work = [(frames, n) for frames, n in stacks if not computes_model(frames, texts)]
    lines = rank_spots(work, texts)
    members = () if crew is None else crew.tids or crew.pids
    states = _list_states(timeline, trainer, segments, members)
    fetches = Fetches(
        rows=fetch_table(timeline, trainer).clear(),
        states=_named(_without_model(states, computed / max(1, total)), lines),
        threads=max(1, len(members)),
        looks=int(states["count"].sum()),
        cpu_part=_cpu_part(timeline, trainer, segments, members),
    )
    name = next((frames[0].function for frames, _ in work), None)
    loader = LoaderFacts(
        loader="Dataset.map" if any(_is_map(frames) for frames, _ in stacks) else name,
        framework=PYTHON_SOURCE,
        num_workers=len(members),
        context=None if crew is None else crew.kind,
    )
    return Feeders(
        trainer,
        loader,
        lines=lines,
        wait=proportion(total - computed, total, "stacks: no model computes"),
        inline=fetches,
    )


def computes_model(frames: list[Frame], texts: Mapping[str, str]) -> bool:
    """Whether a stack is in a model: what all the rest of a job without steps is for."""
    if any(_MODELS.search(frame.file) for frame in frames):
        return True
    if find_loop_stage(frames, texts) in ("forward", "backward", "sync"):
        return True
    return _MODEL_TEXT.search(texts.get(frames[-1].place, "")) is not None


def _waits(frames: list[Frame], texts: Mapping[str, str]) -> bool:
    """For another thread or process: in Python's own library, however deep."""
    return is_idle(frames, texts) or any(_JOINS.search(frame.file) for frame in frames[-4:])


_JOINS = re.compile(
    r"/(multiprocess|multiprocessing)/(pool|connection|queues|popen_\w+|managers)\.py$"
    r"|/subprocess\.py$|/concurrent/futures/|/joblib/parallel\.py$"
)


def _list_states(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, members: tuple[int, ...]
) -> pl.DataFrame:
    """Looks at the threads that work; processes are looked at in their main threads."""
    return timeline.table("states").filter(
        pl.col("tid").is_in(list(members) or [trainer.tid])
        & pl.col("window_ns").is_between(segments.start_ns, segments.end_ns)
    )


def _without_model(states: pl.DataFrame, model_frac: float) -> pl.DataFrame:
    """A model runs, and neither reads nor writes: as many looks at a running thread were its."""
    running = int(states.filter(pl.col("state") == "running")["count"].sum())
    if not running or not model_frac:
        return states
    kept = max(0.0, 1 - model_frac * int(states["count"].sum()) / running)
    scaled = (pl.col("count") * kept).round().cast(states.schema["count"])
    return states.with_columns(
        count=pl.when(pl.col("state") == "running").then(scaled).otherwise("count")
    )


def _named(states: pl.DataFrame, lines: list[HotLine]) -> pl.DataFrame:
    """Sleeping in a line that reads is a slow read; a socket in one that does not is a service.

    At a pipe those that work wait for another process: they would not be at work if it were idling.
    """
    names = {"pipe": "other"}
    if share_of(lines, "read", "decode") > share_of(lines, "sleep"):
        names["sleep"] = "read"
    if share_of(lines, "service") > share_of(lines, "read"):
        names["socket"] = SERVICE
    return states.with_columns(pl.col("state").replace(names))


def _cpu_part(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, members: tuple[int, ...]
) -> float | None:
    """Of the time that they were ready to run: on a core."""
    grown = [thread_growth(timeline, segments, tid) for tid in members or (trainer.tid,)]
    ran = sum(each[0] for each in grown if each is not None)
    queued = sum(each[1] for each in grown if each is not None)
    return ran / (ran + queued) if ran + queued > 0 else None
