"""Words for `plan serve`: the best way first, then its limit, the others, the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import (
    Block,
    Document,
    Heading,
    Item,
    Items,
    Number,
    Said,
    Statement,
    Table,
)
from fuelline.report.plan.fleet import count_words, write_fleet
from fuelline.report.plan.serve_sweep import speed_cells, write_sweep
from fuelline.report.plan.terms import (
    between,
    brief_words,
    placed,
    placed_span,
    placed_times,
    spread_words,
    time_scale,
    write_close,
    write_experts,
    write_terms,
)
from fuelline.schema.plan.estimates import PLAN_LEVEL
from fuelline.schema.units import count, duration, parameters, percent, plain, short, size

if TYPE_CHECKING:
    from fuelline.schema.plan.answers import Floor, Pools, ServeAnswer, ServeOption


def write_serving(answer: ServeAnswer, *, explain: bool) -> Document:
    """The whole report."""
    best = answer.options[0]
    blocks: list[Block] = [
        Statement(_title(answer)),
        Statement(_verdict(answer, best), _limit(best), alarm=not best.meets or best.short),
        *_beyond_use(answer, best),
        Heading(f"What it reaches ({PLAN_LEVEL} % intervals)"),
        Items(tuple(_reaches(best))),
        Heading("The floor"),
        Items((Item(_floor(answer.floor, best)),)),
    ]
    if explain:
        blocks += _explained(answer, best)
    if len(answer.options) > 1:
        blocks += _options(answer)
    if answer.sweep:
        blocks += write_sweep(answer, best)
    if answer.fleet is not None:
        blocks += write_fleet(answer.fleet)
    simulated_apart = answer.fleet is not None and answer.fleet.pools is not None
    if answer.pools is not None and not simulated_apart:
        blocks += [Heading("Separating prefill and decode"), Items((_pools(answer.pools),))]
    more = "" if explain else "Next: add --explain for the terms behind the numbers."
    return Document((*blocks, *write_close(answer.advice, more)))


def _title(answer: ServeAnswer) -> str:
    active = (
        f", {parameters(answer.active_params)} active"
        if answer.active_params < 0.8 * answer.params
        else ""
    )
    why = f", {answer.precision_note}" if answer.precision_note else ""
    parts = [
        f"{answer.model} ({parameters(answer.params)} parameters{active}, {answer.precision}{why})",
        f"{answer.prompt:,.0f} tokens in, {answer.output:,.0f} out",
    ]
    if answer.rate_per_s is not None:
        many = "" if answer.rate_per_s == 1 else "s"
        parts.append(f"{plain(answer.rate_per_s)} request{many}/s")
    return "  ·  ".join(parts)


_BEST = "options/0"
"""Where it stands in the JSON."""


def _verdict(answer: ServeAnswer, best: ServeOption) -> str:
    many = f"{best.replicas} x " if best.replicas > 1 else ""
    way = (
        f"{many}{best.spread.chips} {best.chip}"
        if best.spread.chips > 1
        else f"{best.chips} {best.chip}"
    )
    cost: tuple[str, ...] = ()
    if best.usd_per_hour is not None:
        hourly = best.usd_per_hour
        cost = (", $", Number(f"{hourly:,.2f}", hourly, f"{_BEST}/usd_per_hour"), " per hour")
    keeps = f"{_keeps(answer, best)}. {_enough(answer, best)}".rstrip()
    return Said(f"{way} ({spread_words(best.spread)})", *cost, keeps)


def _keeps(answer: ServeAnswer, best: ServeOption) -> str:
    if best.short:
        return ", not enough"
    if answer.ttft_limit_s is None and answer.tpot_limit_s is None:
        return ""
    return ", within the limits" if best.meets else ", but not within the limits"


def _enough(answer: ServeAnswer, best: ServeOption) -> str:
    """How the number of replicas comes about; what too few chips carry, and how many would do."""
    if answer.fleet is not None and answer.fleet.options[0].simulated is not None:
        return count_words(answer.fleet.options[0], answer.fleet, answer.most_chips)
    if best.short:
        return (
            f"--chips {answer.most_chips:,} is too few: they carry "
            f"{short(best.carries_per_s or 0.0)} of {plain(answer.rate_per_s or 0.0)} requests/s "
            f"with nothing to spare; with headroom and spares it takes --chips "
            f"{best.needed_chips}."
        )
    return ""


_READING_S = 0.2
"""A token for a reader: 238 words a minute (Brysbaert 2019, doi 10.1016/j.jml.2019.104047) at 0.75
words a token, as the makers of tokenizers state, are 5.3 tokens a second."""
_BEYOND_USE = 5
"""Times as slow as that, nobody waits for an answer."""


def _beyond_use(answer: ServeAnswer, best: ServeOption) -> list[Block]:
    """Of a plan without limits whose tokens come too slowly: that it is no plan, why, and a way."""
    token_s, floor = best.tpot_s.value, answer.floor
    if answer.tpot_limit_s is not None or token_s < _BEYOND_USE * _READING_S:
        return []
    reader = f"a reader takes in about {1 / _READING_S:.0f} a second"
    words = f"A token takes {duration(token_s)}, which is beyond use for people: {reader}."
    if floor.seconds < _READING_S:
        return [
            Statement(
                f"{words} No limit was given, so the plan fills the chip for the most tokens/s: "
                f"{count(best.sequences, 'sequence')} at once. One user alone could get a token in "
                f"{duration(floor.seconds)} at best. Next: --slo tpot=200ms, or a smaller --batch.",
                alarm=True,
            )
        ]
    return [
        Statement(
            f"{words} No setting changes that: one user alone waits {duration(floor.seconds)} for "
            "a token, because that is how long reading the weights takes. A smaller model, fewer "
            "bits (--precision int4) or a chip with faster memory would help: `fuelline plan "
            f"chips {answer.model} --sort floor --top 10`.",
            alarm=True,
        )
    ]


def _limit(best: ServeOption) -> str:
    return f"limit: {best.tpot_s.limit}"


def _reaches(best: ServeOption) -> list[Item]:
    sequences = count(best.sequences, "sequence")
    fit = f"{best.most_sequences:,}"
    alone = duration(best.prefill_s)
    items = [
        Item(
            Said(
                *("per replica: ", placed(best.rate_tokens_per_s, f"{_BEST}/rate_tokens_per_s")),
                *(" tokens/s, ", Number(sequences, best.sequences, f"{_BEST}/sequences")),
                *(" at once (", Number(fit, best.most_sequences, f"{_BEST}/most_sequences")),
                " fit)",
            )
        ),
        Item(Said("per token: ", placed_times(best.tpot_s, f"{_BEST}/tpot_s"))),
        Item(
            Said(
                *("first token: ", placed_times(best.ttft_s, f"{_BEST}/ttft_s")),
                *(", a prompt alone ", Number(alone, best.prefill_s, f"{_BEST}/prefill_s")),
            )
        ),
        Item(_critical(best)),
    ]
    if best.experts is not None:
        items.append(write_experts(best.experts))
    if best.usd_per_mtoken_range is not None:
        money = placed(best.usd_per_mtoken_range, f"{_BEST}/usd_per_mtoken_range")
        items.append(Item(Said("$", money, " per million output tokens")))
    if best.joule_per_token_range is not None:
        joules = placed(best.joule_per_token_range, f"{_BEST}/joule_per_token_range")
        items.append(Item(Said(joules, " J per output token")))
    return items


def _critical(best: ServeOption) -> str:
    if best.critical_batch is None:
        return "critical batch: none; bandwidth limits the products of a step at every batch"
    ends = best.critical_batch_range
    doubt = "" if ends is None else f" ({ends.low:,.0f} to {ends.high:,.0f})"
    about = count(best.critical_batch, "sequence")
    return Said(
        *("critical batch: about ", Number(about, best.critical_batch, f"{_BEST}/critical_batch")),
        f"{doubt}; below it bandwidth limits the products of a decode step, above it math",
    )


_ORIGINS = {
    "data sheet": "the data sheet",
    "measured": "the bandwidth that `fuelline roofline` measured",
    "catalogue": "your catalogue's figures",
}


def _floor(floor: Floor, best: ServeOption) -> str:
    apart = floor.expert_bytes > 0 and floor.expert_chips != floor.chips
    experts = (
        f" ({size(floor.expert_bytes)} of them experts on {floor.expert_chips} chips)"
        if apart
        else ""
    )
    bus = ", including the host bus," if best.host_share > 0 else ""
    speed = size(floor.bandwidth_bytes_per_s)
    words = (
        "One user cannot get more than ",
        Number(short(floor.tokens_per_s), floor.tokens_per_s, "floor/tokens_per_s"),
        *(" tokens/s (", Number(duration(floor.seconds), floor.seconds, "floor/seconds")),
        " per token): ",
        Number(size(floor.weight_bytes), floor.weight_bytes, "floor/weight_bytes"),
        f" of weights{experts} and ",
        Number(size(floor.cache_bytes), floor.cache_bytes, "floor/cache_bytes"),
        " of cache are read for each token, at ",
        Number(speed, floor.bandwidth_bytes_per_s, "floor/bandwidth_bytes_per_s"),
        f"/s{bus} on {floor.chips} chip{'s' if floor.chips > 1 else ''}. ",
        f"A bound from {_ORIGINS[floor.origin]}, not an estimate.",
    )
    if floor.measured_share is None:
        return Said(*words)
    share, path = floor.measured_share, "floor/measured_share"
    if share > 1:
        return Said(
            *(*words, f" Your {floor.measured_per_s:g} are ", Number(f"{share:.2f}", share, path)),
            " times that: several tokens come from one step (speculation), or it is another model, "
            "precision or number of chips.",
        )
    yours = f" Your {floor.measured_per_s:g} are "
    return Said(*words, yours, Number(percent(share), share, path), " of it.")


def _explained(answer: ServeAnswer, best: ServeOption) -> list[Block]:
    rate = best.rate_tokens_per_s
    tokens = (
        f"{best.sequences:,} x {answer.output:,.0f} tokens in this time are {short(rate.value)} "
        "tokens/s"
    )
    return [
        *write_terms("a token, prompts of others included", best.tpot_s),
        *write_terms("the first token", best.ttft_s),
        *write_terms("a request from its prompt to its end", rate, tokens),
        Heading("On one chip"),
        Items(
            (
                Item(f"weights {size(best.weight_bytes_per_chip)}"),
                Item(f"cache of a sequence {size(best.cache_bytes_per_sequence)}"),
                Item(f"between chips {percent(best.exchange_share)} of a decode step"),
            )
        ),
    ]


def _options(answer: ServeAnswer) -> list[Block]:
    """The best way of every chip: rates and times, then what they take."""
    options = answer.options
    unit, factor = time_scale(
        *(end for each in options for end in (each.tpot_s.high, each.ttft_s.high))
    )
    names = [_chip_words(each, answer.precision) for each in options]
    speeds = (
        "chip",
        f"tok/s ({PLAN_LEVEL} %)",
        f"{unit}/tok ({PLAN_LEVEL} %)",
        f"ttft {unit} ({PLAN_LEVEL} %)",
        "limit",
    )
    costs = ("chip", "way", "chips", f"$/Mtok ({PLAN_LEVEL} %)", f"J/tok ({PLAN_LEVEL} %)", "ok")
    return [
        Heading("For comparison: a replica of each chip"),
        Table(
            speeds,
            tuple(
                (name, *speed_cells(each, factor, f"options/{place}"))
                for place, (name, each) in enumerate(zip(names, options, strict=True))
            ),
        ),
        Statement("and what it takes:"),
        Table(
            costs,
            tuple(
                (name, *_costs(each, f"options/{place}"))
                for place, (name, each) in enumerate(zip(names, options, strict=True))
            ),
        ),
    ]


def _costs(option: ServeOption, path: str) -> tuple[str, ...]:
    return (
        brief_words(option.spread),
        Number(f"{option.chips:,}", option.chips, f"{path}/chips"),
        placed_span(option.usd_per_mtoken_range, f"{path}/usd_per_mtoken_range"),
        placed_span(option.joule_per_token_range, f"{path}/joule_per_token_range"),
        "yes" if option.meets else "no",
    )


def _chip_words(option: ServeOption, precision: str) -> str:
    """With its precision where that is another than the title's."""
    return option.chip if option.precision == precision else f"{option.chip} {option.precision}"


def _pools(pools: Pools) -> Item:
    apart, together = pools.apart_range, pools.together_range
    many = "" if pools.rate_per_s == 1 else "s"
    chips = (
        ""
        if apart is None or together is None
        else (
            f"for {plain(pools.rate_per_s)} request{many}/s apart {between(apart)} chips, together "
            f"{between(together)}"
        )
    )
    return Item(
        f"{'It pays' if pools.pays else 'It does not pay'}: {pools.why}.",
        (
            chips,
            (
                f"prefill {short(pools.prefill_chips)} chips, decode {short(pools.decode_chips)}: "
                f"1 to {1 / pools.ratio:.2g}"
            ),
            f"cache moved per request {size(pools.transfer_bytes)}, {duration(pools.transfer_s)}",
        ),
    )
