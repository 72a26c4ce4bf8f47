"""A model on chips with an engine: the one thing that every prediction is asked of.

Holds no state. Steps, batches and whole requests are timed here from `step.time_step`; who asks
decides what to do with them. A pipeline divides the work of a step over stages that run at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.predict.planner.physics.memory import most_sequences
from fuelline.predict.planner.physics.setup import Setup
from fuelline.predict.planner.physics.step import Tally, time_step
from fuelline.predict.planner.physics.work import make_work
from fuelline.schema.plans import Slice

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK_TOKENS = 8192
"""Prompt tokens in one step at most: the default of TRT-LLM and vLLM on large chips."""


SPARE_ROOM = 1.12
"""A static batch may fill what a serving engine keeps free."""


class Deployment(Setup, frozen=True, kw_only=True):
    """One replica: `spread.tp * spread.pp` chips that serve a model together."""

    def step(self, slices: Sequence[Slice]) -> Tally:
        """One step through all layers."""
        return time_step(self, make_work(slices))

    def decode(self, sequences: float, context: float) -> Tally:
        """Every sequence gets one token."""
        return self.step([Slice(sequences, 1, context)])

    def prefill(self, sequences: float, length: float, past: float = 0.0) -> Tally:
        """Whole prompts, in steps of at most `CHUNK_TOKENS` tokens."""
        together = CHUNK_TOKENS / length
        if together >= sequences:
            return self.step([Slice(sequences, length, past)])
        if together >= 1:
            return self.step([Slice(together, length, past)]).scaled(sequences / together)
        chunks = math.ceil(length / CHUNK_TOKENS)
        part = length / chunks
        # Time is a polynomial of the past, so the middle chunk stands for all.
        middle = self.step([Slice(1, part, past + (length - part) / 2)])
        return middle.scaled(chunks * sequences)

    def batch(self, sequences: float, prompt: float, output: float) -> Tally:
        """A static batch from its start to its last token, in waves if the cache cannot hold it."""
        room = self.room(prompt + output) * SPARE_ROOM
        waves = math.ceil(sequences / room - 1e-9) if room >= 1 else 1
        each = sequences / waves
        one = self.decode(each, prompt + output / 2).scaled(max(output - 1, 0.0))
        if prompt > 0:
            one = one.plus(self.prefill(each, prompt))
        return one.scaled(waves)

    def room(self, context: float) -> float:
        """Sequences of this length that the replica's memory holds."""
        return most_sequences(self.model, self.chip, self.precision, self.spread, context)
