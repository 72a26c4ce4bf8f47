"""What a step sends through a model: tokens, pairs of attention, keys that are read.

Slices of sequences in (some prefilling, some decoding), sums out. All numbers are per attention
replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.plan.estimates import Slice


class StepWork(Struct, frozen=True):
    """What a step sends through the model, per attention replica."""

    rows: float
    """Tokens."""
    logit_rows: float
    """Tokens whose next token is wanted."""
    slices: tuple[Slice, ...]
    busy_share: float = 1.0
    """Of the attention replicas that share experts: these have as much work, the others none."""

    def pairs(self, window: int = 0, *, causal: bool = True) -> float:
        """Query-key pairs of one head in one layer."""
        return sum(
            part.count * _pairs(part.new, part.past, window, causal=causal) for part in self.slices
        )

    def cached(self, window: int = 0) -> float:
        """Keys that have to be read once in one layer."""
        return sum(
            part.count
            * (min(part.past + part.new, window + part.new - 1) if window else part.past + part.new)
            for part in self.slices
        )


def _pairs(new: float, past: float, window: int, *, causal: bool) -> float:
    if not causal:
        return new * (past + new)
    every = new * past + new * (new + 1) / 2
    if not window or past + new <= window:
        return every
    climbing = max(window - past, 0.0)
    return climbing * past + climbing * (climbing + 1) / 2 + (new - climbing) * window


def make_work(slices: Sequence[Slice], *, all_logits: bool = False, busy: float = 1.0) -> StepWork:
    """Sum up slices; training wants every token's logits, serving the last one's."""
    rows = sum(part.count * part.new for part in slices)
    last = sum(part.count for part in slices)
    return StepWork(rows, rows if all_logits else last, tuple(slices), busy)
