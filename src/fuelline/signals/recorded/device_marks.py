"""The device's side of a run, from the marks that hooks put on its stream.

A mark has two times: when the host queued it, and when the device passed it, by the device's clock.
Between two marks the device works on what the host queued between them, and idles if that is too
little. Around a stall of the host nothing was queued, so that all of it is idle time; elsewhere the
second mark's lead tells: how far the device is behind the host there. Behind it by more than a
launch takes, the device set the pace and computed; not behind, the host did, and how much of that
time was kernels no event can tell. Other steps may, in which the same stretch was the device's, or
else the driver's utilisation; else it stays undivided.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.findings import DeviceBudget
from fuelline.schema.parts import DEVICE_PARTS
from fuelline.schema.readings import Missing, Reading, value_of
from fuelline.schema.wire import MarkPlace
from fuelline.signals.statistics import ratio
from fuelline.timeline import events
from fuelline.timeline.device_marks import align_marks, measure_beside

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.devices import DeviceFacts
    from fuelline.schema.parts import DevicePart, StepPart
    from fuelline.schema.readings import Signal
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

_NEAR_NS = 50_000
"""A device this close behind the host waits for launches, which take 5 to 20 us to get there."""
_NEAR_FRAC = 0.01
"""Likewise of a step: bounds on the clock's distance are as tight as calls come."""
_LAST_KERNEL = 0.05
"""Of a stretch: the device may be that far behind with its last kernel alone."""
_SLOWEST_BYTES_PER_NS = 0.1
_COPY_NS = 10_000
"""No link to a device copies more slowly than 0.1 GB/s (one lane of PCI Express 1 carries 0.25),
and a copy of a few bytes takes some microseconds. What lies beside that between its marks is the
host's way to the call and back."""
_FEW = 10
_NO_MARKS = Missing(reason="the device's own clock was not read; that needs timed events of torch")
_PAUSING: tuple[StepPart, ...] = ("epoch start", "validation", "checkpoint", "profiler")
_OWN: tuple[StepPart, ...] = ("loop", "garbage collection")
"""What the host does here it does not do for the device."""
_STANDING: tuple[StepPart, ...] = ("epoch start", "checkpoint")
"""Pauses in which the device computes nothing either."""
_LEADS = {
    "forward": MarkPlace.BACKWARD_BEGIN,
    "backward": MarkPlace.BACKWARD_END,
    "step": MarkPlace.STEP_END,
}


@dataclass(frozen=True)
class DeviceSide:
    """What marks say of the trainer's device in the window."""

    budget: DeviceBudget | None = None
    idle_ns: dict[StepPart, float] = field(default_factory=dict)
    """Part of the host's time to how long the device had nothing to do meanwhile."""
    copy_ns: float = 0.0
    """Of the device, between the marks around copies on the training's stream."""
    idle_share: Signal = _NO_MARKS
    paced_share: Signal = _NO_MARKS
    """Of the window: the device waits for launches, or at most that where it is not divided."""


def measure_device_side(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, devices: list[DeviceFacts]
) -> DeviceSide:
    """The device's budget and its idle time; nothing where there are no marks."""
    marks = _read_marks(timeline, trainer, segments)
    if marks.height < _FEW:
        return DeviceSide()
    stretches = _name_stretches(_cut_stretches(marks), segments)
    if not stretches.height:
        return DeviceSide()
    mine = events.of_thread(trainer.pid, trainer.tid)
    stretches = _divide_copies(_divide_by_others(stretches), events.copies(timeline, mine))
    spent: dict[DevicePart, float] = dict.fromkeys(DEVICE_PARTS, 0.0)
    for part in ("computing", "waiting for the host"):
        spent[part] += float(stretches[part].sum())
    whole = stretches.group_by("part").agg(pl.col("rest_ns").sum())
    for part, rest_ns in whole.iter_rows():
        spent[part] += float(rest_ns)
    is_divided = _divide_by_driver(spent, devices) or spent["host-paced"] == 0
    copy_ns = spent["copies"]
    if is_divided:
        _name_copies_beside(spent, measure_beside(timeline, _marked(trainer, segments)))
    spent["unknown"] = max(0.0, segments.wall_ns - sum(spent.values()))
    budget = DeviceBudget(
        device=int(marks["device"][0]),
        seconds=sum(spent.values()) / segments.kept_frac / 1e9,
        parts={part: ns / segments.kept_frac / 1e9 for part, ns in spent.items()},
        lead_seconds=_measure_leads(marks),
    )
    budget.check()
    idle = stretches.filter(pl.col("is_idle")).group_by("host_part").agg(pl.col("rest_ns").sum())
    return DeviceSide(
        budget=budget,
        idle_ns=dict(idle.iter_rows()),
        copy_ns=copy_ns,
        idle_share=_measure_idle(stretches, spent, segments),
        paced_share=_measure_paced(
            spent, _sum(stretches, pl.col("part") == "waiting for the host"), segments, is_divided
        ),
    )


