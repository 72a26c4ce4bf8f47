"""`fuelline plan chips`: every chip of the catalogue side by side for one model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.cli.plan import options as shared
from fuelline.cli.plan.options import check_counts
from fuelline.schema.errors import UsageError
from fuelline.schema.plan.precision import parse_precision

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from fuelline.schema.plan.answers import ChipLine


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "chips",
        help="compare all chips: floor, throughput, cost, energy",
        description="Compare every chip in the catalogue for one model.",
    )
    shared.add_model(parser)
    parser.add_argument("--chip", help="only these, such as h100,mi300x (default: all)")
    parser.add_argument(
        "--for",
        dest="purpose",
        choices=("serve", "train"),
        default="serve",
        help="what the chips are for (default: serve)",
    )
    shared.add_numbers(
        parser,
        ("in", "prompt tokens per request (default: 1024)"),
        ("out", "output tokens per request (default: 256)"),
        ("chips", "number of chips in a training job (default: 256)"),
        ("seq", "tokens per training sequence (default: 4096)"),
    )
    parser.add_argument(
        "--engine",
        default=shared.DEFAULT_ENGINE,
        help=f"serving software whose overhead is added, or none (default: "
        f"{shared.DEFAULT_ENGINE})",
    )
    parser.add_argument(
        "--sort",
        choices=("rate", "usd", "floor", "joules"),
        default="rate",
        help="the best first by tokens per second and chip, USD per token, the floor of a token "
        "(serve only), or energy per token (default: rate)",
    )
    parser.add_argument(
        "--top", type=int, metavar="N", help="show only the first N that fit (default: all)"
    )
    parser.set_defaults(act=act, reads=shared.list_given, if_any=True)


def act(options: argparse.Namespace) -> int:
    """Compare them."""
    from fuelline.plan.asked.request import find_engine  # noqa: PLC0415 - not for the help
    from fuelline.plan.models.native import precision_on  # noqa: PLC0415
    from fuelline.plan.serving.chips import line_for_serving, line_for_training  # noqa: PLC0415
    from fuelline.plan.serving.search import Wish  # noqa: PLC0415
    from fuelline.plan.training.layouts import TrainWish  # noqa: PLC0415
    from fuelline.report.plan.chips import write_chips  # noqa: PLC0415
    from fuelline.schema.plan.answers import ChipsAnswer  # noqa: PLC0415

    check_counts(options)
    _check_order(options)
    request = shared.make_request(options)
    constants, loaded = request.find_constants(), request.load()
    native = request.is_native(loaded)
    if native and options.purpose == "train":
        precision, native = parse_precision("bf16"), False
    else:
        precision = request.find_precision(loaded)
    chips = request.find_chips()
    if options.purpose == "serve":
        wish = Wish(
            prompt=shared.one_of(options, "in", 1024) or 1024,
            output=shared.one_of(options, "out", 256) or 256,
        )
        engine = find_engine(options.engine, constants)
        lines = [
            line_for_serving(
                loaded.model,
                chip,
                precision_on(loaded.model, chip, precision) if native else precision,
                wish,
                (engine, constants),
            )
            for chip in chips
        ]
    else:
        job = TrainWish(
            chips=int(shared.one_of(options, "chips", 256) or 256),
            tokens=1e12,
            length=shared.one_of(options, "seq", 4096) or 4096,
        )
        lines = [line_for_training(loaded.model, chip, precision, job, constants) for chip in chips]
    fit = sorted((line for line in lines if not line.why_not), key=_ORDERS[options.sort])
    shown = fit if options.top is None else fit[: options.top]
    answer = ChipsAnswer(
        model=loaded.model.name,
        purpose=options.purpose,
        precision=precision.name,
        lines=(*shown, *(line for line in lines if line.why_not)),
        precision_note="as published; bf16 where a chip has no unit for it" if native else "",
        sorted_by=options.sort,
        left_out=len(fit) - len(shown),
    )
    shared.show(options, answer, write_chips(answer))
    return 0


def _check_order(options: argparse.Namespace) -> None:
    if options.top is not None and options.top < 1:
        raise UsageError(
            f"--top {options.top} leaves no chip. Nothing was planned. Give 1 or more, such as "
            "--top 10."
        )
    if options.sort == "floor" and options.purpose == "train":
        raise UsageError(
            "--sort floor: training has no floor of a token. Nothing was planned. Sort by rate, "
            "usd or joules."
        )


def _best_first(value: float | None) -> tuple[bool, float]:
    """What is not known comes last."""
    return value is None, value or 0.0


def _rate(line: ChipLine) -> float:
    return 0.0 if line.tokens_per_s_per_chip is None else line.tokens_per_s_per_chip.value


_ORDERS: dict[str, Callable[[ChipLine], tuple[bool, float]]] = {
    "rate": lambda line: _best_first(-_rate(line)),
    "usd": lambda line: _best_first(line.usd_per_mtoken),
    "floor": lambda line: _best_first(line.floor_s),
    "joules": lambda line: _best_first(line.joule_per_token),
}
