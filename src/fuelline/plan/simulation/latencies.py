"""From what replicas did to the latencies that users felt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.schema.plan.simulated import Quantiles, Simulated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.plan.simulation.replica import ReplicaRun
    from fuelline.schema.plan.simulated import Served

WARM_UP_SHARE = 0.1
"""Requests of the start that do not count: they found an empty service."""
BACKLOG_SHARE = 0.1
"""Of all requests still waiting when the last one came: more than bursts of a stable queue
leave."""


class Slo(Struct, frozen=True, kw_only=True):
    """Limits of a request, where they are given."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    attain_share: float = 0.95
    """Of requests that must keep both."""

    def kept(self, served: Served, extra_s: float = 0.0) -> bool:
        """Whether one request got what was promised."""
        if self.ttft_s is not None and served.ttft_s + extra_s > self.ttft_s:
            return False
        return self.tpot_s is None or served.tpot_s is None or served.tpot_s <= self.tpot_s


def summarise(
    runs: Sequence[ReplicaRun], slo: Slo, *, extra_s: float = 0.0, replicas: int | None = None
) -> Simulated | None:
    """Of replicas that share a load; None if nothing was served.

    `extra_s` is what a request pays before its first token outside of all steps.
    """
    asked = [_of_users(run.served) for run in runs]
    counted = [each for served in asked for each in _settled(served)]
    if not counted:
        return None
    refused = sum(len(run.refused) for run in runs)
    kept = sum(slo.kept(each, extra_s) for each in counted)
    span_s = sum(run.end_s for run in runs)
    tokens = sum(each.request.output for run in runs for each in run.served)
    everyone = sum(len(served) for served in asked)
    return Simulated(
        requests=len(counted),
        refused=refused,
        ttft_s=_quantiles([each.ttft_s + extra_s for each in counted]),
        tpot_s=_some_quantiles([each.tpot_s for each in counted if each.tpot_s is not None]),
        end_to_end_s=_quantiles([each.end_s - each.request.since_s + extra_s for each in counted]),
        attained_share=kept / (len(counted) + refused),
        busy_share=sum(run.busy_s for run in runs) / span_s,
        running=sum(run.present_s for run in runs) / span_s,
        preempted_share=sum(each.preempted > 0 for each in counted) / len(counted),
        output_tokens_per_s=tokens / span_s,
        overloaded=sum(run.backlog for run in runs) > BACKLOG_SHARE * everyone + 2,
        replicas=len(runs) if replicas is None else replicas,
    )


def _of_users(served: Sequence[Served]) -> list[Served]:
    """Without those that only filled the service."""
    return [each for each in served if not each.request.underway]


def _settled(served: Sequence[Served]) -> list[Served]:
    in_order = sorted(served, key=lambda each: each.request.since_s)
    return in_order[int(WARM_UP_SHARE * len(in_order)) :]


def _some_quantiles(values: list[float]) -> Quantiles | None:
    return _quantiles(values) if values else None


def _quantiles(values: list[float]) -> Quantiles:
    values = sorted(values)

    def at(share: float) -> float:
        return values[min(int(share * len(values)), len(values) - 1)]

    return Quantiles(mean=sum(values) / len(values), p50=at(0.5), p95=at(0.95), p99=at(0.99))
