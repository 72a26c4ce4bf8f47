"""Why a prediction missed a measured row: from the row's words and the terms of the prediction.

Nothing here knows a row. Reasons come in this order: what the table or the source says that is not
modelled, what had to be assumed, what the chip or engine has no constants for, what of it is a
queue or how far the longest term alone would have to be off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.plan.check.case import make_case
from fuelline.plan.physics.constants import BARE
from fuelline.plan.physics.rates import find_matmul
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.plan.check.case import OwnCatalogue
    from fuelline.plan.check.rows import Row
    from fuelline.plan.physics.constants import Constants
    from fuelline.schema.plan.estimates import Estimate

CLEAN = "clean"
_REGIMES = {
    "legacy_sw": "the table marks its software as old: kernels and schedulers have changed since",
    "launch_bound": "the table marks it as bound by launches: the host's speed counts, and no row "
    "states the host",
    "end_to_end_incl_failures": "the figure includes failures, restarts and evaluations",
    "api_blackbox": "a public service: its chips, load and tricks are not stated",
    "kv_overflow": "the cache overflows: requests are thrown out and read again",
    "suspect": "the table itself doubts the figure",
}
_NOT_MODELLED = (
    # Words of a source or its notes, and what they say that no term stands for.
    (("speculat", "eagle", "medusa", " mtp", "draft model"), "several tokens come from one step"),
    (("cache hit", "prefix cach", "kv reuse"), "prompts are partly in a cache"),
    (("power-limit", "power cap", "maxq", "power limit"), "the chips run below their power limit"),
    (("all stages", "restarts", "incl. failures"), "several stages are in one figure"),
    (("p99", "p90", "p95", "percentile"), "a percentile is stated, a mean is predicted"),
    (("disagg", "prefill pool", "decode pool"), "prefill and decode run on separate pools"),
    (("open division",), "an open division: the model may not be the one it is named after"),
    (("static batch",), "a static batch in the source's own loop, none of a serving engine's"),
    (("offload",), "some of the weights come from host memory"),
)
_QUEUE_SHARE = 0.2
"""The limit of terms that are a wait for others."""


def explain_error(
    row: Row, answer: Estimate, constants: Constants, own: OwnCatalogue, ratio: float | None = None
) -> tuple[str, ...]:
    """Reasons, strongest first; `ratio` is predicted over measured if not this answer's."""
    ratio = answer.value / row.value if ratio is None else ratio
    assumed = (f"assumed: {each}" for each in answer.assumptions)
    timed = tuple(_queued(answer)) or tuple(_longest(row, answer, ratio))
    return (*_said(row), *assumed, *_unknown(row, constants, own), *timed)


def _said(row: Row) -> Iterator[str]:
    if row.regime != CLEAN:
        yield _REGIMES.get(row.regime, f"the table marks it as '{row.regime}'")
    for words, meaning in _NOT_MODELLED:
        found = next((word for word in words if word in row.text), None)
        if found is not None:
            yield f"{meaning} ('{found.strip()}')"


def _unknown(row: Row, constants: Constants, own: OwnCatalogue) -> Iterator[str]:
    case = make_case(row, constants, own)
    if case.chip.name not in find_matmul(case.chip, "bf16", constants).chips:
        yield f"nobody measured kernels on {case.chip.name}: the middle of its kind is used"
    if case.engine is BARE and not row.kind.startswith("train"):
        yield "no engine with known constants is named: bare kernels are used"
    if len(case.spreads) > 1 and not row.kind.startswith("train"):
        yield "the row does not say how the model is spread: the best way is used"


def _queued(answer: Estimate) -> Iterator[str]:
    """What of a latency is waiting for others: no constant of a chip can be blamed for it."""
    total = sum(term.seconds for term in answer.terms)
    queue = sum(term.seconds for term in answer.terms if term.limit == "queue")
    if total > 0 and queue > _QUEUE_SHARE * total:
        yield (
            f"{percent(queue / total)} of the prediction is waiting for others; how requests "
            "arrive is not stated, only their number"
        )


def _longest(row: Row, answer: Estimate, ratio: float) -> Iterator[str]:
    """How wrong the longest term would have to be if all others are right."""
    total = sum(term.seconds for term in answer.terms)
    if total <= 0:
        return
    longest = max(answer.terms, key=lambda term: term.seconds)
    share = longest.seconds / total
    slower = ratio if _more_is_better(row) else 1 / ratio
    needed = 1 + (slower - 1) / share
    words = f"{longest.name} is {percent(share)} of the prediction"
    if needed > 0:
        yield f"{words} and would have to take {needed:.2g} times as long"
    else:
        yield f"{words}; even without it the rest takes longer than measured"


def _more_is_better(row: Row) -> bool:
    """A rate, as against a time or an energy."""
    words = ("throughput", "mfu", "hfu", "tflops", "tok/s", "req/s", "samples/s")
    return any(word in f"{row.metric} {row.unit}".lower() for word in words)
