"""`fuelline plan shape`: dimensions that waste tiles or block sharding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.cli.plan import options as shared
from fuelline.schema.errors import UsageError

if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "shape",
        help="find dimensions that waste tiles or prevent sharding",
        description="Find dimensions of a model that waste a chip's tiles or prevent sharding.",
    )
    shared.add_model(parser)
    parser.add_argument("--chip", help="one chip, such as h100 (no default)")
    parser.set_defaults(act=act, reads=shared.list_given, if_any=True)


def act(options: argparse.Namespace) -> int:
    """Look at them."""
    from fuelline.plan.models.shapes import check_shape  # noqa: PLC0415 - not for the help
    from fuelline.report.plan.chips import write_shape  # noqa: PLC0415

    if not options.chip:
        raise UsageError("a shape is good or bad for a chip: give one, such as --chip h100.")
    request = shared.make_request(options)
    loaded, chip = request.load(), request.find_chips()[0]
    answer = check_shape(loaded.model, chip, request.find_precision(loaded))
    shared.show(options, answer, write_shape(answer))
    return 0
