"""One row in, one estimate out, or the reason why there is none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.predict.check.case import make_case
from fuelline.predict.check.inference import answer_inference, is_under_load
from fuelline.predict.check.training import answer_training
from fuelline.schema.errors import InputError
from fuelline.schema.plans import Estimate, Unanswered

if TYPE_CHECKING:
    from fuelline.predict.check.rows import Row
    from fuelline.predict.rates import Constants


def answer_row(row: Row, constants: Constants) -> Estimate | Unanswered:
    """Predict what this row measured."""
    try:
        case = make_case(row, constants)
        training = row.kind.startswith("train")
        point = (answer_training if training else answer_inference)(row, case, constants)
    except InputError as error:
        return Unanswered(reason=str(error))
    if not math.isfinite(point.value) or point.value <= 0:
        return Unanswered(reason="the figures of the row give no finite answer")
    return Estimate(
        value=point.value, low=point.value, high=point.value, unit=row.unit, limit="", assumptions=point.assumptions
    )


def group_of(row: Row) -> str:
    """Which bar a row is judged by."""
    if row.kind.startswith("train"):
        return "training, MoE" if (row.ep or 1) > 1 else "training, dense"
    if "energy" in row.metric:
        return "energy"
    if is_under_load(row) and row.metric in ("tpot", "itl"):
        return "TPOT under load"
    if is_under_load(row) and row.metric == "ttft":
        return "TTFT under load"
    return "throughput under load" if is_under_load(row) else "static"
