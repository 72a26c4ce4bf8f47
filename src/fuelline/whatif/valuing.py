"""Remedies get the gain that the pipeline model predicts for them, and are ranked by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fuelline.schema.diagnosis.trials import AS_GOOD
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.units import times
from fuelline.whatif.forecasting import forecast
from fuelline.whatif.recommending import ask_for, recommend

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import Diagnosis, Finding, Remedy
    from fuelline.schema.diagnosis.forecasts import Forecast, WhatIf
    from fuelline.schema.diagnosis.trials import Recommendation
    from fuelline.whatif.fitting import Fit


def value_remedies(
    diagnosis: Diagnosis, fit: Fit | Missing, arrived: Recommendation | None = None
) -> Diagnosis:
    """Every remedy that the model has a word for, with its gain; the greatest gain first.

    Those of findings, and the settings that are proposed beside them. Where the model knows which
    loader setting is best, no remedy names another; where it does not, that is the one that --fix
    has `arrived` at, if any. What would gain next to nothing is left out.
    """
    found = recommend(fit)
    recommended = arrived if isinstance(found, Missing) else found

    def value(remedies: list[Remedy], *, is_verdict: bool = False) -> list[Remedy]:
        agreed = _agree(remedies, recommended)
        valued = [_with_gain(remedy, fit, diagnosis.price_usd_per_hour) for remedy in agreed]
        shown = list(filter(_is_worth_showing, valued))
        if is_verdict and not shown:
            shown = [_in_doubt(remedy) for remedy in valued if _may_be_worth(remedy)]
        # Sorting is stable: what has no prediction keeps its order, behind what has one.
        return sorted(shown, key=_rank)

    findings = [
        msgspec.structs.replace(
            finding,
            remedies=value(finding.remedies, is_verdict=finding.code == diagnosis.verdict.code),
        )
        for finding in diagnosis.findings
    ]
    return msgspec.structs.replace(
        diagnosis,
        findings=findings,
        settings=value(_unnamed(diagnosis.settings, findings, recommended)),
        recommended=recommended,
    )


def restate(diagnosis: Diagnosis, recommended: Recommendation | None) -> Diagnosis:
    """The same with another recommendation: remedies that set the loader become that one."""

    def say(remedies: list[Remedy]) -> list[Remedy]:
        return sorted((_restated(each, recommended) for each in remedies), key=_rank)

    return msgspec.structs.replace(
        diagnosis,
        findings=[
            msgspec.structs.replace(finding, remedies=say(finding.remedies))
            for finding in diagnosis.findings
        ],
        settings=say(diagnosis.settings),
        recommended=recommended,
    )


def _restated(remedy: Remedy, recommended: Recommendation | None) -> Remedy:
    sets_loader = remedy.question is not None and _sets_loader(remedy.question)
    if recommended is None or not recommended.settings or not sets_loader:
        return remedy
    return msgspec.structs.replace(
        _as_recommended(remedy, recommended),
        gain=recommended.speedup,
        gain_words=word_gain(recommended),
    )


def _agree(remedies: list[Remedy], recommended: Recommendation | None) -> list[Remedy]:
    """Remedies that set the loader become the recommended setting, once; or go, without one."""
    if recommended is None:
        return remedies
    agreed: list[Remedy] = []
    is_named = False
    for remedy in remedies:
        if remedy.question is None or not _sets_loader(remedy.question):
            agreed.append(remedy)
        elif recommended.settings and not is_named and _speaks_of(remedy.question, recommended):
            is_named = True
            agreed.append(_as_recommended(remedy, recommended))
    return agreed


def _unnamed(
    settings: list[Remedy], findings: list[Finding], recommended: Recommendation | None
) -> list[Remedy]:
    """Settings beside the findings, without those of the loader that a finding names already."""
    text = "" if recommended is None else recommended.text()
    is_named = any(text == remedy.setting for found in findings for remedy in found.remedies)
    if not is_named:
        return settings
    return [each for each in settings if each.question is None or not _sets_loader(each.question)]


def _sets_loader(question: WhatIf) -> bool:
    """Whether it is about workers, their queue or their stay, and about nothing else."""
    rest = msgspec.structs.replace(question, workers=None, prefetch=None, persistent=None)
    return rest.is_empty() and not question.is_empty()


def _speaks_of(question: WhatIf, recommended: Recommendation) -> bool:
    """Whether workers that stay are meant by neither or by both; their number may be another."""
    if question.workers is not None or question.prefetch is not None:
        return True
    return any(setting.knob == "persistent_workers" for setting in recommended.settings)


def _as_recommended(remedy: Remedy, recommended: Recommendation) -> Remedy:
    return msgspec.structs.replace(
        remedy,
        setting=recommended.text(),
        why=recommended.why,
        cost=recommended.cost,
        risk=recommended.risk,
        at_most_speedup=None,
        question=ask_for(recommended),
    )


def _is_worth_showing(remedy: Remedy) -> bool:
    """By its prediction, else by what it can gain at most; what is no matter of speed stays."""
    most = remedy.gain.value if isinstance(remedy.gain, Reading) else remedy.at_most_speedup
    return most is None or most >= 1 + AS_GOOD


def _may_be_worth(remedy: Remedy) -> bool:
    """The model explains the recording so badly that its interval allows for a gain."""
    gain = remedy.gain
    if remedy.question is None or _sets_loader(remedy.question):
        return False  # there is one recommendation for the loader
    return isinstance(gain, Reading) and gain.high is not None and gain.high >= 1 + AS_GOOD


def _in_doubt(remedy: Remedy) -> Remedy:
    """With a bound in the place of a prediction that contradicts what was found."""
    assert isinstance(remedy.gain, Reading)
    bounds = [each for each in (remedy.at_most_speedup, remedy.gain.high) if each is not None]
    return msgspec.structs.replace(remedy, gain=None, gain_words="", at_most_speedup=min(bounds))


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


def word_gain(answer: Forecast | Recommendation) -> str:
    """`2.06x (90 %: 1.88-2.27), then storage bandwidth`; empty without an answer."""
    if isinstance(answer.speedup, Missing):
        return ""
    then = f", then {answer.limit_words}" if answer.limit_words else ""
    return f"{times(answer.speedup)}{then}"
