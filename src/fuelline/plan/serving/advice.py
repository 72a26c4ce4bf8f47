"""Sentences that `plan serve` adds: what would fit, what a prompt holds up, what links cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.plan.physics.deployment import CHUNK_TOKENS
from fuelline.plan.physics.exchanges import host_gbps
from fuelline.plan.physics.memory import OFFLOADING, cache_bytes, weight_bytes
from fuelline.plan.serving.chips import smallest_spread
from fuelline.plan.serving.floor import find_floor
from fuelline.schema.plan.estimates import Parallelism, Slice
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.plan.physics.deployment import Deployment
    from fuelline.plan.serving.answer import Question
    from fuelline.plan.serving.search import ServeCandidate, Wish

SMALL_CHUNK = 512
"""A chunk that engines use where latency counts."""
_SAME = 0.95
"""A step with a small chunk that takes this share of one with a whole prompt is no gain."""
_TAX = 0.15
"""Share of a step between chips from which it is worth a sentence."""


def say_more_chips(question: Question, found: list[ServeCandidate]) -> str:
    """The model fits, but what was asked for takes more chips than there may be."""
    wish = question.wish()
    best = min(found, key=lambda each: (not each.meets, each.replica.spread.chips))
    limits = " within the limits" if best.meets and (wish.ttft_s or wish.tpot_s) else ""
    least = best.replica.spread
    return (
        f"--chips {question.one('chips'):,g} is too few: one replica for {wish.prompt:,.0f} tokens "
        f"in and {wish.output:,.0f} out{limits} needs at least {least.chips} x "
        f"{best.replica.chip.name} ({least.words}). Ask for --chips {least.chips}, or for "
        "less."
    )


def say_smaller_batch(question: Question, found: list[ServeCandidate]) -> str:
    """The model fits, but not with this many sequences at once."""
    wish = question.wish()
    context = wish.prompt + wish.output

    def held(each: ServeCandidate) -> int:
        return math.floor(each.replica.room(context) + 1e-9) * each.replica.spread.dp

    most = max(found, key=held)
    replica = most.replica
    asked = wish.sequences if wish.between is None else wish.between[0]
    return (
        f"--batch {asked:,.0f} does not fit: {replica.spread.chips} x "
        f"{replica.chip.name} ({replica.spread.words}) hold {held(most):,} sequences of "
        f"{context:,.0f} tokens beside the weights. Give --batch 1 to {held(most)}, a shorter --in "
        "or --out, --kv 8, or a larger --tp."
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
    apart = [
        name for name in ("tp", "pp", "ep", "cp") if max(question.values.get(name) or (1,)) > 1
    ]
    if not chip.linked and (spread is None or apart):
        words = words if spread is None else []
        words.append(
            f"{chip.name} is counted alone: its links are not known, and no other chip's are taken "
            "for them. Give a [[chip]] entry that has scaleup_gbps: --catalogue FILE."
        )
    elif spread is not None and spread.chips > 1:
        words.append(
            f"The smallest that does: {spread.chips} x {chip.name} (tp {spread.tp}, pp "
            f"{spread.pp})."
        )
    elif precision.weight_bits > 8:
        words.append("A smaller --precision (fp8, int4), a shorter --in or more --chips would.")
    else:
        words.append("A shorter --in, more --chips or a chip with more memory would.")
    if question.offload and chip.kind not in OFFLOADING:
        words.append(f"--offload does not help: {chip.name} has no host memory beside its own.")
    return " ".join(words)


def _about_host_memory(found: ServeCandidate) -> str:
    """Host memory has room but not bandwidth."""
    replica, step = found.replica, found.load.step
    spread = replica.spread
    moved = replica.host_share * weight_bytes(replica.model, replica.precision, spread)
    if moved <= 0:
        return (
            "Nothing has to lie in host memory: the weights and the cache of "
            f"{found.sequences:,} sequences fit on {spread.chips} x {replica.chip.name}."
        )
    alone_s = find_floor(replica, 1.0).seconds
    return (
        f"{percent(replica.host_share)} of the weights ({moved * spread.chips / 1e9:,.0f} GB in "
        f"all) are in host memory and come over a bus of {host_gbps(replica.chip):.0f} GB/s a chip "
        f"in every step: {percent(step.bus / step.seconds)} of it. One user alone gets at most "
        f"{1 / alone_s:.2g} tokens/s. Capacity is not bandwidth."
    )


def advise(question: Question, best: list[ServeCandidate], wish: Wish) -> Iterator[str]:
    """About the best way."""
    found = best[0]
    replica, load = found.replica, found.load
    tax = load.step.between_chips / load.step.seconds
    if tax > _TAX:
        yield (
            f"{percent(tax)} of every token is spent between chips: the interconnect tax. Fewer, "
            "larger chips or a "
            "single wafer do not pay it."
        )
    if replica.spread.pp > 1 or question.swept == "pp":
        stages = f"{replica.spread.pp} pipeline" if replica.spread.pp > 1 else "Pipeline"
        yield (
            f"{stages} stages add memory, not speed: a token passes all of them one after the "
            "other."
        )
    held_up = load.token().stall / load.tpot_s
    if held_up > _TAX:
        yield (
            f"{percent(held_up)} of every token waits for a prompt that another batch reads: "
            "stages and chips that share experts go in step. Shorter prompts or prefill on chips "
            "of its own would free it."
        )
    yield from _about_prompts(replica, load.batch, wish)
    room = replica.room(wish.prompt + wish.output)
    capped = replica.engine.most_sequences * replica.spread.pp < math.floor(room)
    if load.sequences > 0.9 * room and not capped:
        yield "The cache fills the memory: --kv 8 or shorter contexts would allow larger batches."
    if not found.meets:
        yield _missed(found, wish)
    if wish.rate_per_s is not None and found.replicas > 1:
        yield (
            f"With one of {found.replicas} replicas down, the others carry "
            f"{percent(_left(found, wish))} of the rate asked for."
        )
    if question.offload:
        yield _about_host_memory(found)


def _about_prompts(replica: Deployment, sequences: float, wish: Wish) -> Iterator[str]:
    """A prompt in a step holds up everybody who decodes in it; chunks bound by how much."""
    if wish.prompt <= SMALL_CHUNK or sequences <= 1:
        return
    decoding = Slice(sequences, 1, wish.prompt + wish.output / 2)
    whole, small = (
        replica.step([decoding, Slice(1, min(wish.prompt, chunk))]).seconds
        for chunk in (CHUNK_TOKENS, SMALL_CHUNK)
    )
    if small > _SAME * whole:
        return
    yield (
        f"A step with a prompt in it takes {duration(whole)}; cut into chunks of {SMALL_CHUNK} "
        f"tokens {duration(small)}, while the prompt itself waits longer."
    )


def _left(found: ServeCandidate, wish: Wish) -> float:
    left = (found.replicas - 1) * found.per_second / ((wish.rate_per_s or 1) * wish.output)
    return math.floor(100 * left) / 100


def _missed(found: ServeCandidate, wish: Wish) -> str:
    ttft_s, tpot_s = found.load.ttft_s, found.load.tpot_s
    floor_s = find_floor(found.replica, wish.prompt + wish.output / 2).seconds
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
    help_words = "Fewer bits, a larger --tp or a faster chip come nearer."
    if wish.tpot_s is not None and floor_s > wish.tpot_s:
        help_words = (
            f"Its floor is {duration(floor_s)} per token, so no software would: only fewer bits, "
            "more chips that read at once (--tp) or faster memory."
        )
    one = " even with one sequence at a time" if wish.sequences is None else ""
    return (
        f"No option meets the limits{one}; the nearest is above: "
        f"{' and '.join(words)}. {help_words}"
    )
