"""One row in, one estimate out, or the reason why there is none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.predict.planner.check.case import NOTHING, make_case
from fuelline.predict.planner.check.inference import answer_inference, is_under_load
from fuelline.predict.planner.check.training import answer_training
from fuelline.predict.planner.physics.interval import estimate
from fuelline.predict.planner.physics.rates import find_matmul
from fuelline.schema.errors import InputError
from fuelline.schema.plans import Estimate, Unanswered

if TYPE_CHECKING:
    from fuelline.predict.planner.check.case import Case, Own
    from fuelline.predict.planner.check.rows import Row
    from fuelline.predict.planner.physics.constants import Constants

STATIC, RATE, TPOT, TTFT = "static", "throughput under load", "TPOT under load", "TTFT under load"
ENERGY, DENSE, SPARSE = "energy", "training, dense", "training, MoE"
GROUPS = (STATIC, RATE, TPOT, TTFT, ENERGY, DENSE, SPARSE)
"""Kinds of rows that are scored apart."""


def answer_row(row: Row, constants: Constants, own: Own = NOTHING) -> Estimate | Unanswered:
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
