"""The data's path, top to bottom.

recording -> timeline -> signals -> diagnosis -> forecast -> report
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from fuelline import __version__
from fuelline.diagnose import cannot_tell, diagnose, judge_scrapes
from fuelline.fix.remedies import propose_settings
from fuelline.fix.telling import tell_fixes
from fuelline.ingest import (
    Hosts,
    RunTail,
    compact_recording,
    find_parts,
    find_sources,
    import_trace,
    is_trace,
    load_trace,
    read_fixes,
    read_last,
)
from fuelline.predict import answer, fit, seed_settings, value_remedies
from fuelline.report import (
    render_markdown,
    render_terminal,
    write_comparison,
    write_document,
    write_feed,
    write_forecasts,
)
from fuelline.report.perfetto import draw_findings, draw_recording, draw_trace, write_tracks
from fuelline.report.whole_file import write_whole
from fuelline.schema.errors import InputError, NotARecordingError, UsageError
from fuelline.schema.findings import Diagnosis, RunSummary
from fuelline.schema.names import encodable
from fuelline.schema.readings import Missing
from fuelline.schema.recording import MANIFEST_FILE, RUN_FILE, RunFacts
from fuelline.signals import (
    align_hosts,
    answer_feed,
    compare_ranks,
    find_reason,
    find_unseen,
    measure,
    measure_devices,
    measure_feed,
    view_host,
    why_no_steps,
)
from fuelline.signals.changes import compare_samples
from fuelline.signals.live import LiveRun, join_snapshots
from fuelline.signals.sampling import sample_recording, sample_trace
from fuelline.signals.stragglers import blame_root, measure_stragglers
from fuelline.signals.trace import is_scrape, measure_scrapes, measure_survey, survey_trace
from fuelline.timeline.tiles import cut_tiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from fuelline.report.perfetto.track import Track
    from fuelline.schema.comparison import RunComparison, RunSamples
    from fuelline.schema.facts import Culprit, Facts, SyncFacts
    from fuelline.schema.feeding import Feed, FeedAccount, FeedRequest
    from fuelline.schema.fixes import FixEvent
    from fuelline.schema.forecasts import ForecastReport, WhatIf
    from fuelline.schema.live import RunGrowth, Snapshot
    from fuelline.schema.readings import Signal
    from fuelline.schema.recording import Blindspot
    from fuelline.schema.trials import Setting
    from fuelline.signals import Comparison, HostView
    from fuelline.signals.trace import Survey
    from fuelline.timeline.tiles import Tiling
    from fuelline.timeline.trainer import Trainer

MOST_NAMED = 3
"""Hosts in one line of the report."""
MOST_COMPARED = 4
"""Ranks beside a late one whose steps are looked into: what it does differently shows by then."""


class Progress(Protocol):
    """Whom to tell how far a long read has come."""

    def expect(self, size_bytes: int) -> None:
        """How much there will be."""
        ...

    def advance(self, size_bytes: int) -> None:
        """So much more was read."""
        ...


def diagnose_run(run_dir: Path, price: float | None = None) -> Diagnosis:
    """Read a run, compacting it on the way if it has ended, and diagnose it."""
    diagnosis, fixes = _diagnose(run_dir, price), tell_fixes(_find_fixes(run_dir))
    settings = diagnosis.settings if fixes else []
    return msgspec.structs.replace(diagnosis, fixes=fixes, settings=settings)


def _find_fixes(run_dir: Path) -> list[FixEvent]:
    return [event for part in find_parts(run_dir) or [run_dir] for event in read_fixes(part)]


def _diagnose(run_dir: Path, price: float | None) -> Diagnosis:
    if is_trace(run_dir):
        return _diagnose_trace(run_dir, price)
    recordings = Hosts(run_dir)
    hosts = align_hosts([view_host(timeline) for timeline in recordings])
    comparison = compare_ranks(hosts)
    late = {culprit.rank for culprit in comparison.facts.culprits}
    trainer = _choose_trainer(hosts, late)
    summary = _summarise(hosts[0].run, run_dir)
    blindspots = [
        *_join_blindspots(hosts),
        *recordings.lost,
        *find_unseen(hosts, trainer),
    ]
    timeline = recordings.read(_host_of(hosts, trainer) if trainer is not None else 0)
    tiling = cut_tiles(timeline, trainer) if trainer is not None else None
    if trainer is None or tiling is None:
        devices = measure_devices(timeline).devices
        return cannot_tell(summary, blindspots, why_no_steps(hosts, trainer), price, devices)
    sync = _explain_lateness(recordings, hosts, comparison)
    facts = measure(timeline, trainer, tiling, sync)
    diagnosis = value_remedies(diagnose(facts, summary, blindspots, price), fit(facts))
    return msgspec.structs.replace(diagnosis, settings=propose_settings(facts))


def ask_run(run_dir: Path, question: WhatIf, price: float | None = None) -> ForecastReport:
    """What would be, by the pipeline model of the rank that a diagnosis would judge."""
    facts = measure_run(run_dir)
    fitted = facts if isinstance(facts, Missing) else fit(facts)
    return answer(fitted, question, price)


def measure_run(run_dir: Path) -> Facts | Missing:
    """The facts of the rank that a diagnosis would judge, or why there are none."""
    recordings = Hosts(run_dir)
    hosts = align_hosts([view_host(timeline) for timeline in recordings])
    comparison = compare_ranks(hosts)
    trainer = _choose_trainer(hosts, {culprit.rank for culprit in comparison.facts.culprits})
    timeline = recordings.read(_host_of(hosts, trainer) if trainer is not None else 0)
    tiling = cut_tiles(timeline, trainer) if trainer is not None else None
    if trainer is None or tiling is None:
        return Missing(reason=why_no_steps(hosts, trainer))
    return measure(timeline, trainer, tiling, comparison.facts)


def _join_blindspots(hosts: list[HostView]) -> list[Blindspot]:
    """What no host could see as it is; what only some could not, with their names."""
    seen_by: dict[Blindspot, list[str]] = {}
    for host in hosts:
        for spot in dict.fromkeys(host.blindspots):
            seen_by.setdefault(spot, []).append(host.run.run_id)
    return [
        spot
        if len(names) == len(hosts)
        else msgspec.structs.replace(spot, what=f"{spot.what} ({_list_some(names)})")
        for spot, names in seen_by.items()
    ]


def _list_some(names: list[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def import_files(
    paths: Sequence[Path], run_dir: Path, *, partial: bool, jobs: int | None, progress: Progress
) -> None:
    """Make a run of profilers' files: all of it or, on any error, nothing."""
    sources = find_sources(paths)
    progress.expect(sum(path.stat().st_size for path in sources))
    run = RunFacts(
        run_id=run_dir.name,
        command=["fuelline", "import", *(encodable(str(path)) for path in paths)],
        host=socket.gethostname(),
        started_wall_ns=time.time_ns(),
        started_ns=0,
        exit_code=0,
        fuelline_version=__version__,
    )
    import_trace(sources, run_dir, run, partial=partial, jobs=jobs, advance=progress.advance)


