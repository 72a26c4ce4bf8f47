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
    Number,
    Said,
    Statement,
)
from fuelline.report.plan.terms import (
    between,
    placed,
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
    words = Number(short(answer.days), answer.days, "days")
    money: tuple[str, ...] = ()
    if answer.usd_range is not None:
        usd = answer.usd_range
        money = (", $", Number(in_money(between(usd)), usd.value, "usd_range/value"))
    whole = words if days is None else placed(days, "days_range")
    return Said(whole, " days", *money, ", failures included.")


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
    step, each_s = answer.step_s, answer.tokens_per_s
    items = [
        Item(f"layout: {', '.join(layout)}"),
        Item(
            Said(
                f"step of {answer.batch_sequences:,.0f} x {answer.length:,.0f} tokens: ",
                Number(duration(step.value), step.value, "step_s/value"),
                f" ({duration(step.low)} to {duration(step.high)}), ",
                Number(between(_like(step, each_s)), each_s, "tokens_per_s"),
                " tokens/s",
            ),
            (_made_of(answer),),
        ),
        Item(
            Said(
                *("MFU ", Number(_fine(mfu.value), mfu.value, "mfu_frac/value")),
                f" ({_fine(mfu.low)} to {_fine(mfu.high)}), {against} the practical "
                f"{percent(_PRACTICAL)}",
            )
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
    room = "an unknown room"
    if memory.room_bytes is not None:
        room = Number(size(memory.room_bytes), memory.room_bytes, "memory/room_bytes")
    parts = (
        ("weights", memory.weights_bytes),
        (", gradients", memory.gradients_bytes),
        (", optimizer", memory.optimizer_bytes),
        (", activations", memory.activations_bytes),
    )
    told = [
        (f"{name} ", Number(size(held), held, f"memory/{name.removeprefix(', ')}_bytes"))
        for name, held in parts
    ]
    total = Number(size(memory.total_bytes), memory.total_bytes, "memory/total_bytes")
    return Item(Said(total, " of ", room), (Said(*(part for pair in told for part in pair)),))


def _around(answer: TrainAnswer) -> list[Item]:
    good, jitter, out = answer.goodput, answer.jitter, "goodput/"
    loader = _like(answer.step_s, answer.loader_bytes_per_s)
    items = [
        Item(
            Said(
                "input: the loaders together must deliver ",
                Number(rate(loader.value), loader.value, "loader_bytes_per_s"),
                f" ({rate(loader.low)} to {rate(loader.high)})",
            ),
            ("`fuelline run train.py` shows whether yours do",),
        ),
        Item(
            Said(
                "failures: one in ",
                Number(
                    duration(good.failure_every_s), good.failure_every_s, f"{out}failure_every_s"
                ),
                "; a checkpoint of ",
                Number(
                    size(good.checkpoint_bytes), good.checkpoint_bytes, f"{out}checkpoint_bytes"
                ),
                *(
                    " (",
                    Number(duration(good.checkpoint_s), good.checkpoint_s, f"{out}checkpoint_s"),
                ),
                f" at {rate(good.checkpoint_bytes / good.checkpoint_s)}) every ",
                Number(duration(good.interval_s), good.interval_s, f"{out}interval_s"),
                *(" leaves ", Number(percent(good.share), good.share, f"{out}share")),
            )
        ),
        Item(
            Said(
                "jitter: ranks that vary by ",
                Number(percent(jitter.spread_frac), jitter.spread_frac, "jitter/spread_frac"),
                f" make a step of {jitter.ranks:,} ranks ",
                Number(percent(jitter.expected_frac), jitter.expected_frac, "jitter/expected_frac"),
                f" longer; up to {jitter.allowed_ranks:,} ranks lose less than 5 %",
            )
        ),
    ]
    if answer.energy_range is not None:
        energy = between(answer.energy_range, 1 / 3.6e9)
        items.append(Item(f"energy: {energy} MWh at the chips"))
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
