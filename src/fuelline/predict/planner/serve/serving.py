"""Continuous batching in a steady state: rate, time to first token, time per output token.

Little's law over the step model: while a request decodes its tokens, every other running request
is prefilled once, so a token waits for its own step and for its share of those prefills. What a
request waits for before its own prefill depends on how requests come: at random, or in a closed
loop that starts with all of them at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.predict.planner.physics.constants import EQUAL_LENGTHS
from fuelline.predict.planner.physics.deployment import CHUNK_TOKENS
from fuelline.predict.planner.physics.expert_operators import expert_share

if TYPE_CHECKING:
    from fuelline.predict.planner.physics.constants import Loop
    from fuelline.predict.planner.physics.deployment import Deployment
    from fuelline.predict.planner.physics.step import Tally

STAGE_BUBBLE = 0.13
"""Idle share that each further stage adds while prefills and decodes share a pipeline: eight
batches are in flight (Llama-3.3-70B on 1, 2, 4 and 8 stages: 1787, 3707, 5961, 8166 tokens/s)."""


class Load(Struct, frozen=True, kw_only=True):
    """What one replica delivers under a steady load."""

    sequences: float
    """Running at once."""
    per_second: float
    """Output tokens a second of the replica."""
    tpot_s: float
    """Between tokens of one request, prefills of others included."""
    ttft_s: float
    cycle: Tally
    """All that happens while one request runs."""
    token_s: float
    """One decode step."""


def saturate(replica: Deployment, prompt: float, output: float, most: float | None = None) -> Load:
    """As many sequences as memory and the engine allow, always."""
    stages = replica.spread.pp
    limit = min(replica.room(prompt + output), replica.engine.most_sequences * stages)
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
    stages = replica.spread.pp
    room = replica.room(prompt + output / 2)
    # A model that does not fit as stated was run somehow: then the stated load counts.
    held = max(min(sequences, room) if room >= 1 else sequences, 1.0)
    each = max(held / stages, 1.0)
    token = replica.decode(each, prompt + output / 2)
    fill = replica.prefill(each, max(prompt, 1.0)).scaled(_held_up(replica, each / output) / each)
    slack = 1 + STAGE_BUBBLE * (stages - 1)
    cycle = token.scaled(output).plus(fill, each).scaled(slack)
    tpot_s = token.seconds + max(each - 1, 0) * fill.seconds / output
    return Load(
        sequences=held,
        per_second=stages * each * output / cycle.seconds,
        tpot_s=tpot_s * (slack if stages > 1 else 1.0),
        ttft_s=replica.engine.first_token_ms * 1e-3 + alone.seconds,
        cycle=cycle,
        token_s=token.seconds,
    )


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


def _held_up(replica: Deployment, prompts: float) -> float:
    """Attention replicas that share experts wait for the one that prefills.

    `prompts` come to a replica in a step. If few do, nearly every prefill holds up all others; if
    each replica always has one, nobody waits for another. Engines that let them start together
    save a part.
    """
    if not replica.model.experts:
        return 1.0
    _, together, _ = expert_share(replica.model, replica.spread)
    share = min(max(prompts, 1e-6), 1.0)
    steps: float = (1 - (1 - share) ** together) / share
    return 1 + replica.constants.shares.lockstep_share * (steps - 1)
