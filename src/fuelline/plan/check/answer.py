"""One row in, one estimate out, or the reason why there is none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.plan.check.case import NOTHING, make_case
from fuelline.plan.check.inference import answer_inference, is_under_load
from fuelline.plan.check.training import answer_training
from fuelline.plan.physics.interval import DENSE, ENERGY, RATE, SPARSE, STATIC, TPOT, TTFT, estimate
from fuelline.plan.physics.rates import find_matmul
from fuelline.schema.errors import InputError
from fuelline.schema.plan.estimates import Estimate, Unanswered

if TYPE_CHECKING:
    from fuelline.plan.check.case import Case, OwnCatalogue
    from fuelline.plan.check.rows import Row
    from fuelline.plan.physics.constants import Constants


def answer_row(
    row: Row, constants: Constants, own: OwnCatalogue = NOTHING
) -> Estimate | Unanswered:
    """Predict what this row measured."""
    try:
        case = make_case(row, constants, own)
        training = row.kind.startswith("train")
        point = (answer_training if training else answer_inference)(row, case, constants)
    except InputError as error:
        return Unanswered(reason=str(error))
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        return Unanswered(reason=f"its figures cannot be computed with ({error})")
    if not math.isfinite(point.value) or point.value <= 0:
        return Unanswered(reason="its figures give no finite answer")
    terms = point.parts.terms(find_matmul(case.chip, "bf16", constants).doubt_frac)
    groups = (group_of(row), *_also(row, case))
    return estimate((point.value, row.unit), terms, groups, constants, point.assumptions)


def _also(row: Row, case: Case) -> tuple[str, ...]:
    """Further reasons for doubt."""
    sparse = case.model.experts and not row.kind.startswith("train")
    return ("experts",) if sparse else ()


def group_of(row: Row) -> str:
    """Which bar a row is judged by."""
    if row.kind.startswith("train"):
        return SPARSE if (row.ep or 1) > 1 else DENSE
    if "energy" in row.metric or row.metric.startswith("power"):
        return ENERGY
    if not is_under_load(row):
        return STATIC
    return {"tpot": TPOT, "itl": TPOT, "ttft": TTFT}.get(row.metric, RATE)
