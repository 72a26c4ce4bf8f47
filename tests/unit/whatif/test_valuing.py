"""Remedies get their gains, those of findings and the settings that are proposed beside them."""

from msgspec.structs import replace

from fuelline.diagnose import diagnose
from fuelline.fix.remedies import propose_settings
from fuelline.fix.tune.outcomes import adopt_measured
from fuelline.report.diagnosis.writer import describe_fixes
from fuelline.schema.diagnosis.findings import BudgetPart, Diagnosis, Finding, Remedy
from fuelline.schema.diagnosis.fixes import BeforeAfter, Fix, LoaderFixes, Stretch
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.trials import Recommendation, Setting, Trial, risk_of_workers
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.run.recording import LoaderFacts
from fuelline.whatif import fit, restate, value_remedies
from tests.rules.cases import RUN
from tests.unit.whatif.jobs import make_facts


def test_the_risk_of_a_stream_follows_the_number_of_workers() -> None:
    stream = LoaderFacts(num_workers=0, style="iterable")
    assert risk_of_workers(stream, 1) == "the order changes"
    assert "comes 4 times" in risk_of_workers(stream, 4)


PAUSES = [
    BudgetPart(part="forward", seconds=48, share=0.8),
    BudgetPart(part="epoch start", seconds=12, share=0.2),
]


def valued(*, is_known: bool = True, is_found: bool = False) -> Diagnosis:
    """A job that starts its workers anew every ten batches; `is_found` with the finding of it."""
    facts = replace(make_facts(batch=20, pauses={"epoch start": 4.0}), budget=PAUSES)
    found = diagnose(facts, RUN, [], 2.0)
    findings = found.findings if is_found else []
    proposed = replace(found, settings=propose_settings(facts), findings=findings)
    return value_remedies(proposed, fit(facts) if is_known else Missing(reason="no loader"))


def find(diagnosis: Diagnosis, word: str) -> Remedy:
    return next(each for each in diagnosis.settings if word in each.setting)


def test_a_setting_that_is_proposed_has_the_gain_that_the_model_predicts() -> None:
    persistent = find(valued(), "persistent_workers")
    assert isinstance(persistent.gain, Reading)
    assert persistent.gain.value > 1
    assert persistent.worth_usd_per_day is not None


def test_remedies_name_the_recommended_setting_and_no_other_and_that_once() -> None:
    diagnosis = valued(is_found=True)
    assert diagnosis.recommended is not None
    shown = [each.setting for found in diagnosis.findings for each in found.remedies]
    shown += [each.setting for each in diagnosis.settings]
    about_workers = [each for each in shown if each.startswith("DataLoader(")]
    assert about_workers == [diagnosis.recommended.text()]


def test_the_report_shows_it() -> None:
    settings = valued().settings
    text = str(describe_fixes([LoaderFixes(pid=1, loader="DataLoader", workers=2)], settings))
    assert f"predicted: {find(valued(), 'persistent_workers').gain_words}" in text


def test_settings_with_the_greatest_gain_come_first() -> None:
    gains = [each.gain.value for each in valued().settings if isinstance(each.gain, Reading)]
    assert gains == sorted(gains, reverse=True)


def test_without_a_model_the_reason_stands_in_its_place() -> None:
    assert find(valued(is_known=False), "persistent_workers").gain == Missing(reason="no loader")


def test_a_remedy_that_would_gain_next_to_nothing_is_not_shown() -> None:
    facts = replace(make_facts(batch=20, pauses={"epoch start": 4.0}), budget=PAUSES)
    useless = Remedy(
        setting="prefetch_factor=64",
        why="",
        applicability="safe",
        question=WhatIf(prefetch=64),
    )
    bounded = replace(useless, question=None, at_most_speedup=1.029)
    unbounded = replace(useless, question=None)
    proposed = replace(diagnose(facts, RUN, [], 2.0), settings=[useless, bounded, unbounded])
    assert value_remedies(proposed, fit(facts)).settings == [unbounded]


