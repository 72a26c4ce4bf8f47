"""What would be: a recorded run and a question in, forecasts out; a fed loader judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from fuelline.fix.tune.outcomes import adopt_measured, summarise_fixes
from fuelline.pipeline.recorded import diagnose_recording, find_fixes, measure_fixed
from fuelline.report import (
    render_markdown,
    render_terminal,
    write_feed,
    write_forecasts,
    write_tuning,
)
from fuelline.report.renderers.junit import write_junit
from fuelline.schema.foreign import encode_json
from fuelline.schema.names import encodable
from fuelline.schema.readings import Missing
from fuelline.schema.units import percent
from fuelline.signals import (
    answer_feed,
    measure_feed,
)
from fuelline.whatif import answer, fit, recommend, seed_settings

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from fuelline.schema.diagnosis.feeding import Feed, FeedAccount, FeedRequest
    from fuelline.schema.diagnosis.forecasts import ForecastReport, WhatIf
    from fuelline.schema.diagnosis.trials import Recommendation, Tuning
    from fuelline.whatif import TrialSeed


def ask_run(run_dir: Path, question: WhatIf, price: float | None = None) -> ForecastReport:
    """What would be, by the pipeline model of the rank that a diagnosis would judge."""
    facts, fixed = measure_fixed(run_dir)
    fitted = facts if isinstance(facts, Missing) else fit(facts)
    report = answer(fitted, question, price)
    if fixed is None:
        return report
    fixes = summarise_fixes(find_fixes(run_dir))
    adopted = adopt_measured(report.recommended or fixed.recommended, fixed.effect, fixes)
    return msgspec.structs.replace(report, recommended=adopted)


def seed_run(
    run_dir: Path, cores: float, workers: int | None, *, job_batches: int | None
) -> tuple[list[TrialSeed], Recommendation | None]:
    """Loader settings worth a trial, and the one that the model of a recording recommends."""
    facts, _ = measure_fixed(run_dir)
    if isinstance(facts, Missing):
        return seed_settings(facts, cores, workers), None
    demands = msgspec.structs.replace(facts.demands, job_batches=job_batches)
    fitted = fit(msgspec.structs.replace(facts, demands=demands))
    recommended = recommend(fitted)
    known = None if isinstance(recommended, Missing) else recommended
    return seed_settings(fitted, cores, workers), known


def ask_as_json(run_dir: Path, question: WhatIf, price: float | None = None) -> str:
    """The contract of `whatif --json`."""
    return encode_json(ask_run(run_dir, question, price))


def show_forecasts(
    run_dir: Path, question: WhatIf, *, name: str, price: float | None, stream: TextIO
) -> None:
    """The same for people; `name` is the word by which commands find the run."""
    report = ask_run(run_dir, question, price)
    render_terminal(write_forecasts(report, encodable(name)), stream)


def judge_feed(run_dir: Path, accounts: list[FeedAccount], request: FeedRequest) -> Feed:
    """What a driven loader can give, whom that would feed, and what keeps it from giving more."""
    emulated = request.step_seconds is not None or request.samples_per_s is not None
    rates = measure_feed(accounts, emulated=emulated)
    diagnosis = diagnose_recording(run_dir, None, rates.waiting)
    return answer_feed(accounts, rates, request, diagnosis)


def show_tuning(tuning: Tuning, stream: TextIO, *, is_written: bool = False) -> None:
    """What was tried and chosen, for people; `is_written` if the script gets the patch at once."""
    render_terminal(write_tuning(tuning, is_written=is_written), stream)


def show_feed(
    feed: Feed, stream: TextIO, *, shape: Literal["json", "markdown", "report"] = "report"
) -> None:
    """The same for people, for a pull request or for scripts."""
    if shape == "json":
        stream.write(encode_json(feed) + "\n")
    elif shape == "markdown":
        stream.write(render_markdown(write_feed(feed)))
    else:
        render_terminal(write_feed(feed), stream)


def check_feed(feed: Feed, at_least: float, path: Path) -> None:
    """As JUnit: is the accelerator busy enough?"""
    busy = feed.utilisation
    wanted = f"utilisation of at least {percent(at_least)}"
    if isinstance(busy, Missing):
        write_junit(path, write_feed(feed), wanted, "skipped", busy.reason)
        return
    is_met = busy.value >= at_least
    words = f"utilisation is {percent(busy.value)}"
    write_junit(path, write_feed(feed), wanted, "passed" if is_met else "failure", words)
