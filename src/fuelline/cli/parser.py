"""The top page of the help, the commands behind it, and what to say of words that are neither."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from fuelline import __version__
from fuelline.schema.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

GROUPS = {
    "record": {
        "run": "record.run",
        "attach": "record.attach",
        "watch": "record.watch",
        "agent": "record.agent",
        "import": "record.import_",
        "demo": "record.demo",
        "doctor": "record.doctor",
    },
    "understand": {
        "diagnose": "understand.diagnose",
        "whatif": "understand.whatif",
        "compare": "understand.compare",
        "feed": "understand.feed",
        "probe": "understand.probe",
        "export": "understand.export",
        "runs": "understand.runs",
        "fleet": "understand.fleet",
        "serve": "understand.serve",
        "mcp": "understand.mcp",
    },
    "fix": {
        "tune": "fix.tune",
        "undo": "fix.undo",
        "pack": "fix.pack",
    },
    "plan": {
        "plan": "plan",
        "roofline": "plan.roofline",
    },
    "use": {
        "help": "help",
        "completion": "completion",
    },
}
"""What is typed, and the file behind it, in the order of the help."""
COMMANDS = {name: file for group in GROUPS.values() for name, file in group.items()}

_DESCRIPTION = """\
Find out what keeps your GPUs waiting, with evidence and what it costs.

Most questions need two commands:

  fuelline run train.py --epochs 2   record an unmodified job and diagnose it
  fuelline diagnose                  show that again; --json for scripts
"""
_EPILOG = "See `fuelline help COMMAND` for details. New here? Start with `fuelline demo`."


class _TopParser(argparse.ArgumentParser):
    """Its page lists commands in groups, which argparse does for options only."""

    def format_help(self) -> str:
        """Usage, description, the groups, the options of all commands."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        listed = {each.dest: each for each in _commands_of(self)._choices_actions}  # noqa: SLF001
        for title, names in GROUPS.items():
            formatter.start_section(title)
            formatter.add_arguments([listed[name] for name in names if name in listed])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments(each for each in self._actions if each.option_strings)
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """All commands, each described by its own file; only the one that is typed, if one is.

    A job waits for us to start: it need not wait for the commands that it does not use.
    """
    parser = _TopParser(
        prog="fuelline",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"fuelline {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks (default: off)")
    commands = parser.add_subparsers(
        metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser
    )
    typed = _find_command(words)
    for name in [typed] if typed in COMMANDS else COMMANDS:
        import_module(f"fuelline.cli.{COMMANDS[name]}").add_to(commands)
    return parser


def parse(words: list[str]) -> argparse.Namespace:
    """What was typed; UsageError for a command or an option that there is not."""
    parser = build_parser(words)
    check_command([word for word in words if not word.startswith("-")], parser)
    options, unknown = parser.parse_known_args(separate_job(words, parser))
    if unknown:
        raise UsageError(_say_unknown(unknown[0], find_parser(words, parser)))
    return options


def check_command(words: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """UsageError if words, without options, begin with what is no command."""
    found = find_parser(words, parser)
    commands = next(_find_commands(found), None)
    names = found.prog.split()[1:]
    if commands is not None and len(words) > len(names):
        raise UsageError(_say_no_command(words[len(names)], found.prog, commands.choices))


def _say_no_command(typed: str, above: str, known: Iterable[str]) -> str:
    """`above` is what the word follows: `fuelline`, or `fuelline plan`."""
    close = _find_close(typed, known)
    page = above.replace("fuelline", "fuelline help", 1)
    if close:
        then = f"Did you mean {' or '.join(f'`{above} {name}`' for name in close)}?"
    elif typed.endswith((".py", ".sh")):
        then = f"`fuelline run {typed}` records a script."
    else:
        then = f"`{page}` lists what there is."
    return f"`{above}` has no command {typed!r}. Nothing was done. {then}"


def _say_unknown(word: str, parser: argparse.ArgumentParser) -> str:
    """Of an option, or of a word too many."""
    command = parser.prog
    page = command.replace("fuelline", "fuelline help", 1)
    if not word.startswith("-"):
        return f"`{command}` takes no {word!r}. Nothing was done. `{page}` shows what it takes."
    name = word.partition("=")[0]
    names = (name for each in parser._actions for name in each.option_strings)  # noqa: SLF001
    close = _find_close(name, (each for each in names if each.startswith("--")))
    meant = f"Did you mean {' or '.join(close)}? " if close else ""
    return f"`{command}` has no option {name}. Nothing was done. {meant}`{page}` lists them all."


def _find_close(word: str, known: Iterable[str]) -> list[str]:
    import difflib  # noqa: PLC0415 - a job that is started need not wait for it

    return difflib.get_close_matches(word, list(known), n=2, cutoff=0.7)


def find_parser(words: Iterable[str], parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Of the command that words begin with, `plan serve` included; options between are skipped."""
    for word in words:
        if word.startswith("-"):
            continue
        inner = next(_find_commands(parser), None)
        if inner is None or word not in inner.choices:
            break
        parser = inner.choices[word]
    return parser


def separate_job(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    """Put `--` before a job that starts with `-m`, which is no option of ours."""
    command = _find_command(words)
    actions = _actions_of(command, parser)
    if not any(action.nargs == argparse.REMAINDER for action in actions):
        return words  # starts no job
    valued = {name for each in actions if each.nargs != 0 for name in each.option_strings}
    takes_value = False
    for at in range(words.index(command) + 1, len(words)):
        word = words[at]
        if word == "--":
            break
        if word == "-m" and not takes_value:
            return [*words[:at], "--", *words[at:]]
        if not word.startswith("-") and not takes_value:
            break
        takes_value = word in valued and not takes_value
    return words


def _find_command(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _actions_of(command: str, parser: argparse.ArgumentParser) -> list[argparse.Action]:
    chosen = _commands_of(parser).choices.get(command)
    return [] if chosen is None else list(chosen._actions)  # noqa: SLF001 - as below


def _commands_of(
    parser: argparse.ArgumentParser,
) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    return next(_find_commands(parser))


def _find_commands(
    parser: argparse.ArgumentParser,
) -> Iterator[argparse._SubParsersAction[argparse.ArgumentParser]]:
    for each in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(each, argparse._SubParsersAction):  # noqa: SLF001 - likewise
            yield each
