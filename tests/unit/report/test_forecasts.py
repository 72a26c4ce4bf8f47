"""What `whatif` says, and what it proposes to do about it."""

import pytest

from fuelline.report.diagnosis.forecasts import write_forecasts
from fuelline.report.document import Statement
from fuelline.schema.diagnosis.forecasts import Forecast, ForecastReport, WhatIf
from fuelline.schema.diagnosis.trials import Recommendation, Setting
from fuelline.schema.readings import Missing, Reading

FASTER = Forecast(
    question=WhatIf(workers=8), words="8 workers", speedup=Reading(value=2.0, unit="x")
)
UNKNOWN = Forecast(
    question=WhatIf(workers=8), words="8 workers", speedup=Missing(reason="too few steps")
)
MORE = Recommendation(workers=8, settings=[Setting(knob="num_workers", value=8)])


def said(report: ForecastReport) -> list[str]:
    blocks = write_forecasts(report, "a run").blocks
    return [block.text for block in blocks if isinstance(block, Statement)]


@pytest.mark.parametrize(
    ("report", "command"),
    [
        (ForecastReport(forecasts=[FASTER], recommended=MORE), "tune SCRIPT"),
        (
            ForecastReport(recommended=Recommendation(workers=2)),
            "export 'a run' --perfetto timeline.json",
        ),
        (ForecastReport(forecasts=[UNKNOWN]), "diagnose 'a run'"),
    ],
)
def test_the_next_command_acts_on_the_answer(report: ForecastReport, command: str) -> None:
    assert said(report)[-1] == f"Next: fuelline {command}"


def test_without_a_question_and_an_answer_the_reason_is_all_that_is_said() -> None:
    nothing = Forecast(
        question=WhatIf(), words="nothing changed", speedup=Missing(reason="too few steps")
    )
    assert said(ForecastReport(forecasts=[nothing]))[0] == "No prediction: too few steps."
    assert said(ForecastReport(forecasts=[UNKNOWN]))[0] == "8 workers: cannot tell"
