"""Words for `plan chips` and `plan shape`: one table, one list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Block, Document, Heading, Item, Items, Statement, Table
from fuelline.report.plan.terms import limit_of, placed_span
from fuelline.schema.plan.estimates import PLAN_LEVEL
from fuelline.schema.units import short

if TYPE_CHECKING:
    from fuelline.schema.plan.answers import ChipLine, ChipsAnswer, Dimension, ShapeAnswer

    Placed = tuple[ChipLine, str]
    """And where it stands in the JSON."""

_USER_HEAD = ("chip", "n", "floor ms", "tok/s", "limit", "limit at full load")
_LOAD_HEAD = ("chip", "tok/s/chip", "$/Mtok", "J/tok")
_RATE_HEAD = ("chip", f"MFU % ({PLAN_LEVEL} %)", f"tok/s/chip ({PLAN_LEVEL} %)", "limit")
_COST_HEAD = ("chip", f"$/Mtok ({PLAN_LEVEL} %)", f"J/tok ({PLAN_LEVEL} %)")


ORDERS = {"rate": "rate", "usd": "cost", "floor": "floor", "joules": "energy"}


def write_chips(answer: ChipsAnswer) -> Document:
    """The chips that fit in the order of the answer, the others with the reason."""
    fit = [(line, f"lines/{at}") for at, line in enumerate(answer.lines) if not line.why_not]
    others = [line for line in answer.lines if line.why_not]
    why = f", {answer.precision_note}" if answer.precision_note else ""
    blocks: list[Block] = [
        Statement(f"{answer.model} ({answer.precision}{why}) on the chips in the catalogue.")
    ]
    if fit:
        write = _write_serving if answer.purpose == "serve" else _write_training
        blocks += write(fit, answer)
        floor = (
            "floor: time per token from memory bandwidth alone. "
            if answer.purpose == "serve"
            else ""
        )
        blocks.append(Statement(floor + _legend([line for line, _ in fit], answer.precision)))
        if answer.left_out:
            blocks.append(Statement(f"{answer.left_out} more fit; without --top they are listed."))
    if others:
        reasons: dict[str, list[str]] = {}
        for line in others:
            reasons.setdefault(line.why_not, []).append(line.chip)
        blocks.append(Heading("Not here"))
        blocks.append(
            Items(tuple(Item(f"{why}: {', '.join(names)}") for why, names in reasons.items()))
        )
    return Document(tuple(blocks))


def _write_serving(fit: list[Placed], answer: ChipsAnswer) -> list[Block]:
    precision, order = answer.precision, ORDERS[answer.sorted_by]
    return [
        Heading(f"One user, on the fewest chips that hold the model ({PLAN_LEVEL} % intervals)"),
        Table(_USER_HEAD, tuple(_user_cells(line, precision, at) for line, at in fit)),
        Heading(f"At full load, by {order} ({PLAN_LEVEL} % intervals)"),
        Table(_LOAD_HEAD, tuple(_load_cells(line, precision, at) for line, at in fit)),
    ]


def _write_training(fit: list[Placed], answer: ChipsAnswer) -> list[Block]:
    precision, order = answer.precision, ORDERS[answer.sorted_by]
    return [
        Heading(f"{fit[0][0].chips} chips each, the best layout found, by {order}"),
        Table(_RATE_HEAD, tuple(_rate_cells(line, precision, at) for line, at in fit)),
        Heading("What a token costs"),
        Table(_COST_HEAD, tuple(_cost_cells(line, precision, at) for line, at in fit)),
    ]


def _name(line: ChipLine, precision: str) -> str:
    name = line.chip.replace(_ANNOUNCED, "*")
    return name if line.precision in ("", precision) else f"{name}~"


_ANNOUNCED = " (announced)"


def _legend(fit: list[ChipLine], precision: str) -> str:
    words = ["`-`: not known, because the catalogue has no price or power for it."]
    if any(_ANNOUNCED in line.chip for line in fit):
        words.append("*: announced, not measured.")
    if any(line.precision not in ("", precision) for line in fit):
        words.append(f"~: no unit for {precision}, so in bf16.")
    return " ".join(words)


def _user_cells(line: ChipLine, precision: str, at: str) -> tuple[str, ...]:
    user = line.user_tokens_per_s
    return (
        _name(line, precision),
        str(line.chips),
        "-" if line.floor_s is None else short(line.floor_s * 1e3),
        placed_span(user, f"{at}/user_tokens_per_s"),
        limit_of(user),
        limit_of(line.tokens_per_s_per_chip),
    )


def _load_cells(line: ChipLine, precision: str, at: str) -> tuple[str, ...]:
    return (
        _name(line, precision),
        placed_span(line.tokens_per_s_per_chip, f"{at}/tokens_per_s_per_chip"),
        placed_span(line.usd_per_mtoken_range, f"{at}/usd_per_mtoken_range"),
        placed_span(line.joule_per_token_range, f"{at}/joule_per_token_range"),
    )


def _rate_cells(line: ChipLine, precision: str, at: str) -> tuple[str, ...]:
    rate = line.tokens_per_s_per_chip
    return (
        _name(line, precision),
        placed_span(line.mfu_range, f"{at}/mfu_range", 100),
        placed_span(rate, f"{at}/tokens_per_s_per_chip"),
        limit_of(rate),
    )


def _cost_cells(line: ChipLine, precision: str, at: str) -> tuple[str, ...]:
    return (
        _name(line, precision),
        placed_span(line.usd_per_mtoken_range, f"{at}/usd_per_mtoken_range"),
        placed_span(line.joule_per_token_range, f"{at}/joule_per_token_range"),
    )


def write_shape(answer: ShapeAnswer) -> Document:
    """What is odd about a shape."""
    degrees = ", ".join(str(size) for size in answer.degrees)
    head = (
        f"{answer.model} on {answer.chip} ({answer.precision}): "
        f"{len(answer.dimensions) or 'no'} dimension{'s' if len(answer.dimensions) != 1 else ''} "
        "worth a look. "
        f"Tensor-parallel degrees that divide it evenly: {degrees}."
    )
    blocks: list[Block] = [Statement(head)]
    if answer.dimensions:
        blocks.append(Items(tuple(_dimension(each) for each in answer.dimensions)))
    if answer.edges:
        blocks.append(Heading("Tokens per step, measured: one more than fills a tile"))
        blocks.append(
            Table(("from", "to", "median", "worst tenth"), tuple(map(_edge, answer.edges)))
        )
    else:
        blocks.append(
            Statement(
                f"What one token more than fills a tile costs on {answer.chip} in "
                f"{answer.precision} was not measured."
            )
        )
    blocks.append(
        Statement(
            "With today's libraries the textbook's twofold jumps are rare, and small batches "
            "(decoding) are not affected by tiles."
        )
    )
    return Document(tuple(blocks))


def _edge(edge: tuple[int, float, float]) -> tuple[str, ...]:
    tokens, median, worst = edge
    longer = (f"{100 * (each - 1):+.0f} %" for each in (median, worst))
    return (f"{tokens:,}", f"{tokens + 1:,}", *longer)


def _dimension(each: Dimension) -> Item:
    near = " or ".join(f"{value:,}" for value in each.nearest) or "none nearby"
    return Item(
        f"{each.name} {each.value:,}: {each.problem}",
        (f"cost: {each.cost}", f"nearest without: {near}"),
    )
