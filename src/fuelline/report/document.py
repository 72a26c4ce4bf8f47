"""A renderer-neutral report: what is said, not how it looks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Heading:
    """The title of what follows."""

    text: str


@dataclass(frozen=True)
class Statement:
    """One sentence that must be read; `label` is the small print beside it."""

    text: str
    label: str = ""
    alarm: bool = False
    is_whole: bool = False
    """On one line however long it is: it holds a command that will be copied."""


@dataclass(frozen=True)
class Bar:
    """One share of a whole."""

    label: str
    share: float | None
    """None where it is not known: shown as such, not as nothing."""
    detail: str
    marked: bool = False


@dataclass(frozen=True)
class Bars:
    """Shares of one whole, in order."""

    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Item:
    """A point with details below it."""

    text: str
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


Block = Heading | Statement | Bars | Items | Table | Chart


@dataclass(frozen=True)
class Document:
    """Blocks from top to bottom."""

    blocks: tuple[Block, ...] = field(default_factory=tuple)
