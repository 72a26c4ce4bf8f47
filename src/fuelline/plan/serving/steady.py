"""Continuous batching in a steady state: rate, time to first token, time per output token.

Little's law over the step model: while a request decodes its tokens, every other running request
is prefilled once, so a token waits for its own step and for its share of those prefills. What a
request waits for before its own prefill depends on how requests come: at random, or in a closed
loop that starts with all of them at once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.plan.physics.constants import EQUAL_LENGTHS
from fuelline.plan.physics.deployment import CHUNK_TOKENS, stalls_for

if TYPE_CHECKING:
    from fuelline.plan.physics.constants import Loop
    from fuelline.plan.physics.deployment import Deployment
    from fuelline.plan.physics.tally import Tally


class Load(Struct, frozen=True, kw_only=True):
    """What one attention replica delivers under a steady load, and what its times are made of."""

    sequences: float
    """Running at once; below one where fewer run than there are attention replicas."""
    batch: float
    """Of them in one step: the stages of a pipeline hold different ones."""
    per_second: float
    """Output tokens a second of the replica."""
    tpot_s: float
    """Between tokens of one request, prefills of others included; the sum of `token`."""
    ttft_s: float
    """The sum of `first`."""
    cycle: Tally
    """All that happens while one request runs."""
    token_s: float
    """One decode step."""
    step: Tally
    """The same, by its parts."""
    fill: Tally
    """One prompt among as many as come together."""
    alone: Tally
    """One prompt in an empty engine."""
    stalls: float
    """Prompts elsewhere that hold this batch up, for one of its own."""
    output: float
    front_s: float
    """Of a request before the engine has it."""

    def token(self) -> Tally:
        """What a token's time is made of: its step, prompts of its batch, prompts elsewhere."""
        parts = self.step.plus(self.fill, max(self.batch - 1, 0.0) / self.output)
        parts.stall += self.batch * self.stalls * self.fill.seconds / self.output
        return parts

    def first(self) -> Tally:
        """What the time to the first token is made of: the prompt, and what it waits for."""
        parts = self.alone.scaled(1.0)
        parts.front += self.front_s
        parts.queue += max(self.ttft_s - self.front_s - self.alone.seconds, 0.0)
        return parts


def saturate(replica: Deployment, prompt: float, output: float, most: float | None = None) -> Load:
    """As many sequences as memory and the engine allow, always."""
    limit = max(replica.most(prompt + output), 1)
    alone = replica.prefill(1, max(prompt, 1.0))
    return _steady(replica, min(limit, most) if most else limit, prompt, output, alone)


def load(
    replica: Deployment, sequences: float, prompt: float, output: float, loop: Loop = EQUAL_LENGTHS
) -> Load:
    """A fixed number of requests in flight, each replaced when it ends.

    The first round starts all at once. Later, requests of equal length that started in one step
    end in one step, so a share of them comes together again; lengths that differ spread them until
    they come at random.
    """
    size = max(prompt, 1.0)
    alone = replica.prefill(1, size)
    steady = _steady(replica, sequences, prompt, output, alone)
    burst_s = _first_tokens(replica, sequences, size)
    if loop.shortest_share < 1:
        later_s = alone.seconds + _random_wait(replica, steady, output, alone)
    else:
        together = 1 + replica.constants.shares.wave_share * max(sequences - 1, 0)
        later_s = _first_tokens(replica, together, size)
    mean_s = (burst_s + (loop.rounds - 1) * later_s) / loop.rounds
    step_s = steady.token_s / 2 if sequences > 1 else 0.0
    return replace(steady, ttft_s=replica.engine.first_token_ms * 1e-3 + mean_s + step_s)


def arrive(
    replica: Deployment, sequences: float, prompt: float, output: float, alone: Tally | None = None
) -> Load:
    """Requests come at random at the rate that keeps this many in flight (Little's law)."""
    alone = alone or replica.prefill(1, max(prompt, 1.0))
    steady = _steady(replica, sequences, prompt, output, alone)
    step_s = steady.token_s / 2 if sequences > 1 else 0.0
    wait_s = _random_wait(replica, steady, output, alone) + step_s
    return replace(steady, ttft_s=steady.ttft_s + wait_s)


def _steady(
    replica: Deployment, sequences: float, prompt: float, output: float, alone: Tally
) -> Load:
    """All but the queue in front of a prefill: the first token is that of an empty engine."""
    room = replica.room(prompt + output / 2)
    # A model that does not fit as stated was run somehow: then the stated load counts.
    held = min(sequences, room) if room >= 1 else sequences
    batch = held / replica.spread.pp
    if batch < 1:  # some stages or some attention replicas are empty
        batch = min(held, 1.0)
    step = replica.decode(batch, prompt + output / 2)
    count = max(batch, 1.0)
    fill = _one_of(replica, count, max(prompt, 1.0))
    stalls = stalls_for(replica, count / output, held)
    cycle = step.scaled(output).plus(fill, count)
    cycle.stall += count * stalls * fill.seconds
    front_s = replica.engine.first_token_ms * 1e-3
    between = max(count - 1, 0.0) + count * stalls
    return Load(
        sequences=held,
        batch=count,
        per_second=held * output / cycle.seconds,
        tpot_s=step.seconds + between * fill.seconds / output,
        ttft_s=front_s + alone.seconds,
        cycle=cycle,
        token_s=step.seconds,
        step=step,
        fill=fill,
        alone=alone,
        stalls=stalls,
        output=output,
        front_s=front_s,
    )


def _one_of(replica: Deployment, count: float, prompt: float) -> Tally:
    """One prompt of so many that come together; more than a chunk holds are no cheaper."""
    return _one_of_chunk(replica, min(count, max(CHUNK_TOKENS / prompt, 1.0)), prompt)


@lru_cache(maxsize=16)
def _one_of_chunk(replica: Deployment, count: float, prompt: float) -> Tally:
    return replica.prefill(count, prompt).scaled(1 / count)


def _first_tokens(replica: Deployment, together: float, prompt: float) -> float:
    """Mean time to the first token of prompts that come together, in steps of a chunk each.

    A step gives its first tokens when it ends: all of the first chunk wait for that chunk, all of
    the last one for the whole.
    """
    whole = replica.prefill(together, prompt).seconds
    chunk = min(together, max(CHUNK_TOKENS / prompt, 1.0))
    return (whole + replica.prefill(chunk, prompt).seconds) / 2


def _random_wait(replica: Deployment, steady: Load, output: float, alone: Tally) -> float:
    """A request waits for those in front of it, not for a wave.

    The prefill server is busy for a share of the time, and the mean wait of a queue with constant
    service follows (Pollaczek-Khinchine).
    """
    own_s = alone.seconds
    busy = min(steady.per_second / output * own_s / replica.spread.pp, 0.95)
    return own_s * busy / (2 * (1 - busy))
