"""From the start of the job to its first usual step: where the time went, nothing left out.

| what is known               | by                                                   |
|-----------------------------|------------------------------------------------------|
| which process, from when    | the kernel's start times, up the line of parents     |
| first batch, worker start.. | hooks, to the nanosecond                             |
| all else                    | stacks that were taken in order (`start_stages.py`)  |

Between two bursts of stacks the last and the next stay count, half each, if the gap is short or
both do the same; what then has no name is said to have none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.start_up import (
    START_PARTS,
    StartDetail,
    StartLedger,
    StartPart,
    StartUpPart,
)
from fuelline.schema.wire import PART_OF_PAUSE, Kind, PauseKind
from fuelline.signals.recorded.fetching.stack_samples import parse_frames
from fuelline.signals.recorded.start_stages import Doing, name_stack
from fuelline.timeline import events

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import Span
    from fuelline.timeline.trainer import Trainer

_BRIDGED_NS = 3 * 10**9
_BRIDGED_FRAC = 0.1
"""A gap between two bursts that is named by its neighbours whatever they are: as long, or as much
of the time since the job began. py-spy is started again in less, also where cores are busy."""
_LONGER = 1.5
_WARM_SHARE = 0.25
_MOST_WARM = 50
"""Steps at the beginning that take so much longer than the median are warm-up, up to a quarter of
all and this many."""
_MOST_DETAILS = 5
_LEAST_DETAIL = 0.02
_WINDOW_NS = 10**9
_BLOCKED = ("read", "metadata", "fault", "write", "socket")
_PARTS_OF_HOOKS: dict[Kind, StartPart] = {
    Kind.WAIT: "first batch",
    Kind.SOURCE_START: "worker start",
    Kind.PAUSE: "checkpoint",
}


@dataclass(frozen=True)
class _Piece:
    start_ns: int
    end_ns: int
    doing: Doing


@dataclass(frozen=True)
class _Life:
    """The stretch in which this process is the one to look at."""

    pid: int
    name: str
    start_ns: int
    end_ns: int
    ready_ns: int = 0
    """When Python was ready to import; 0 where it did not say."""


def measure_start_up(timeline: Timeline, trainer: Trainer, span: Span) -> StartLedger | None:
    """The ledger; None if nobody wrote down when the process started, or was there to see it."""
    if timeline.run.attached is not None:
        return None
    lives = _follow_parents(timeline, trainer.pid, span.start_ns)
    if not lives:
        return None
    steady_ns = _find_steady(span)
    known = list(_list_known(timeline, trainer, span.start_ns))
    begun_ns = min((each.start_ns for each in known), default=span.start_ns)
    backwards = _list_backwards(timeline, trainer, span.start_ns)
    pieces: list[_Piece] = []
    born_ns = timeline.run.started_ns
    for life in lives:
        stays = list_stays(timeline, life.pid, life.start_ns, life.end_ns)
        for start_ns, end_ns in _between(known, life.start_ns, life.end_ns):
            pieces += _fill(life, stays, start_ns, end_ns, begun_ns=begun_ns, born_ns=born_ns)
    pieces = [part for piece in pieces for part in _name_backward(piece, backwards)]
    pieces += known
    if steady_ns > span.start_ns:
        pieces.append(_Piece(span.start_ns, steady_ns, Doing("warm-up", "", None)))
    return _add_up(timeline, [life.pid for life in lives], pieces, steady_ns)


def _follow_parents(timeline: Timeline, pid: int, end_ns: int) -> list[_Life]:
    """The processes on the way to this one, each until the next of them started."""
    rows = {
        row[0]: row[1:]
        for row in timeline.table("seen")
        .select("pid", "ppid", "name", "started_ns")
        .sort("started_ns")
        .iter_rows()
    }
    begun = {each.pid: [at for at, _ in each.begun] for each in timeline.processes}
    chain: list[_Life] = []
    while pid in rows and len(chain) < len(rows):
        ppid, name, started_ns = rows[pid]
        if not started_ns:
            return []
        start_ns = max(started_ns, timeline.run.started_ns)
        if start_ns < end_ns:
            ready_ns = min((at for at in begun.get(pid, ()) if at >= start_ns), default=0)
            chain.append(_Life(pid, name, start_ns, end_ns, ready_ns))
        pid, end_ns = ppid, min(start_ns, end_ns)
    if chain and chain[-1].start_ns > timeline.run.started_ns:
        first = chain[-1]
        chain[-1] = replace(first, start_ns=timeline.run.started_ns)
    return chain[::-1]


def _find_steady(span: Span) -> int:
    """The end of the last step at the beginning that takes clearly longer than the usual one."""
    lengths = span.boundaries.diff().drop_nulls()
    usual = lengths.median()
    if not isinstance(usual, (int, float)):
        return span.start_ns
    most = min(_MOST_WARM, int(_WARM_SHARE * lengths.len()))
    warm = 0
    for length in lengths.head(most):
        if length <= _LONGER * usual:
            break
        warm += 1
    return int(span.boundaries[warm])


def _list_known(timeline: Timeline, trainer: Trainer, end_ns: int) -> Iterator[_Piece]:
    """What hooks saw of the trainer thread before the first step was over; outermost events.

    Workers that are spawned import everything before they fetch, while the first batch is awaited.
    """
    reached = 0
    fetched = events.fetches(timeline, pl.col("pid").is_in(trainer.worker_pids))["start_ns"].min()
    fetched_ns = fetched if isinstance(fetched, int) else 0
    rows = events.thread_events(timeline, trainer.pid, trainer.tid).filter(
        (pl.col("start_ns") < end_ns) & pl.col("kind").is_in(list(_PARTS_OF_HOOKS))
    )
    columns = ("kind", "owner", "start_ns", "end_ns", "pause_kind")
    for kind, owner, begin_ns, over_ns, pause in rows.select(columns).iter_rows():
        if over_ns <= reached:
            continue
        part = _PARTS_OF_HOOKS[Kind(kind)]
        if kind == Kind.PAUSE:
            is_validation = PART_OF_PAUSE.get(_pause(pause)) == "validation"
        else:
            is_validation = bool(trainer.train_sources) and owner not in trainer.train_sources
        part = "validation" if is_validation else part
        start_ns, stop_ns = max(begin_ns, reached), min(over_ns, end_ns)
        if part == "first batch" and start_ns < fetched_ns < stop_ns:
            yield _Piece(start_ns, fetched_ns, Doing("worker start", "", None))
            start_ns = fetched_ns
        yield _Piece(start_ns, stop_ns, Doing(part, "", None))
        reached = stop_ns


def _list_backwards(timeline: Timeline, trainer: Trainer, end_ns: int) -> list[tuple[int, int]]:
    """When the backward passes before the end of the first step began and ended."""
    mine = events.of_thread(trainer.pid, trainer.tid) & (pl.col("start_ns") < end_ns)
    rows = events.backward_passes(timeline, mine).sort("start_ns").select("start_ns", "end_ns")
    return list(rows.iter_rows())


def _name_backward(piece: _Piece, backwards: Sequence[tuple[int, int]]) -> Iterator[_Piece]:
    """What no stack has named is the first step where hooks saw a backward pass.

    With the first of them training begins, and stacks are taken as seldom as in training, though a
    pass that is compiled takes long.
    """
    at_ns = piece.start_ns
    for begun_ns, over_ns in backwards if piece.doing.part == "unnamed" else ():
        start_ns, end_ns = max(begun_ns, at_ns), min(over_ns, piece.end_ns)
        if start_ns < end_ns:
            yield _Piece(at_ns, start_ns, piece.doing)
            yield _Piece(start_ns, end_ns, Doing("first step", "", None))
            at_ns = end_ns
    if at_ns < piece.end_ns:
        yield _Piece(at_ns, piece.end_ns, piece.doing)


def _pause(number: int | None) -> PauseKind:
    known = {int(kind): kind for kind in PauseKind}
    return known.get(number or 0, PauseKind.CHECKPOINT)


def list_stays(timeline: Timeline, pid: int, start_ns: int, end_ns: int) -> list[_Piece]:
    """What the process's main thread did, stay by stay, where stacks were taken."""
    rows = (
        timeline.table("stacks")
        .filter(
            (pl.col("pid") == pid)
            & (pl.col("tid") == pid)
            & (pl.col("until_ns") > start_ns)
            & (pl.col("from_ns") < end_ns)
        )
        .sort("from_ns", maintain_order=True)
    )
    found: list[_Piece] = []
    bursts = rows.partition_by("from_ns", "until_ns", maintain_order=True)
    for burst in bursts:
        from_ns, until_ns = int(burst["from_ns"][0]), int(burst["until_ns"][0])
        at_ns, total = float(from_ns), int(burst["count"].sum())
        for names, count in burst.select("frames", "count").iter_rows():
            doing = name_stack(parse_frames(names), timeline.source_lines)
            # In the middle of training a burst only says how often each stack was seen.
            stop_ns = at_ns + (until_ns - from_ns) * count / max(total, 1)
            found.append(_Piece(int(at_ns), int(stop_ns), doing))
            at_ns = stop_ns
    return found


