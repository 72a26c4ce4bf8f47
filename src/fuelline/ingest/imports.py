"""Files in, an imported run out: ranks in parallel on the available cores, all or nothing."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import shutil
import socket
import stat
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fuelline.ingest.formats import find_importer, recognise
from fuelline.ingest.outsiders import list_lost
from fuelline.ingest.recording.folder import write_file
from fuelline.ingest.shapes_beside import add_shapes, is_beside, pair
from fuelline.ingest.trace_run import SourceWriter, WrittenPart, part_stem
from fuelline.schema.errors import FuellineError, InputError
from fuelline.schema.files import make_draft_folder, make_folder
from fuelline.schema.names import encodable
from fuelline.schema.redaction import redact
from fuelline.schema.run.recording import MANIFEST_FILE, Manifest
from fuelline.schema.run.trace import Quality, TraceFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.sharedctypes import Synchronized

    from fuelline.ingest.importer import Imported
    from fuelline.schema.run.recording import RunFacts, TableFacts
    from fuelline.schema.run.trace import RankFacts

    Spread = Callable[[Callable[..., Any], list[tuple[Any, ...]]], Iterator[tuple[int, Any]]]
    """Runs a function elsewhere with each of these arguments; results come as they are ready."""

_PARALLEL_BYTES = 4 * 1024 * 1024
"""Less than this is imported sooner than a second process starts."""
_SIDE_BY_SIDE = 2
"""Processes, unless the user wants more: each takes up to 140 MB (bench/trace_import.py), and what
all of them may take together does not depend on the machine."""
_MOST_DATA_BYTES = 200 * 10**6
"""That the kernel gives each of them."""
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class _Read:
    """What one file gave."""

    path: Path
    imported: Imported
    parts: list[WrittenPart]
    bounds_ns: list[int]


def find_sources(paths: Sequence[Path]) -> list[Path]:
    """The files to import: those named, and of folders all that are in a format we know."""
    found: list[Path] = []
    beside: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside, links = _list_files(path)
            beside += [each for each in inside if is_beside(each)]
            known = [each for each in inside if find_importer(each) is not None]
            if not known:
                hint = f" {links} links are not followed: name the files." if links else ""
                raise InputError(
                    f"{path} holds {len(inside)} files, and none is a trace that can be imported. "
                    f"Nothing was imported.{hint} docs/import.md lists the formats."
                )
            found += known
        else:
            beside += _take_beside(path)
            if path not in beside:
                recognise(path)
                found.append(path)
    if not found and beside:
        recognise(beside[0])  # which says what it is and what to import instead
    return list(dict.fromkeys([*found, *beside]))


def _take_beside(path: Path) -> list[Path]:
    return [path] if is_beside(path) else []


def _list_files(folder: Path) -> tuple[list[Path], int]:
    """The regular files in a folder and below, and how many links there are, which may lead out."""
    found: list[Path] = []
    links = 0
    for here, _, names in os.walk(folder):
        for path in (Path(here, name) for name in names):
            mode = path.lstat().st_mode
            links += stat.S_ISLNK(mode)
            if stat.S_ISREG(mode):
                found.append(path)
    return sorted(found, key=_natural), links


def _natural(path: Path) -> list[tuple[int, str]]:
    """`worker2` before `worker10`: files that do not name their rank are numbered in this order."""
    words = re.split(r"(\d+)", str(path))
    return [(int(word), "") if word.isdecimal() else (0, word) for word in words]


def import_trace(
    sources: Sequence[Path],
    run_dir: Path,
    run: RunFacts,
    *,
    partial: bool = False,
    jobs: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
    splits: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    spread: Spread | None = None,
) -> list[Path]:
    """Make `run_dir` from these files, or raise and leave nothing behind.

    Files that do not overlap in time are no ranks of one job, nor are those of process groups of
    other sizes: they become runs of their own beside `run_dir`, the earliest first, if it `splits`;
    otherwise they are refused. Why they are several is said by `tell`.
    """
    _refuse_existing(run_dir)
    draft = Path(make_draft_folder(run_dir.parent, run_dir.name))
    try:
        traces = [path for path in sources if not is_beside(path)]
        if spread is None:
            results = _read_all(traces, draft, partial=partial, jobs=jobs, advance=advance)
        else:
            results = _read_spread(spread, traces, draft, partial=partial, advance=advance)
        results = _with_shapes(results, set(sources) - set(traces), draft, advance)
        times = [job for kind in _part(results, _name_format) for job in _split(kind)]
        groups = [job for group in times for job in _split_jobs(group)]
        if len(groups) > 1:
            why = _tell_apart(groups, len(times), len(_part(results, _name_format)))
            if not splits:
                raise InputError(
                    f"{why} Nothing was imported. Import each job's files by themselves."
                )
            tell(why)
        folders = [_with_number(run_dir, number) for number in range(1, len(groups) + 1)]
        for group, folder in zip(groups, folders, strict=True):
            _refuse_existing(folder)
            _finish(group, draft, folder, run)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folders


def _with_shapes(
    results: list[_Read], beside: set[Path], draft: Path, advance: Callable[[int], None]
) -> list[_Read]:
    """The same with what execution traces tell of their operators."""
    ranks = [(read.path, read.imported.ranks[0].rank) for read in results]
    for path, place in pair(sorted(beside), ranks).items():
        read = results[place]
        imported, parts = add_shapes(path, read.imported, read.parts, draft, advance)
        results[place] = replace(read, imported=imported, parts=parts)
    return results


def _refuse_existing(run_dir: Path) -> None:
    if run_dir.exists():
        raise InputError(
            f"{run_dir} already exists. Nothing was imported. Choose another folder with -o, or "
            "remove it first."
        )


def _with_number(run_dir: Path, number: int) -> Path:
    return run_dir if number == 1 else run_dir.with_name(f"{run_dir.name}-{number}")


def _finish(group: list[_Read], draft: Path, folder: Path, run: RunFacts) -> None:
    """Make a run of what files gave: below the draft first, so that it appears whole."""
    whole = draft / "whole"
    make_folder(whole)
    run = msgspec.structs.replace(run, run_id=encodable(folder.name))
    manifest = _redacted(msgspec.to_builtins(_settle(group, draft, whole, run)))
    write_file(whole / MANIFEST_FILE, msgspec.json.format(msgspec.json.encode(manifest)))
    whole.replace(folder)


_WALL_NS = 10**18
"""On a wall clock this was 2001; clocks that begin with a host or a program are below it."""
_SKEW_NS = 60 * 10**9
"""Between hosts: NTP keeps them within a second, so a minute apart is another time."""


@dataclass(frozen=True)
class _Window:
    """When what is in a file happened."""

    read: _Read
    first_ns: int
    last_ns: int
    host: str

    @property
    def is_on_wall_clock(self) -> bool:
        return self.first_ns > _WALL_NS


def _split(results: list[_Read]) -> list[list[_Read]]:
    """Files that overlap in time together, the earliest first; all, if clocks cannot be compared.

    Times of a clock that began with the host can be compared on that host only. Of files whose
    clocks cannot be compared, those that claim the same rank are no ranks of one job.
    """
    windows = [window for read in results if (window := _find_window(read)) is not None]
    hosts = {window.host for window in windows}
    is_one_host = len(hosts) == 1 and hosts != {""}
    timed = [window for window in windows if is_one_host or window.is_on_wall_clock]
    if len(timed) < len(results):
        kinds = _part(results, _name_chips)
        if len(kinds) > 1:
            return [group for kind in kinds for group in _split(kind)]
        if not _has_clash(results):
            return [results]
        known = {id(window.read) for window in timed}
        others = [read for read in results if id(read) not in known]
        apart = [[read] for read in others] if _has_clash(others) else [others]
        return [*_split([window.read for window in timed]), *apart] if timed else apart
    slack_ns = 0 if is_one_host else _SKEW_NS
    groups: list[list[_Window]] = []
    last_ns = 0
    for window in sorted(windows, key=lambda window: window.first_ns):
        if groups and window.first_ns <= last_ns + slack_ns:
            groups[-1].append(window)
        else:
            groups.append([window])
            last_ns = window.last_ns
        last_ns = max(last_ns, window.last_ns)
    order = {id(read): place for place, read in enumerate(results)}
    return [
        sorted((window.read for window in group), key=lambda read: order[id(read)])
        for group in groups
    ]


def _name_format(read: _Read) -> str:
    """Nobody records one job with two profilers at once."""
    return read.imported.source.format


def _name_chips(read: _Read) -> list[str]:
    chips = (chip for rank in read.imported.ranks for chip in rank.chips)
    return sorted({f"{chip.name} {chip.sm_count}" for chip in chips})


def _find_window(read: _Read) -> _Window | None:
    """None where a file does not say when."""
    ranks = read.imported.ranks
    if not read.bounds_ns or len({rank.origin_ns for rank in ranks}) != 1:
        return None
    origin_ns = ranks[0].origin_ns
    first_ns, last_ns = min(read.bounds_ns) + origin_ns, max(read.bounds_ns) + origin_ns
    return _Window(read, first_ns, last_ns, ranks[0].host)


def _split_jobs(group: list[_Read]) -> list[list[_Read]]:
    """Files of one time: those of one process group together.

    All ranks of a job say the same size of it. Where ranks occur twice, as in two replicas side by
    side, folders may tell which belong together.
    """
    sizes = [_list_sizes(read) for read in group]
    if all(len(each) == 1 for each in sizes) and len(set.union(*sizes)) > 1:
        return [job for part in _part(group, _list_sizes) for job in _split_jobs(part)]
    folders = _part(group, lambda read: read.path.parent)
    if len(folders) > 1 and _has_clash(group) and not any(map(_has_clash, folders)):
        return folders
    return [group]


def _part(group: list[_Read], key: Callable[[_Read], object]) -> list[list[_Read]]:
    found: dict[str, list[_Read]] = {}
    for read in group:
        found.setdefault(str(key(read)), []).append(read)
    return list(found.values())


def _list_sizes(read: _Read) -> set[int]:
    """Of the process group, as its ranks say."""
    return {rank.world_size for rank in read.imported.ranks if rank.world_size is not None}


def _has_clash(group: list[_Read]) -> bool:
    ranks = [rank.rank for read in group for rank in read.imported.ranks]
    return len(set(ranks)) < len(ranks)


def _tell_apart(groups: list[list[_Read]], times: int, kinds: int) -> str:
    files = sum(len(group) for group in groups)
    if kinds > 1:
        return f"These {files} files are of {len(groups)} jobs: they have {kinds} formats."
    if len(groups) > times:
        return (
            f"These {files} files are of {len(groups)} jobs: their process groups have other "
            "sizes, or the same ranks occur in several folders."
        )
    return (
        f"These {files} files are of {len(groups)} different times that do not overlap, so they "
        "are not ranks of one job."
    )


def _redacted(value: Any) -> Any:
    """Facts without secrets: of a trace's own words we know neither where they come from nor why.

    File names, hosts, settings and the profiler's messages; names of events are `NameBook`'s.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(each) for each in value]
    if isinstance(value, dict):
        return {redact(name): _redacted(each) for name, each in value.items()}
    return value


