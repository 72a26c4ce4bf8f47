"""`fuelline plan serve`: what serves a model at a rate within limits, at least cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.plan import options as shared
from fuelline.cli.plan.options import check_counts
from fuelline.cli.plots import add_plot

if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "serve",
        help="serve a model: latency, throughput, chips, cost",
        description=(
            "Find the cheapest way to serve a model within limits, searching over chips, "
            "parallelism and batch, and say what limits it. A range such as --batch 1..256 gives "
            "a table and a plot."
        ),
    )
    shared.add_model(parser)
    parser.add_argument("--chip", help="chips to consider, such as h100,h200 (default: all)")
    shared.add_numbers(
        parser,
        ("in", "prompt tokens per request (default: 1024)"),
        ("out", "output tokens per request (default: 256)"),
        ("rate", "requests per second in total (default: what one replica can serve)"),
        ("batch", "sequences at once per replica (default: the most that keeps the limits)"),
        ("tp", "tensor-parallel degree (default: searched)"),
        ("pp", "pipeline stages (default: searched)"),
        ("ep", "expert-parallel degree (default: searched)"),
        ("cp", "chips that share a sequence's context (default: 1)"),
        ("chips", "most chips in total (default: no limit)"),
        ("measured", "your tokens per second and user, to compare with the floor (default: none)"),
        ("price", "US$ per chip and hour (default: the catalogue's)"),
    )
    _add_stream(parser)
    parser.add_argument("--slo", help="limits such as ttft=500ms,tpot=40ms (default: none)")
    parser.add_argument(
        "--kv",
        metavar="BITS",
        help="bits per value in the KV cache, 8 or 16 (default: 16)",
        default="16",
    )
    parser.add_argument(
        "--engine",
        default=shared.DEFAULT_ENGINE,
        help=f"serving software whose overhead is added, or none (default: "
        f"{shared.DEFAULT_ENGINE})",
    )
    parser.add_argument(
        "--headroom",
        default="20",
        metavar="PERCENT",
        help="capacity kept for peaks and failures, 0 to 90 (default: 20)",
    )
    parser.add_argument(
        "--offload", action="store_true", help="allow weights in host memory (default: off)"
    )
    parser.add_argument(
        "--explain", action="store_true", help="show the terms behind the numbers (default: off)"
    )
    add_plot(parser)
    parser.set_defaults(act=act, reads=shared.list_given, if_any=True)


def _add_stream(parser: argparse.ArgumentParser) -> None:
    """How requests come: queues are simulated for them."""
    parser.add_argument(
        "--arrivals",
        choices=("poisson", "bursty", "even"),
        default="poisson",
        help="how the requests of --rate arrive (default: poisson)",
    )
    parser.add_argument(
        "--vary",
        metavar="PERCENT",
        help="how much lengths vary around --in and --out, 0 to 300 (default: 0, all the same)",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="requests with arrival_s,prompt,output as CSV or JSON lines (default: random)",
    )
    parser.add_argument(
        "--attain",
        metavar="PERCENT",
        help="per cent of requests that must meet --slo, 50 to 99.9 (default: 95)",
    )


def act(options: argparse.Namespace) -> int:
    """Plan it."""
    from fuelline.plan.asked.serving import RANGES, ask_serving  # noqa: PLC0415 - not for the help
    from fuelline.report.plan.serve import write_serving  # noqa: PLC0415

    request = shared.make_request(options, RANGES)
    check_counts(options)
    answer = ask_serving(
        request,
        engine=options.engine,
        arrivals=options.arrivals,
        trace=Path(options.trace) if options.trace else None,
        offload=options.offload,
        plotted=bool(options.plot),
    )
    shared.show(options, answer, write_serving(answer, explain=options.explain))
    best = answer.options[0]
    return 0 if best.meets and not best.short else 1
