"""`fuelline plan train`: how long a run takes on so many chips, and what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.cli.plan import options as shared
from fuelline.cli.plan.degrees import check_degrees
from fuelline.cli.plan.options import check_counts
from fuelline.cli.plots import add_plot
from fuelline.schema.errors import InputError, UsageError
from fuelline.schema.plan.precision import parse_precision

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from fuelline.plan.models.configs import Loaded
    from fuelline.plan.physics.setup import Setup
    from fuelline.plan.training.layouts import TrainWish
    from fuelline.schema.plan.answers import TrainAnswer, TrainPoint
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
_RANGES = (*_FIELDS, "price")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "train",
        help="train a model: time, layout, MFU, memory, failures, input",
        description=(
            "Say how long a training run takes, in which layout, what limits it, what it needs of "
            "memory, network "
            "and input, and what failures and jitter cost. A range gives a table and a plot."
        ),
    )
    shared.add_model(parser)
    parser.add_argument("--chip", help="such as h100, or several: h100,h200 (no default)")
    shared.add_numbers(
        parser,
        ("chips", "chips of the job (default: 8)"),
        ("tokens", "tokens to train on, such as 1T (default: 20 a parameter)"),
        ("seq", "tokens of a sequence (default: 4096)"),
        ("batch-tokens", "tokens of a step (default: 4M)"),
        ("tp", "tensor-parallel degree (default: searched)"),
        ("pp", "pipeline stages (default: searched)"),
        ("cp", "context-parallel degree (default: 1)"),
        ("ep", "expert-parallel degree (default: searched)"),
        ("microbatch", "sequences of a micro-batch (default: searched)"),
        ("price", "US$ per chip and hour (default: the catalogue's)"),
    )
    parser.add_argument(
        "--recompute", choices=("none", "selective", "full"), help="activations (default: searched)"
    )
    _add_circumstances(parser)
    parser.add_argument("--explain", action="store_true", help="show the terms (default: off)")
    add_plot(parser)
    parser.set_defaults(act=act)


def _add_circumstances(parser: argparse.ArgumentParser) -> None:
    """What surrounds the steps."""
    for name, word, text in (
        ("zero", "STAGE", "ZeRO stage 0 to 3, 3 is FSDP (default: searched)"),
        ("interleave", "N", "chunks of layers a stage (default: 4 with stages)"),
        ("jitter", "PERCENT", "that a rank's steps vary by (default: as measured runs)"),
        ("checkpoint", "TIME", "of one checkpoint, such as 30s (default: estimated)"),
        ("mtbf", "TIME", "between failures of one chip (default: 50000h)"),
        ("sample-bytes", "N", "bytes of a sample on storage (default: 4 a token)"),
        ("sites", "N", "sites that train together (default: 1)"),
        ("link", "N", "GB/s between sites (default: 1.25)"),
    ):
        parser.add_argument(f"--{name}", metavar=word, help=text)


def act(options: argparse.Namespace) -> int:
    """Plan it."""
    from fuelline.plan.physics.setup import Setup  # noqa: PLC0415
    from fuelline.plan.training.answer import plan_training  # noqa: PLC0415
    from fuelline.report.plan.train import write_training  # noqa: PLC0415

    if not options.chip:
        raise UsageError("training time depends on the chip: give one, such as --chip h100.")
    loaded = shared.load(options)
    chips = shared.read_chip_list(options)
    price = shared.values_of(options, "price")
    if price is not None:
        chips = tuple(replace(chip, usd_per_hour=price[0]) for chip in chips)
    check_counts(options)
    check_degrees(options, loaded.model)
    setup = Setup(
        model=loaded.model,
        chip=chips[0],
        precision=_precision(options, loaded),
        constants=shared.read_constants(options),
    )
    wish = _wish(options, loaded.model.params)
    steps = _steps(options, setup, chips, wish)
    if not steps:
        answer = plan_training(setup, wish)
    else:
        swept = "chip" if len(chips) > 1 else shared.find_range(options, _RANGES)
        points = [_point(step) for step in steps]
        answer = replace(_headline(steps, points), swept=swept, sweep=tuple(points))
    shared.show(options, answer, write_training(answer, explain=options.explain))
    return 0


def _precision(options: argparse.Namespace, loaded: Loaded) -> Precision:
    """A release's few bits say how it is served; training keeps half precision unless told."""
    if shared.is_native(options, loaded):
        return parse_precision("bf16")
    return shared.read_precision(options, loaded)


def _wish(options: argparse.Namespace, params: float) -> TrainWish:
    """The first value of every flag that was given."""
    from fuelline.plan.training.layouts import TrainWish  # noqa: PLC0415 - not for the help

    fields: dict[str, float] = {"chips": 8, "tokens": 20.0 * params}
    for name, (field, convert) in _FIELDS.items():
        values = shared.values_of(options, name)
        if values is not None:
            fields[field] = convert(values[0])
    return TrainWish(**fields, recompute=options.recompute)  # type: ignore[arg-type]


class TrainQuestion(Struct, frozen=True, kw_only=True):
    """One line of a table: what is asked at one value of the swept flag."""

    name: str
    """Of the swept flag."""
    at: float
    label: str
    setup: Setup
    wish: TrainWish


def _steps(
    options: argparse.Namespace, setup: Setup, chips: tuple[Chip, ...], wish: TrainWish
) -> list[TrainQuestion]:
    """Chips of a list, or values of a range; none if neither was given."""
    name = shared.find_range(options, _RANGES)
    if len(chips) > 1:
        if name:
            raise UsageError(
                f"--chip is a list and --{name} a range, and a table has one. Give one chip or one "
                "value."
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
    values = (shared.values_of(options, name) or ()) if name else ()
    return [_step(setup, wish, name, value) for value in values]


def _step(setup: Setup, wish: TrainWish, name: str, value: float) -> TrainQuestion:
    if name == "price":
        priced = replace(setup, chip=replace(setup.chip, usd_per_hour=value))
        return TrainQuestion(name=name, at=value, label="", setup=priced, wish=wish)
    field, convert = _FIELDS[name]
    changed = replace(wish, **{field: convert(value)})
    return TrainQuestion(name=name, at=value, label="", setup=setup, wish=changed)


def _point(step: TrainQuestion) -> TrainPoint:
    from fuelline.plan.models.shapes import why_uneven  # noqa: PLC0415
    from fuelline.plan.training.answer import plan_training  # noqa: PLC0415 - not for the help
    from fuelline.schema.plan.answers import TrainPoint  # noqa: PLC0415

    try:
        found = plan_training(step.setup, step.wish)
    except InputError as error:
        uneven = why_uneven(step.setup.model, step.name, step.at)
        why = uneven or ("does not fit" if "does not fit" in str(error) else "no layout")
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
    """The last value that works stands for the range; if none does, its error is told."""
    from fuelline.plan.training.answer import plan_training  # noqa: PLC0415 - not for the help

    working = [step for step, point in zip(steps, points, strict=True) if point.step_s is not None]
    last = (working or steps)[-1]
    return plan_training(last.setup, last.wish)
