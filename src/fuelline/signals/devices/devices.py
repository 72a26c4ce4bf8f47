"""Accelerators as their management library showed them: readings of the window, rungs of the run.

The devices that count are those that processes of the job were seen on. Where that cannot be seen,
all visible devices count: in a container those are the ones that were allocated. A MIG slice takes
clocks, power, link and errors from the card that it is part of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.devices import DeviceFacts
from fuelline.schema.plan.chips import link_bytes_per_s
from fuelline.schema.readings import Missing, Signal, value_of
from fuelline.signals.devices.ladder import climb
from fuelline.signals.devices.readings import Readings, over
from fuelline.signals.statistics import total
from fuelline.timeline import events

if TYPE_CHECKING:
    from fuelline.schema.run.samples import DeviceSeen
    from fuelline.timeline import Timeline

_BUSY_FRAC = 0.1
"""Below it a link may have been put to sleep, which says nothing about the slot."""


@dataclass(frozen=True)
class JobDevices:
    """The job's devices, and those beside them that it left alone."""

    devices: list[DeviceFacts]
    unused: list[str]


def measure_devices(timeline: Timeline, window: tuple[int, int] | None = None) -> JobDevices:
    """All that is known about the accelerators; readings of the window, else of the whole run."""
    parents = {seen.parent for seen in timeline.devices}
    whole = [seen for seen in timeline.devices if seen.device not in parents]
    pids = _pids_by_device(timeline)
    used = [seen for seen in whole if seen.device in pids]
    stretch = window or _run(timeline)
    facts = [_measure(timeline, seen, pids, stretch) for seen in used or whole]
    return JobDevices(facts, [seen.device for seen in whole if used and seen not in used])


def _flops_per_s(timeline: Timeline, pids: list[int]) -> Signal:
    """Operations of the steps of these processes over the whole run, from one step of each."""
    theirs = pl.col("pid").is_in(pids)
    counted = events.counted_steps(timeline, theirs).group_by("pid").agg(pl.col("flops").last())
    if not counted.height:
        return Missing(
            reason="operations per step were not counted; `fuelline run --zoom 3@100` counts them"
        )
    steps = (
        events.step_ends(timeline, theirs)
        .group_by("pid", "stepper_id")
        .len()
        .group_by("pid")
        .agg(pl.col("len").max())
    )
    done = counted.join(steps, on="pid").select((pl.col("flops") * pl.col("len")).sum()).item()
    start_ns, end_ns = _run(timeline)
    return total(
        float(done) / ((end_ns - start_ns) / 1e9), "count/s", "flops.step x steps over run"
    )


def _pids_by_device(timeline: Timeline) -> dict[str, list[int]]:
    ours = timeline.table("device_processes").filter("of_job")
    by_device: dict[str, list[int]] = {}
    for device, pid in ours.select("device", "pid").unique().sort("device", "pid").iter_rows():
        by_device.setdefault(device, []).append(pid)
    return by_device


def _measure(
    timeline: Timeline, seen: DeviceSeen, pids: dict[str, list[int]], window: tuple[int, int]
) -> DeviceFacts:
    own = Readings(timeline, seen, window)
    card = _card(timeline, seen)
    board = own if card is seen else Readings(timeline, card, window)
    rungs = climb(
        seen,
        Readings(timeline, seen, _run(timeline)),
        _flops_per_s(timeline, pids.get(seen.device, [])),
    )
    link_share, link_text, link_use = _measure_link(card, board, own)
    return DeviceFacts(
        device=seen.device,
        name=seen.name,
        vendor=seen.vendor,
        uuid=seen.uuid,
        pids=pids.get(seen.device, []),
        seconds=(_run(timeline)[1] - _run(timeline)[0]) / 1e9,
        ladder={rung.rung: value_of(rung.share) for rung in rungs},
        rungs=rungs,
        utilisation=own.mean("util.gpu_frac", "frac", "utilisation"),
        memory_share=over(own.mean("memory.used_bytes", "bytes", "memory"), seen.memory_bytes),
        occupancy=own.mean("gpm.occupancy_frac", "frac", "gpm"),
        dram_share=own.mean("gpm.dram_frac", "frac", "gpm"),
        nvlink_bytes_per_s=own.mean("gpm.nvlink_rx_bytes_per_s", "bytes/s", "gpm"),
        clock_share=over(board.mean("clock.sm_hz", "Hz", "clocks"), card.sm_clock_max_hz),
        power_share=_ratio(board, "power.draw_watts", "power.cap_watts"),
        power_cap_share=over(
            board.mean("power.cap_watts", "W", "power cap"), card.power_default_watts
        ),
        temperature_celsius=board.highest("temperature.gpu_celsius", "C", "temperature"),
        thermal_share=board.mean("throttle.thermal_frac", "frac", "throttling"),
        power_limited_share=board.mean("throttle.power_frac", "frac", "throttling"),
        hardware_share=board.mean("throttle.hardware_frac", "frac", "throttling"),
        throttled_clock=_throttled_clock(timeline, card, board, window),
        link_share=link_share,
        link_text=link_text,
        link_use=link_use,
        replays_per_min=_per(board.growth("pcie.replay_count", "error counters"), board, 60),
        ecc_uncorrected=board.growth("ecc.uncorrected_count", "error counters"),
        rows_pending=_either(board, "rows.pending", "pages.pending"),
        rows_failed=board.last("rows.failure", "error counters"),
        nvlink_errors=_sum(
            board.growth("nvlink.replay_count", "error counters"),
            board.growth("nvlink.recovery_count", "error counters"),
        ),
        nvlink_crc_per_s=_per(board.growth("nvlink.crc_count", "error counters"), board, 1),
        is_lost=board.lost_ns is not None,
        lost_share=_lost_share(board, window),
    )


