"""A model on chips with an engine: the one thing that every prediction is asked of.

Holds no state. Steps, batches and whole requests are timed here from `step.time_step`; who asks
decides what to do with them. A pipeline divides the work of a step over stages that run at once.

Also here: batches that go in step: one that reads a prompt holds up all others.

Stages of a pipeline pass batches on in turn, and attention replicas that share experts step
together. The steady state and the simulation take what others' prompts cost from here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.plan.physics.expert_operators import expert_share
from fuelline.plan.physics.memory import cache_bytes, cache_room, host_share_for
from fuelline.plan.physics.setup import Setup
from fuelline.plan.physics.step import time_step
from fuelline.plan.physics.work import make_work
from fuelline.schema.plan.estimates import Slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.plan.physics.tally import Tally


CHUNK_TOKENS = 8192
"""Prompt tokens in one step at most: the default of TRT-LLM and vLLM on large chips."""


SPARE_ROOM = 1.12
"""A static batch may fill what a serving engine keeps free."""


class Deployment(Setup, frozen=True, kw_only=True):
    """One replica: `spread.shards` chips that serve a model together."""

    def step(self, slices: Sequence[Slice]) -> Tally:
        """One step through all layers."""
        return time_step(self, make_work(self._cut(slices)))

    def decode(self, sequences: float, context: float) -> Tally:
        """Every sequence gets one token; below one, only some attention replicas have one."""
        busy = min(sequences, 1.0)
        slices = self._cut([Slice(max(sequences, 1.0), 1, context)])
        return time_step(self, make_work(slices, busy=busy))

    def prefill(self, sequences: float, length: float, past: float = 0.0) -> Tally:
        """Whole prompts, in steps of at most `CHUNK_TOKENS` tokens per chip."""
        chunk = CHUNK_TOKENS * self.spread.cp
        together = chunk / length
        if together >= sequences:
            return self.step([Slice(sequences, length, past)])
        if together >= 1:
            return self.step([Slice(together, length, past)]).scaled(sequences / together)
        chunks = math.ceil(length / chunk)
        part = length / chunks
        # Time is a polynomial of the past, so the middle chunk stands for all.
        middle = self.step([Slice(1, part, past + (length - part) / 2)])
        return middle.scaled(chunks * sequences)

    def _cut(self, slices: Sequence[Slice]) -> Sequence[Slice]:
        """One chip's part of sequences that are cut along the context: tokens, pairs and cache."""
        if self.spread.cp == 1:
            return slices
        return [Slice(each.count / self.spread.cp, each.new, each.past) for each in slices]

    def batch(self, sequences: float, prompt: float, output: float) -> Tally:
        """A static batch from its start to its last token, in waves if the cache cannot hold it."""
        room = self.room(prompt + output) * SPARE_ROOM
        waves = math.ceil(sequences / room - 1e-9) if room >= 1 else 1
        each = sequences / waves
        one = self.decode(each, prompt + output / 2).scaled(max(output - 1, 0.0))
        if prompt > 0:
            one = one.plus(self._read(each, prompt))
        return one.scaled(waves)

    def _read(self, sequences: float, length: float) -> Tally:
        """Prompts of a static batch: while one stage reads a chunk, the next reads the one before.

        Under load, stages are lanes of their own (`serving`), so `prefill` counts all of them.
        """
        steps = max(sequences * length / (CHUNK_TOKENS * self.spread.cp), 1.0)
        stages = self.spread.pp
        return self.prefill(sequences, length).scaled((steps + stages - 1) / (steps * stages))

    def room(self, context: float) -> float:
        """Sequences of this length that the replica's memory holds."""
        model, precision, spread = self.model, self.precision, self.spread
        free = cache_room(model, self.chip, precision, spread, self.host_share)
        return max(free, 0.0) / max(cache_bytes(model, precision, spread, context), 1e-9)

    def offloaded(self, sequences: float, context: float) -> Deployment | None:
        """The same, with just enough in host memory for this many sequences; None: too many."""
        model, precision, spread = self.model, self.precision, self.spread
        cache = sequences * cache_bytes(model, precision, spread, context)
        share = host_share_for(model, self.chip, precision, spread, cache)
        return None if share is None else replace(self, host_share=share)

    def most(self, context: float) -> int:
        """Whole sequences of this length that memory and the engine let run at once."""
        limit = min(self.room(context), float(self.engine.most_sequences * self.spread.pp))
        return math.floor(limit + 1e-9)


def stalls_for(replica: Deployment, prompts: float, held: float) -> float:
    """Prompts of other batches that hold one up, for every prompt of its own.

    `prompts` come to a batch in a step; `held` sequences run in an attention replica. If few
    prompts come, nearly every prefill holds up all others; if each batch always has one, nobody
    waits for another. Engines that let them start together save a part.
    """
    lanes = 1.0
    if replica.model.experts:
        lanes = expert_share(replica.model, replica.spread).replicas
    together = max(lanes * min(held, 1.0), 1.0) * min(replica.spread.pp, max(held, 1.0))
    share = min(max(prompts, 1e-6), 1.0)
    steps: float = (1 - (1 - share) ** together) / share
    return replica.constants.shares.lockstep_share * (steps - 1)
