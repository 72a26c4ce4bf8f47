"""`fuelline plan train`: how long a run takes on given chips, and what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.cli.plan import options as shared
from fuelline.cli.plan.options import check_counts
from fuelline.cli.plots import add_plot
from fuelline.schema.errors import UsageError

if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "train",
        help="train a model: time, layout, MFU, memory, failures, input",
        description=(
            "Say how long a training run takes and in which layout, what limits it, how much "
            "memory, network and input it needs, and what failures and jitter cost. A range gives "
            "a table and a plot."
        ),
    )
    shared.add_model(parser)
    parser.add_argument("--chip", help="such as h100, or several: h100,h200 (no default)")
    shared.add_numbers(
        parser,
        ("chips", "number of chips (default: 8)"),
        ("tokens", "tokens to train on, such as 1T (default: 20 per parameter)"),
        ("seq", "tokens per sequence (default: 4096)"),
        ("batch-tokens", "tokens per step (default: 4M)"),
        ("tp", "tensor-parallel degree (default: searched)"),
        ("pp", "pipeline stages (default: searched)"),
        ("cp", "context-parallel degree (default: 1)"),
        ("ep", "expert-parallel degree (default: searched)"),
        ("microbatch", "sequences per micro-batch (default: searched)"),
        ("price", "US$ per chip and hour (default: the catalogue's)"),
    )
    parser.add_argument(
        "--recompute",
        choices=("none", "selective", "full"),
        help="which activations to recompute (default: searched)",
    )
    _add_circumstances(parser)
    parser.add_argument(
        "--explain", action="store_true", help="show the terms behind the numbers (default: off)"
    )
    add_plot(parser)
    parser.set_defaults(act=act, reads=shared.list_given, if_any=True)


def _add_circumstances(parser: argparse.ArgumentParser) -> None:
    """What surrounds the steps."""
    for name, word, text in (
        ("zero", "STAGE", "ZeRO stage 0 to 3, 3 is FSDP (default: searched)"),
        ("interleave", "N", "chunks of layers per stage (default: 4 with stages)"),
        ("jitter", "PERCENT", "how much a rank's steps vary (default: as in measured runs)"),
        ("checkpoint", "TIME", "duration of one checkpoint, such as 30s (default: estimated)"),
        ("mtbf", "TIME", "mean time between failures of one chip (default: 50000h)"),
        ("sample-bytes", "N", "bytes per sample on storage (default: 4 per token)"),
        ("sites", "N", "sites that train together (default: 1)"),
        ("link", "N", "GB/s between sites (default: 1.25)"),
    ):
        parser.add_argument(f"--{name}", metavar=word, help=text)


def act(options: argparse.Namespace) -> int:
    """Plan it."""
    from fuelline.plan.asked.training import RANGES, ask_training  # noqa: PLC0415 - not for the help
    from fuelline.report.plan.train import write_training  # noqa: PLC0415

    if not options.chip:
        raise UsageError("training time depends on the chip: give one, such as --chip h100.")
    request = shared.make_request(options, RANGES)
    check_counts(options)
    answer = ask_training(request, options.recompute)
    shared.show(options, answer, write_training(answer, explain=options.explain))
    return 0