def _read_all(
    sources: Sequence[Path],
    draft: Path,
    *,
    partial: bool,
    jobs: int | None,
    advance: Callable[[int], None],
) -> list[_Read]:
    """Every source by itself; the order of the results is that of the sources."""
    cores = len(os.sched_getaffinity(0))
    workers = min(min(cores, _SIDE_BY_SIDE) if jobs is None else jobs, len(sources))
    size = sum(path.stat().st_size for path in sources)
    if workers < 2 or size < _PARALLEL_BYTES:
        return [
            _read_one(path, number, draft, partial=partial, advance=advance)
            for number, path in enumerate(sources)
        ]
    context = multiprocessing.get_context("spawn")  # polars does not survive a fork
    counter = context.Value("q", 0)
    with ProcessPoolExecutor(workers, context, _count_into, (counter,)) as pool:
        waiting = [
            pool.submit(_read_apart, path, number, draft, partial)
            for number, path in enumerate(sources)
        ]
        try:
            _watch(waiting, counter, advance)
            return [future.result() for future in waiting]
        except BrokenProcessPool:
            raise InputError(
                f"a process that read one of these {len(sources)} files crashed: the file is "
                "damaged, or asks for too much memory. Nothing was imported. With `--jobs 1` they "
                "are read one after the other, with more memory for each."
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _read_spread(
    spread: Spread,
    sources: Sequence[Path],
    draft: Path,
    *,
    partial: bool,
    advance: Callable[[int], None],
) -> list[_Read]:
    """The same on other hosts, whose parts have to be here in the end."""
    there = draft.resolve()
    tasks = [(path.resolve(), number, there, partial) for number, path in enumerate(sources)]
    found: dict[int, _Read] = {}
    for number, read in spread(_read_elsewhere, tasks):
        lost = [part for part in read.parts if not (draft / part.draft_name).exists()]
        if lost:
            raise InputError(
                f"{sources[number]} was read on a host whose {there} is not the one here. Nothing "
                "was imported. Choose a folder with -o that all hosts share."
            )
        found[number] = replace(read, path=sources[number])
        advance(sources[number].stat().st_size)
    return [found[number] for number in range(len(sources))]


def _read_elsewhere(path: Path, number: int, draft: Path, partial: bool) -> _Read | FuellineError:  # noqa: FBT001 - as above
    """An error is a result as well: what carries it here would add to its words."""
    if not path.exists() or not draft.exists():
        missing = path if not path.exists() else draft
        return InputError(
            f"{missing} is not there on {socket.gethostname()}, which was to read it. Nothing was "
            "imported. Traces and the new run (-o) have to be in folders that all hosts share."
        )
    try:
        return _read_one(path, number, draft, partial=partial, advance=lambda _: None)
    except FuellineError as error:
        return error


def _watch(waiting: list, counter: Synchronized[int], advance: Callable[[int], None]) -> None:  # type: ignore[type-arg]
    """Tell how many bytes all processes have read, until they are done or one fails."""
    reported = 0
    left = set(waiting)
    while left:
        done, left = wait(left, timeout=_LOOK_SECONDS)
        read = counter.value
        advance(read - reported)
        reported = read
        if any(future.exception() is not None for future in done):
            return


_counter: list[Synchronized[int]] = []
"""In a process of the pool: where it counts the bytes that it has read."""


def _count_into(counter: Synchronized[int]) -> None:
    _counter[:] = [counter]
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most == resource.RLIM_INFINITY or most > _MOST_DATA_BYTES:
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_DATA_BYTES, most))


