"""The command line: one file per command, listed in `parser`."""

from __future__ import annotations

import argparse
import signal
import sys

from fuelline.cli.bounded import NO_MEMORY, read_apart
from fuelline.cli.parser import build_parser, parse
from fuelline.cli.saying import flush_streams, open_streams, say
from fuelline.schema.errors import FuellineError, InputError, RefusedError, UsageError
from fuelline.store.config import read_config

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit codes are those of `schema.errors`."""
    open_streams()
    words = sys.argv[1:] if argv is None else argv
    if not words:
        build_parser().print_help(sys.stderr)
        return UsageError.exit_code
    options = argparse.Namespace(debug="--debug" in words)
    try:
        options = parse(words)
        fill_defaults(options)
        code = _act(options, apart=argv is None)
        sys.stdout.flush()  # here, where a reader that has left is not taken for a failure
    except FuellineError as error:
        if options.debug and not isinstance(error, UsageError):
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
    except BaseException as error:  # data made to do harm; a panic of polars is no Exception
        if options.debug or "reads" not in options or isinstance(error, SystemExit):
            raise
        code = NO_MEMORY if isinstance(error, MemoryError) else _report_unforeseen(error)
    flush_streams()
    return code


def fill_defaults(options: argparse.Namespace) -> None:
    """From the user's configuration, where the command line says nothing."""
    if "priced" in options and options.price is None:
        options.price = read_config().price
    if "no_cache" in options and options.cache is None and not options.no_cache:
        options.cache = read_config().cache


def _act(options: argparse.Namespace, *, apart: bool) -> int:
    code = read_apart(options) if apart else None
    return int(options.act(options)) if code is None else code


def _report_unforeseen(error: BaseException) -> int:
    """What a reader of foreign data stumbles over must not look like a crash; it is a defect."""
    words = next(iter(str(error).splitlines()), "")[:200]
    say(
        f"this data cannot be read: unexpected {type(error).__name__} ({words}). Nothing was "
        "changed. The data may be damaged: copy it again. If it is intact, this is a bug in "
        "fuelline; `fuelline --debug` with the same arguments shows where."
    )
    return InputError.exit_code


def _refuse(error: OSError) -> int:
    """A folder that may not be entered, a name that is too long, a disk that is full."""
    where = error.filename or "A file or the output"
    say(
        f"{where} cannot be used ({error.strerror or error}). The command stopped there. "
        "Check the path and its permissions; `fuelline --debug` with the same arguments shows "
        "where it was needed."
    )
    return RefusedError.exit_code
