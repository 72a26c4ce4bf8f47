"""The command line: one file a command, listed in `parser`."""

from __future__ import annotations

import signal
import sys

from fuelline.cli.parser import build_parser
from fuelline.cli.run import separate_job
from fuelline.cli.saying import flush_streams, open_streams, say
from fuelline.schema.errors import FuellineError, RefusedError, UsageError

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit codes are those of `schema.errors`."""
    open_streams()
    words = sys.argv[1:] if argv is None else argv
    parser = build_parser(words)
    if not words:
        parser.print_help(sys.stderr)
        return UsageError.exit_code
    options = parser.parse_args(separate_job(words))
    try:
        code = int(options.act(options))
        sys.stdout.flush()  # here, where a reader that has left can be told from a failure
    except FuellineError as error:
        if options.debug:
            raise
        say(str(error))
        code = error.exit_code
    except BrokenPipeError:
        # As shells show the death by SIGPIPE that other tools die when `head` has read enough.
        code = 128 + signal.SIGPIPE
    except OSError as error:
        if options.debug:
            raise
        code = _refuse(error)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    flush_streams()
    return code


def _refuse(error: OSError) -> int:
    """A folder that may not be entered, a name that is too long, a disk that is full."""
    where = error.filename or "A file or the output"
    say(
        f"{where} cannot be used ({error.strerror or error}). The command stopped there. "
        "Check the path and who may use it; `fuelline --debug` with the same words shows where it "
        "was needed."
    )
    return RefusedError.exit_code
