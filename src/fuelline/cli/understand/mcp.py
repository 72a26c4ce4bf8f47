"""`fuelline mcp`: answers for assistants, over the Model Context Protocol."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from fuelline.schema.errors import RefusedError

if TYPE_CHECKING:
    import argparse

_EPILOG = """\
An assistant starts this command itself. In its settings:

  {"mcpServers": {"fuelline": {"command": "fuelline", "args": ["mcp"]}}}

It can list runs, diagnose, ask what-if, compare and plan; it can change
nothing, and it is told what `--json` tells.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    from argparse import RawDescriptionHelpFormatter  # noqa: PLC0415 - here alone

    parser = commands.add_parser(
        "mcp",
        help="answer an assistant's questions about runs (Model Context Protocol)",
        description="Answer an assistant about runs, on standard input and output, read-only.",
        epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.set_defaults(act=act)


def act(_: argparse.Namespace) -> int:
    """Until the assistant closes its end."""
    if importlib.util.find_spec("mcp") is None:
        raise RefusedError(
            "`fuelline mcp` needs mcp, which this Python does not have. Nothing was started. "
            "`pip install 'fuelline[mcp]'` installs it."
        )
    from fuelline.tools.assistant import serve_assistant  # noqa: PLC0415 - an extra

    serve_assistant()
    return 0
