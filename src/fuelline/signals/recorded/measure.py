"""A Timeline in, Facts out: the list of everything that is measured, in the order of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.diagnosis.facts import Facts, SyncFacts
from fuelline.schema.readings import Reading, value_of
from fuelline.schema.run.recording import PYTHON_SOURCE
from fuelline.signals.devices.devices import measure_devices
from fuelline.signals.devices.energy import measure_energy
from fuelline.signals.recorded.budget import (
    find_failed_hook,
    hide,
    measure_budget,
    measure_carry,
    measure_hidden,
    measure_steps,
    measure_window,
)
from fuelline.signals.recorded.compute import measure_compute
from fuelline.signals.recorded.counters import measure_cores
from fuelline.signals.recorded.demands import measure_demands
from fuelline.signals.recorded.device_marks import measure_device_side
from fuelline.signals.recorded.fetching.crews import WITHIN_STEPS, collect_crew
from fuelline.signals.recorded.fetching.feeders import add_to_recorded, find_feeders, with_clocks
from fuelline.signals.recorded.fetching.fetches import collect_fetches, fetch_table
from fuelline.signals.recorded.fetching.hotspots import (
    find_fetch_lines,
    find_loop_lines,
    measure_moving,
)
from fuelline.signals.recorded.fetching.inputs import keeps_up, measure_input
from fuelline.signals.recorded.fetching.own_code import (
    OwnCode,
    find_own_code,
    measure_hidden_code,
    measure_queue_wait,
)
from fuelline.signals.recorded.fetching.storage import measure_storage
from fuelline.signals.recorded.stepless import find_working
from fuelline.signals.recorded.transfer import measure_hidden_copies, measure_transfer

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.demands import DemandFacts
    from fuelline.schema.diagnosis.findings import BudgetPart, DeviceBudget
    from fuelline.schema.run.recording import LoaderFacts
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer


def measure(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    sync: SyncFacts | None = None,
    ranks_here: int = 1,
) -> Facts:
    """Measure everything that rules may ask for; `sync` compares this rank with others.

    `ranks_here` of them train on this rank's host.
    """
    is_stepless = trainer.step_kind == "time"
    feeders = (
        find_working(timeline, trainer, segments)
        if is_stepless
        else find_feeders(timeline, trainer, segments, _training_loader(timeline, trainer))
    )
    trainer, loader = feeders.trainer, feeders.loader
    fetch_lines = feeders.lines
    if fetch_lines is None:
        fetch_lines = find_fetch_lines(timeline, trainer, segments)
    cores = measure_cores(timeline, segments, ranks_here)
    is_within = loader is not None and loader.framework in WITHIN_STEPS
    if trainer.crew_tids and not (is_within and fetch_table(timeline, trainer).height):
        fetches = collect_crew(
            timeline, trainer, segments, loader,
            lines=fetch_lines, cores=cores, stages=feeders.stages,
        )  # fmt: skip
        loader = _with_threads(loader, fetches.threads)
    elif feeders.inline is not None:
        fetches = feeders.inline
    else:
        fetches = collect_fetches(timeline, trainer, segments, fetch_lines, is_within=is_within)
        fetches = with_clocks(timeline, trainer, segments, fetches, feeders.stages)
    loop_lines = find_loop_lines(timeline, trainer, segments)
    accelerators = measure_devices(timeline, (segments.start_ns, segments.end_ns))
    side = measure_device_side(timeline, trainer, segments, accelerators.devices)
    transfer = measure_transfer(timeline, trainer, segments, side)
    demands = measure_demands(
        timeline,
        trainer,
        segments,
        fetches,
        loop_lines=loop_lines,
        devices=accelerators.devices,
        idle_share=transfer.device_idle_share,
    )
    is_estimate = timeline.run.is_estimated
    carried = 0.0 if is_estimate else measure_carry(segments)
    most_idle = _most_idle(demands, segments, is_queued=carried > 0)
    hidden = measure_hidden(
        trainer,
        segments,
        transfer.device_idle_share,
        side.idle_ns if side.budget is not None else None,
        is_fed=keeps_up(timeline, trainer, segments, fetches),
        most_idle=most_idle,
        carried=carried,
        is_estimate=is_estimate,
    )
    compute = measure_compute(timeline, trainer, segments, loop_lines, side.paced_share)
    has_model = not is_stepless and not _is_without_framework(timeline, trainer)
    own = find_own_code(timeline, trainer, segments, feeders.asking) if has_model else OwnCode()
    queue_wait = feeders.wait or measure_queue_wait(timeline, trainer, segments)
    budget = measure_budget(
        segments,
        loop_lines,
        watched=_is_watched(timeline, trainer),
        own_frac=own.forward_frac,
        queue_wait=queue_wait,
        is_whole=find_failed_hook(timeline) is None,
    )
    if feeders.wait is not None and not trainer.train_sources:
        idle = value_of(transfer.device_idle_share)
        felt = most_idle if idle is None else min(most_idle, idle)
        hidden = {**hidden, "input": measure_hidden_code(compute, budget, felt, "input")}
    waiting = measure_input(
        timeline,
        trainer,
        segments,
        fetches,
        hidden_frac=hidden.get("input", 0.0),
        queue_wait=add_to_recorded(segments, feeders.wait)
        if feeders.wait is not None and trainer.train_sources
        else queue_wait,
    )
    steps = measure_steps(timeline, trainer, segments)
    return Facts(
        window=measure_window(timeline, segments),
        steps=steps,
        budget=budget,
        hidden_frac={
            **hidden,
            **measure_hidden_copies(segments, side),
            "own code": measure_hidden_code(compute, budget, most_idle),
            "collectives": _hidden_collectives(budget, carried, most_idle)
            if side.budget is None
            else _hidden_on_device(budget, side.budget),
        },
        loader=loader,
        input=msgspec.structs.replace(waiting, moving_share=measure_moving(fetch_lines)),
        storage=measure_storage(timeline, trainer, segments, fetches, waiting.place),
        cores=cores,
        compute=compute,
        fetch_lines=fetch_lines,
        loop_lines=loop_lines,
        step_lines=list(own.lines),
        sync=sync or SyncFacts(),
        devices=accelerators.devices,
        unused_devices=accelerators.unused,
        transfer=transfer,
        demands=demands,
        device_budget=side.budget,
        energy=measure_energy(timeline, segments, accelerators.devices, steps),
    )


def _most_idle(demands: DemandFacts, segments: StepSegments, *, is_queued: bool) -> float:
    """Of the window: the device had nothing to do, at most; 1 if the host could not see it.

    Its time for a batch is taken at the lower end, or as it is if other evidence says that the
    device had work in its queue. Utilisation counters do not count: a kernel that waits is in them,
    too.
    """
    each = demands.device_seconds
    is_seen = demands.device_mode == "beside" and not demands.is_device_counted
    if not is_seen or not isinstance(each, Reading) or each.low is None:
        return 1.0
    seconds = each.value if is_queued else each.low
    return max(0.0, 1 - demands.batches * seconds * 1e9 / segments.run_ns)


def _hidden_collectives(budget: list[BudgetPart], carried: float, most_idle: float) -> float:
    """How much of the waits for other ranks a device hides that works meanwhile, 0 to 1."""
    share = sum(part.share for part in budget if part.part == "collectives")
    if not carried or not share:
        return 0.0
    return max(carried, 1 - most_idle / share)


def _hidden_on_device(budget: list[BudgetPart], device: DeviceBudget) -> float:
    """The same by the device's own clock: while it stands in a collective it does nothing else.

    Where the host only queues them it spends hardly any time there, and nothing is hidden.
    """
    spent = sum(part.seconds for part in budget if part.part == "collectives")
    return hide(device.parts["collectives"], spent)


def _is_watched(timeline: Timeline, trainer: Trainer) -> bool:
    states = timeline.table("states")
    return bool(
        states.filter((pl.col("pid") == trainer.pid) & (pl.col("tid") == trainer.tid)).height
    )


def _is_without_framework(timeline: Timeline, trainer: Trainer) -> bool:
    """Whether only `fuelline.watch` brought hooks in: all that a step does is then the job's work.

    Nothing tells a model there, which may be in any library, from other code.
    """
    known = [each.framework for each in timeline.processes if each.pid == trainer.pid]
    return known == [PYTHON_SOURCE]


def _with_threads(loader: LoaderFacts | None, threads: int) -> LoaderFacts | None:
    """Threads of a pool are workers: as many as can be at work at once."""
    return None if loader is None else msgspec.structs.replace(loader, num_workers=threads)


def _training_loader(timeline: Timeline, trainer: Trainer) -> LoaderFacts | None:
    """The first training source, as it was described last."""
    return next(
        (
            loader
            for loader in reversed(timeline.loaders)
            if loader.pid == trainer.pid and loader.loader_id in trainer.train_sources
        ),
        None,
    )
