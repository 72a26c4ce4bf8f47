"""Training a model: the question from flags or from Python, its answer, and a table of a range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from fuelline.plan.asked.plain import make_request, name_keywords
from fuelline.plan.models.shapes import why_uneven
from fuelline.plan.physics.setup import Setup
from fuelline.plan.training.answer import plan_training
from fuelline.plan.training.layouts import TrainWish
from fuelline.schema.errors import DoesNotFitError, InputError, UsageError
from fuelline.schema.mistakes import tell_plainly
from fuelline.schema.plan.answers import TrainPoint
from fuelline.schema.plan.precision import parse_precision

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from fuelline.plan.asked.plain import Number
    from fuelline.plan.asked.request import PlanRequest
    from fuelline.plan.models.configs import Loaded
    from fuelline.schema.plan.answers import TrainAnswer
    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.precision import Precision

_FIELDS: dict[str, tuple[str, Callable[[float], float]]] = {
    # A flag's field of `TrainWish`, and from the flag's unit to the field's.
    "chips": ("chips", int),
    "tokens": ("tokens", float),
    "seq": ("length", float),
    "batch-tokens": ("batch_tokens", float),
    "tp": ("tp", int),
    "pp": ("pp", int),
    "cp": ("cp", int),
    "ep": ("ep", int),
    "microbatch": ("microbatch", int),
    "zero": ("zero", int),
    "interleave": ("interleave", int),
    "jitter": ("jitter_frac", lambda percent: percent / 100),
    "checkpoint": ("checkpoint_s", float),
    "mtbf": ("chip_hours", lambda seconds: seconds / 3600),
    "sample-bytes": ("sample_bytes", float),
    "sites": ("sites", int),
    "link": ("link_gbps", float),
}
RANGES = (*_FIELDS, "price")
"""Flags that may hold a range."""
_RECOMPUTE = ("none", "selective", "full")
_PYTHON = {
    # Keyword: its flag, and from the keyword's unit to the flag's.
    "chips": ("chips", 1.0),
    "tokens": ("tokens", 1.0),
    "sequence_tokens": ("seq", 1.0),
    "batch_tokens": ("batch-tokens", 1.0),
    "tp": ("tp", 1.0),
    "pp": ("pp", 1.0),
    "cp": ("cp", 1.0),
    "ep": ("ep", 1.0),
    "microbatch": ("microbatch", 1.0),
    "zero": ("zero", 1.0),
    "interleave": ("interleave", 1.0),
    "jitter_frac": ("jitter", 100.0),
    "checkpoint_s": ("checkpoint", 1.0),
    "chip_mtbf_hours": ("mtbf", 3600.0),
    "sample_bytes": ("sample-bytes", 1.0),
    "sites": ("sites", 1.0),
    "link_bytes_per_s": ("link", 1e-9),
    "usd_per_chip_hour": ("price", 1.0),
}


@tell_plainly
@name_keywords(_PYTHON)
def train(
    model: str | os.PathLike[str],
    *,
    chip: str | Sequence[str],
    chips: Number | None = None,
    tokens: Number | None = None,
    sequence_tokens: Number | None = None,
    batch_tokens: Number | None = None,
    tp: Number | None = None,
    pp: Number | None = None,
    cp: Number | None = None,
    ep: Number | None = None,
    microbatch: Number | None = None,
    zero: Number | None = None,
    interleave: Number | None = None,
    recompute: Literal["none", "selective", "full"] | None = None,
    precision: str | None = None,
    usd_per_chip_hour: Number | None = None,
    jitter_frac: Number | None = None,
    checkpoint_s: Number | None = None,
    chip_mtbf_hours: Number | None = None,
    sample_bytes: Number | None = None,
    sites: Number | None = None,
    link_bytes_per_s: Number | None = None,
    catalogue: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
) -> TrainAnswer:
    """How long a run takes, in which layout, and what limits it: `fuelline plan train`.

    `model` is a `config.json`, its folder, or a public name. A keyword that holds a number may hold
    a list of them, one keyword at a time, and `chip` may name several: then the answer has a table
    (`sweep`). What is left out is searched for, or has the default of the command line.

    Raises:
        UsageError: a value makes no sense, or two contradict each other.
        InputError: the model or chip is not known, or nothing fits.
    """
    given = {
        "chips": chips,
        "tokens": tokens,
        "sequence_tokens": sequence_tokens,
        "batch_tokens": batch_tokens,
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "ep": ep,
        "microbatch": microbatch,
        "zero": zero,
        "interleave": interleave,
        "jitter_frac": jitter_frac,
        "checkpoint_s": checkpoint_s,
        "chip_mtbf_hours": chip_mtbf_hours,
        "sample_bytes": sample_bytes,
        "sites": sites,
        "link_bytes_per_s": link_bytes_per_s,
        "usd_per_chip_hour": usd_per_chip_hour,
    }
    request = make_request(model, chip, precision, catalogue=catalogue, given=given, flags=_PYTHON)
    if recompute not in (None, *_RECOMPUTE):
        raise UsageError(
            f"recompute={recompute!r} is not known. Nothing was planned. Give one of "
            f"{', '.join(map(repr, _RECOMPUTE))}, or leave it out to have it searched for."
        )
    return ask_training(request, recompute)


def ask_training(request: PlanRequest, recompute: str | None) -> TrainAnswer:
    """The answer; a range or several chips give a table."""
    loaded = request.load()
    chips = request.find_chips()
    price = request.values.get("price")
    if price is not None:
        chips = tuple(replace(chip, usd_per_hour=price[0]) for chip in chips)
    request.check_degrees(loaded.model)
    setup = Setup(
        model=loaded.model,
        chip=chips[0],
        precision=_precision(request, loaded),
        constants=request.find_constants(),
    )
    fields: dict[str, float] = {"chips": 8, "tokens": 20.0 * loaded.model.params}
    for flag, (field, convert) in _FIELDS.items():
        if flag in request.values:
            fields[field] = convert(request.values[flag][0])
    wish = TrainWish(**fields, recompute=recompute)  # type: ignore[arg-type]
    steps = _steps(request, setup, chips, wish)
    if not steps:
        return plan_training(setup, wish)
    points = [_point(step) for step in steps]
    return replace(_headline(steps, points), swept=steps[0].name, sweep=tuple(points))


def _precision(request: PlanRequest, loaded: Loaded) -> Precision:
    """A release's few bits are for serving; training keeps half precision unless asked."""
    return parse_precision("bf16") if request.is_native(loaded) else request.find_precision(loaded)


