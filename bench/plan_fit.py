"""The fit behind `plan_accuracy`: constants from measured rows, shrunk to the stated ones.

Parameters are logarithms of constants in the planner's own table, each with a prior spread; the
same constant of several chips or engines is shrunk towards what they have in common; rows count
less where one source has many. One linearisation around the full fit gives the fit without any
source, so that a row is always judged by constants that never saw its source. Needs numpy; about
two minutes.
"""

from __future__ import annotations

import collections
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fuelline.plan.check.answer import answer_row, group_of
from fuelline.plan.check.case import read_chip
from fuelline.plan.physics.constants import Adjustment, Constants, adjusted
from fuelline.plan.physics.interval import RATE, SPARSE, TPOT, TTFT
from fuelline.plan.physics.rates import find_engine
from fuelline.schema.plan.chips import find_chip
from fuelline.schema.plan.estimates import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fuelline.plan.check.rows import Row

Array = Any

SPREAD = {
    # One standard deviation of what a constant may be, as a share of what is stated.
    "matmul": {
        "memory_share": 0.12,
        "math_share": 0.12,
        "launch_us": 0.35,
        "train_share": 0.2,
        "attention_share": 0.25,
        "unpack8_share": 0.12,
        "unpack4_share": 0.15,
    },
    "engine": {"step_us": 0.5, "sequence_us": 0.4, "first_token_ms": 0.5, "launch_us": 0.3},
    "shares": {
        "small_launch_share": 0.3,
        "route_launches": 0.4,
        "grouped_share": 0.4,
        "unpacked_share": 0.4,
        "older_attention_share": 0.25,
        "cache_read_share": 0.1,
        "floor_scale": 0.4,
        "scatter_share": 0.4,
        "imbalance": 0.5,
        "lockstep_share": 0.6,
        "exposed_share": 0.4,
        "expert_exposed_share": 0.5,
        "eager_moves": 0.3,
        "score_moves": 0.3,
        "wave_share": 0.5,
        "move_share": 0.15,
        "short_sum_bytes": 0.4,
    },
}
KIN = 0.5
"""Correlation between what one constant is on different chips or engines: what the model leaves
out, it leaves out everywhere. Chips with few sources borrow from the others so far."""
LOOSE = 2.0
"""Constants of chips that were measured badly (L40S) or not at all may move further."""
AT_MOST = {"memory_share": 0.97, "math_share": 0.97, "move_share": 0.97, "unpack8_share": 1.0}
NOISE = {TTFT: 0.5, RATE: 0.2, SPARSE: 0.4, TPOT: 0.15}
"""Spread of a row around a perfect model, as a share; 0.12 for the other groups."""
ALIKE = 0.15
"""Correlation of errors within one source."""
USED = ("clean", "launch_bound")
"""Regimes that tell something about the constants."""
STEP, ROUNDS, LONGEST = 0.03, 4, 0.25


@dataclass(frozen=True)
class Parameter:
    """One constant of the table."""

    table: str
    name: str
    key: str
    stated: float
    spread: float
    chips: tuple[str, ...] = ()
    kind: str = ""

    @property
    def kin(self) -> tuple[str, str, str]:
        """Entries of one kind of device, or of one kind of software, have this in common."""
        kind = find_chip(self.chips[0]).kind if self.chips else self.kind
        return self.table, kind, self.key

    def change(self, log_value: float) -> Adjustment:
        """As an adjustment of the table."""
        value = min(math.exp(log_value), AT_MOST.get(self.key, math.inf))
        return Adjustment(
            table=self.table, name=self.name, key=self.key, value=value, stated=self.stated
        )


def source_of(row: Row) -> str:
    """What is left out together: a file of a collection, a submitter of a round, a document."""
    part = re.search(r"source_file=([^)]*)", row.source)
    if part:
        return f"aiconfigurator {part[1].split('/data/')[-1]}"
    part = re.search(r"MLPerf Inference (v\S+) \S+?/(\w+)/", row.source)
    if part:
        return f"MLPerf {part[1]} {part[2]}"
    return row.source.split("(")[0][:60].strip()


