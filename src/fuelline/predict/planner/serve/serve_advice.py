"""Sentences that `plan serve` adds: what would fit, what a prompt holds up, what links cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.predict.planner.physics.deployment import CHUNK_TOKENS
from fuelline.predict.planner.physics.exchanges import BUS_GBPS
from fuelline.predict.planner.physics.expert_operators import touched_share
from fuelline.predict.planner.physics.memory import cache_bytes, weight_bytes
from fuelline.predict.planner.serve.chips_plan import smallest_spread
from fuelline.predict.planner.serve.floor import active_bytes
from fuelline.schema.chips import GIGA
from fuelline.schema.plans import Parallelism, Slice
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.predict.planner.physics.deployment import Deployment
    from fuelline.predict.planner.serve.serve_answer import Question
    from fuelline.predict.planner.serve.serve_plan import Found, Wish
    from fuelline.schema.chips import Chip

SMALL_CHUNK = 512
"""A chunk that engines use where latency counts."""
_TAX = 0.15
"""Share of a step between chips from which it is worth a sentence."""


def say_more_chips(question: Question, found: list[Found]) -> str:
    """The model fits, but what was asked for takes more chips than there may be."""
    wish = question.wish()
    best = min(found, key=lambda each: (not each.meets, each.chips))
    load = "one replica" if wish.rate_per_s is None else f"{wish.rate_per_s:,g} requests/s"
    limits = " within the limits" if best.meets and (wish.ttft_s or wish.tpot_s) else ""
    offloaded = " " + _offloaded(question, best.replica.chip) if question.offload else ""
    return (
        f"--chips {question.one('chips'):,g} is too few: {load} of {wish.prompt:,.0f} tokens in "
        f"and {wish.output:,.0f} out{limits} needs at least {best.chips} x "
        f"{best.replica.chip.name} ({best.replicas} x tp {best.replica.spread.tp}). Ask for "
        f"--chips {best.chips}, or for less.{offloaded}"
    )


def say_nothing_fits(question: Question) -> str:
    """What would fit, as the smallest change."""
    chip = max(question.chips, key=lambda each: each.mem_bytes or 0)
    model, precision = question.model, question.precision_for(chip)
    wish = question.wish()
    need = weight_bytes(model, precision, Parallelism())
    cache = cache_bytes(model, precision, Parallelism(), wish.prompt + wish.output)
    spread = smallest_spread(model, chip, precision)
    words = [
        (
            f"{model.name} at {precision.name} needs {need / 1e9:,.0f} GB for weights and "
            f"{cache / 1e9:,.2f} GB of "
            f"cache for one sequence of {wish.prompt + wish.output:,.0f} tokens; nothing that was "
            "asked for holds it."
        )
    ]
    if spread is not None and spread.chips > 1:
        words.append(
            f"The smallest that does: {spread.chips} x {chip.name} (tp {spread.tp}, pp "
            f"{spread.pp})."
        )
    elif precision.weight_bits > 8:
        words.append("A smaller --precision (fp8, int4), a shorter --in or more --chips would.")
    else:
        words.append("A shorter --in, more --chips or a chip with more memory would.")
    if question.offload:
        words.append(_offloaded(question, chip))
    return " ".join(words)


def _offloaded(question: Question, chip: Chip) -> str:
    """Host memory has room but not bandwidth."""
    room = (chip.mem_bytes or 0.0) * 0.9
    every = active_bytes(question.model, question.precision)
    share = max(1 - room / weight_bytes(question.model, question.precision, Parallelism()), 0.0)
    seconds = every * share / (BUS_GBPS * GIGA)
    return (
        f"With {percent(share)} of the weights in host memory one {chip.name} gives about "
        f"{1 / seconds:.2g} tokens/s: "
        f"every token pulls {every * share / 1e9:,.0f} GB through a bus of {BUS_GBPS:.0f} GB/s. "
        "Capacity is not "
        "bandwidth."
    )


def advise(question: Question, best: list[Found], wish: Wish) -> Iterator[str]:
    """About the best way."""
    found = best[0]
    replica, load = found.replica, found.load
    token = replica.decode(load.sequences / replica.spread.pp, wish.prompt + wish.output / 2)
    tax = token.exchange / token.seconds
    if tax > _TAX:
        yield (
            f"{percent(tax)} of every token is spent between chips: the interconnect tax. Fewer, "
            "larger chips or a "
            "single wafer do not pay it."
        )
    if replica.spread.pp > 1:
        yield (
            f"{replica.spread.pp} pipeline stages add memory, not speed: a token passes all of "
            "them one after "
            "the other."
        )
    yield from _about_prompts(replica, load.sequences, wish)
    yield from _about_experts(replica, load.sequences)
    room = replica.room(wish.prompt + wish.output)
    if load.sequences > 0.9 * room:
        yield "The cache fills the memory: --kv 8 or shorter contexts would allow larger batches."
    if not found.meets:
        yield _missed(load.ttft_s, load.tpot_s, wish)
    if wish.rate_per_s is not None and found.replicas > 1:
        yield (
            f"{found.replicas} replicas of {replica.spread.chips} serve it with "
            f"{percent(wish.headroom)} head room; one "
            f"replica down leaves {percent(_left(found, wish))} of the rate asked for."
        )
    if question.offload:
        yield _offloaded(question, replica.chip)


def _about_prompts(replica: Deployment, sequences: float, wish: Wish) -> Iterator[str]:
    """A prompt in a step holds up everybody who decodes in it; chunks bound by how much."""
    if wish.prompt <= SMALL_CHUNK or sequences <= 1:
        return
    decoding = Slice(sequences, 1, wish.prompt + wish.output / 2)
    whole, small = (
        replica.step([decoding, Slice(1, min(wish.prompt, chunk))]).seconds
        for chunk in (CHUNK_TOKENS, SMALL_CHUNK)
    )
    yield (
        f"A step with a prompt in it takes {duration(whole)}; cut into chunks of {SMALL_CHUNK} "
        f"tokens {duration(small)}, while the prompt itself waits longer."
    )


def _about_experts(replica: Deployment, sequences: float) -> Iterator[str]:
    model = replica.model
    if not model.experts:
        return
    tokens = sequences * replica.spread.dp
    touched = touched_share(model.experts, model.experts_per_token, tokens)
    yield (
        f"{tokens:,.0f} tokens a step touch {percent(touched)} of the {model.experts} experts of "
        "a layer: "
        "weights read grow to all of them long before math limits."
    )


def _left(found: Found, wish: Wish) -> float:
    each = found.load.per_second * found.replica.spread.dp
    return (
        math.floor(100 * (found.replicas - 1) * each / ((wish.rate_per_s or 1) * wish.output)) / 100
    )


def _missed(ttft_s: float, tpot_s: float, wish: Wish) -> str:
    words = []
    if wish.ttft_s is not None and ttft_s > wish.ttft_s:
        words.append(
            f"the first token takes {ttft_s * 1e3:,.0f} ms where {wish.ttft_s * 1e3:,.0f} are "
            "allowed"
        )
    if wish.tpot_s is not None and tpot_s > wish.tpot_s:
        words.append(
            f"a token takes {tpot_s * 1e3:,.1f} ms where {wish.tpot_s * 1e3:,.1f} are allowed"
        )
    return (
        f"Nothing keeps the limits even with one sequence at a time: {' and '.join(words)}. More "
        "tensor "
        "parallelism, fewer bits or a faster chip would."
    )