def _count(size_bytes: int) -> None:
    with _counter[0].get_lock():
        _counter[0].value += size_bytes


def _read_apart(
    path: Path,
    number: int,
    draft: Path,
    partial: bool,  # noqa: FBT001 - pickled by position
) -> _Read:
    return _read_one(path, number, draft, partial=partial, advance=_count)


def _read_one(
    path: Path, number: int, draft: Path, *, partial: bool, advance: Callable[[int], None]
) -> _Read:
    writer = SourceWriter(draft, number)
    read_bytes = 0

    def count(size_bytes: int) -> None:
        nonlocal read_bytes
        read_bytes += size_bytes
        advance(size_bytes)

    try:
        result = recognise(path).read(path, number, writer, partial=partial, advance=count)
    except OSError as error:
        raise InputError(
            f"{path}, after byte {read_bytes}: {error.strerror}. Nothing was imported. Check the "
            "disks and try again."
        ) from None
    return _Read(path, result, writer.parts, writer.bounds_ns)


def _settle(results: list[_Read], draft: Path, whole: Path, run: RunFacts) -> Manifest:
    """Give every rank its number, every part its name in `whole`, and write down what there is."""
    claimed = [rank for read in results for rank in read.imported.ranks]
    clash = len({rank.rank for rank in claimed}) < len(claimed)
    ranks: list[RankFacts] = []
    tables: dict[str, TableFacts] = {}
    sources = []
    for read in results:
        result, parts = read.imported, read.parts
        own = _number_ranks(result.ranks, len(ranks) if clash else None)
        # An importer of one rank may have learnt its number only after it wrote the tables.
        words = sorted({part.rank for part in parts})
        final = dict(zip(words, (rank.rank for rank in own), strict=False))
        if len(own) > 1:
            final = {old.rank: new.rank for old, new in zip(result.ranks, own, strict=True)}
        for part in parts:
            stem = part_stem(part.table, final[part.rank], part.number)
            (draft / part.draft_name).rename(whole / f"{stem}.parquet")
            tables[stem] = part.facts
        ranks += own
        sources.append(msgspec.structs.replace(result.source, ranks=[each.rank for each in own]))
    quality = [each for read in results for each in read.imported.quality]
    facts = TraceFacts(
        sources=sources,
        ranks=sorted(ranks, key=lambda rank: rank.rank),
        quality=[*quality, *(_CLASH if clash else ()), *_tell_lost()],
    )
    bounds = [bound for read in results for bound in read.bounds_ns]
    length_ns = max(bounds, default=0) - min(bounds, default=0)
    run = msgspec.structs.replace(run, ended_ns=run.started_ns + length_ns)
    return Manifest(run=run, tables=tables, kind="trace", trace=facts)


def _tell_lost() -> list[Quality]:
    """Importers of other packages that failed when a file was not known to ours."""
    return [
        Quality(problem=f"{spot.what}: {spot.why}", forbids=spot.forbids, code="plug-in")
        for spot in list_lost()
    ]


def _number_ranks(ranks: list[RankFacts], first: int | None) -> list[RankFacts]:
    if first is None:
        return ranks
    return [
        msgspec.structs.replace(rank, rank=first + place, is_rank_known=False)
        for place, rank in enumerate(ranks)
    ]


_CLASH = (
    Quality(
        code="same-rank",
        problem="several files claim to be the same rank; they are numbered in their order",
        forbids="which rank waits for which, unless the files are one step of one job",
    ),
)