def _diagnose_trace(run_dir: Path, price: float | None) -> Diagnosis:
    """The same answer for an imported trace."""
    trace = load_trace(run_dir)
    if is_scrape(trace):
        summary = _summarise(trace.run, run_dir)
        return judge_scrapes(summary, measure_scrapes(trace), trace.facts.quality, price)
    return _diagnose_survey(survey_trace(trace), run_dir, price)


def _diagnose_survey(survey: Survey, run_dir: Path, price: float | None = None) -> Diagnosis:
    measured = measure_survey(survey)
    stragglers = measure_stragglers(survey.trace)
    facts = msgspec.structs.replace(measured.facts, stragglers=stragglers)
    diagnosis = diagnose(facts, _summarise(survey.trace.run, run_dir), [], price)
    collectives = blame_root(measured.collectives, stragglers)
    return msgspec.structs.replace(diagnosis, trace=measured.answer, collectives=collectives)


def _choose_trainer(hosts: list[HostView], late: set[int]) -> Trainer | None:
    """The rank to judge: the first that makes nobody wait."""
    everyone = [trainer for host in hosts for trainer in host.trainers]
    everyone.sort(key=lambda trainer: (trainer.rank in late, trainer.rank or 0))
    return everyone[0] if everyone else None


def _host_of(hosts: list[HostView], trainer: Trainer) -> int:
    return next(number for number, host in enumerate(hosts) if trainer in host.trainers)


def _explain_lateness(
    recordings: Hosts, hosts: list[HostView], comparison: Comparison
) -> SyncFacts:
    """Give each late rank the part of a step that it is late by, and its own facts."""
    facts = comparison.facts
    explained = [_explain(recordings, hosts, comparison, culprit) for culprit in facts.culprits]
    return msgspec.structs.replace(facts, culprits=explained)


def _explain(
    recordings: Hosts, hosts: list[HostView], comparison: Comparison, culprit: Culprit
) -> Culprit:
    late = {each.rank for each in comparison.facts.culprits} - {culprit.rank}
    tilings: dict[int, Tiling] = {}
    for number, host in enumerate(hosts):
        for trainer in host.trainers:
            is_wanted = trainer.rank == culprit.rank or len(tilings) < MOST_COMPARED
            if not is_wanted or trainer.rank is None or trainer.rank in late:
                continue
            timeline = recordings.read(number)
            tiling = cut_tiles(timeline, trainer)
            if tiling is None:
                continue
            tilings[trainer.rank] = tiling.shifted(host.offset.shift_ns)
            if trainer.rank == culprit.rank:
                culprit = msgspec.structs.replace(culprit, own=measure(timeline, trainer, tiling))
    return find_reason(comparison, tilings, culprit)


