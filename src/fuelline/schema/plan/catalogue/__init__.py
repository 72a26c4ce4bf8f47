"""Reads the tables of facts that ship with the package, and the user's own of the same form.

One TOML file a noun (`chips.toml`, `models.toml`, `constants.toml`). A user's file may hold
`[[chip]]` and `[[model]]` entries; they come first, so that an entry of one's own wins over ours.
What a table does not say is not known: it is never filled from a neighbour.
"""

from __future__ import annotations

import difflib
import re
from importlib import resources
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fuelline.schema.errors import InputError
from fuelline.schema.files import read_given
from fuelline.schema.foreign import decode_toml

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Noun = TypeVar("Noun")
_MOST_BYTES = 1024 * 1024
"""Of the user's tables; all of ours together have 80 kB."""


def read_shipped(name: str, noun: type[Noun]) -> Noun:
    """One of our own tables; it is wrong only if the package is."""
    content = resources.files(__package__).joinpath(name).read_bytes()
    return msgspec.toml.decode(content, type=noun)


def read_own(path: Path, noun: type[Noun]) -> Noun:
    """A table of the user's."""
    try:
        return decode_toml(read_given(path, _MOST_BYTES), noun)
    except OSError as error:
        raise InputError(
            f"cannot read the catalogue {path}: {error.strerror}. Without it your own chips and "
            "models are not known; check --catalogue."
        ) from error
    except msgspec.DecodeError as error:
        raise InputError(
            f"the catalogue {path} is not what it should be: {error}. docs/plan.md shows a "
            "[[chip]] and a [[model]] entry to copy."
        ) from error


def plain(name: str) -> str:
    """`Llama 3.1-8B` -> `llama318b`: spelling does not matter, digits and letters do."""
    return re.sub(r"[^a-z0-9]", "", name.lower().replace("+", "plus"))


def dotted(name: str) -> str:
    """`OPT-1.3B` -> `opt1.3b`, which is not `opt13b`: looked for first."""
    return re.sub(r"(?<!\d)\.|\.(?!\d)|[^a-z0-9.]", "", name.lower().replace("+", "plus"))


def nearest(name: str, known: Iterable[str], count: int = 4) -> list[str]:
    """Known names that look like this one, best first."""
    by_plain = {plain(known_name): known_name for known_name in known}
    wanted = plain(name)
    close = difflib.get_close_matches(wanted, by_plain, n=count, cutoff=0.4)
    inside = [key for key in by_plain if wanted and (wanted in key or key in wanted)]
    return [by_plain[key] for key in dict.fromkeys([*inside[:2], *close])][:count]