def _between(known: Sequence[_Piece], start_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
    """Stretches that no hook covers."""
    at_ns = start_ns
    for each in known:
        if each.end_ns <= start_ns or each.start_ns >= end_ns:
            continue
        if each.start_ns > at_ns:
            yield at_ns, each.start_ns
        at_ns = max(at_ns, each.end_ns)
    if at_ns < end_ns:
        yield at_ns, end_ns


def _fill(
    life: _Life, stays: Sequence[_Piece], start_ns: int, end_ns: int, *, begun_ns: int, born_ns: int
) -> Iterator[_Piece]:
    """Name a stretch by the stays in it, and what lies between them by its neighbours."""
    is_step = start_ns >= begun_ns
    at_ns, last = start_ns, None
    for stay in stays:
        if stay.end_ns <= at_ns:
            last = stay if stay.end_ns <= start_ns else last
            continue
        if stay.start_ns >= end_ns:
            yield from _bridge(life, at_ns, end_ns, last, stay, born_ns=born_ns, is_step=is_step)
            return
        if stay.start_ns > at_ns:
            yield from _bridge(
                life, at_ns, stay.start_ns, last, stay, born_ns=born_ns, is_step=is_step
            )
            at_ns = stay.start_ns
        stop_ns = min(stay.end_ns, end_ns)
        yield _Piece(at_ns, stop_ns, _in_step(stay.doing) if is_step else stay.doing)
        at_ns, last = stop_ns, stay
    if at_ns < end_ns:
        yield from _bridge(life, at_ns, end_ns, last, None, born_ns=born_ns, is_step=is_step)


def _in_step(doing: Doing) -> Doing:
    """After the first batch the job computes, but for what is clearly none of that."""
    apart = ("imports", "compile", "download", "model load", "process group", "tracking")
    return doing if doing.part in apart else Doing("first step", doing.name, doing.line)


def _bridge(
    life: _Life,
    start_ns: int,
    end_ns: int,
    before: _Piece | None,
    after: _Piece | None,
    *,
    born_ns: int,
    is_step: bool,
) -> Iterator[_Piece]:
    if is_step:
        yield _Piece(start_ns, end_ns, Doing("first step", "", None))
        return
    if not life.name.startswith(("python", "pt_")) and before is None and after is None:
        yield _Piece(start_ns, end_ns, Doing("launch", life.name, None))
        return
    if before is None and start_ns == life.start_ns and end_ns - start_ns <= _BRIDGED_NS:
        is_import = after is not None and after.doing.part == "imports"
        ready_ns = min(max(life.ready_ns, start_ns), end_ns) if life.ready_ns else end_ns
        doing = after.doing if after is not None and is_import else Doing("imports", "", None)
        yield _Piece(start_ns, ready_ns, Doing("interpreter", "", None))
        yield _Piece(ready_ns, end_ns, doing)
        return
    is_same = before is not None and after is not None and _is_same(before.doing, after.doing)
    short_ns = max(_BRIDGED_NS, _BRIDGED_FRAC * (end_ns - born_ns))
    if not is_same and end_ns - start_ns > short_ns:
        yield _Piece(start_ns, end_ns, Doing("unnamed", "", None))
        return
    first, second = before or after, after or before
    if first is None or second is None:
        yield _Piece(start_ns, end_ns, Doing("unnamed", "", None))
        return
    middle_ns = (start_ns + end_ns) // 2
    yield _Piece(start_ns, middle_ns, first.doing)
    yield _Piece(middle_ns, end_ns, second.doing)


def _is_same(one: Doing, other: Doing) -> bool:
    """Whether a process was probably doing this all the time between two looks at it.

    In one call of the user's code, or at one thing; code of the user's is not one thing.
    """
    is_one_call = one.line is not None and one.line == other.line
    return is_one_call or (one.part == other.part and one.part != "code")


def _add_up(
    timeline: Timeline, pids: Sequence[int], pieces: Sequence[_Piece], steady_ns: int
) -> StartLedger:
    spent: Counter[StartPart] = Counter()
    details: dict[StartPart, Counter[tuple[str, str | None]]] = defaultdict(Counter)
    for piece in pieces:
        length_ns = piece.end_ns - piece.start_ns
        spent[piece.doing.part] += length_ns
        line = None if piece.doing.part == "imports" else piece.doing.line
        if piece.doing.name or line:
            details[piece.doing.part][piece.doing.name, line] += length_ns
    whole_ns = steady_ns - timeline.run.started_ns
    spent["unnamed"] += whole_ns - sum(spent.values())
    blocked = _find_blocked(timeline, pids, pieces)
    return StartLedger(
        seconds=whole_ns / 1e9,
        parts=[
            _describe(timeline, part, spent, details[part], blocked[part])
            for part in START_PARTS
            if spent[part] > 0
        ],
    )


def _describe(
    timeline: Timeline,
    part: StartPart,
    spent: Counter[StartPart],
    details: Counter[tuple[str, str | None]],
    blocked: Counter[int],
) -> StartUpPart:
    place = blocked.most_common(1)[0][0] if blocked else 0
    found = timeline.table("places").filter(pl.col("id") == place).head(1).to_dicts()
    where = found[0] if found and place else {}
    spent_ns = spent[part]
    return StartUpPart(
        part=part,
        seconds=spent_ns / 1e9,
        share=spent_ns / spent.total(),
        details=[
            StartDetail(
                name=name,
                seconds=length_ns / 1e9,
                line=line,
                source=timeline.source_lines.get(line) if line else None,
            )
            for (name, line), length_ns in details.most_common(_MOST_DETAILS)
            if length_ns >= _LEAST_DETAIL * spent_ns
        ],
        blocked_seconds=min(sum(blocked.values()), spent_ns) / 1e9,
        path=where.get("path"),
        mount=where.get("mount") or None,
        fstype=where.get("fstype") or None,
    )


def _find_blocked(
    timeline: Timeline, pids: Sequence[int], pieces: Sequence[_Piece]
) -> dict[StartPart, Counter[int]]:
    """Nanoseconds that each part was blocked in each place: a window's, by what it was part of."""
    found: dict[StartPart, Counter[int]] = defaultdict(Counter)
    if not pieces:
        return found
    states = (
        timeline.table("states")
        .filter(pl.col("pid").is_in(list(pids)) & (pl.col("pid") == pl.col("tid")))
        .filter(pl.col("window_ns") < max(piece.end_ns for piece in pieces))
        .group_by("pid", "window_ns", "state", "place")
        .agg(pl.col("count").sum())
        .with_columns(share=pl.col("count") / pl.col("count").sum().over("pid", "window_ns"))
        .filter(pl.col("state").is_in(_BLOCKED))
    )
    for start_ns, place, share in states.select("window_ns", "place", "share").iter_rows():
        end_ns = start_ns + _WINDOW_NS
        for piece in pieces:
            overlap_ns = min(end_ns, piece.end_ns) - max(start_ns, piece.start_ns)
            if overlap_ns > 0:
                found[piece.doing.part][place] += int(share * overlap_ns)
    return found
