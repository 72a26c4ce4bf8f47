"""Remedies get the gain that the pipeline model predicts for them, and are ranked by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fuelline.schema.readings import Missing, Reading
from fuelline.whatif.forecasting import forecast

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import Diagnosis, Finding, Remedy
    from fuelline.schema.diagnosis.forecasts import Forecast
    from fuelline.whatif.fitting import Fit


def value_remedies(diagnosis: Diagnosis, fit: Fit | Missing) -> Diagnosis:
    """Every remedy that the model has a word for, with its gain; the greatest gain first."""
    findings = [
        _value(finding, fit, diagnosis.price_usd_per_hour) for finding in diagnosis.findings
    ]
    return msgspec.structs.replace(diagnosis, findings=findings)


def _value(finding: Finding, fit: Fit | Missing, price: float | None) -> Finding:
    valued = [_with_gain(remedy, fit, price) for remedy in finding.remedies]
    # Sorting is stable: what has no prediction keeps the order of the rule, behind what has one.
    return msgspec.structs.replace(finding, remedies=sorted(valued, key=_rank))


def _rank(remedy: Remedy) -> float:
    return -remedy.gain.value if isinstance(remedy.gain, Reading) else 0.0


def _with_gain(remedy: Remedy, fit: Fit | Missing, price: float | None) -> Remedy:
    if remedy.question is None:
        return remedy
    answer = forecast(fit, remedy.question, price)
    return msgspec.structs.replace(
        remedy,
        gain=answer.speedup,
        gain_words=word_gain(answer),
        worth_usd_per_day=answer.worth_usd_per_day,
    )


def word_gain(answer: Forecast) -> str:
    """`2.1x (1.9-2.3), then storage bandwidth`; empty without an answer."""
    speedup = answer.speedup
    if isinstance(speedup, Missing) or speedup.low is None or speedup.high is None:
        return ""
    return f"{speedup.value:.2g}x ({speedup.low:.2g}-{speedup.high:.2g}), then {answer.limit_words}"
