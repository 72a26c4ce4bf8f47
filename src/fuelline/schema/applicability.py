"""How far a remedy may be applied without asking."""

from __future__ import annotations

from typing import Literal

Applicability = Literal["safe", "unsafe", "display"]
"""safe: same samples, order, numbers. unsafe: may change results or memory. display: only shown."""
