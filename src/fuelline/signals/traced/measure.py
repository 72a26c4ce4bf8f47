"""An imported trace from tables to signals, in the order of the data; one rank's host at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.diagnosis.devices import DeviceFacts, Rung
from fuelline.schema.diagnosis.facts import Facts, TraceSignals
from fuelline.schema.diagnosis.findings import BudgetPart, Collectives, Window
from fuelline.schema.parts import LEDGER_PARTS
from fuelline.schema.readings import Missing, Reading, Signal, value_of
from fuelline.schema.run.trace import DeviceKind, TraceAnswer
from fuelline.signals.traced.blame import chain_blame, find_culprits
from fuelline.signals.traced.host import find_during
from fuelline.signals.traced.idleness import (
    find_gap_causes,
    find_largest,
    find_preparing,
    measure_host_work,
)
from fuelline.signals.traced.kernels.measured import rank_kernels
from fuelline.signals.traced.kernels.names import COMMUNICATION
from fuelline.signals.traced.ladder import climb
from fuelline.signals.traced.quality import BLINDING, judge_quality
from fuelline.signals.traced.software import describe_software, measure_copies
from fuelline.signals.traced.stacks import find_frames
from fuelline.signals.traced.survey import survey_trace
from fuelline.timeline.intervals import total_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.schema.diagnosis.findings import LateRank
    from fuelline.schema.parts import IdleCause, LedgerPart
    from fuelline.schema.run.trace import (
        GapCause,
        HostFrame,
        Quality,
        TraceRung,
    )
    from fuelline.signals.traced.collectives import TracedCollectives
    from fuelline.signals.traced.host import HostActivity
    from fuelline.signals.traced.idleness import HostWork
    from fuelline.signals.traced.kernels.lane import DeviceLane
    from fuelline.signals.traced.ledger import Account
    from fuelline.signals.traced.steps import TracedSteps
    from fuelline.signals.traced.survey import Survey
    from fuelline.timeline.trace import Trace

_WORTH_NAMING = 0.01
"""Idle time of a device below this share of wall is not looked up event by event."""
_OF_HOST: tuple[LedgerPart, ...] = ("launch-bound", "data wait", "host code", "allocation")
_IN_PROCESS = "SingleProcess"


@dataclass
class _Findings:
    """What is found rank by rank."""

    accounts: list[Account] = field(default_factory=list)
    devices: list[DeviceFacts] = field(default_factory=list)
    gaps: list[GapCause] = field(default_factory=list)
    work: list[HostWork] = field(default_factory=list)
    during: dict[int, dict[IdleCause, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class MeasuredTrace:
    """Facts for the rules, and what the report shows beside them."""

    facts: Facts
    answer: TraceAnswer
    collectives: Collectives


def measure_trace(trace: Trace) -> MeasuredTrace:
    """Everything that a trace shows."""
    return measure_survey(survey_trace(trace))


def measure_survey(survey: Survey) -> MeasuredTrace:
    """The same after a first look."""
    trace = survey.trace
    lanes, hosts, matched = survey.lanes, survey.hosts, survey.matched
    found = _Findings(accounts=survey.accounts)
    steps = survey.steps[lanes[0].rank]
    for account in survey.accounts:
        rank = account.ledger.rank
        _describe(trace, survey.lane_of(account), hosts[rank], account, found)
    quality = judge_quality(trace.facts, lanes, hosts, matched, steps=steps, gaps=found.gaps)
    found.devices = [_blinded(device, quality) for device in found.devices]
    first = {account.ledger.rank: account for account in reversed(found.accounts)}
    culprits = find_culprits(matched, first)
    kernels, classes = rank_kernels(trace, lanes)
    answer = TraceAnswer(
        formats=sorted({source.format for source in trace.facts.sources}),
        ledgers=[account.ledger for account in found.accounts],
        gaps=sorted(found.gaps, key=lambda gap: (-gap.seconds, gap.rank, gap.device)),
        kernels=kernels,
        kernel_classes=classes,
        steps_from=steps.origin,
        step_name=steps.name,
        clocks=matched.clocks,
        blame=chain_blame(culprits, found.during),
        communication=_libraries(lanes),
    )
    is_marked = steps.marked_ns is not None
    signals = _signals(found, hosts, lanes, culprits, quality, is_marked=is_marked)
    signals = msgspec.structs.replace(
        signals,
        software=describe_software(trace, lanes, hosts),
        copies=measure_copies(trace, lanes),
    )
    return MeasuredTrace(
        _facts(found, steps, signals), answer, _collectives(found, matched, culprits, lanes)
    )


def _blinded(device: DeviceFacts, quality: Sequence[Quality]) -> DeviceFacts:
    """A device whose trace lost kernels has no ladder: every rung would be too low."""
    blind = (q for q in quality if q.code in BLINDING and (not q.ranks or device.rank in q.ranks))
    why = next((each.problem for each in blind), None)
    if why is None:
        return device
    rungs = [Rung(rung=rung.rung, share=Missing(reason=why)) for rung in device.rungs]
    return msgspec.structs.replace(
        device,
        rungs=rungs,
        ladder=dict.fromkeys(device.ladder),
        utilisation=Missing(reason=why),
        occupancy=Missing(reason=why),
    )


def _describe(
    trace: Trace,
    lane: DeviceLane,
    host: HostActivity,
    account: Account,
    found: _Findings,
) -> None:
    """One device: its ladder, and its idle gaps with their causes."""
    chips = {chip.device: chip for chip in lane.facts.chips}
    ledger = account.ledger
    device = ledger.device
    rungs = climb(trace, account, chips.get(device), len(lane.devices))
    shares = {rung.rung: rung.share for rung in rungs}
    found.devices.append(
        DeviceFacts(
            device=f"gpu{device}",
            name=chips[device].name if device in chips else "",
            seconds=ledger.wall_ns / 1e9,
            ladder={name: value_of(share) for name, share in shares.items()},
            rungs=rungs,
            rank=lane.rank,
            ledger=ledger.shares(),
            utilisation=shares["reported utilisation"],
            occupancy=shares["estimated occupancy"],
        )
    )
    idle = account.idle
    worth = total_ns(idle) >= _WORTH_NAMING * account.wall_ns
    during = find_during(trace, lane.rank, host, idle) if worth else {}
    has_stacks = worth and host.has_stacks
    frames = find_frames(trace, lane.rank, host.threads, idle) if has_stacks else {}
    found.during.setdefault(lane.rank, during)
    found.gaps += find_gap_causes(account, during, frames)
    found.work.append(measure_host_work(account, frames))


def _libraries(lanes: Sequence[DeviceLane]) -> list[str]:
    names = {
        name
        for lane in lanes
        for name in lane.events["library"].filter(lane.events["family"] == COMMUNICATION).unique()
        if name is not None
    }
    amd = any("AMD" in chip.name for lane in lanes for chip in lane.facts.chips)
    return sorted("RCCL" if amd and name == "NCCL" else name for name in names)


def _collectives(
    found: _Findings,
    matched: TracedCollectives,
    culprits: list[LateRank],
    lanes: Sequence[DeviceLane],
) -> Collectives:
    if len(lanes) < 2 or not matched.count:
        return Collectives(ranks=len(lanes))
    wall = sum(account.ledger.wall_ns for account in found.accounts)
    return Collectives(
        ranks=len(lanes),
        wait_share=int(matched.frame["wait_ns"].sum()) / wall,
        exchange_share=int(matched.frame["shortest_ns"].sum()) / wall,
        culprits=culprits,
    )


def _facts(found: _Findings, steps: TracedSteps, signals: TraceSignals) -> Facts:
    accounts = found.accounts
    wall = sum(account.wall_ns for account in accounts)
    budget = [
        BudgetPart(part=part, seconds=spent / 1e9 / len(accounts), share=spent / wall)
        for part in LEDGER_PARTS
        if wall and (spent := sum(account.parts_ns[part] for account in accounts))
    ]
    seconds = wall / 1e9 / len(accounts) if accounts else 0.0
    return Facts(
        window=Window(
            seconds=seconds,
            before_seconds=_mean([each.window_ns[0] - each.ledger.start_ns for each in accounts]),
            after_seconds=_mean([_end_ns(each) - each.window_ns[1] for each in accounts]),
        ),
        steps=steps.stats(),
        budget=budget,
        devices=found.devices,
        trace=signals,
    )


def _find_longest(gaps: Sequence[GapCause]) -> float:
    """Of the stretches of idle time that a host is to blame for, in seconds."""
    host = [gap.longest_seconds for gap in gaps if gap.part in _OF_HOST]
    return max(host, default=0.0)


def _end_ns(account: Account) -> int:
    """Of a device's last event."""
    return account.ledger.start_ns + account.ledger.wall_ns


