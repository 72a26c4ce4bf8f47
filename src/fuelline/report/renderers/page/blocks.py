"""Each block of a document as HTML; every picture with its numbers as text beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import (
    Bars,
    Chain,
    Chart,
    Code,
    Heading,
    Items,
    Number,
    Said,
    SideBySide,
    Sliders,
    StackedBars,
    Statement,
    Story,
    Summary,
    Table,
)
from fuelline.report.renderers.page.interactive import draw_sliders, draw_story
from fuelline.report.renderers.page.markup import Markup, tag
from fuelline.report.renderers.svg import draw_svg
from fuelline.report.renderers.terminal import is_numeric
from fuelline.schema.units import short

if TYPE_CHECKING:
    from fuelline.report.document import Advice, Bar, Block, Figure, Item, Link

_WIDTH = 1000
"""Of a bar, in its own units."""


def draw_block(block: Block, place: str) -> Markup:
    """One block; `place` is a name for it that no other block has."""
    if isinstance(block, Story):
        return draw_story(block, draw_table(block.table), place)
    if isinstance(block, Sliders):
        return draw_sliders(block, draw_table(block.table), place)
    drawn: Markup = _PLAIN[type(block)](block)  # type: ignore[operator]
    return drawn


def _heading(block: Heading) -> Markup:
    return tag("h3", *draw_words(block.text))


def _statement(block: Statement) -> Markup:
    if block.command:
        lead = block.text.removesuffix(block.command).strip()
        command = _copied(Code(block.command))
        return tag("div", tag("p", lead, class_="lead-in"), command, class_="next")
    label = [tag("span", block.label, class_="label")] if block.label else []
    kind = "alarm" if block.alarm else "good" if block.label else None
    return tag("p", *draw_words(block.text), *label, class_=kind)


def _summary(block: Summary) -> Markup:
    kind = "unsure" if block.unsure else "alarm" if block.alarm else "fine"
    sign = tag("span", _SIGNS[kind], class_="sign", aria_hidden="true")
    label = [tag("p", sign, block.label, class_="label")] if block.label else []
    figures = [tag("dl", *map(_figure, block.figures), class_="figures")] if block.figures else []
    return tag(
        "section",
        tag("div", tag("p", tag("code", _set(block.title)), class_="job"), *label, class_="about"),
        tag("h1", *_lead(_set(block.sentence)), id="verdict"),
        tag("div", *figures, *_advice(block.advice), *_shares(block.shares), class_="facts"),
        class_=f"summary {kind}",
        aria_labelledby="verdict",
    )


def _set(words: str) -> str:
    """As a page sets it: an arrow is one letter, that no line end can divide."""
    return words.replace(" -> ", " → ")


_SIGNS = {"unsure": "?", "alarm": "!", "fine": "✓"}
_LONG = 150
"""Characters of a sentence that is set smaller, so that what follows is on the first screen."""


def _lead(words: str) -> list[str]:
    """The first sentence as large as it may be; what explains it is set as text."""
    first, end, rest = words.partition(". ")
    head = tag("span", first + end.strip(), class_="long" if len(first) > _LONG else None)
    return [head, *([" ", tag("small", rest)] if rest else [])]


def _figure(figure: Figure) -> Markup:
    return tag("div", tag("dt", figure.label), tag("dd", _number(figure)))


def _number(figure: Figure) -> Markup:
    """With the place in the JSON where the same number stands."""
    if figure.value is None:
        return tag("span", figure.text)
    return tag("data", figure.text, value=figure.value, data_path=figure.path or None)


def _advice(advice: Advice | None) -> list[Markup]:
    if advice is None:
        return []
    gain = []
    if advice.gain is not None:
        gain = [tag("p", _number(advice.gain), " ", advice.gain.label, class_="gain")]
    details = [tag("p", detail, class_="detail") for detail in advice.details]
    title = tag("h2", "Recommended change")
    return [tag("div", title, _copied(advice.text), *gain, *details, class_="advice")]


_MOST_SHARES = 5
"""With words, at a glance."""


def _shares(bars: tuple[Bar, ...]) -> list[Markup]:
    """One bar for the whole, and what most of it is."""
    if not bars:
        return []
    drawn = _stack(tuple((bar.code, bar.share or 0.0) for bar in bars))
    most = sorted(bars, key=lambda bar: bar.share or 0.0, reverse=True)[:_MOST_SHARES]
    items = [
        tag("li", tag("span", class_=f"key p-{_class(bar.code)}"), f"{bar.label} ", _share(bar))
        for bar in bars
        if bar in most
    ]
    picture = tag("div", drawn, class_="stack", aria_hidden="true")
    return [tag("div", picture, tag("ul", *items, class_="legend"), class_="shares")]


def _share(bar: Bar) -> Markup:
    words = f"{100 * (bar.share or 0.0):.1f} %"
    return tag("data", words, value=bar.share, data_path=bar.path or None)


def _copied(words: str) -> Markup:
    """Words to be pasted elsewhere, with a button."""
    button = tag("button", "Copy", type="button", class_="copy", aria_label=f"Copy: {words}")
    kind = "code" if isinstance(words, Code) else "span"
    return tag("div", tag(kind, *_apart(words), class_="words"), button, class_="copied")


def _apart(words: str) -> list[str]:
    """Each word by itself, so that a line does not end inside an option."""
    found: list[str] = []
    for word in words.split(" "):
        found += [" ", tag("span", word)]
    return found[1:]


def _bars(block: Bars) -> Markup:
    rows, before = [], 1.0
    for bar in block.bars:
        rows.append(_bar(bar, before if block.falling else None))
        before = before if bar.share is None else bar.share
    head = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in _BAR_HEADS)))
    kind = "bars falling" if block.falling else "bars"
    return tag("table", head, tag("tbody", *rows), class_=kind)


_BAR_HEADS = ("what", "share as a bar", "share", "more")


def _bar(bar: Bar, before: float | None) -> Markup:
    """`before`: the rung above, of which it is a part."""
    kind = tag("span", class_=f"key p-{_class(bar.code)}") if bar.code else ""
    mark = tag("span", "waits", class_="mark") if bar.marked else ""
    label = tag("th", kind, bar.label, mark, scope="row")
    if bar.share is None:
        return tag("tr", label, tag("td", "unknown", colspan="3", class_="unknown"))
    return tag(
        "tr",
        label,
        tag("td", _drawn(bar, before), class_="drawn", aria_hidden="true"),
        tag("td", _share(bar), class_="share"),
        tag("td", bar.detail, class_="detail"),
    )


def _drawn(bar: Bar, before: float | None) -> Markup:
    share = bar.share or 0.0
    colour = f"p-{_class(bar.code)}" if bar.code else "bad" if bar.marked else "good"
    parts = [tag("rect", width=_WIDTH, height=10, class_="empty")]
    if before is not None and before > share:
        lost = round(_WIDTH * (before - share))
        parts.append(tag("rect", x=round(_WIDTH * share), width=lost, height=10, class_="lost"))
    parts.append(tag("rect", width=round(_WIDTH * share), height=10, class_=f"full {colour}"))
    return tag("svg", *parts, viewBox=f"0 0 {_WIDTH} 10", preserveAspectRatio="none")


def _class(code: str) -> str:
    return code.replace(" ", "-")


def _items(block: Items) -> Markup:
    return tag("ol" if block.numbered else "ul", *map(_item, block.items), class_="items")


def _item(item: Item) -> Markup:
    text = _copied(item.text) if isinstance(item.text, Code) else tag("p", *draw_words(item.text))
    return tag("li", text, *map(_detail, item.details))


def _detail(words: str) -> Markup:
    if isinstance(words, Code):
        return tag("pre", tag("code", words))
    return tag("p", *draw_words(words), class_="detail")


def draw_words(words: str) -> list[str]:
    """A sentence, its numbers with the places in the JSON where they stand."""
    parts = words.parts if isinstance(words, Said) else (words,)
    return [_placed(each) if isinstance(each, Number) else each for each in parts]


def _placed(number: Number) -> Markup:
    where = {"data_path": number.path, "data_of": number.of or None}
    return tag("data", number, value=number.value, **where)


def draw_table(table: Table) -> Markup:
    """Wider than the page it scrolls by itself; numbers stand on the right."""
    right = [is_numeric([row[column] for row in table.rows]) for column in range(len(table.header))]
    kinds = ["number" if each else None for each in right]
    head = [
        tag("th", name, scope="col", class_=kind)
        for name, kind in zip(table.header, kinds, strict=True)
    ]
    rows = [
        tag(
            "tr",
            *(
                tag(
                    "td",
                    _cell(cell),
                    class_=kind or ("short" if len(cell) <= _SHORT_CELL else None),
                )
                for cell, kind in zip(row, kinds, strict=True)
            ),
        )
        for row in table.rows
    ]
    drawn = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows))
    return tag("div", drawn, class_="wide", tabindex="0", role="group", aria_label="Table")


_SHORT_CELL = 24
"""Characters that stay on one line."""
_LONG_CELL = 120
"""Characters: names of templates of C++ have thousands."""


def _cell(words: str) -> str:
    if isinstance(words, Number):
        return _placed(words)
    if len(words) <= _LONG_CELL:
        return words
    return tag("details", tag("summary", f"{words[:_LONG_CELL]}…"), tag("p", words))


_TWINS = ("before", "after")


def _pairs(block: SideBySide) -> Markup:
    """Both bars of a row on one scale."""
    most = max((value for pair in block.values for value in pair), default=0.0) or 1.0
    head = [
        tag("th", *block.table.header[:1], scope="col"),
        tag("th", tag("span", "as bars"), scope="col"),
    ]
    for place, name in enumerate(block.table.header[1:]):
        swatch = [tag("span", class_=f"swatch {_TWINS[place]}")] if place < len(_TWINS) else []
        head.append(tag("th", *swatch, name, scope="col", class_="number"))
    rows = []
    for row, values in zip(block.table.rows, block.values, strict=True):
        cells = [tag("td", _cell(cell), class_="number") for cell in row[1:]]
        scale = most if block.is_alike else max(*values) or 1.0
        drawn = tag("td", _twins(values, scale), class_="drawn", aria_hidden="true")
        rows.append(tag("tr", tag("th", row[0], scope="row"), drawn, *cells))
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="pairs")
    return tag("div", table, class_="wide", tabindex="0", role="group", aria_label="Table")


def _twins(values: tuple[float, float], most: float) -> Markup:
    bars = [
        tag("rect", y=y, width=round(_WIDTH * max(0.0, value) / most), height=9, class_=kind)
        for value, y, kind in zip(values, (0, 11), _TWINS, strict=True)
    ]
    return tag("svg", *bars, viewBox=f"0 0 {_WIDTH} 20", preserveAspectRatio="none")


def _stacks(block: StackedBars) -> Markup:
    seen = dict.fromkeys(code for _, parts in block.rows for code, share in parts if share > 0)
    keys = [
        tag("li", tag("span", class_=f"key p-{_class(code)}"), block.names[code]) for code in seen
    ]
    rows = [
        tag("tr", tag("th", name, scope="row"), tag("td", _stack(parts), class_="drawn"))
        for name, parts in block.rows
    ]
    drawn = tag("table", tag("tbody", *rows), class_="bars", aria_hidden="true")
    return tag("div", tag("ul", *keys, class_="legend"), drawn, draw_table(block.table))


def _stack(parts: tuple[tuple[str, float], ...]) -> Markup:
    pieces, at = [], 0.0
    for code, share in parts:
        if share > 0:
            kind = f"p-{_class(code)}"
            pieces.append(tag("rect", x=at, width=_WIDTH * share, height=10, class_=kind))
            at += _WIDTH * share
    return tag("svg", *pieces, viewBox=f"0 0 {_WIDTH} 10", preserveAspectRatio="none")


def _chain(block: Chain) -> Markup:
    return tag("ol", *map(_link, block.links), class_="chain")


def _link(link: Link) -> Markup:
    return tag(
        "li",
        tag("div", tag("span", "because", class_="lead-in"), tag("p", link.cause)),
        tag("div", tag("strong", link.rank.text), tag("p", link.rank.label), class_="late"),
        tag("div", tag("span", link.effect.label, class_="lead-in"), _number(link.effect)),
    )


def _chart(block: Chart) -> Markup:
    picture = Markup(draw_svg(block))  # which escapes what it is given
    rows = tuple(
        (series.name, short(x), short(y)) for series in block.series for x, y in series.points
    )
    table = draw_table(Table(("series", block.x_label, block.y_label), rows))
    return tag(
        "figure",
        tag("div", picture, role="img", aria_label=block.title, class_="chart"),
        tag("details", tag("summary", "The same as a table"), table),
    )


_PLAIN = {
    Bars: _bars,
    Chain: _chain,
    Chart: _chart,
    Heading: _heading,
    Items: _items,
    SideBySide: _pairs,
    StackedBars: _stacks,
    Statement: _statement,
    Summary: _summary,
    Table: draw_table,
}
