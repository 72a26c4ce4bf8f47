"""A row's words become a case: model, chip, precision, degrees, engine, and what was assumed.

Every cell may be blank or odd. What cannot be read is searched for among what fits (`spreads`), or
the row has no answer and the reason is said.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.plan.models.shapes_guess import find_shape
from fuelline.plan.physics.memory import cache_room, sram_spread
from fuelline.plan.physics.rates import find_engine
from fuelline.schema.errors import InputError
from fuelline.schema.plan.catalogue import plain
from fuelline.schema.plan.chips import Chip, find_chip, list_chips
from fuelline.schema.plan.estimates import Parallelism
from fuelline.schema.plan.precision import Precision, parse_precision

if TYPE_CHECKING:
    from fuelline.plan.check.rows import Row
    from fuelline.plan.physics.constants import Constants, Engine
    from fuelline.schema.plan.models import Model

_NOT_THE_WHOLE_CHIP = ("mig", "vgpu", "slice")
_MOST_CHIPS_OF_A_GROUP = 64


class Case(Struct, frozen=True, kw_only=True):
    """What a row asks about."""

    model: Model
    chip: Chip
    precision: Precision
    engine: Engine
    spreads: tuple[Parallelism, ...]
    """One if the row says how the model is spread; else all that fit, the best is taken."""
    chips: int
    assumptions: tuple[str, ...] = ()


class OwnCatalogue(Struct, frozen=True, kw_only=True):
    """Chips and models of the user's catalogues, looked at first."""

    chips: tuple[Chip, ...] = ()
    models: tuple[Model, ...] = ()


NOTHING = OwnCatalogue()


def make_case(row: Row, constants: Constants, own: OwnCatalogue = NOTHING) -> Case:
    """Read the cells; InputError says why a row cannot be answered."""
    found = find_shape(row.model, row.params_b, row.active_params_b, row.notes, own.models)
    if found is None:
        raise InputError(f"neither the shape nor the size of '{row.model}' is known")
    model, assumed = found
    chip, likeness = read_chip(row.hardware, own.chips)
    if chip.mem_bytes_per_s is None or chip.peak_flops("bf16") is None:
        raise InputError(f"bandwidth or math rate of '{chip.name}' is not known")
    engine = find_engine(row.text, constants)
    precision = read_precision(row, engine)
    spreads = read_spreads(row, model, chip, precision)
    chips = row.chips or max(each.chips for each in spreads)
    notes = tuple(note for note in (assumed, likeness) if note)
    return Case(
        model=model,
        chip=chip,
        precision=precision,
        engine=engine,
        spreads=spreads,
        chips=chips,
        assumptions=notes,
    )


def read_chip(name: str, own: tuple[Chip, ...] = ()) -> tuple[Chip, str]:
    """By its name; or the chip whose name this one begins with, which is said."""
    try:
        return find_chip(name, own), ""
    except InputError:
        wanted = plain(name)
        same = [chip for chip in (*own, *list_chips()) if _words(chip.name) == _words(name)]
        if same:
            return same[0], ""
        if any(word in wanted for word in _NOT_THE_WHOLE_CHIP):
            raise
        known = [
            (plain(each), chip)
            for chip in (*own, *list_chips())
            for each in (chip.name, *chip.aliases)
        ]
        begin = [(key, chip) for key, chip in known if len(key) >= 3 and wanted.startswith(key)]
        bare = re.sub(r"^(nvidia|amd|google|intel|apple|aws)", "", wanted)
        begin += [(key, chip) for key, chip in known if len(key) >= 3 and bare.startswith(key)]
        if not begin:
            raise
        chip = max(begin, key=lambda pair: len(pair[0]))[1]
        return chip, f"'{name}' taken for {chip.name}"


def _words(name: str) -> set[str]:
    """`A100-PCIe-40GB` is `A100-40GB-PCIe`."""
    return set(re.split(r"[^a-z0-9.]+", name.lower())) - {"nvidia", "tesla", "amd", "instinct", ""}


