"""The command line: one file a command, listed in `parser`."""

from __future__ import annotations

import os
import sys

from fuelline.cli.parser import build_parser
from fuelline.cli.run import separate_job
from fuelline.cli.saying import say
from fuelline.schema.errors import FuellineError

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit codes are those of `schema.errors`."""
    words = sys.argv[1:] if argv is None else argv
    options = build_parser(words).parse_args(separate_job(words))
    try:
        return int(options.act(options))
    except FuellineError as error:
        if options.debug:
            raise
        say(str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has left; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
