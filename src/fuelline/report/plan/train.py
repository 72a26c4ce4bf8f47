"""Words for `plan train`: time and layout first, then memory, input, failures, jitter, distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.report.document import (
    Block,
    Document,
    Heading,
    Item,
    Items,
    Statement,
)
from fuelline.report.plan.terms import (
    between,
    spread_words,
    write_close,
    write_experts,
    write_terms,
)
from fuelline.report.plan.train_sweep import in_money, write_train_sweep
from fuelline.schema.units import duration, parameters, percent, rate, short, size

if TYPE_CHECKING:
    from fuelline.schema.plan.answers import DistantSites, TrainAnswer, TrainMemory
    from fuelline.schema.plan.estimates import Estimate

_PRACTICAL = 0.40


def write_training(answer: TrainAnswer, *, explain: bool) -> Document:
    """The whole report."""
    blocks: list[Block] = [
        Statement(_title(answer)),
        Statement(_verdict(answer), f"limit: {answer.step_s.limit}"),
        Heading("The step"),
        Items(tuple(_step(answer))),
    ]
    if explain:
        blocks += write_terms("one step", answer.step_s, _against_peak(answer))
    blocks += [Heading("On one chip"), Items((_memory(answer.memory),))]
    blocks += [Heading("Around it"), Items(tuple(_around(answer)))]
    if answer.apart is not None:
        blocks += [Heading("Over several sites"), Items((_apart(answer.apart),))]
    if answer.sweep:
        blocks += write_train_sweep(answer)
    more = "" if explain else "Next: add --explain for the terms behind the step."
    return Document((*blocks, *write_close(answer.advice, more)))


def _title(answer: TrainAnswer) -> str:
    return (
        f"{answer.model} ({parameters(answer.params)} parameters, {answer.precision})  ·  "
        f"{answer.chips:,} x "
        f"{answer.chip}  ·  {parameters(answer.tokens)} tokens"
    )


def _verdict(answer: TrainAnswer) -> str:
    days = answer.days_range
    words = f"{short(answer.days)} days" if days is None else between(days, 1.0, "days")
    money = "" if answer.usd_range is None else f", ${in_money(between(answer.usd_range))}"
    return f"{words}{money}, failures included."


def _step(answer: TrainAnswer) -> list[Item]:
    mfu = answer.mfu_frac
    against = "above" if mfu.value >= _PRACTICAL else "below"
    layout = [
        spread_words(answer.spread),
        f"micro-batch {answer.microbatch:g}",
        f"recompute {answer.recompute}",
    ]
    if answer.zero:
        layout.append("FSDP (ZeRO 3)" if answer.zero == 3 else f"ZeRO {answer.zero}")
    if answer.spread.pp > 1:
        layout.append(f"{answer.interleave} chunks per stage")
    step = answer.step_s
    items = [
        Item(f"layout: {', '.join(layout)}"),
        Item(
            f"step of {answer.batch_sequences:,.0f} x {answer.length:,.0f} tokens: "
            f"{duration(step.value)} "
            f"({duration(step.low)} to {duration(step.high)}), "
            f"{between(_like(step, answer.tokens_per_s))} tokens/s",
            (_made_of(answer),),
        ),
        Item(
            f"MFU {_fine(mfu.value)} ({_fine(mfu.low)} to {_fine(mfu.high)}), {against} the "
            "practical "
            f"{percent(_PRACTICAL)}"
        ),
    ]
    if answer.experts is not None:
        items.append(write_experts(answer.experts, "micro-batch"))
    return items


def _fine(frac: float) -> str:
    """Far below a per cent two digits are left."""
    return percent(frac) if frac >= 0.01 else f"{100 * frac:.2g} %"


def _against_peak(answer: TrainAnswer) -> str:
    work = answer.mfu_frac.work
    if work is None:
        return ""
    return f"at the peak rate it would be {duration(work)}: MFU {percent(answer.mfu_frac.value)}"


def _made_of(answer: TrainAnswer) -> str:
    """Whole micro-batches, and by how much they miss the batch that was asked for."""
    count, each = answer.microbatches, answer.microbatch
    replicas = f" on each of {answer.spread.dp:,} replicas" if answer.spread.dp > 1 else ""
    words = f"{count:,} micro-batch{'es' if count > 1 else ''} of {each:g}{replicas}"
    made = answer.batch_sequences * answer.length
    if abs(made / answer.asked_batch_tokens - 1) < 0.005:
        return words
    return (
        f"{words}: {short(made)} tokens, the nearest to the "
        f"{short(answer.asked_batch_tokens)} of --batch-tokens"
    )


def _like(step: Estimate, value: float) -> Estimate:
    """What goes with the steps is as sure as they are."""
    ratio = step.high / step.value
    return replace(step, value=value, low=value / ratio, high=value * ratio)


def _memory(memory: TrainMemory) -> Item:
    room = "an unknown room" if memory.room_bytes is None else size(memory.room_bytes)
    return Item(
        f"{size(memory.total_bytes)} of {room}",
        (
            (
                f"weights {size(memory.weights_bytes)}, gradients {size(memory.gradients_bytes)}, "
                "optimizer "
                f"{size(memory.optimizer_bytes)}, activations {size(memory.activations_bytes)}"
            ),
        ),
    )


def _around(answer: TrainAnswer) -> list[Item]:
    good, jitter = answer.goodput, answer.jitter
    loader = _like(answer.step_s, answer.loader_bytes_per_s)
    items = [
        Item(
            f"input: the loaders together must deliver {rate(loader.value)} "
            f"({rate(loader.low)} to {rate(loader.high)})",
            ("`fuelline run train.py` shows whether yours do",),
        ),
        Item(
            f"failures: one in {duration(good.failure_every_s)}; a checkpoint of "
            f"{size(good.checkpoint_bytes)} "
            f"({duration(good.checkpoint_s)} at "
            f"{rate(good.checkpoint_bytes / good.checkpoint_s)}) every "
            f"{duration(good.interval_s)} leaves {percent(good.share)}"
        ),
        Item(
            f"jitter: ranks that vary by {percent(jitter.spread_frac)} make a step of "
            f"{jitter.ranks:,} ranks "
            f"{percent(jitter.expected_frac)} longer; up to {jitter.allowed_ranks:,} ranks lose "
            "less than 5 %"
        ),
    ]
    if answer.energy_range is not None:
        energy = between(answer.energy_range, 1 / 3.6e9, "MWh")
        items.append(Item(f"energy: {energy} at the chips"))
    return items


def _apart(apart: DistantSites) -> Item:
    words = (
        f"{apart.sites} sites over {rate(apart.link_bytes_per_s)}: gradients take "
        f"{duration(apart.exchange_s)} per "
        f"step, which leaves {percent(apart.share)} of the speed."
    )
    need = f"to hide them behind a step the link must carry {rate(apart.needed_bytes_per_s)}"
    why = (
        "every step exchanges all gradients, and they grow with the model while wide links do "
        "not, which is "
        "why frontier models are trained in one place"
    )
    return Item(words, (need, why) if apart.share < 0.9 else (need,))