class Fit:
    """Rows, parameters and the constants they belong to."""

    def __init__(self, rows: Sequence[Row], stated: Constants) -> None:
        self.rows = list(rows)
        self.stated = stated
        self.parameters = list(_parameters(stated))
        self.start = np.array([math.log(each.stated) for each in self.parameters])
        self.narrow = np.linalg.inv(_prior(self.parameters))
        self.sources = [source_of(row) for row in self.rows]
        count = collections.Counter(self.sources)
        self.weight = np.array(
            [
                (1.0 if row.regime in USED else 0.0)
                / (NOISE.get(group_of(row), 0.12) * math.sqrt(1 + ALIKE * (count[source] - 1)))
                for row, source in zip(self.rows, self.sources, strict=True)
            ]
        )
        self._chips = [_chip_of(row) for row in self.rows]
        self._engines = [find_engine(row.text, stated).name for row in self.rows]

    def constants(self, point: Array) -> Constants:
        """The table at this point."""
        changes = tuple(
            each.change(float(value)) for each, value in zip(self.parameters, point, strict=True)
        )
        return adjusted(self.stated, changes)

    def errors(self, point: Array, which: Iterable[int] | None = None) -> Array:
        """Logarithm of predicted over measured; nan where there is no answer."""
        constants = self.constants(point)
        found = np.full(len(self.rows), np.nan)
        for index in range(len(self.rows)) if which is None else which:
            answer = answer_row(self.rows[index], constants)
            if isinstance(answer, Estimate):
                found[index] = math.log(answer.value / self.rows[index].value)
        return found

    def solve(self) -> tuple[Array, Array, Array]:
        """The full fit: point, errors there, and how errors move with the parameters."""
        point = self.start.copy()
        errors = self.errors(point)
        for _ in range(ROUNDS):
            slopes = self._slopes(point, errors)
            wanted = self.nearby(point, errors, slopes, np.ones(len(self.rows)))
            point = point + np.clip(wanted - point, -LONGEST, LONGEST)
            errors = self.errors(point)
        return point, errors, self._slopes(point, errors)

    def nearby(self, point: Array, errors: Array, slopes: Array, keep: Array) -> Array:
        """Where the fit would be with only the rows to keep; large errors count linearly.

        What is small is the relative error, as it is scored: twice too much is worse than half.
        """
        logs = np.where(np.isnan(errors), 0.0, errors)
        keep = keep * ~np.isnan(errors)
        known, slopes = np.expm1(logs), np.exp(logs)[:, None] * slopes
        moved = np.zeros(len(point))
        for _ in range(8):
            scaled = np.abs((known + slopes @ moved) * self.weight)
            robust = np.where(scaled > 1.5, 1.5 / np.maximum(scaled, 1e-9), 1.0)
            weight = self.weight**2 * robust * keep
            left = slopes.T @ (weight[:, None] * slopes) + self.narrow
            right = -(slopes.T @ (weight * known)) - self.narrow @ (point - self.start)
            moved = np.linalg.solve(left, right)
        return point + moved

    def without_source(self) -> Array:
        """Errors of every row by the fit that never saw its source."""
        point, errors, slopes = self.solve()
        self.point, self.full_errors = point, errors
        left_out = np.full(len(self.rows), np.nan)
        for source in dict.fromkeys(self.sources):
            inside = np.array([each == source for each in self.sources])
            other = self.nearby(point, errors, slopes, (~inside).astype(float))
            which = np.flatnonzero(inside)
            left_out[which] = self.errors(other, which)[which]
        return left_out

    def _slopes(self, point: Array, errors: Array) -> Array:
        slopes = np.zeros((len(self.rows), len(point)))
        for column, parameter in enumerate(self.parameters):
            which = [index for index in range(len(self.rows)) if self._touches(parameter, index)]
            if not which:
                continue
            other = point.copy()
            other[column] += STEP
            slopes[which, column] = (self.errors(other, which)[which] - errors[which]) / STEP
        return np.nan_to_num(slopes)

    def _touches(self, parameter: Parameter, index: int) -> bool:
        chip, kind = self._chips[index]
        if parameter.table == "matmul":
            return chip in parameter.chips or (not parameter.chips and kind == parameter.kind)
        return parameter.table == "shares" or parameter.name == self._engines[index]


def _prior(parameters: Sequence[Parameter]) -> Array:
    """Covariance of what constants may be: `KIN` between the same constant of several entries."""
    spread = np.array([each.spread for each in parameters])
    alike = np.array(
        [[KIN if one.kin == two.kin else 0.0 for two in parameters] for one in parameters]
    )
    np.fill_diagonal(alike, 1.0)
    return alike * np.outer(spread, spread)


def _chip_of(row: Row) -> tuple[str, str]:
    chip = read_chip(row.hardware)[0]
    return chip.name, chip.kind


def _parameters(stated: Constants) -> Iterable[Parameter]:
    for table in ("matmul", "engine"):
        for entry in getattr(stated, table):
            chips, kind = getattr(entry, "chips", ()), getattr(entry, "kind", "")
            loose = LOOSE if table == "matmul" and (not chips or "L40S" in chips) else 1.0
            for key, spread in SPREAD[table].items():
                value = getattr(entry, key)
                if value > 0:
                    yield Parameter(table, entry.label, key, value, spread * loose, chips, kind)
    for key, spread in SPREAD["shares"].items():
        yield Parameter("shares", "", key, getattr(stated.shares, key), spread)
