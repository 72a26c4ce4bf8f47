"""A renderer-neutral report: what is said, not how it looks.

Every renderer draws plain blocks. Pictures are for those that can draw; each of them says itself in
plain blocks, from the same numbers, to all others (`Document.in_text`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.forecasts import ForecastGrid
    from fuelline.schema.diagnosis.picture import RunPicture


@dataclass(frozen=True)
class Heading:
    """The title of what follows."""

    text: str
    short: str = ""
    """What a list of contents calls it; the text itself if empty."""


@dataclass(frozen=True)
class Statement:
    """One sentence that must be read; `label` is the small print beside it."""

    text: str
    label: str = ""
    alarm: bool = False
    is_whole: bool = False
    """On one line however long it is: it holds a command that will be copied."""
    command: str = ""
    """That command, for those who can copy it at a press."""


@dataclass(frozen=True)
class Bar:
    """One share of a whole."""

    label: str
    share: float | None
    """None where it is not known: shown as such, not as nothing."""
    detail: str
    marked: bool = False
    path: str = ""
    """Where the share stands in the JSON of the same answer, such as `budget/0/share`; empty if it
    is made of several numbers."""
    code: str = ""
    """Of the part, by which pictures give it a colour."""


@dataclass(frozen=True)
class Bars:
    """Shares of one whole, in order."""

    bars: tuple[Bar, ...]
    falling: bool = False
    """Each is a part of the one before it, as on a ladder; else they sum to the whole."""


class Code(str):
    """A text, or a part of one, that is code: its letters are to be told apart."""

    __slots__ = ()


class Number(str):
    """A number as it is read, or a sentence about one; `value` as it stands at `path`, as of `Bar`.

    Paths joined by ` + ` are of the sum; `of` is the path of the whole whose share is read.
    """

    __slots__ = ("of", "path", "value")
    of: str
    path: str
    value: float

    def __new__(cls, words: str, value: float, path: str, of: str = "") -> Number:  # noqa: PYI034
        """The words, and the number that they say."""
        made = super().__new__(cls, words)
        made.path, made.value, made.of = path, value, of
        return made


class Said(str):
    """A sentence made of parts, some of which may be a `Number`."""

    __slots__ = ("parts",)
    parts: tuple[str, ...]

    def __new__(cls, *parts: str) -> Said:  # noqa: PYI034
        """The parts as they follow each other."""
        made = super().__new__(cls, "".join(parts))
        made.parts = parts
        return made


@dataclass(frozen=True)
class Item:
    """A point with details below it."""

    text: str
    """`Code` if it is to be written or typed as it stands."""
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Items:
    """Points; numbered when their order is advice."""

    items: tuple[Item, ...]
    numbered: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of short cells, numbers right, words left; what is too wide for the page is cut."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    gives_way: int | None = None
    """The column that is cut, and no other, if names in others will be copied; by default the
    widest one of words is."""


@dataclass(frozen=True)
class Series:
    """Points that belong together."""

    name: str
    points: tuple[tuple[float, float], ...]
    joined: bool = True
    """A line through them; else dots."""
    ends: tuple[tuple[float, float], ...] = ()
    """Low and high of every point, if it has an interval: a thin line in pictures."""
    names: tuple[str, ...] = ()
    """Of the points, if they have any."""


@dataclass(frozen=True)
class Chart:
    """Series over two axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    x_mark: float | None = None
    """A vertical line, where something changes."""
    x_mark_label: str = ""


@dataclass(frozen=True)
class Figure:
    """One number that is worth standing alone."""

    label: str
    text: str
    path: str = ""
    """As of `Bar`."""
    value: float | None = None
    """As it stands there."""


