"""What the accounts of a feed amount to: rate, utilisation, time between batches, who is fed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from fuelline import __version__
from fuelline.schema.diagnosis.feeding import FedChip, Feed
from fuelline.schema.diagnosis.workloads import PASS_SHARE, find_workload
from fuelline.schema.readings import Missing, Reading, Signal, common_level, value_of
from fuelline.signals.statistics import ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.feeding import FeedAccount, FeedRequest
    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.schema.diagnosis.workloads import Workload

_ORIGIN = "feed"


class FedRates(Struct, frozen=True, kw_only=True):
    """Over all training processes."""

    samples_per_s: Signal
    utilisation: Signal
    batch_seconds: Signal

    @property
    def waiting(self) -> float | None:
        """Of the time of the emulated accelerator; None without one."""
        busy = value_of(self.utilisation)
        return None if busy is None else 1 - busy


def measure_feed(accounts: Sequence[FeedAccount], *, emulated: bool) -> FedRates:
    """Rates of processes that ran in parallel add up; utilisation is their mean."""
    tables = [_table(account) for account in accounts]
    rates = [ratio(table["samples"], table["seconds"], "count/s", _ORIGIN) for table in tables]
    paces = [ratio(table["seconds"], table["one"], "s", _ORIGIN) for table in tables]
    busy = [ratio(table["work"], table["seconds"], "frac", _ORIGIN) for table in tables]
    none = Missing(reason="no accelerator was emulated; --step or --rate does")
    return FedRates(
        samples_per_s=_join(rates, 1.0),
        utilisation=_join(busy, 1 / len(busy)) if emulated else none,
        batch_seconds=_join(paces, 1 / len(paces)),
    )


_WAITS = ("input", "epoch start")


def with_waiting(facts: Facts, share: float) -> Facts:
    """The facts of a fed loader with the share of waiting that the feed itself has measured.

    The recording also holds the batches until the queue had settled, which do not count. An
    emulated accelerator has no queue of its own, so that no wait is hidden.
    """
    recorded = sum(part.share for part in facts.budget if part.part in _WAITS)
    if not 0 < recorded < 1:
        return facts
    scales = {True: share / recorded, False: (1 - share) / (1 - recorded)}
    budget = [
        replace(part, share=part.share * scale, seconds=part.share * scale * facts.window.seconds)
        for part in facts.budget
        for scale in (scales[part.part in _WAITS],)
    ]
    scaled = replace(facts, budget=budget, hidden_frac={})
    waited = Reading(value=scaled.share_of("input"), unit="frac", origin=_ORIGIN)
    is_known = isinstance(facts.input.exposed_share, Reading)
    known = replace(facts.input, exposed_share=waited, wait_share=waited)
    return replace(scaled, input=known if is_known else facts.input)


def _table(account: FeedAccount) -> pl.DataFrame:
    """Counted batches: what came after the queue was level."""
    columns = {"wait": account.waits_ns, "work": account.works_ns, "samples": account.samples}
    frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64), strict=True)
    frame = frame.slice(account.warm)
    return frame.select(
        "samples",
        (pl.col("work") / 1e9).alias("work"),
        ((pl.col("wait") + pl.col("work")) / 1e9).alias("seconds"),
        pl.lit(1.0).alias("one"),
    )


def _join(signals: list[Signal], factor: float) -> Signal:
    """Sum of independent readings times a factor; their doubts add up in squares."""
    known = [signal for signal in signals if isinstance(signal, Reading)]
    if len(known) < len(signals) or not known:
        return Missing(reason="too few batches were taken")
    value = factor * sum(signal.value for signal in known)
    spread = factor * sum(_half_width(signal) ** 2 for signal in known) ** 0.5
    level = common_level(known)
    return Reading(
        value=value,
        unit=known[0].unit,
        low=None if level is None else max(0.0, value - spread),
        high=None if level is None else value + spread,
        level=level,
        count=sum(signal.count or 0 for signal in known),
        origin=_ORIGIN,
    )


def _half_width(signal: Reading) -> float:
    if signal.low is None or signal.high is None:
        return 0.0
    return max(signal.high - signal.value, signal.value - signal.low)


def answer_feed(
    accounts: Sequence[FeedAccount], rates: FedRates, request: FeedRequest, diagnosis: Diagnosis
) -> Feed:
    """All of it in one noun."""
    first = accounts[0]
    workload = find_workload(request.workload) if request.workload else None
    mark = workload.pass_share if workload else PASS_SHARE
    busy = value_of(rates.utilisation)
    counted = [slice(account.warm, None) for account in accounts]
    pairs = list(zip(accounts, counted, strict=True))
    return Feed(
        fuelline_version=__version__,
        samples_per_s=rates.samples_per_s,
        utilisation=rates.utilisation,
        pass_share=mark,
        is_fed=None if busy is None else busy >= mark,
        batch_seconds=rates.batch_seconds,
        step_seconds=request.step_seconds,
        asked_samples_per_s=request.samples_per_s,
        batches=sum(len(account.waits_ns[rows]) for account, rows in pairs),
        samples=sum(sum(account.samples[rows]) for account, rows in pairs),
        seconds=max(
            (sum(account.waits_ns[rows]) + sum(account.works_ns[rows])) / 1e9
            for account, rows in pairs
        ),
        epochs=first.epochs,
        first_batch_seconds=first.waits_ns[0] / 1e9,
        processes=len(accounts),
        number=first.number or 1,
        seen=first.seen,
        workload=request.workload,
        chips=_find_fed(workload, rates.samples_per_s) if workload else [],
        verdict=diagnosis.verdict,
        findings=diagnosis.findings,
        blindspots=diagnosis.blindspots,
        problem=first.problem,
    )


def _find_fed(workload: Workload, rate: Signal) -> list[FedChip]:
    """A chip is fed if it gets its samples for the pass mark's share of the time."""
    value = value_of(rate)
    if value is None:
        return []
    return [
        FedChip(
            chip=need.chip,
            needs_samples_per_s=need.samples_per_s,
            count=int(value / (workload.pass_share * need.samples_per_s)),
            basis=need.basis,
        )
        for need in workload.needs
    ]