def read_precision(row: Row, engine: Engine) -> Precision:
    """The first part of the cell that is a precision; half precision if it is blank."""
    inside = re.findall(r"(?:nv|mx)?fp(?:4|8|16|32)|bf16|int(?:4|8)", row.precision.lower())
    for part in (row.precision, *re.split(r"[/+,; ]", row.precision), *inside):
        try:
            precision = parse_precision(part)
        except InputError:
            continue
        low = precision.math in ("fp8", "fp4", "int8")
        stated = "fp8 kv" in row.text
        return replace(
            precision, kv_bits=8.0 if stated and low else engine.cache_bits if low else 16.0
        )
    if row.precision.strip():
        return parse_precision(row.precision)
    return parse_precision("bf16")


def read_spreads(
    row: Row, model: Model, chip: Chip, precision: Precision
) -> tuple[Parallelism, ...]:
    """As the row says; where it is silent, every way that fits."""
    if chip.kind == "sram":
        spread = sram_spread(model, chip, precision, row.chips)
        return (spread or Parallelism(),)
    tp, pp, dp, ep, chips = row.tp, row.pp, row.dp, row.ep or 1, row.chips
    cp = _read_context(row) if row.kind in ("prefill", "decode", "serve") else 1
    if cp > 1 and tp:
        return (Parallelism(tp=tp, pp=pp or 1, cp=cp),)
    if ep > 1 and not tp and model.experts:
        return (Parallelism(tp=1, pp=pp or 1, dp=max(dp or ep, 1), ep=ep),)
    attention = re.search(r"attention_dp=(\d+)", row.text)
    if attention and int(attention[1]) > 1 and tp:
        dp, ep = int(attention[1]), max(ep, tp)
        tp = max(tp // dp, 1)
    if tp and tp > max(chip.scaleup_domain, 8) and ep > 1 and tp % ep == 0 and model.experts:
        tp, chips = tp // ep, None  # the cell counts tp x ep
    if tp and (pp or chips is None):
        pp = pp or 1
        rest = max(chips // (tp * pp), 1) if chips else 1
        return (Parallelism(tp=tp, pp=pp, dp=dp or rest, ep=ep),)
    return _search((tp, pp, chips), model, chip, precision)


def _read_context(row: Row) -> int:
    """`CP 16`, `context parallel 16`; all chips beside `tp` and `pp` if it has no number."""
    stated = re.search(r"\b(?:cp|context[ -]parallel\w*)\b[ =:x]*(\d+)?", row.text)
    if not stated:
        return 1
    if stated[1]:
        return int(stated[1])
    return max((row.chips or 1) // ((row.tp or 1) * (row.pp or 1)), 1)


def _search(
    stated: tuple[int | None, int | None, int | None],
    model: Model,
    chip: Chip,
    precision: Precision,
) -> tuple[Parallelism, ...]:
    """`stated`: tp, pp and the number of chips, each if the row says it."""
    tp, pp, chips = stated
    most = chips or _MOST_CHIPS_OF_A_GROUP
    group = min(most, max(chip.scaleup_domain, 8))
    tps = [tp] if tp else [size for size in (1, 2, 4, 8, 16, 32, 64) if size <= group]
    pps = [pp] if pp else [size for size in (1, 2, 4, 8, 16) if size <= most]
    ways = [
        Parallelism(tp=t, pp=p, dp=max((chips or t * p) // (t * p), 1))
        for t in tps
        for p in pps
        if t * p <= most and model.heads % t == 0
    ]
    if model.experts and not tp:
        ways += [
            Parallelism(tp=1, pp=1, dp=size, ep=size)
            for size in (4, 8, 16, 32, 64)
            if size <= group and model.experts % size == 0
        ]
    fit = [each for each in ways if cache_room(model, chip, precision, each) > 0]
    if not fit:
        fit = [max(ways, key=lambda each: each.shards)] if ways else [Parallelism(tp=tps[-1])]
    return tuple(fit)
