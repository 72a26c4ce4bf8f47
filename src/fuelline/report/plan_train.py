"""Words for `plan train`: time and layout first, then memory, input, failures, jitter, distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.report.document import (
    Block,
    Chart,
    Document,
    Heading,
    Item,
    Items,
    Series,
    Statement,
    Table,
)
from fuelline.report.plan_experts import write_experts
from fuelline.report.plan_terms import (
    between,
    changing,
    draw,
    is_wide,
    short_limit,
    span,
    write_close,
    write_terms,
)
from fuelline.report.spreads import spread_words
from fuelline.report.ticks import tick_words
from fuelline.schema.units import duration, parameters, percent, rate, short, size

if TYPE_CHECKING:
    from fuelline.schema.plan_answers import Apart, TrainAnswer, TrainMemory, TrainPoint
    from fuelline.schema.plans import Estimate

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
        blocks += _sweep(answer)
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


def in_money(words: str) -> str:
    """A thousand million dollars are a billion, not a giga."""
    return words.replace("G", "B")


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
        layout.append(f"{answer.interleave} chunks a stage")
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


def _apart(apart: Apart) -> Item:
    words = (
        f"{apart.sites} sites over {rate(apart.link_bytes_per_s)}: gradients take "
        f"{duration(apart.exchange_s)} a "
        f"step, which leaves {percent(apart.share)} of the speed."
    )
    need = f"to hide them behind a step the link must carry {rate(apart.needed_bytes_per_s)}"
    why = (
        "every step exchanges all gradients, and they grow with the model while wide links do "
        "not: that is why "
        "frontier models are trained in one place"
    )
    return Item(words, (need, why) if apart.share < 0.9 else (need,))


def _sweep(answer: TrainAnswer) -> list[Block]:
    name = answer.swept
    speeds = (name, "step s (80 %)", "MFU % (80 %)", "days (80 %)", "limit")
    costs = (name, "layout", "$ (80 %)", "MWh", "useful", "input")
    blocks: list[Block] = [
        Heading(f"By --{name}"),
        Table(speeds, tuple(_speeds(name, point) for point in answer.sweep)),
        Statement("and what it takes:"),
        Table(costs, tuple(_costs(name, point) for point in answer.sweep)),
    ]
    series = changing(
        (
            ("days to train", [(point.at, point.days_range) for point in answer.sweep]),
            ("$ in all", [(point.at, point.usd_range) for point in answer.sweep]),
            ("input, bytes/s", [(point.at, point.loader_bytes_per_s) for point in answer.sweep]),
        )
    )
    if len(series.points) > 1:
        blocks.append(
            _side_by_side(answer) if name == "chip" else draw(answer.model, _across(name), series)
        )
    return blocks


def _side_by_side(answer: TrainAnswer) -> Chart:
    """Chips have no order, so each is a point of its own: sooner to the left, cheaper below."""
    priced = all(point.usd_range is not None for point in answer.sweep if point.days is not None)
    up = "$ in all" if priced else "MFU, per cent"
    series = tuple(
        Series(
            point.label,
            ((point.days, point.usd_range.value if priced and point.usd_range else _mfu(point)),),
        )
        for point in answer.sweep
        if point.days is not None
    )
    wide = [is_wide(axis) for axis in zip(*(each.points[0] for each in series), strict=True)]
    title = f"{answer.model}: chips side by side"
    return Chart(title, "days to train", up, series, log_x=wide[0], log_y=wide[1])


def _mfu(point: TrainPoint) -> float:
    return 100 * (point.mfu_frac or 0.0)


_ACROSS = {
    "chips": "chips",
    "tokens": "tokens to train on",
    "seq": "tokens of a sequence",
    "batch-tokens": "tokens of a step",
    "price": "$ a chip and hour",
    "checkpoint": "seconds of a checkpoint",
    "mtbf": "seconds between failures of a chip",
    "jitter": "per cent that ranks vary",
    "sites": "sites",
    "link": "GB/s between sites",
    "sample-bytes": "bytes of a sample",
}


def _across(name: str) -> str:
    return _ACROSS.get(name, f"--{name}")


def _at(name: str, point: TrainPoint) -> str:
    if point.label:
        return point.label
    if name == "checkpoint":
        return duration(point.at)
    if name == "mtbf":
        return f"{point.at / 3600:,.0f} h"
    if name in ("tokens", "batch-tokens"):
        return parameters(point.at)
    if name == "jitter":
        return f"{point.at:g} %"
    return f"{point.at:,g}" if point.at < 1e5 else tick_words(point.at)


def _speeds(name: str, point: TrainPoint) -> tuple[str, ...]:
    return (
        _at(name, point),
        span(point.step_range) if point.step_s is not None else point.why_not,
        span(point.mfu_range, 100),
        span(point.days_range),
        short_limit(point.step_range),
    )


def _costs(name: str, point: TrainPoint) -> tuple[str, ...]:
    energy, useful, loader = point.energy_joule, point.goodput_share, point.loader_bytes_per_s
    return (
        _at(name, point),
        point.spread or point.why_not or "one chip",
        in_money(span(point.usd_range)),
        "-" if energy is None else short(energy / 3.6e9),
        "-" if useful is None else percent(useful),
        "-" if loader is None else rate(loader),
    )
