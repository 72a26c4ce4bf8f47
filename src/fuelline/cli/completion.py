"""`fuelline completion SHELL`: a script with which a shell completes our commands and options."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fuelline.schema.errors import RefusedError

_EPILOG = """\
examples:
  fuelline completion bash > ~/.local/share/bash-completion/completions/fuelline
  fuelline completion zsh > ~/.zfunc/_fuelline     with ~/.zfunc in fpath
"""
_FILES = ("job", "trace", "script", "path", "source", "config", "run", "before", "after")
"""Words of commands that may be a file or a folder."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "completion",
        help="print a script that completes commands and options in your shell",
        description="Print a script that completes commands and options in your shell.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh"), help="for which shell (no default)")
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Print it."""
    try:
        import shtab  # noqa: PLC0415 - nobody else needs it
    except ImportError:
        raise RefusedError(
            "Completion needs the package shtab, which this Python does not have. Nothing was "
            "printed. `pip install shtab` installs it."
        ) from None
    from fuelline.cli.parser import build_parser  # noqa: PLC0415 - which lists us

    parser = build_parser()
    _mark_files(parser, shtab.FILE)
    sys.stdout.write(shtab.complete(parser, options.shell) + "\n")
    return 0


def _mark_files(parser: argparse.ArgumentParser, mark: object) -> None:
    """Let the shell complete paths where a path is meant."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - likewise
            for inner in action.choices.values():
                _mark_files(inner, mark)
        elif action.type is Path or (not action.option_strings and action.dest in _FILES):
            action.complete = mark  # type: ignore[attr-defined]
