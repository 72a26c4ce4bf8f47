"""Continuous batching in a steady state: rate, time to first token, time per output token.

Little's law over the step model: while a request decodes its tokens, every other running request
is prefilled once, so a token waits for its own step and for its share of those prefills. In a
closed loop requests that started together end together; a share of them queues for its prefill as
a wave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.predict.expert_operators import expert_share

if TYPE_CHECKING:
    from fuelline.predict.deployment import Deployment
    from fuelline.predict.step import Tally

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
    return load(replica, min(limit, most) if most else limit, prompt, output)


def load(
    replica: Deployment, sequences: float, prompt: float, output: float, alone: Tally | None = None
) -> Load:
    """A fixed number of requests in flight, each replaced when it ends; `alone`: one prefill."""
    stages = replica.spread.pp
    room = replica.room(prompt + output / 2)
    # A model that does not fit as stated was run somehow: then the stated load counts.
    held = max(min(sequences, room) if room >= 1 else sequences, 1.0)
    each = max(held / stages, 1.0)
    token = replica.decode(each, prompt + output / 2)
    alone = alone or replica.prefill(1, max(prompt, 1.0))
    fill = replica.prefill(each, max(prompt, 1.0)).scaled(_held_up(replica) / each)
    slack = 1 + STAGE_BUBBLE * (stages - 1)
    cycle = token.scaled(output).plus(fill, each).scaled(slack)
    tpot_s = token.seconds + max(each - 1, 0) * fill.seconds / output
    wave = replica.constants.shares.wave_share * max(sequences - 1, 0) / 2
    wait_s = wave * fill.seconds + (token.seconds / 2 if sequences > 1 else 0.0)
    return Load(
        sequences=held,
        per_second=stages * each * output / cycle.seconds,
        tpot_s=tpot_s * (slack if stages > 1 else 1.0),
        ttft_s=replica.engine.first_token_ms * 1e-3 + alone.seconds + wait_s,
        cycle=cycle,
        token_s=token.seconds,
    )


def arrive(
    replica: Deployment, sequences: float, prompt: float, output: float, alone: Tally | None = None
) -> Load:
    """Requests come at random at the rate that keeps this many in flight (Little's law).

    A request then waits for those in front of it, not for a wave: the prefill server is busy for a
    share of the time, and the mean wait of a queue with constant service follows
    (Pollaczek-Khinchine).
    """
    alone = alone or replica.prefill(1, max(prompt, 1.0))
    steady = load(replica, sequences, prompt, output, alone)
    own_s = alone.seconds
    busy = min(steady.per_second / output * own_s / replica.spread.pp, 0.95)
    waiting_s = own_s * busy / (2 * (1 - busy)) + (steady.token_s / 2 if sequences > 1 else 0.0)
    fixed_s = replica.engine.first_token_ms * 1e-3
    return replace(steady, ttft_s=fixed_s + own_s + waiting_s)


def _held_up(replica: Deployment) -> float:
    """Attention replicas that share experts wait for the one that prefills."""
    if not replica.model.experts:
        return 1.0
    _, together, _ = expert_share(replica.model, replica.spread)
    return 1 + replica.constants.shares.lockstep_share * (together - 1)
