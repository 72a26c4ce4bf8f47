"""Sliders: the answers on a page are those of `fuelline whatif`."""

import pytest

from fuelline.schema.diagnosis.forecasts import ForecastGrid, WhatIf
from fuelline.schema.readings import Missing
from fuelline.whatif import fit, forecast, recommend, tabulate
from tests.unit.whatif.jobs import make_facts
from tests.unit.whatif.test_recommending import asleep

COMPUTING = {"batch": 42.0, "workers": 1, "cpu": 40.0, "device": 11.0, "cores": 2.0}


def table_of(**more: float) -> ForecastGrid:
    found = tabulate(fit(make_facts(**{**COMPUTING, **more})))
    assert isinstance(found, ForecastGrid)
    return found


@pytest.mark.parametrize(
    ("turned", "question"),
    [
        ({"workers": 2}, WhatIf(workers=2)),
        ({"workers": 2, "cores": 4.0}, WhatIf(workers=2, cores=4.0)),
        ({"storage": "nvme", "chip_factor": 2.0}, WhatIf(storage="nvme", chip_factor=2.0)),
        ({"workers": 2, "prefetch": 4}, WhatIf(workers=2, prefetch=4)),
    ],
)
def test_an_answer_of_the_table_is_the_answer_to_that_question(turned, question) -> None:
    table = table_of()
    axes = {axis.knob: axis for axis in table.axes}
    places = {knob: axes[knob].values.index(value) for knob, value in turned.items()}
    assert table.find(places) == forecast(fit(make_facts(**COMPUTING)), question)


def test_the_recorded_setting_is_no_question() -> None:
    table = table_of()
    assert table.find({}).question.is_empty()
    assert table.find({}).speedup.value == pytest.approx(1.0)


@pytest.mark.parametrize("facts", [make_facts(**COMPUTING), asleep()])
def test_recorded_and_recommended_workers_are_among_few_values(facts) -> None:
    values = next(axis.values for axis in tabulate(fit(facts)).axes if axis.knob == "workers")
    assert fit(facts).pipe.workers in values
    assert recommend(fit(facts)).workers in values
    assert len(values) <= 7
    assert values == sorted(values)


def test_without_a_model_there_is_a_reason_instead() -> None:
    assert tabulate(Missing(reason="nobody looked")) == Missing(reason="nobody looked")
