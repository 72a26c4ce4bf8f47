"""`fuelline plan train`: how long a run takes on so many chips, and what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.cli.plan import options as shared
from fuelline.cli.plan.counts import check_counts
from fuelline.cli.plots import add_plot
from fuelline.schema.errors import InputError, UsageError
from fuelline.schema.quantities import parse_amount, parse_duration

if TYPE_CHECKING:
    import argparse

    from fuelline.predict.planner.physics.constants import Constants
    from fuelline.predict.planner.physics.setup import Setup
    from fuelline.predict.planner.train.train_plan import TrainWish
    from fuelline.schema.plan_answers import TrainAnswer, TrainPoint

_RANGES = ("chips", "tokens", "seq", "batch-tokens", "tp", "pp", "cp", "ep", "microbatch")
_FIELDS = {"seq": "length", "batch-tokens": "batch_tokens"}


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
    parser.add_argument("--chip", help="one chip, such as h100 (no default)")
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
        "--zero", choices=("0", "1", "2", "3"), help="ZeRO stage, 3 is FSDP (default: searched)"
    )
    parser.add_argument(
        "--recompute", choices=("none", "selective", "full"), help="activations (default: searched)"
    )
    parser.add_argument("--interleave", help="chunks of layers a stage (default: 4 with stages)")
    parser.add_argument(
        "--jitter", help="per cent that a rank's steps vary (default: as measured runs)"
    )
    parser.add_argument(
        "--checkpoint", help="time of one checkpoint, such as 30s (default: estimated)"
    )
    parser.add_argument("--mtbf", help="time between failures of one chip (default: 50000h)")
    parser.add_argument("--sample-bytes", help="bytes of a sample on storage (default: 4 a token)")
    parser.add_argument("--sites", help="sites that train together (default: 1)")
    parser.add_argument("--link", help="GB/s between sites (default: 1.25)")
    parser.add_argument("--explain", action="store_true", help="show the terms (default: off)")
    add_plot(parser)
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Plan it."""
    from fuelline.predict.planner.physics.setup import Setup  # noqa: PLC0415
    from fuelline.predict.planner.train.train_plan import plan_training  # noqa: PLC0415
    from fuelline.report.plan_train import write_training  # noqa: PLC0415

    if not options.chip:
        raise UsageError("training time depends on the chip: give one, such as --chip h100.")
    loaded = shared.load(options)
    chip = shared.find_known(options.chip, shared.own_chips(options))
    price = shared.one_of(options, "price")
    if price is not None:
        chip = replace(chip, usd_per_hour=price)
    check_counts(options)
    shared.check_degrees(options, loaded.model)
    constants: Constants = shared.read_constants(options)
    setup = Setup(
        model=loaded.model,
        chip=chip,
        precision=shared.read_precision(options, loaded),
        constants=constants,
    )
    swept = shared.find_range(options, _RANGES)
    wish = _wish(options, loaded.model.params)
    points = (
        [_point(setup, wish, swept, value) for value in shared.values_of(options, swept) or ()]
        if swept
        else []
    )
    answer = _first(setup, wish, swept, points) if swept else plan_training(setup, wish)
    answer = replace(answer, swept=swept, sweep=tuple(points))
    shared.show(options, answer, write_training(answer, explain=options.explain))
    return 0


def _wish(options: argparse.Namespace, params: float) -> TrainWish:
    from fuelline.predict.planner.train.train_plan import TrainWish  # noqa: PLC0415 - not for the help

    def whole(name: str) -> int | None:
        values = shared.values_of(options, name)
        return None if values is None else int(values[0])

    def first(name: str, default: float) -> float:
        values = shared.values_of(options, name)
        return values[0] if values else default

    return TrainWish(
        chips=whole("chips") or 8,
        tokens=first("tokens", 20.0 * params),
        length=first("seq", 4096),
        batch_tokens=first("batch-tokens", 4e6),
        tp=whole("tp"),
        pp=whole("pp"),
        cp=whole("cp") or 1,
        ep=whole("ep"),
        microbatch=whole("microbatch"),
        zero=None if options.zero is None else int(options.zero),
        recompute=options.recompute,
        interleave=_optional(options.interleave, "--interleave", 1, 64),
        jitter_frac=_percent(options.jitter),
        checkpoint_s=parse_duration(options.checkpoint, "--checkpoint")
        if options.checkpoint
        else None,
        chip_hours=parse_duration(options.mtbf, "--mtbf", 1, 1e12) / 3600 if options.mtbf else None,
        sample_bytes=parse_amount(options.sample_bytes, "--sample-bytes", 1, 1e12)
        if options.sample_bytes
        else None,
        sites=_optional(options.sites, "--sites", 1, 1000) or 1,
        link_gbps=parse_amount(options.link, "--link", 1e-6, 1e5) if options.link else 1.25,
    )


def _optional(text: str | None, name: str, low: float, high: float) -> int | None:
    return None if text is None else int(parse_amount(text, name, low, high))


def _percent(text: str | None) -> float | None:
    return None if text is None else parse_amount(text.rstrip("% "), "--jitter", 0.01, 100) / 100


def _at(wish: TrainWish, name: str, value: float) -> TrainWish:
    field = _FIELDS.get(name, name)
    whole = field in ("chips", "tp", "pp", "cp", "ep")
    return replace(wish, **{field: int(value) if whole else value})


def _point(setup: Setup, wish: TrainWish, name: str, value: float) -> TrainPoint:
    from fuelline.predict.planner.train.train_plan import plan_training  # noqa: PLC0415 - not for the help
    from fuelline.schema.plan_answers import TrainPoint  # noqa: PLC0415

    try:
        found = plan_training(setup, _at(wish, name, value))
    except InputError:
        return TrainPoint(at=value, step_s=None, mfu_frac=None, days=None, why_not="does not fit")
    degrees = " ".join(
        f"{key}{getattr(found.spread, key)}"
        for key in ("tp", "pp", "dp", "cp", "ep")
        if getattr(found.spread, key) > 1
    )
    return TrainPoint(
        at=value,
        step_s=found.step_s.value,
        mfu_frac=found.mfu_frac.value,
        days=found.days,
        spread=degrees,
    )


def _first(setup: Setup, wish: TrainWish, name: str, points: list[TrainPoint]) -> TrainAnswer:
    """The largest value that works stands for the range."""
    from fuelline.predict.planner.train.train_plan import plan_training  # noqa: PLC0415 - not for the help

    for point in reversed(points):
        if point.step_s is not None:
            return plan_training(setup, _at(wish, name, point.at))
    return plan_training(setup, _at(wish, name, points[-1].at))
