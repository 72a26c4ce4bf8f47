"""What the host did, as sets of time a cause, read part by part; and which call launched what.

Only threads that launch device work are asked, because a watchdog that polls does not hold up the
device; data loading and the profiler's own work count on any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.parts import HOST_CAUSES, HostCause, IdleCause
from fuelline.schema.run.trace import HostKind
from fuelline.signals.traced.kernels.names import find_cause
from fuelline.timeline.intervals import intersect, merge, merge_all, nothing, total_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.timeline.trace import Trace

LONG_CALL_NS = 1_000_000
"""A call that launches takes 5 to 20 us, some ten times that with stacks. One that takes this long
while the device has nothing to do, for a kernel that was not launched before, loads its code."""
_ANYWHERE: tuple[HostCause, ...] = ("profiler", "data loader")
_LAUNCHES = r"LaunchKernel|GraphLaunch|LaunchCooperative"
_CAPTURES = r"^(cuda|hip|cu)Stream(Begin|End)Capture"
_BEGINS = r"BeginCapture"
_REGIONS = r"^Torch-Compiled Region"
_MARKS = r"^ProfilerStep"
_JITTED = r"^PjitFunction\("
_COMPILES = (
    r"^backend_compile|compile_or_get_cached|XlaCompile|Compiler::Compile"
    r"|torch/_(dynamo|inductor)/\S+\(\d+\): (_compile|compile_fx|compile_to_fn|call_user_compiler)$"
    r"|triton/compiler/compiler\.py\(\d+\): compile$"
)
"""Calls that put a kernel on the device; a memset of nothing leaves no event, and is no loss."""
_COUNT_THREADS = r"^hip(Ext|Hcc)ModuleLaunchKernel$"
"""Calls whose grid is counted in threads (globalWorkSizeX in hip_ext.h), not in blocks."""


@dataclass(frozen=True)
class HostActivity:
    """One rank's host side."""

    launches: pl.DataFrame
    """| correlation | call_ns | thread | is_graph | in_threads |: calls that put work on the
    device, when they returned, and whether they count the grid in threads."""
    sets: Mapping[HostCause, pl.DataFrame]
    """Cause to the set of moments at which the host did that."""
    threads: tuple[int, ...]
    start_ns: int | None
    end_ns: int | None
    launched: int
    """Calls that something on the device belongs to."""
    calls: int
    """Launching calls; those without a device event are what the trace lost."""
    lost_calls: int
    queued_calls: int
    """Of those, the ones after the last that has an event: perhaps still in the device's queue."""
    graph_launches: int
    """Launches of graphs, whether kernels were recorded for them or not."""
    events: int
    captures: pl.DataFrame
    """Moments at which calls were put into a graph instead of on the device."""
    compiled: pl.DataFrame
    """Moments at which something was compiled."""
    regions: pl.DataFrame
    """Moments within a call that compiles what it runs, if that is not done yet."""
    has_stacks: bool
    """Functions of Python were recorded."""
    jitted_calls: int
    """Of functions that JAX compiles."""
    worked_until_ns: int
    """The end of the last event that is no mark of a step."""

    def settled(self) -> HostActivity:
        """The same without what only the accounts of its devices needed: much of the memory."""
        graphs = self.launches[self.launches["is_graph"].arg_true()]
        return replace(self, launches=graphs, sets={})


_CALL_COLUMNS = ("start_ns", "end_ns", "name", "thread", "kind", "correlation", "external")


