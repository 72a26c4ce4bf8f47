"""`fuelline plan serve`: what serves a model at a rate within limits, at least cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.cli.plan import options as shared
from fuelline.schema.errors import UsageError
from fuelline.schema.quantities import parse_limits

if TYPE_CHECKING:
    import argparse

_RANGES = ("batch", "in", "out", "rate", "tp", "pp", "ep", "chips")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "serve",
        help="serve a model: latency, throughput, chips, cost",
        description=(
            "Find what serves a model within limits at least cost, over chips, parallelism and "
            "batch, and "
            "say what limits it. A range such as --batch 1..256 gives a table and a plot."
        ),
    )
    shared.add_model(parser)
    parser.add_argument("--chip", help="chips to look at, such as h100,h200 (default: all)")
    shared.add_numbers(
        parser,
        ("in", "prompt tokens of a request (default: 1024)"),
        ("out", "output tokens of a request (default: 256)"),
        ("rate", "requests per second in all (default: as many as one replica serves)"),
        ("batch", "sequences at once in a replica (default: the most within the limits)"),
        ("tp", "tensor-parallel degree (default: searched)"),
        ("pp", "pipeline stages (default: searched)"),
        ("ep", "expert-parallel degree (default: searched)"),
        ("chips", "chips at most, in all (default: no limit)"),
        ("measured", "your tokens per second and user, to compare with the floor (default: none)"),
        ("price", "US$ per chip and hour (default: the catalogue's)"),
    )
    parser.add_argument("--slo", help="limits such as ttft=500ms,tpot=40ms (default: none)")
    parser.add_argument(
        "--kv", choices=("8", "16"), help="bits of a cached value (default: 16)", default="16"
    )
    parser.add_argument(
        "--engine",
        default=shared.DEFAULT_ENGINE,
        help=f"software whose overhead counts, or none (default: {shared.DEFAULT_ENGINE})",
    )
    parser.add_argument(
        "--headroom",
        default="20",
        help="per cent of capacity kept for peaks and failures (default: 20)",
    )
    parser.add_argument(
        "--offload", action="store_true", help="weights may lie in host memory (default: off)"
    )
    parser.add_argument("--explain", action="store_true", help="show the terms (default: off)")
    parser.add_argument("--plot", metavar="FILE.svg", help="write the plot too (default: none)")
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Plan it."""
    from fuelline.predict.constants import shipped_constants  # noqa: PLC0415 - not for the help
    from fuelline.predict.serve_answer import Question, answer_serving  # noqa: PLC0415
    from fuelline.report.plan_serve import write_serving  # noqa: PLC0415

    constants = shipped_constants()
    loaded = shared.load(options)
    question = Question(
        model=loaded.model,
        precision=shared.read_precision(options, loaded, float(options.kv)),
        chips=shared.read_chip_list(options),
        engine=shared.read_engine(options, constants),
        limits=parse_limits(options.slo) if options.slo else {},
        values={name: shared.values_of(options, name) for name in _RANGES},
        swept=shared.find_range(options, _RANGES),
        measured=shared.one_of(options, "measured"),
        price=shared.one_of(options, "price"),
        headroom=_headroom(options.headroom),
        offload=options.offload,
        plotted=bool(options.plot),
    )
    for degree in question.values["tp"] or ():
        shared.check_spread(degree, loaded.model.heads)
    answer = answer_serving(question, constants)
    shared.show(options, answer, write_serving(answer, explain=options.explain))
    return 0 if answer.options and answer.options[0].meets else 1


def _headroom(text: str) -> float:
    try:
        value = float(text.rstrip("% ")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value <= 0.9:
        raise UsageError(f"--headroom is {text}; it must be between 0 and 90 per cent.")
    return value