def judge_feed(run_dir: Path, accounts: list[FeedAccount], request: FeedRequest) -> Feed:
    """What a driven loader can give, whom that would feed, and what keeps it from giving more."""
    diagnosis = diagnose_run(run_dir)
    emulated = request.step_seconds is not None or request.samples_per_s is not None
    rates = measure_feed(accounts, emulated=emulated)
    return answer_feed(accounts, rates, request, diagnosis)


def show_feed(feed: Feed, stream: TextIO) -> None:
    """The same for people."""
    render_terminal(write_feed(feed), stream)


def compact_run(run_dir: Path) -> None:
    """Turn the raw files of an ended run into tables; OSError if there is no room."""
    compact_recording(run_dir)


def diagnose_as_json(run_dir: Path, price: float | None = None) -> str:
    """The contract of `diagnose --json`."""
    return msgspec.json.format(msgspec.json.encode(diagnose_run(run_dir, price))).decode()


def show_report(run_dir: Path, *, price: float | None, stream: TextIO) -> None:
    """The diagnosis for people."""
    render_terminal(write_document(diagnose_run(run_dir, price)), stream)


def compare_runs(
    before: tuple[Path, str],
    after: tuple[Path, str],
    *,
    threshold: float | None,
    shape: Literal["json", "markdown", "report"],
    stream: TextIO,
) -> bool:
    """Write what changed between two runs or trace files, each with its name; is it over?"""
    with ExitStack() as stack:
        old = (_as_run(before[0], stack), before[1])
        new = (_as_run(after[0], stack), after[1])
        comparison = _compare(old, new, threshold)
    if shape == "json":
        stream.write(msgspec.json.format(msgspec.json.encode(comparison)).decode() + "\n")
    elif shape == "markdown":
        stream.write(render_markdown(write_comparison(comparison)))
    else:
        render_terminal(write_comparison(comparison), stream)
    return comparison.is_over


def _as_run(path: Path, stack: ExitStack) -> Path:
    """A run's folder; a trace file is imported into one that lasts as long as the comparison."""
    if not path.is_file():
        return path
    run_dir = Path(stack.enter_context(TemporaryDirectory())) / "run"
    import_files([path], run_dir, partial=False, jobs=None, progress=_Untold())
    return run_dir


class _Untold:
    """Progress that nobody hears of."""

    def expect(self, size_bytes: int) -> None:
        """See `Progress`."""

    def advance(self, size_bytes: int) -> None:
        """See `Progress`."""


def _compare(
    before: tuple[Path, str], after: tuple[Path, str], threshold: float | None
) -> RunComparison:
    if is_trace(before[0]) != is_trace(after[0]):
        raise UsageError(
            "One of these runs was recorded, the other imported. A recorded budget is the "
            "trainer's time, an imported ledger the device's, so their parts are not the same "
            "things. Nothing was compared. Compare two of a kind."
        )
    return compare_samples(_sample(*before), _sample(*after), threshold)


def _sample(run_dir: Path, label: str) -> RunSamples:
    """A run step by step."""
    if is_trace(run_dir):
        survey = survey_trace(load_trace(run_dir))
        if not survey.accounts:
            raise InputError(
                f"{label} holds no device activity, so there is no ledger. Nothing was compared. "
                "`fuelline diagnose` shows what it holds."
            )
        return sample_trace(survey, _diagnose_survey(survey, run_dir), label)
    diagnosis = diagnose_run(run_dir)
    tiling = _tile_judged(run_dir)
    if tiling is None:
        raise InputError(
            f"{label} has no steps: {diagnosis.verdict.sentence} Nothing was compared. Record at "
            "least two steps."
        )
    return sample_recording(tiling, diagnosis, label)


def _tile_judged(run_dir: Path) -> Tiling | None:
    """The tiles of the rank that the diagnosis judges."""
    recordings = Hosts(run_dir)
    hosts = align_hosts([view_host(timeline) for timeline in recordings])
    late = {culprit.rank for culprit in compare_ranks(hosts).facts.culprits}
    trainer = _choose_trainer(hosts, late)
    if trainer is None:
        return None
    return cut_tiles(recordings.read(_host_of(hosts, trainer)), trainer)