def read_host(trace: Trace, rank: int, correlations: pl.Series) -> HostActivity:
    """Read a rank's host events twice: for the launches, then for what its threads did.

    `correlations` are those of its device events, in order.
    """
    texts = trace.texts(rank)
    captures = _find_captures(trace, rank, texts)
    launch_names = _matching(texts, _LAUNCHES)
    graph_names = _matching(texts, "GraphLaunch")
    launches, calls, queued, graphs, events = [_no_launches()], 0, 0, 0, 0
    last = pl.lit(correlations.max(), pl.Int64)
    seen = _HostTally(_matching(texts, _MARKS), _matching(texts, _JITTED))
    for part in trace.parts("host", rank, _CALL_COLUMNS):
        events += part.height
        runtime = _outside(_numbered(part), captures)
        launching = runtime.filter(pl.col("name").is_in(launch_names))
        calls += launching.height
        queued += launching.filter(pl.col("correlation") > last).height
        graphs += runtime.filter(pl.col("name").is_in(graph_names)).height
        launches.append(_launches(runtime, correlations))
        seen.add(part)
    found = _first_calls(pl.concat(launches))
    launches.clear()
    threads = seen.find_threads(found["thread"].unique().sort())
    launched = found.height
    named = int(found["name"].is_in(launch_names).sum())
    told = found.with_columns(
        pl.col("name").is_in(graph_names).alias("is_graph"),
        pl.col("name").is_in(_matching(texts, _COUNT_THREADS)).alias("in_threads"),
    ).drop("name")
    del found
    return HostActivity(
        launches=told,
        sets=_read_sets(trace, rank, texts, threads, captures),
        threads=threads,
        start_ns=min(seen.bounds_ns, default=None),
        end_ns=max(seen.bounds_ns, default=None),
        launched=launched,
        calls=calls,
        lost_calls=max(0, calls - named),
        queued_calls=queued,
        graph_launches=graphs,
        events=events,
        captures=captures,
        compiled=_find_within(trace, rank, _matching(texts, _COMPILES)),
        regions=_find_within(trace, rank, _matching(texts, _REGIONS)),
        has_stacks=seen.has_stacks,
        jitted_calls=seen.jitted_calls,
        worked_until_ns=seen.worked_until_ns,
    )


_TELLING = (int(HostKind.OP), int(HostKind.PYTHON))


@dataclass
class _HostTally:
    """What parts of a rank's host events come to, beside launches."""

    marks: list[int]
    """Names of marks of steps."""
    jitted: list[int]
    """Names of functions that JAX compiles."""
    jitted_calls: int = 0
    bounds_ns: list[int] = field(default_factory=list)
    worked_until_ns: int = 0
    has_stacks: bool = False
    telling: dict[int, int] = field(default_factory=dict)
    """Thread to its events that say what it does."""

    def add(self, part: pl.DataFrame) -> None:
        """One part more."""
        self.bounds_ns += [part["start_ns"].min(), part["end_ns"].max()]  # type: ignore[list-item]
        if self.jitted:
            self.jitted_calls += int(part["name"].is_in(self.jitted).sum())
        ends = part["end_ns"]
        if self.marks:
            ends = ends.filter(~part["name"].is_in(self.marks))
        self.worked_until_ns = max(self.worked_until_ns, int(ends.max() or 0))  # type: ignore[arg-type]
        telling = part.filter(pl.col("kind").is_in(_TELLING)).group_by("thread", "kind").len()
        for thread, kind, count in telling.iter_rows():
            self.telling[thread] = self.telling.get(thread, 0) + count
            self.has_stacks |= kind == int(HostKind.PYTHON)

    def find_threads(self, launching: pl.Series) -> tuple[int, ...]:
        """Those that launch; if none of them says what it does, also the one that says most.

        XLA numbers the threads of its calls and those of Python differently.
        """
        found = tuple(launching.to_list())
        if not found or not self.telling or self.telling.keys() & set(found):
            return found
        return (*found, max(self.telling, key=lambda thread: (self.telling[thread], thread)))


def _numbered(part: pl.DataFrame) -> pl.DataFrame:
    """Calls, by the external number where they have no other."""
    calls = part.filter(pl.col("kind") == int(HostKind.RUNTIME))
    if calls["correlation"].count():
        return calls
    return calls.with_columns(pl.col("external").alias("correlation"))


def _find_captures(trace: Trace, rank: int, texts: Mapping[int, str]) -> pl.DataFrame:
    """From the beginning of each capture of a graph to its end, as a set."""
    names = _matching(texts, _CAPTURES)
    if not names:
        return nothing()
    columns = ("start_ns", "end_ns", "name", "thread")
    parts = trace.parts("host", rank, columns)
    calls = [part.filter(pl.col("name").is_in(names)) for part in parts]
    begins = pl.col("name").is_in(_matching(texts, _BEGINS))
    paired = (
        pl.concat(calls)
        .sort("thread", "start_ns")
        .with_columns(
            pl.col("end_ns").shift(-1).over("thread").alias("until_ns"),
            begins.shift(-1, fill_value=True).over("thread").alias("is_open"),
        )
        .filter(begins & ~pl.col("is_open"))
    )
    return merge(paired.select("start_ns", pl.col("until_ns").alias("end_ns")))


def _find_within(trace: Trace, rank: int, names: list[int]) -> pl.DataFrame:
    """The set of moments within events of these names."""
    if not names:
        return nothing()
    parts = trace.parts("host", rank, ("start_ns", "end_ns", "name"))
    return merge_all(part.filter(pl.col("name").is_in(names)) for part in parts)


