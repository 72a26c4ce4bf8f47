"""How accurate the planner is on measured rows: read, answer, score."""

from fuelline.predict.check.answer import answer_row
from fuelline.predict.check.rows import Row, read_rows
from fuelline.predict.check.score import score_rows

__all__ = ["Row", "answer_row", "read_rows", "score_rows"]
