"""HTML that cannot be broken out of: text becomes markup by `tag` and nowhere else.

A name from a job is text until `tag` escapes it. What is `Markup` already was made here, of names
of elements and attributes that stand in our own source.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING

from fuelline.schema.names import clean, encodable

if TYPE_CHECKING:
    from collections.abc import Iterable

_VOID = frozenset({"meta", "input", "br"})


class Markup(str):
    """Finished HTML; any other string is text."""

    __slots__ = ()


def tag(name: str, /, *inner: str, **attributes: str | float | bool | None) -> Markup:
    """An element. Attributes: `_` is written as `-`, and one at the end is dropped (`class_`).

    An attribute that is None or False is left out, one that is True has no value.
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        called = key.removesuffix("_").replace("_", "-")
        words.append(called if value is True else f'{called}="{_text(_plain(value))}"')
    head = f"<{' '.join(words)}>"
    return Markup(head) if name in _VOID else Markup(f"{head}{join(inner)}</{name}>")


def join(parts: Iterable[str]) -> Markup:
    """Markup as it is, text escaped."""
    return Markup("".join(part if isinstance(part, Markup) else _text(part) for part in parts))


def embed(identity: str, content: object) -> Markup:
    """Data for the page's script: no browser runs it, and nothing in it ends the element early."""
    words = json.dumps(content, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for sign in "<>&":
        words = words.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(f'<script type="application/json" id="{identity}">{words}</script>')


def _plain(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.17g}"


def _text(words: str) -> str:
    return escape(clean(encodable(words)))