def _outside(calls: pl.DataFrame, captures: pl.DataFrame) -> pl.DataFrame:
    """Calls that began outside of these moments."""
    if not captures.height:
        return calls
    begun = captures["start_ns"].search_sorted(calls["start_ns"], side="right")
    ended = captures["end_ns"].search_sorted(calls["start_ns"], side="right")
    return calls.filter(begun == ended)


def _first_calls(launches: pl.DataFrame) -> pl.DataFrame:
    """Of several calls with one number the first; by number.

    Sorted rather than hashed, which would need as much memory as the device's events.
    """
    ordered = launches.sort("correlation", maintain_order=True)
    is_first = (ordered["correlation"] != ordered["correlation"].shift(1)).fill_null(value=True)
    return ordered if is_first.all() else ordered.filter(is_first)


def _matching(texts: Mapping[int, str], words: str) -> list[int]:
    names = pl.Series(values=list(texts.values()), dtype=pl.String)
    numbers = pl.Series(values=list(texts), dtype=pl.UInt32)
    found: list[int] = numbers.filter(names.str.contains(words)).to_list()
    return found


def _no_launches() -> pl.DataFrame:
    columns = {"correlation": pl.Int64, "call_ns": pl.Int64, "thread": pl.Int64, "name": pl.UInt32}
    return pl.DataFrame(schema=columns)


def _launches(runtime: pl.DataFrame, correlations: pl.Series) -> pl.DataFrame:
    # Numbers grow with time, mostly: a part has to do with a small stretch of them.
    bounds = runtime["correlation"].min(), runtime["correlation"].max()
    low, high = (0 if bound is None else int(bound) for bound in bounds)  # type: ignore[arg-type]
    first = int(correlations.search_sorted(low, side="left"))
    last = int(correlations.search_sorted(high, side="right"))
    near = correlations.slice(first, last - first).implode()
    has_event = runtime["correlation"].is_in(near).fill_null(value=False)
    calls = runtime.select("correlation", pl.col("end_ns").alias("call_ns"), "thread", "name")
    return calls[has_event.arg_true()]  # gathered, as in `merge`: they are kept


_CODE_COLUMNS = ("start_ns", "end_ns", "name", "thread", "kind")
_CODES = {cause: code for code, cause in enumerate(HOST_CAUSES)}
_NONE = 255
_OF_KIND = {
    int(HostKind.OP): _CODES["operators"],
    int(HostKind.RUNTIME): _CODES["kernel launches"],
    int(HostKind.PYTHON): _CODES["python"],
    int(HostKind.PROFILER): _CODES["profiler"],
}
"""What a host event is if its name does not say."""


def _read_sets(
    trace: Trace,
    rank: int,
    texts: Mapping[int, str],
    threads: tuple[int, ...],
    captures: pl.DataFrame,
) -> dict[HostCause, pl.DataFrame]:
    collected: dict[HostCause, list[pl.DataFrame]] = {cause: [] for cause in HOST_CAUSES}
    collected["start-up"].append(captures)
    by_name = _codes_by_name(texts)
    for part in trace.parts("host", rank, _CODE_COLUMNS):
        coded = _coded(part, by_name, threads)
        for code in coded["code"].unique():
            same = coded.filter(pl.col("code") == code)
            collected[HOST_CAUSES[code]].append(merge(same))
    # Taken out one by one: all causes before and after merging need not be there together.
    return {cause: merge_all(collected.pop(cause)) for cause in HOST_CAUSES}


def _codes_by_name(texts: Mapping[int, str]) -> pl.Series:
    """The cause of each name, at the place of its number; the last is of no name."""
    codes = [_NONE] * (max(texts, default=0) + 2)
    for name, text in texts.items():
        cause = find_cause(text)
        codes[name] = _NONE if cause is None else _CODES[cause]
    return pl.Series(values=codes, dtype=pl.UInt8)


def _coded(part: pl.DataFrame, by_name: pl.Series, threads: tuple[int, ...]) -> pl.DataFrame:
    """Events that say what the host did, on threads that matter: | start | end | name | code |."""
    of_kind = [_OF_KIND.get(kind, _NONE) for kind in range(max(HostKind) + 1)]
    kinds = pl.Series(values=of_kind, dtype=pl.UInt8).gather(part["kind"])
    last = len(by_name) - 1  # is no name, as are all that no text is known of
    by_own_name = by_name.gather(part["name"].clip(upper_bound=last)).rename("named")
    told = (pl.col("named") != _NONE) & (pl.col("kind") != int(HostKind.PROFILER))
    coded = part.select(_CODE_COLUMNS).with_columns(by_own_name, kinds.alias("code"))
    coded = coded.with_columns(pl.when(told).then("named").otherwise("code").alias("code"))
    matters = pl.col("code") != _NONE
    if threads:
        anywhere = pl.col("code").is_in([_CODES[cause] for cause in _ANYWHERE])
        matters &= anywhere | pl.col("thread").is_in(list(threads))
    return coded.filter(matters).select("start_ns", "end_ns", "name", "code")