def test_the_risk_is_that_of_the_recommended_number_of_workers() -> None:
    stream = {"loader": {"style": "iterable"}, "demands": {"sleep_frac": Reading(value=1, unit="")}}
    facts = make_facts(batch=130, workers=1, cpu=2, blocked=126, read=0, device=8, **stream)
    remedy = Remedy(
        setting="DataLoader(..., num_workers=4)",
        why="",
        applicability="unsafe",
        risk=risk_of_workers(facts.loader, 4),
        question=WhatIf(workers=4),
    )
    proposed = replace(diagnose(facts, RUN, [], 2.0), findings=[], settings=[remedy])
    diagnosis = value_remedies(proposed, fit(facts))
    (shown,) = diagnosis.settings
    assert diagnosis.recommended is not None
    assert diagnosis.recommended.workers != 4
    assert f"comes {diagnosis.recommended.workers} times" in shown.risk


def test_what_fix_found_is_what_remedies_name_then() -> None:
    diagnosis = valued(is_found=True)
    assert diagnosis.recommended is not None
    effect = BeforeAfter(
        before=Stretch(seconds=3, step_seconds=0.08, wait_share=None, workers=1),
        after=Stretch(seconds=9, step_seconds=0.04, wait_share=0.1, workers=2),
    )
    kept = Fix(why="it waited", trial=Trial(settings=[]), outcome="kept")
    fixes = [LoaderFixes(pid=1, loader="DataLoader", workers=1, fixes=[kept])]
    stays = [Setting(knob="persistent_workers", value=True)]
    model = replace(diagnosis.recommended, settings=stays, workers=2)
    adopted = adopt_measured(model, effect, fixes)
    assert adopted is not None
    assert adopted.text() == "DataLoader(..., num_workers=2, persistent_workers=True)"
    assert "each worker needs memory" in adopted.risk
    # Half of it was measured, and what was not tried is predicted.
    was, now = model.speedup, adopted.speedup
    assert isinstance(was, Reading)
    assert isinstance(now, Reading)
    assert (now.value, now.level, adopted.is_measured) == (2 * was.value, was.level, False)
    told = restate(diagnosis, adopted)
    shown = [each for found in told.findings for each in found.remedies]
    about_workers = [each for each in shown if each.setting.startswith("DataLoader(")]
    assert [(each.setting, each.gain) for each in about_workers] == [(adopted.text(), now)]


def test_a_measured_gain_without_a_next_limit_ends_with_its_number() -> None:
    measured = Recommendation(
        settings=[Setting(knob="num_workers", value=4)],
        workers=4,
        speedup=Reading(value=2, unit="x", origin="steps before and after --fix"),
        is_measured=True,
    )
    told = restate(valued(is_found=True), measured)
    shown = [each for found in told.findings for each in found.remedies]
    assert [each.gain_words for each in shown if each.setting == measured.text()] == ["2.00x"]


def test_a_verdict_that_the_model_does_not_explain_keeps_its_remedy_with_a_bound() -> None:
    """Training waits half of the time, and the model sees no reason why."""
    facts = make_facts(batch=15, workers=1, cpu=9.0, blocked=0.5, host=10.0, device=4.0, cores=2)
    found = diagnose(facts, RUN, [], 2.0)
    remedy = Remedy(
        setting="speed up pad",
        why="it is most of a fetch",
        applicability="display",
        at_most_speedup=1.9,
        question=WhatIf(transform_factor=2.0),
    )
    finding = Finding(
        code="HO302",
        name="slow-collate",
        stage="collate",
        limit="code",
        sentence="",
        lost_seconds=30.0,
        lost_share=0.5,
        remedies=[remedy],
    )
    told = replace(found, findings=[finding], verdict=replace(found.verdict, code="HO302"))
    (shown,) = value_remedies(told, fit(facts)).findings[0].remedies
    assert shown.gain is None
    assert 1.03 <= (shown.at_most_speedup or 0.0) <= 1.9
    beside = replace(told, verdict=replace(found.verdict, code="IN101"))
    assert not value_remedies(beside, fit(facts)).findings[0].remedies
