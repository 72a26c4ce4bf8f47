"""The start-up ledger: where the time from the job's start to its first usual step went."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct, field

StartPart = Literal[
    "launch",
    "interpreter",
    "imports",
    "data set index",
    "download",
    "model build",
    "model load",
    "to device",
    "process group",
    "compile",
    "tracking",
    "checkpoint",
    "validation",
    "worker start",
    "first batch",
    "code",
    "first step",
    "warm-up",
    "unnamed",
]
"""What a job does before its steps are as long as usual.

launch: before the training process exists, in a process that starts it. interpreter: Python itself,
up to the first look at what it does. data set index: listing and opening the files of a data set,
reading its index. code: the job's own, which is none of the others. first step: from its batch to
its end, but for what it compiles. warm-up: further steps that take clearly longer than the usual
ones. unnamed: not seen."""
START_PARTS: tuple[StartPart, ...] = get_args(StartPart)
_ROUNDING = 1e-3


class StartDetail(Struct, frozen=True, kw_only=True):
    """A package, a line of code, or a program that a part's time went to."""

    name: str
    """A package's name, `function`, or a program's."""
    seconds: float
    line: str | None = None
    """`file:line` of the user's code, where that is known."""
    source: str | None = None
    """The text of that line, as it was when the job ran."""


class Shortening(Struct, frozen=True, kw_only=True):
    """What would make a part shorter; nothing of it is tried or predicted."""

    setting: str
    """What to write, set or change."""
    why: str


class StartUpPart(Struct, frozen=True, kw_only=True):
    """One thing that start-up went to."""

    part: StartPart
    seconds: float
    details: list[StartDetail] = field(default_factory=list)
    """The longest first; not all of them."""
    blocked_seconds: float = 0.0
    """Of it, blocked in files or on the network. High: faster storage shortens it, code does not;
    low: it computes."""
    path: str | None = None
    """Where it was blocked longest."""
    mount: str | None = None
    fstype: str | None = None
    shorten: list[Shortening] = field(default_factory=list)
    """Empty for parts that are not worth it."""
    share: float = 0.0
    """Of start-up, 0 to 1."""


class StartLedger(Struct, frozen=True, kw_only=True):
    """From the start of the job to its first usual step, each moment counted once."""

    seconds: float
    parts: list[StartUpPart]
    """In the order of a start; they sum to `seconds`."""

    @property
    def named_frac(self) -> float:
        """How much of it has a name, 0 to 1."""
        unnamed = sum(each.seconds for each in self.parts if each.part == "unnamed")
        return 1 - unnamed / self.seconds if self.seconds else 1.0

    def check(self) -> None:
        """Raise if the parts are not the whole."""
        total = sum(each.seconds for each in self.parts)
        if abs(total - self.seconds) > _ROUNDING * max(self.seconds, 1.0):
            raise ValueError(f"start-up takes {self.seconds} s, its parts {total} s")