def find_during(
    trace: Trace, rank: int, host: HostActivity, idle: pl.DataFrame
) -> dict[IdleCause, str]:
    """For each cause of idle time the host event that most of its longest stretches lay under."""
    texts = trace.texts(rank)
    by_name = _codes_by_name(texts)
    pieces = idle.with_columns(pl.col("cause").cast(pl.String)).partition_by("cause", as_dict=True)
    startup = merge(pieces.get(("start-up",), nothing()))
    middles = {
        cause: _middles(own)
        for (cause,), own in pieces.items()
        if cause in _CODES or cause in _OF_ANYTHING
    }
    asked = [each["at_ns"] for each in middles.values()]
    moments = pl.concat([pl.Series([], dtype=pl.Int64), *asked]).sort()
    parts = []
    for part in trace.parts("host", rank, _CODE_COLUMNS):
        # Most events lie over none of the moments that are asked for, and need not be looked at.
        over = moments.search_sorted(part["end_ns"]) > moments.search_sorted(part["start_ns"])
        parts.append(_coded(part[over.arg_true()], by_name, host.threads))
    names: dict[IdleCause, str] = {}
    for cause, wanted in middles.items() if parts else ():
        is_any = cause in _OF_ANYTHING
        same = pl.concat(parts).filter((pl.col("code") == _CODES.get(cause, _NONE)) | is_any)
        captured_ns = total_ns(intersect(startup, host.captures)) if cause == "start-up" else 0
        if captured_ns and 2 * captured_ns >= total_ns(startup):
            names["start-up"] = _CAPTURE
            continue
        top = _top(_open_at(wanted, same.sort("start_ns")), int(wanted["length_ns"].sum()))
        if top is not None:
            names[cause] = texts[top]
    return names


_CAPTURE = "graph capture"
_OF_ANYTHING: tuple[IdleCause, ...] = ("start-up", "one-off")
"""Causes that are not told by what the host did: whatever took so long is looked up."""
_MOST_LOOKED_UP = 500
"""Stretches of idle time per cause: the longest show what it is made of."""


def _middles(idle: pl.DataFrame) -> pl.DataFrame:
    """| at_ns | length_ns | of the longest stretches, in order of time."""
    lengths = idle["end_ns"] - idle["start_ns"]
    if idle.height > _MOST_LOOKED_UP:  # to sort all of millions takes longer than all the rest
        least_ns = int(lengths.top_k(_MOST_LOOKED_UP).min())
        idle = idle.filter(lengths >= least_ns)
    length = pl.col("end_ns") - pl.col("start_ns")
    return (
        idle.select((pl.col("start_ns") + length // 2).alias("at_ns"), length.alias("length_ns"))
        .sort("length_ns", "at_ns", descending=True)
        .head(_MOST_LOOKED_UP)
        .sort("at_ns")
    )


def _open_at(wanted: pl.DataFrame, events: pl.DataFrame) -> list[pl.DataFrame]:
    """| at_ns | length_ns | name | took_ns |: the last event to begin, and the outermost one."""
    took = pl.col("end_ns") - pl.col("start_ns")
    reach = events["end_ns"].cum_max().shift(1)
    outer = events.filter((events["start_ns"] >= reach).fill_null(value=True))
    return [
        wanted.join_asof(each, left_on="at_ns", right_on="start_ns", strategy="backward")
        .filter(pl.col("end_ns") > pl.col("at_ns"))
        .select("at_ns", "length_ns", "name", took.alias("took_ns"))
        for each in (events, outer)
    ]


def _top(tables: list[pl.DataFrame], whole_ns: int) -> int | None:
    """The name that most time lay under, each stretch counted for its shortest event.

    None if most of the time lay under nothing.
    """
    under = pl.concat(tables).sort("took_ns").unique("at_ns", keep="first", maintain_order=True)
    sums = under.group_by("name").agg(pl.col("length_ns").sum()).sort("length_ns", "name")
    return int(sums["name"][-1]) if 2 * int(under["length_ns"].sum()) >= whole_ns > 0 else None