def _mean(cut_ns: Sequence[int]) -> float:
    """Seconds that were cut off, over all devices."""
    return sum(max(0, each) for each in cut_ns) / 1e9 / max(1, len(cut_ns))


def _signals(
    found: _Findings,
    hosts: Mapping[int, HostActivity],
    lanes: Sequence[DeviceLane],
    culprits: list[LateRank],
    quality: list[Quality],
    *,
    is_marked: bool,
) -> TraceSignals:
    accounts = found.accounts
    ledgers = [account.ledger for account in accounts]
    wall = sum(account.wall_ns for account in accounts)
    blind = [each for each in quality if each.code in BLINDING]
    doubt = "; ".join(each.problem for each in blind)
    if not wall:
        doubt = doubt or "no device activity was recorded"

    def part(name: LedgerPart) -> Signal:
        if not wall:
            return Missing(reason=doubt)
        return _share(sum(account.parts_ns[name] for account in accounts) / wall, f"window.{name}")

    def idle(name: LedgerPart) -> Signal:
        return Missing(reason=doubt) if doubt else part(name)

    def cause(name: IdleCause) -> Signal:
        if doubt or not wall:
            return Missing(reason=doubt)
        spent = sum(gap.seconds for gap in found.gaps if gap.cause == name)
        return _share(spent / (wall / 1e9), f"gaps.{name}")

    def own(of: str, spent_ns: int) -> Signal:
        return Missing(reason=doubt) if doubt or not wall else _share(spent_ns / wall, f"gaps.{of}")

    during = _join_during(found)
    prepared_ns = sum(sum(each.preparing_ns.values()) for each in found.work)
    talked = sum(ledger.communication_ns for ledger in ledgers)
    hidden = sum(ledger.hidden_communication_ns for ledger in ledgers)
    kernels = pl.concat(
        [
            lane.events.select("start_ns", "end_ns", "kind").filter(
                pl.col("kind") != int(DeviceKind.COPY)
            )
            for lane in lanes
        ]
    )
    return TraceSignals(
        devices=len(ledgers),
        ranks=len(lanes),
        compute_share=part("useful compute"),
        transfer_share=part("exposed transfer"),
        waiting_share=part("waiting for a peer"),
        undivided_share=part("undivided communication"),
        hidden_share=_share(hidden / talked, "communication under compute")
        if talked
        else Missing(reason="nothing communicates"),
        copies_share=part("copies"),
        data_wait_share=cause("data loader"),
        launch_share=idle("launch-bound"),
        allocator_share=cause("allocator"),
        between_steps_share=cause("python between steps"),
        host_code_share=idle("host code"),
        preparing_share=own("preparing", prepared_ns),
        preparing_under=find_preparing(found.work),
        unseen_share=own("unseen", sum(sum(each.unseen_ns.values()) for each in found.work)),
        longest_stretch=0.0 if is_marked else _find_longest(found.gaps) / (wall / 1e9 or 1.0),
        startup_share=idle("start-up"),
        once_share=cause("one-off"),
        sync_share=idle("synchronisation"),
        unknown_share=idle("unknown"),
        utilisation=_rung(found, "reported utilisation"),
        fill=_rung(found, "SM fill"),
        occupancy=_rung(found, "estimated occupancy"),
        tensor_share=_rung(found, "tensor-core kernels"),
        kernel_seconds=_median(kernels),
        launches_per_s=_share(
            sum(host.calls for host in hosts.values()) / (wall / 1e9),
            "launches over wall",
            "count/s",
        )
        if wall and any(host.calls for host in hosts.values())
        else Missing(reason=doubt or "no launching call was recorded"),
        launches=sum(host.calls for host in hosts.values()),
        loader=during.get("data loader", ""),
        loader_in_process=_IN_PROCESS in during.get("data loader", "")
        or "data loader" in _join_frames(found),
        during=during,
        frames=_join_frames(found),
        largest=find_largest(found.work),
        kernels=kernels.height,
        late=culprits,
        waiting_share_by_rank={
            str(ledger.rank): ledger.parts_ns["waiting for a peer"] / ledger.wall_ns
            for ledger in ledgers
        },
        quality=quality,
        doubt=doubt,
    )