@dataclass(frozen=True)
class Advice:
    """The one change that is recommended."""

    text: str
    """What to do; `Code` if it is to be written or typed as it stands."""
    gain: Figure | None
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """What to know if nothing else is read: the verdict, what it costs, what to change."""

    title: str
    """What ran."""
    sentence: str
    label: str = ""
    alarm: bool = False
    unsure: bool = False
    """Neither good nor bad, because that could not be told."""
    figures: tuple[Figure, ...] = ()
    advice: Advice | None = None
    shares: tuple[Bar, ...] = ()
    """Of one whole, at a glance."""

    def in_text(self) -> tuple[Plain, ...]:
        """What ran and the verdict; text has the rest in blocks further down."""
        return (Statement(self.title), Statement(self.sentence, self.label, alarm=self.alarm))


@dataclass(frozen=True)
class SideBySide:
    """A table in which two columns are the same thing before and after."""

    table: Table
    values: tuple[tuple[float, float], ...]
    """Before and after, a row each."""
    is_alike: bool = True
    """Whether all rows are of one unit, and so on one scale."""

    def in_text(self) -> tuple[Plain, ...]:
        """The table."""
        return (self.table,)


@dataclass(frozen=True)
class StackedBars:
    """Wholes of one kind, each divided into the same parts."""

    rows: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]
    """A name, and the code and share of each part."""
    names: dict[str, str]
    """Codes to words."""
    table: Table

    def in_text(self) -> tuple[Plain, ...]:
        """The table."""
        return (self.table,)


@dataclass(frozen=True)
class Link:
    """One rank that others wait for: why, how often, and what that costs them."""

    cause: str
    rank: Figure
    effect: Figure


@dataclass(frozen=True)
class Chain:
    """From a cause over a late rank to those who wait for it; the worst first."""

    links: tuple[Link, ...]

    def in_text(self) -> tuple[Plain, ...]:
        """One point a rank."""
        items = (
            Item(f"{each.rank.text}, {each.rank.label}; {each.effect.label}: {each.effect.text}",
                 (each.cause,))
            for each in self.links
        )  # fmt: skip
        return (Items(tuple(items)),)


@dataclass(frozen=True)
class Story:
    """A run over time: its steps by their parts, and what the machine did meanwhile."""

    picture: RunPicture
    words: dict[str, str]
    """Codes of parts, lanes and marks to what a reader calls them."""
    waiting: frozenset[str]
    """Parts in which training waits."""
    table: Table
    """The same in a few stretches."""

    def in_text(self) -> tuple[Plain, ...]:
        """The table."""
        return (self.table,)


@dataclass(frozen=True)
class Slider:
    """One setting to turn, and its values."""

    name: str
    option: str
    """By which a command is asked the same."""
    shown: tuple[str, ...]
    """The values as they are read."""
    typed: tuple[str, ...]
    """The values as they are typed."""
    now: int
    """Which of them is the recorded one."""


@dataclass(frozen=True)
class Sliders:
    """Settings to turn by hand, with an answer for every combination."""

    grid: ForecastGrid
    sliders: tuple[Slider, ...]
    """One for each axis of the grid."""
    table: Table
    """What each setting alone would do."""
    presets: tuple[tuple[str, tuple[int, ...]], ...]
    """Names of combinations, and the place of each slider then."""
    command: str
    """That answers any question about this run, options to be added."""

    def in_text(self) -> tuple[Plain, ...]:
        """The table."""
        return (self.table,)


Plain = Heading | Statement | Bars | Items | Table | Chart
"""What every renderer draws."""
Picture = Summary | SideBySide | StackedBars | Chain | Story | Sliders
Block = Plain | Picture


@dataclass(frozen=True)
class Document:
    """Blocks from top to bottom."""

    blocks: tuple[Block, ...] = field(default_factory=tuple)

    def in_text(self) -> tuple[Plain, ...]:
        """The same without pictures: what these show, in plain blocks."""
        found: list[Plain] = []
        for block in self.blocks:
            if isinstance(block, Picture):
                found += block.in_text()
            else:
                found.append(block)
        return tuple(found)