def _read_marks(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> pl.DataFrame:
    """Those of the stream and clock that most of them are on, in the order of the host."""
    marks = align_marks(timeline, _marked(trainer, segments))
    if not marks.height:
        return marks
    streams = marks.group_by("clock", "stream").len().sort("len", "clock", descending=True)
    clock, stream, _ = streams.row(0)
    return marks.filter((pl.col("clock") == clock) & (pl.col("stream") == stream))


def _marked(trainer: Trainer, segments: StepSegments) -> pl.Expr:
    within = pl.col("start_ns").is_between(segments.start_ns - 1_000_000, segments.end_ns)
    return (pl.col("pid") == trainer.pid) & within


def _cut_stretches(marks: pl.DataFrame) -> pl.DataFrame:
    """From each mark to the next: from_ns and until_ns of the host, took_ns of the device.

    `middle_ns`: of what the host did from when the device had nothing queued before the mark.
    """
    return (
        marks.select(
            "run",
            "lead_ns",
            from_ns="start_ns",
            begins=pl.col("place"),
            until_ns=pl.col("start_ns").shift(-1),
            ends=pl.col("place").shift(-1),
            next_run=pl.col("run").shift(-1),
            next_lead_ns=pl.col("lead_ns").shift(-1),
            took_ns=pl.col("device_ns").shift(-1) - pl.col("device_ns"),
        )
        .filter((pl.col("run") == pl.col("next_run")) & (pl.col("took_ns") >= 0))
        .with_columns(
            free_ns=pl.min_horizontal(
                pl.col("from_ns") + pl.col("lead_ns").clip(0, None), pl.col("until_ns") - 1
            )
        )
        .with_columns(middle_ns=(pl.col("free_ns") + pl.col("until_ns")) // 2)
        .sort("middle_ns")
    )


def _name_stretches(stretches: pl.DataFrame, segments: StepSegments) -> pl.DataFrame:
    """Add `part` of the device, `host_part`, and `is_idle`: the device had nothing to do.

    `rest_ns` is what belongs to the part; `computing` and `waiting for the host` what does not.
    """
    steps = max(segments.boundaries.len() - 1, 1)
    near_ns = max(_NEAR_NS, _NEAR_FRAC * segments.wall_ns / steps)
    pieces = segments.pieces.select(middle_ns="start_ns", host_part="part").sort("middle_ns")
    is_input = pl.col("host_part") == "input"
    is_paced = pl.col("next_lead_ns") <= pl.max_horizontal(
        pl.lit(near_ns), _LAST_KERNEL * pl.col("took_ns")
    )
    is_own = pl.col("host_part").is_in([*_OWN, *_STANDING]) & is_paced
    is_wait = pl.col("ends") == MarkPlace.WAIT_END
    # After the host has waited for the device nothing is queued until it launches again.
    part = (
        pl.when(is_wait & is_input)
        .then(pl.lit("waiting for input"))
        .when(
            pl.col("host_part").is_in(_PAUSING) | (pl.col("ends") == MarkPlace.PAUSE_END) | is_wait
        )
        .then(pl.lit("pauses"))
        .when(pl.col("ends") == MarkPlace.COPY_END)
        .then(pl.lit("copies"))
        .when(pl.col("ends") == MarkPlace.COLLECTIVE_END)
        .then(pl.lit("collectives"))
        .when(is_own)
        .then(pl.lit("waiting for the host"))
        .when(is_paced)
        .then(pl.lit("host-paced"))
        .otherwise(pl.lit("computing"))
    )
    nothing = pl.lit(0.0)
    return (
        stretches.join_asof(pieces, on="middle_ns")
        .with_columns(part=part, is_idle=is_wait | is_own, rest_ns=pl.col("took_ns").cast(float))
        .with_columns(nothing.alias("computing"), nothing.alias("waiting for the host"))
    )


def _divide_by_others(stretches: pl.DataFrame) -> pl.DataFrame:
    """Divide what the host paced where the device paced the same stretch of other steps."""
    own = pl.col("part") == "computing"
    usual = (
        stretches.filter(own)
        .group_by("begins", "ends")
        .agg(usual_ns=pl.col("took_ns").median(), seen=pl.len())
        .filter(pl.col("seen") >= _FEW)
    )
    is_told = (pl.col("part") == "host-paced") & pl.col("usual_ns").is_not_null()
    kernels = pl.min_horizontal("took_ns", "usual_ns")
    return stretches.join(
        usual, on=["begins", "ends"], how="left", maintain_order="left"
    ).with_columns(
        pl.when(is_told).then(kernels).otherwise(0.0).alias("computing"),
        pl.when(is_told)
        .then(pl.col("took_ns") - kernels)
        .otherwise(0.0)
        .alias("waiting for the host"),
        pl.when(is_told).then(0.0).otherwise("rest_ns").alias("rest_ns"),
    )


def _divide_copies(stretches: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Of the time around a small copy the most that its bytes explain; the host took the rest."""
    sizes = copies.select("size_bytes", until_ns="start_ns").sort("until_ns")
    is_copy = (pl.col("part") == "copies") & (pl.col("size_bytes") > 0)
    most_ns = pl.col("size_bytes") / _SLOWEST_BYTES_PER_NS + _COPY_NS
    copying = pl.when(is_copy).then(pl.min_horizontal("rest_ns", most_ns)).otherwise("rest_ns")
    told = stretches.sort("until_ns").join_asof(sizes, on="until_ns")
    return told.with_columns(
        (pl.col("waiting for the host") + pl.col("rest_ns") - copying).alias(
            "waiting for the host"
        ),
        rest_ns=copying,
    )


def _divide_by_driver(spent: dict[DevicePart, float], devices: list[DeviceFacts]) -> bool:
    """Divide what is left by the driver's word on how long a kernel ran; whether there was any.

    A device that is behind at the end of a stretch may have waited at its beginning, and waits a
    little between any two kernels: what kernels did not take is no computing either.
    """
    shares = [share for each in devices if (share := value_of(each.utilisation)) is not None]
    if len(shares) != 1:
        return False
    kernels = max(0.0, shares[0] * sum(spent.values()) - spent["collectives"])
    either = spent["computing"] + spent["host-paced"]
    spent["computing"] = min(kernels, either)
    spent["waiting for the host"] += either - spent["computing"]
    spent["host-paced"] = 0.0
    return True


def _name_copies_beside(spent: dict[DevicePart, float], beside_ns: int) -> None:
    """Of what no kernel took while the host trained, what copies on other streams did.

    They begin whenever they are ready, so that they meet idle moments as often as there are any.
    """
    either = spent["computing"] + spent["waiting for the host"]
    if not either:
        return
    exposed = min(beside_ns / either, 1.0) * spent["waiting for the host"]
    spent["waiting for the host"] -= exposed
    spent["copies"] += exposed


def _measure_leads(marks: pl.DataFrame) -> dict[str, float]:
    """Median lead after forward, backward and step."""
    found = {}
    for name, place in _LEADS.items():
        middle = marks.filter(pl.col("place") == place)["lead_ns"].median()
        if isinstance(middle, (int, float)):
            found[name] = max(0.0, middle) / 1e9
    return found


def _measure_idle(
    stretches: pl.DataFrame, spent: dict[DevicePart, float], segments: StepSegments
) -> Signal:
    """Of the device's time; the middle of an interval where it is not known what kernels take."""
    idle = ratio(
        stretches["rest_ns"] * stretches["is_idle"],
        stretches["took_ns"].cast(pl.Float64),
        "frac",
        "device idle between marks over device time",
    )
    if isinstance(idle, Missing):
        return idle
    pauses = _sum(stretches, (pl.col("part") == "pauses") & pl.col("is_idle"))
    waited = spent["waiting for the host"] + spent["waiting for input"]
    least = (waited + pauses) / segments.wall_ns
    unknown = spent["host-paced"] / segments.wall_ns
    half = 0.0 if idle.high is None else idle.high - idle.value
    return Reading(
        value=min(least + unknown / 2, 1.0),
        unit="frac",
        low=max(0.0, least - half),
        high=min(1.0, least + half + unknown),
        level=95,
        count=stretches.height,
        origin=idle.origin,
    )


def _measure_paced(
    spent: dict[DevicePart, float],
    own_ns: float,
    segments: StepSegments,
    is_divided: bool,  # noqa: FBT001 - of its result
) -> Signal:
    """Waiting for launches; where it is not divided, kernels are in it. Not for the host's loop."""
    least = max(0.0, spent["waiting for the host"] - own_ns)
    paced = spent["host-paced"] + least
    return Reading(
        value=min(1.0, paced / segments.wall_ns),
        unit="frac",
        low=None if is_divided else min(1.0, least / segments.wall_ns),
        high=None if is_divided else min(1.0, paced / segments.wall_ns),
        level=None if is_divided else 95,
        origin="device waiting for launches" if is_divided else "device never behind the host",
    )


def _sum(stretches: pl.DataFrame, where: pl.Expr) -> float:
    return float(stretches.filter(where)["rest_ns"].sum())