def _share(value: float, origin: str, unit: str = "frac") -> Signal:
    return Reading(value=value, unit=unit, origin=origin)


def _median(kernels: pl.DataFrame) -> Signal:
    if not kernels.height:
        return Missing(reason="no kernel was recorded")
    took = float((kernels["end_ns"] - kernels["start_ns"]).median()) / 1e9
    return Reading(value=took, unit="s", count=kernels.height, origin="median of kernels")


def _rung(found: _Findings, name: TraceRung) -> Signal:
    """A rung over all devices, weighed by their wall time; Missing if one of them lacks it."""
    signals = [device.share_of(name) for device in found.devices]
    missing = next((signal for signal in signals if isinstance(signal, Missing)), None)
    if missing is not None or not signals:
        return missing or Missing(reason="no device activity was recorded")
    wall = sum(_longest_ns(account) for account in found.accounts) / 1e9
    reached = sum(
        signal.value * device.seconds
        for signal, device in zip(signals, found.devices, strict=True)
        if isinstance(signal, Reading)
    )
    return _share(reached / wall, f"ladder.{name}")


def _longest_ns(account: Account) -> int:
    """A device's events and its window together; beyond its events it does nothing."""
    ledger = account.ledger
    start_ns, end_ns = account.window_ns
    return max(end_ns, ledger.start_ns + ledger.wall_ns) - min(start_ns, ledger.start_ns)


def _join_frames(found: _Findings) -> dict[IdleCause, HostFrame]:
    """For each cause the function of the device on which it cost most."""
    joined: dict[IdleCause, HostFrame] = {}
    for gap in sorted(found.gaps, key=lambda gap: -gap.seconds):
        if gap.frame is not None:
            joined.setdefault(gap.cause, gap.frame)
    return joined


def _join_during(found: _Findings) -> dict[IdleCause, str]:
    """For each cause the event of the device on which it cost most."""
    joined: dict[IdleCause, str] = {}
    for gap in sorted(found.gaps, key=lambda gap: -gap.seconds):
        if gap.during:
            joined.setdefault(gap.cause, gap.during)
    return joined
