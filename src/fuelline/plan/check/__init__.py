"""How accurate the planner is on measured rows: read, answer, score."""

from fuelline.plan.check.answer import answer_row
from fuelline.plan.check.rows import Row, read_rows
from fuelline.plan.check.score import score_rows

__all__ = ["Row", "answer_row", "read_rows", "score_rows"]