class TrainQuestion(Struct, frozen=True, kw_only=True):
    """One line of a table: what is asked at one value of the swept flag."""

    name: str
    """Of the swept flag."""
    at: float
    label: str
    setup: Setup
    wish: TrainWish


def _steps(
    request: PlanRequest, setup: Setup, chips: tuple[Chip, ...], wish: TrainWish
) -> list[TrainQuestion]:
    """Chips of a list, or values of a range; none if neither was given."""
    name = request.find_swept(RANGES)
    if len(chips) > 1:
        if name:
            raise UsageError(
                f"{request.spell('chip', '')} is a list and {request.spell(name, '')} a range, and "
                "a table has one. Give one chip or one value."
            )
        return [
            TrainQuestion(
                name="chip",
                at=float(at),
                label=chip.name,
                setup=replace(setup, chip=chip),
                wish=wish,
            )
            for at, chip in enumerate(chips, 1)
        ]
    return [_step(setup, wish, name, value) for value in request.values.get(name, ())]


def _step(setup: Setup, wish: TrainWish, name: str, value: float) -> TrainQuestion:
    if name == "price":
        priced = replace(setup, chip=replace(setup.chip, usd_per_hour=value))
        return TrainQuestion(name=name, at=value, label="", setup=priced, wish=wish)
    field, convert = _FIELDS[name]
    changed = replace(wish, **{field: convert(value)})
    return TrainQuestion(name=name, at=value, label="", setup=setup, wish=changed)


def _point(step: TrainQuestion) -> TrainPoint:
    try:
        found = plan_training(step.setup, step.wish)
    except InputError as error:
        uneven = why_uneven(step.setup.model, step.name, step.at)
        why = uneven or ("does not fit" if isinstance(error, DoesNotFitError) else "no layout")
        return TrainPoint(
            at=step.at, step_s=None, mfu_frac=None, days=None, why_not=why, label=step.label
        )
    degrees = " ".join(
        f"{key}{getattr(found.spread, key)}"
        for key in ("tp", "pp", "dp", "cp", "ep")
        if getattr(found.spread, key) > 1
    )
    return TrainPoint(
        at=step.at,
        step_s=found.step_s.value,
        mfu_frac=found.mfu_frac.value,
        days=found.days,
        spread=degrees,
        label=step.label,
        step_range=found.step_s,
        mfu_range=found.mfu_frac,
        days_range=found.days_range,
        usd_range=found.usd_range,
        energy_joule=found.energy_joule,
        goodput_share=found.goodput.share,
        loader_bytes_per_s=found.loader_bytes_per_s,
    )


def _headline(steps: list[TrainQuestion], points: list[TrainPoint]) -> TrainAnswer:
    """The last value that works stands for the range; if none does, its error is raised."""
    working = [step for step, point in zip(steps, points, strict=True) if point.step_s is not None]
    last = (working or steps)[-1]
    return plan_training(last.setup, last.wish)
