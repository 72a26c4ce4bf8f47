"""Words for `plan chips` and `plan shape`: one table, one list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Block, Document, Heading, Item, Items, Statement, Table
from fuelline.schema.units import short

if TYPE_CHECKING:
    from fuelline.schema.plan_answers import ChipLine, ChipsAnswer, Dimension, ShapeAnswer

_SERVE_HEAD = ("chip", "n", "floor ms", "1 user tok/s", "tok/s/chip", "$/Mtok", "J/tok")
_TRAIN_HEAD = ("chip", "n", "MFU", "tok/s/chip", "$/Mtok", "J/tok")


def write_chips(answer: ChipsAnswer) -> Document:
    """All chips, those that fit by their rate, the others with the reason."""
    fit = [line for line in answer.lines if not line.why_not]
    others = [line for line in answer.lines if line.why_not]
    serving = answer.purpose == "serve"
    fit.sort(
        key=lambda line: -(line.tokens_per_s_per_chip.value if line.tokens_per_s_per_chip else 0)
    )
    cells = tuple((_serve_cells if serving else _train_cells)(line) for line in fit)
    words = (
        "n: the fewest chips that hold it; floor: a token for one user by bandwidth alone; full "
        "load at the right"
        if serving
        else f"{fit[0].chips if fit else 'some'} chips each, the best layout found"
    )
    blocks: list[Block] = [
        Statement(f"{answer.model} ({answer.precision}) on the chips of the catalogue: {words}."),
        Table(_SERVE_HEAD if serving else _TRAIN_HEAD, cells),
        Statement("The middle of 80 % intervals; `-` is not known. --json has the intervals."),
    ]
    if others:
        reasons: dict[str, list[str]] = {}
        for line in others:
            reasons.setdefault(line.why_not, []).append(line.chip)
        blocks.append(Heading("Not here"))
        blocks.append(
            Items(tuple(Item(f"{why}: {', '.join(names)}") for why, names in reasons.items()))
        )
    return Document(tuple(blocks))


def _serve_cells(line: ChipLine) -> tuple[str, ...]:
    user, rate = line.user_tokens_per_s, line.tokens_per_s_per_chip
    return (
        line.chip,
        str(line.chips),
        "-" if line.floor_s is None else short(line.floor_s * 1e3),
        "-" if user is None else short(user.value),
        "-" if rate is None else short(rate.value),
        "-" if line.usd_per_mtoken is None else f"{line.usd_per_mtoken:.2f}",
        "-" if line.joule_per_token is None else f"{line.joule_per_token:.2g}",
    )


def _train_cells(line: ChipLine) -> tuple[str, ...]:
    rate = line.tokens_per_s_per_chip
    return (
        line.chip,
        str(line.chips),
        "-" if line.mfu_frac is None else f"{100 * line.mfu_frac:.0f} %",
        "-" if rate is None else short(rate.value),
        "-" if line.usd_per_mtoken is None else f"{line.usd_per_mtoken:.2f}",
        "-" if line.joule_per_token is None else f"{line.joule_per_token:.2g}",
    )


def write_shape(answer: ShapeAnswer) -> Document:
    """What is odd about a shape."""
    degrees = ", ".join(str(size) for size in answer.degrees)
    head = (
        f"{answer.model} on {answer.chip} ({answer.precision}): "
        f"{len(answer.dimensions) or 'no'} dimension{'s' if len(answer.dimensions) != 1 else ''} "
        "to think about. "
        f"Tensor parallelism that cuts it evenly: {degrees}."
    )
    blocks: list[Block] = [Statement(head)]
    if answer.dimensions:
        blocks.append(Items(tuple(_dimension(each) for each in answer.dimensions)))
        blocks.append(
            Statement(
                "Costs as measured with today's libraries: the twofold steps of the textbook are "
                "rare, and small "
                "batches (decoding) do not see tiles at all."
            )
        )
    return Document(tuple(blocks))


def _dimension(each: Dimension) -> Item:
    near = " or ".join(f"{value:,}" for value in each.nearest) or "none nearby"
    return Item(
        f"{each.name} {each.value:,}: {each.problem}",
        (f"cost: {each.cost}", f"nearest without: {near}"),
    )