def export_perfetto(run_dir: Path, path: Path) -> int:
    """Write a run for Perfetto, all of it or nothing; how many events it has."""
    diagnosis = diagnose_run(run_dir)
    tracks = _draw_trace(run_dir) if is_trace(run_dir) else _draw_recording(run_dir)
    window = diagnosis.window
    ends = None if window is None else (int(window.before_seconds * 1e9), int(window.seconds * 1e9))
    span = None if ends is None else (ends[0], ends[0] + ends[1])
    title = f"fuelline {__version__}: {diagnosis.run.run_id}"
    with write_whole(path) as stream:
        return write_tracks(chain(draw_findings(diagnosis, span), tracks), stream, title)


def _draw_trace(run_dir: Path) -> Iterator[Track]:
    trace = load_trace(run_dir)
    if is_scrape(trace):
        return draw_trace(trace, {}, {})
    survey = survey_trace(trace)
    parts = {(each.ledger.rank, each.ledger.device): each.all_pieces() for each in survey.accounts}
    steps = {rank: found.spans for rank, found in survey.steps.items() if found.spans.height}
    return draw_trace(trace, parts, steps)


def _draw_recording(run_dir: Path) -> Iterator[Track]:
    recordings = Hosts(run_dir)
    hosts = align_hosts([view_host(timeline) for timeline in recordings])
    origin_ns = min(host.run.started_ns + host.offset.shift_ns for host in hosts)
    for number, host in enumerate(hosts):
        label = f"{host.run.host}: " if len(hosts) > 1 else ""
        shift_ns = host.offset.shift_ns - origin_ns
        yield from draw_recording(recordings.read(number), host.trainers, shift_ns, label)


def seed_run(run_dir: Path, cores: float) -> list[tuple[tuple[Setting, ...], Signal]]:
    """Loader settings worth a trial, with what the model of a recording predicts for them."""
    facts = measure_run(run_dir)
    return seed_settings(facts if isinstance(facts, Missing) else fit(facts), cores)


def ask_as_json(run_dir: Path, question: WhatIf, price: float | None = None) -> str:
    """The contract of `whatif --json`."""
    return msgspec.json.format(msgspec.json.encode(ask_run(run_dir, question, price))).decode()


def show_forecasts(run_dir: Path, question: WhatIf, *, price: float | None, stream: TextIO) -> None:
    """The same for people."""
    report = ask_run(run_dir, question, price)
    render_terminal(write_forecasts(report, encodable(str(run_dir))), stream)


class Watch:
    """A running job from one look to the next, over all its hosts."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._hosts: dict[Path, _WatchedHost] = {}
        self._meet_hosts()

    def look(self) -> None:
        """Take in what is new."""
        for host in self._hosts.values():
            host.look()
        self._meet_hosts()

    def look_at_all(self) -> None:
        """Take in all that was written before the first look, too."""
        while not all(host.is_counted for host in self._hosts.values()):
            self.look()

    def snapshot(self, *, workers: bool) -> Snapshot:
        """What is known by now."""
        hosts = [host for _, host in sorted(self._hosts.items())]
        return join_snapshots([host.live.snapshot(workers=workers) for host in hosts])

    def _meet_hosts(self) -> None:
        """Hosts of a run may join late; a part that has no run yet is waited for."""
        parts = find_parts(self.run_dir) or [self.run_dir]
        for part in set(parts) - self._hosts.keys():
            if len(parts) == 1 or (part / RUN_FILE).exists() or (part / MANIFEST_FILE).exists():
                self._hosts[part] = _WatchedHost(part)
        if not self._hosts:
            raise NotARecordingError(
                f"{self.run_dir} has {len(parts)} parts, and none is a recording yet. Nothing was "
                "read. Try again when the job has started on one of its hosts."
            )


class _WatchedHost:
    """One host's part of a running job: growth of its folder -> state -> snapshot."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._tail: RunTail | None = None
        growth = self._grow()
        self.live = LiveRun(growth)
        self.is_counted = growth.is_counted

    def look(self) -> None:
        """Take in what is new."""
        if self._tail is not None:
            was_live = self._tail
            growth = self._grow()
            if self._tail is was_live:
                self.live.add(growth)
            else:  # compacted since: the tables have the end that we may have missed
                self.live = LiveRun(growth)
            self.is_counted = growth.is_counted

    def _grow(self) -> RunGrowth:
        if (self.run_dir / MANIFEST_FILE).exists():
            self._tail = None
            return read_last(self.run_dir)
        self._tail = self._tail or RunTail(self.run_dir)
        return self._tail.look()


def _summarise(run: RunFacts, run_dir: Path) -> RunSummary:
    return RunSummary(
        run_id=run.run_id,
        command=run.command,
        host=run.host,
        exit_code=run.exit_code,
        seconds=None if run.ended_ns is None else (run.ended_ns - run.started_ns) / 1e9,
        path=encodable(str(run_dir)),
    )