def _card(timeline: Timeline, seen: DeviceSeen) -> DeviceSeen:
    return next((each for each in timeline.devices if each.device == seen.parent), seen)


def _run(timeline: Timeline) -> tuple[int, int]:
    """The whole run; one that goes on still lasts to its last reading."""
    last_ns = timeline.table("devices")["at_ns"].max()
    end_ns = timeline.ended_ns or (last_ns if isinstance(last_ns, int) else None)
    return timeline.run.started_ns, max(end_ns or 0, timeline.run.started_ns)


def _ratio(board: Readings, part: str, whole: str) -> Signal:
    return over(board.mean(part, "W", "power"), value_of(board.mean(whole, "W", "power cap")))


def _throttled_clock(
    timeline: Timeline, card: DeviceSeen, board: Readings, window: tuple[int, int]
) -> Signal:
    """Against the free clock of devices of the same name; else its own; else the most it can."""
    clock = board.mean("clock.throttled_hz", "Hz", "clocks")
    if isinstance(clock, Missing):
        return clock
    like = [
        value
        for each in timeline.devices
        if each.name == card.name and each is not card
        for value in [value_of(Readings(timeline, each, window).mean("clock.free_hz", "Hz", ""))]
        if value is not None
    ]
    own = value_of(board.mean("clock.free_hz", "Hz", "clocks"))
    free = sorted(like)[len(like) // 2] if like else own or card.sm_clock_max_hz
    return over(clock, free)


def _measure_link(
    card: DeviceSeen, board: Readings, own: Readings
) -> tuple[Signal, str | None, Signal]:
    """Bandwidth over the best possible, the same in words, and how much of it is in use."""
    generation, width, count = board.busiest_link(_BUSY_FRAC)
    if generation is None or width is None:
        missing = Missing(reason="the PCIe link was not read while the device was busy")
        return missing, None, missing
    now = link_bytes_per_s(generation, width)
    best = link_bytes_per_s(card.pcie_generation_max or 0, card.pcie_width_max or 0)
    if now is None or not best:
        missing = Missing(reason="what the PCIe link could do is not known")
        return missing, None, missing
    text = f"PCIe {generation:.0f} x{width:.0f}"
    if now < best:
        text += f" of {card.pcie_generation_max} x{card.pcie_width_max}"
    traffic = [
        value
        for name in ("gpm.pcie_rx_bytes_per_s", "gpm.pcie_tx_bytes_per_s")
        if (value := value_of(own.mean(name, "bytes/s", "gpm"))) is not None
    ]
    use: Signal = Missing(reason=f"PCIe traffic needs GPM: {own.why('gpm')}")
    if traffic:
        use = total(max(traffic) / now, "frac", "gpm.pcie over the link's bandwidth")
    return (
        total(now / best, "frac", "pcie.generation and width over their maxima", count),
        text,
        use,
    )


def _either(board: Readings, name: str, other: str) -> Signal:
    signal = board.last(name, "error counters")
    return board.last(other, "error counters") if isinstance(signal, Missing) else signal


def _sum(one: Signal, other: Signal) -> Signal:
    if isinstance(one, Missing) or isinstance(other, Missing):
        return one if isinstance(one, Missing) else other
    return total(one.value + other.value, one.unit, f"{one.origin} and {other.origin}")


def _per(grown: Signal, board: Readings, seconds: float) -> Signal:
    if isinstance(grown, Missing):
        return grown
    rate = grown.value / max(board.seconds, 1.0) * seconds
    return total(rate, "count/s" if seconds == 1 else "count/min", grown.origin)


def _lost_share(board: Readings, window: tuple[int, int]) -> Signal:
    if not board.frame.height:
        return Missing(reason="the device was never read")
    lost_ns = window[1] if board.lost_ns is None else board.lost_ns
    return total(1 - board.elapsed_frac(lost_ns), "frac", "devices.lost to the end of the window")
