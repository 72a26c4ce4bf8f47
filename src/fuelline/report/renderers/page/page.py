"""A Document in, one HTML file out: everything inlined, nothing asked of anybody.

The policy in its head forbids every source of anything; our own style and script are allowed by
their hashes. So there are no style attributes: what depends on a number is drawn as SVG, or by the
script. Without a script everything can be read, and the pictures show their tables.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline import __version__
from fuelline.report.document import Document, Heading, Summary
from fuelline.report.renderers.page.blocks import draw_block, draw_words
from fuelline.report.renderers.page.markup import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.report.document import Block

SIGN = b'<meta name="generator" content="fuelline">'
"""Near the beginning of every page of ours."""
_HERE = Path(__file__).parent
_STYLES = ("page.css", "story.css")
_SCRIPTS = ("page.js", "story.js", "sliders.js")
_NOWHERE = "base-uri 'none'; form-action 'none'"
_FEW = 2
"""Sections that need no list of contents."""


def render_page(document: Document, title: str) -> str:
    """The whole file; `title` is what the browser calls it."""
    return draw_shell(title, _body(document))


def render_first_screen(summary: Summary, title: str) -> str:
    """The verdict alone, still, for the frame of a notebook's output."""
    style = _read(_STYLES)
    drawn = tag("body", tag("main", draw_block(summary, "top-0"), id="main"), class_="still")
    policy = f"default-src 'none'; style-src '{_digest(style)}'; {_NOWHERE}"
    return _join_page(title, style, policy, drawn)


def draw_shell(
    title: str, body: list[Markup], *, styles: Sequence[str] = (), scripts: Sequence[str] = ()
) -> str:
    """A page with this body, our style and our script; with further ones it may ask its server."""
    style = "\n".join([_read(_STYLES), *styles])
    script = "\n".join([_read(_SCRIPTS), *scripts])
    connect = "connect-src 'self'; " if scripts else ""
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        f"{connect}{_NOWHERE}"
    )
    drawn = tag("body", *body, tag("script", Markup(script)))
    return _join_page(title, style, policy, drawn)


def add_script(page: bytes, script: str) -> bytes:
    """A finished page with one more script of ours, which may ask the server that shows it."""
    allowed = f"connect-src 'self'; script-src '{_digest(script)}' ".encode()
    page = page.replace(b"script-src ", allowed, 1)
    return page.replace(b"</body></html>", f"<script>{script}</script></body></html>".encode(), 1)


def _join_page(title: str, style: str, policy: str, drawn: Markup) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Markup(SIGN.decode()),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{title} · Fuelline"),
        tag("style", Markup(style)),
    )
    return f"<!doctype html>\n{tag('html', head, drawn, lang='en')}\n"


def _body(document: Document) -> list[Markup]:
    top, sections = _divide(document)
    listed = [
        (f"s{number}", heading.short or heading.text)
        for number, (heading, _) in enumerate(sections, start=1)
    ]
    links = [tag("li", tag("a", words, href=f"#{place}")) for place, words in listed]
    contents = tag("nav", tag("ul", *links), aria_label="Contents")
    header = tag(
        "header",
        tag("a", tag("b", "fuelline"), class_="brand", href="#main"),
        *([contents] if len(links) > _FEW else []),
        class_="bar",
    )
    drawn = [
        tag(
            "section",
            tag("h2", *draw_words(heading.text), id=f"{place}-title"),
            *(draw_block(block, f"{place}-{number}") for number, block in enumerate(blocks)),
            id=place,
            aria_labelledby=f"{place}-title",
        )
        for (place, _), (heading, blocks) in zip(listed, sections, strict=True)
    ]
    footer = tag(
        "footer",
        f"Written by Fuelline {__version__}. This file is complete: it asks nothing of any "
        "network, and its numbers are those of --json.",
    )
    main = tag("main", *_top(top), *drawn, id="main")
    return [tag("a", "Skip to the report", class_="skip", href="#main"), header, main, footer]


def _divide(document: Document) -> tuple[list[Block], list[tuple[Heading, list[Block]]]]:
    """What stands before the first heading, and each heading with what is below it."""
    top: list[Block] = []
    sections: list[tuple[Heading, list[Block]]] = []
    for block in document.blocks:
        if isinstance(block, Heading):
            sections.append((block, []))
        else:
            (sections[-1][1] if sections else top).append(block)
    return top, sections


def _top(blocks: list[Block]) -> list[Markup]:
    drawn = [draw_block(block, f"top-{number}") for number, block in enumerate(blocks)]
    if any(isinstance(block, Summary) for block in blocks):
        return drawn
    return [tag("div", *drawn, class_="lead")] if drawn else []


@cache
def _read(names: tuple[str, ...]) -> str:
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)


def _digest(words: str) -> str:
    """As a policy names what it allows."""
    return f"sha256-{base64.b64encode(hashlib.sha256(words.encode()).digest()).decode()}"
