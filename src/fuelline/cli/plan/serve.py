"""`fuelline plan serve`: what serves a model at a rate within limits, at least cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.plan import options as shared
from fuelline.cli.plan.degrees import check_degrees
from fuelline.cli.plan.options import check_counts
from fuelline.cli.plots import add_plot
from fuelline.schema.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from fuelline.plan.serving.load import Stream

BURSTY = 3.0
"""Coefficient of variation of gaps called bursty: production shows 2 to 5 (arXiv 2401.17644)."""

_VALUES = ("batch", "in", "out", "rate", "tp", "pp", "ep", "cp", "chips")
_RANGES = (
    *_VALUES, "ttft", "tpot", "price", "measured", "kv", "headroom", "vary", "attain",
)  # fmt: skip
_OF_A_STREAM = ("headroom", "vary", "attain")
"""Flags that say something about requests of a rate, and nothing without one."""


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
        ("cp", "chips that share a sequence's context (default: 1)"),
        ("chips", "chips at most, in all (default: no limit)"),
        ("measured", "your tokens per second and user, to compare with the floor (default: none)"),
        ("price", "US$ per chip and hour (default: the catalogue's)"),
    )
    _add_stream(parser)
    parser.add_argument("--slo", help="limits such as ttft=500ms,tpot=40ms (default: none)")
    parser.add_argument(
        "--kv", metavar="BITS", help="bits of a cached value, 8 or 16 (default: 16)", default="16"
    )
    parser.add_argument(
        "--engine",
        default=shared.DEFAULT_ENGINE,
        help=f"software whose overhead counts, or none (default: {shared.DEFAULT_ENGINE})",
    )
    parser.add_argument(
        "--headroom",
        default="20",
        metavar="PERCENT",
        help="capacity kept for peaks and failures, 0 to 90 (default: 20)",
    )
    parser.add_argument(
        "--offload", action="store_true", help="weights may lie in host memory (default: off)"
    )
    parser.add_argument("--explain", action="store_true", help="show the terms (default: off)")
    add_plot(parser)
    parser.set_defaults(act=act)


def _add_stream(parser: argparse.ArgumentParser) -> None:
    """How requests come: queues are simulated for them."""
    parser.add_argument(
        "--arrivals",
        choices=("poisson", "bursty", "even"),
        default="poisson",
        help="how requests of --rate come (default: poisson)",
    )
    parser.add_argument(
        "--vary",
        metavar="PERCENT",
        help="how much lengths vary around --in and --out, 0 to 300 (default: 0, all alike)",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="requests with arrival_s,prompt,output as CSV or JSON lines (default: drawn)",
    )
    parser.add_argument(
        "--attain",
        metavar="PERCENT",
        help="per cent of requests that must keep --slo, 50 to 99.9 (default: 95)",
    )


def _read_stream(options: argparse.Namespace) -> Stream:
    from fuelline.plan.serving.load import Stream  # noqa: PLC0415 - not for the help
    from fuelline.plan.simulation.trace import read_requests  # noqa: PLC0415

    if options.trace and (options.rate or options.vary):
        raise UsageError(
            "--trace says when requests come and how long they are: give no --rate or --vary."
        )
    return Stream(
        burstiness={"poisson": 1.0, "bursty": BURSTY, "even": 0.0}[options.arrivals],
        length_spread=_first(options, "vary", 0.0) / 100,
        attain_share=_first(options, "attain", 95.0) / 100,
        trace=tuple(read_requests(Path(options.trace))) if options.trace else (),
    )


def _first(options: argparse.Namespace, name: str, default: float) -> float:
    """Of a swept flag the first value: the others are walked."""
    values = shared.values_of(options, name)
    return values[0] if values else default


def act(options: argparse.Namespace) -> int:
    """Plan it."""
    from fuelline.plan.serving.answer import Question, answer_serving  # noqa: PLC0415
    from fuelline.report.plan.serve import write_serving  # noqa: PLC0415

    constants = shared.read_constants(options)
    loaded = shared.load(options)
    stream = _read_stream(options)
    swept = _find_range(options)
    limits = {name: _first(options, name, 0.0) for name in ("ttft", "tpot")}
    question = Question(
        model=loaded.model,
        precision=shared.read_precision(options, loaded, _first(options, "kv", 16.0)),
        chips=shared.read_chip_list(options),
        engine=shared.read_engine(options, constants),
        limits={name: limit for name, limit in limits.items() if limit},
        values=_values(options, stream),
        swept=swept,
        measured=_first(options, "measured", 0.0) or None,
        price=_first(options, "price", 0.0) or None,
        headroom=_first(options, "headroom", 20.0) / 100,
        offload=options.offload,
        plotted=bool(options.plot),
        stream=stream,
        native=shared.is_native(options, loaded),
        walked=(shared.values_of(options, swept) or ()) if swept else (),
    )
    check_counts(options)
    check_degrees(options, loaded.model)
    answer = answer_serving(question, constants)
    shared.show(options, answer, write_serving(answer, explain=options.explain))
    best = answer.options[0]
    return 0 if best.meets and not best.short else 1


def _values(options: argparse.Namespace, stream: Stream) -> dict[str, tuple[float, ...] | None]:
    """What the flags hold; a trace says its rate and mean lengths itself."""
    values = {name: shared.values_of(options, name) for name in _VALUES}
    return {**values, **stream.means()}


def _find_range(options: argparse.Namespace) -> str:
    swept = shared.find_range(options, _RANGES)
    given = [name for name in ("vary", "attain") if getattr(options, name) is not None]
    idle = [swept] if swept in _OF_A_STREAM else given
    if idle and not (options.rate or options.trace):
        raise UsageError(
            f"--{idle[0]} says something about requests that come at a rate, and changes nothing "
            "without: give --rate or --trace too."
        )
    return swept
