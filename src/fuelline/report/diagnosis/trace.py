"""What only imported traces have: quality, a ledger for each device, gaps, late ranks, kernels."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from fuelline.report.diagnosis.words import PART_WORDS
from fuelline.report.document import (
    Block,
    Heading,
    Item,
    Items,
    Number,
    StackedBars,
    Statement,
    Table,
)
from fuelline.schema.parts import LEDGER_PARTS
from fuelline.schema.units import duration, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.schema.parts import LedgerPart
    from fuelline.schema.run.trace import DeviceLedger, GapCause, KernelFacts, TraceAnswer

_MOST_DEVICES = 16
_MOST_GAPS = 8
_MOST_KERNELS = 8
_LEAST_SHARE = 0.001
_COLUMNS: tuple[tuple[str, tuple[LedgerPart, ...]], ...] = (
    ("compute", ("useful compute",)),
    ("comm", ("exposed transfer", "undivided communication")),
    ("wait", ("waiting for a peer",)),
    ("copies", ("copies",)),
    ("data", ("data wait",)),
    ("launch", ("launch-bound",)),
    ("host", ("host code", "allocation")),
    ("sync", ("synchronisation",)),
    ("other", ("start-up", "profiler overhead", "unknown")),
)
"""Columns of the ledger, as wide as a terminal allows, and the parts in them."""


def describe_quality(diagnosis: Diagnosis) -> list[Block]:
    """First of all: which questions this trace cannot answer."""
    items = tuple(
        Item(_capital(each.problem) + _of_ranks(each.ranks), (f"rules out: {each.forbids}",))
        for each in diagnosis.quality
    )
    return [Heading("What is wrong with this trace", "Quality"), Items(items)] if items else []


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _of_ranks(ranks: Sequence[int]) -> str:
    if not ranks:
        return ""
    names = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f" (rank {names})" if len(ranks) == 1 else f" (ranks {names})"


def describe_trace(diagnosis: Diagnosis) -> list[Block]:
    """The tables."""
    trace = diagnosis.trace
    if trace is None or not trace.ledgers:
        return []
    return [
        *_ledger(trace),
        *_late(diagnosis),
        *_gaps(trace.gaps),
        *_kernels(trace),
    ]


def _ledger(trace: TraceAnswer) -> list[Block]:
    shown = trace.ledgers[:_MOST_DEVICES]
    rows = tuple(
        _ledger_row(ledger, f"trace/ledgers/{place}") for place, ledger in enumerate(shown)
    )
    more = len(trace.ledgers) - len(shown)
    note = f" {more} more devices are in the JSON." if more else ""
    undivided = [ledger.shares()["undivided communication"] for ledger in trace.ledgers]
    if max(undivided, default=0.0) >= _LEAST_SHARE:
        note += " Comm may include waiting: it could not be compared with other ranks."
    return [
        Heading(
            "Ledger of each device, in % of the time from its first event to its last", "Ledger"
        ),
        StackedBars(
            tuple(_stack_row(ledger) for ledger in shown),
            {part: PART_WORDS.get(part, part) for part in LEDGER_PARTS},
            Table(("rank", "gpu", "busy", *(name for name, _ in _COLUMNS)), rows),
        ),
        Statement(
            "Busy: some kernel or copy was running (nvidia-smi counts kernels only). Comm: "
            "exchange without compute; wait: for other ranks; host: its own code, or memory. The "
            f"columns after busy sum to 100.{note}"
        ),
    ]


def _ledger_row(ledger: DeviceLedger, path: str) -> tuple[str, ...]:
    wall, whole = max(1, ledger.wall_ns), f"{path}/wall_ns"
    cells = [Number(_percent(ledger.busy_ns / wall), ledger.busy_ns, f"{path}/busy_ns", whole)]
    for _, parts in _COLUMNS:
        spent = sum(ledger.parts_ns[part] for part in parts)
        where = " + ".join(f"{path}/parts_ns/{part}" for part in parts)
        cells.append(Number(_percent(spent / wall), spent, where, whole))
    return (str(ledger.rank), str(ledger.device), *cells)


def _stack_row(ledger: DeviceLedger) -> tuple[str, tuple[tuple[str, float], ...]]:
    wall = max(1, ledger.wall_ns)
    parts = tuple((part, ledger.parts_ns[part] / wall) for part in LEDGER_PARTS)
    return f"rank {ledger.rank}, gpu {ledger.device}", parts


def _percent(share: float) -> str:
    """At most four characters, so that a ledger fits 80 columns."""
    return f"{100 * share:.1f}".replace("100.0", "100")


def _late(diagnosis: Diagnosis) -> list[Block]:
    culprits = diagnosis.collectives.culprits
    if not culprits:
        return []
    rows = tuple(
        (
            str(late.rank),
            f"{late.late_count} of {late.of}",
            Number(
                duration(late.caused_wait_seconds),
                late.caused_wait_seconds,
                f"collectives/culprits/{place}/caused_wait_seconds",
            ),
            late.part,
        )
        for place, late in enumerate(culprits)
    )
    clocks = diagnosis.trace.clocks if diagnosis.trace is not None else []
    errors = [clock.error_ns for clock in clocks if clock.error_ns is not None]
    shifted = any(clock.shift_ns for clock in clocks)
    words = "were aligned at collectives, to within" if shifted else "agree at collectives, within"
    return [
        Heading("Who is late at the collectives", "Late ranks"),
        Table(("rank", "last at", "others waited", "it was in"), rows),
        Statement(f"The ranks' clocks {words} {duration(max(errors, default=0) / 1e9)}."),
    ]


def _gaps(gaps: Sequence[GapCause]) -> list[Block]:
    worth = [
        (f"trace/gaps/{place}", gap) for place, gap in enumerate(gaps) if gap.share >= _LEAST_SHARE
    ][:_MOST_GAPS]
    rows = tuple(
        (
            Number(_percent(gap.share), gap.share, f"{path}/share"),
            str(gap.rank),
            Number(number(gap.gaps), gap.gaps, f"{path}/gaps"),
            Number(duration(gap.longest_seconds), gap.longest_seconds, f"{path}/longest_seconds"),
            _doing(gap),
            _where(gap),
        )
        for path, gap in worth
    )
    header = ("%", "rank", "gaps", "longest", "the host was in", "mostly")
    if not rows:
        return []
    table = Table(header, rows, gives_way=len(header) - 1)
    return [Heading("Idle gaps, by what the host did", "Gaps"), table]


def _doing(gap: GapCause) -> str:
    """Python only where something shows that it was Python."""
    if gap.during or gap.frame is not None:
        return gap.cause
    return _UNSEEN.get(gap.cause, gap.cause)


_UNSEEN: Mapping[str, str] = {
    "python": "code not recorded",
    "python between steps": "code not recorded",
}


def _where(gap: GapCause) -> str:
    """The function if stacks were recorded and no call says more."""
    is_call = gap.cause in ("allocator", "kernel launches", "memcpy", "synchronise", "start-up")
    if gap.frame is None or (is_call and gap.during):
        return gap.during
    return f"{gap.frame.function} ({PurePosixPath(gap.frame.file).name}:{gap.frame.line})"


def _kernels(trace: TraceAnswer) -> list[Block]:
    classes = ", ".join(
        f"{kernel.name} {_percent(kernel.share)}{_hidden(kernel)}"
        for kernel in trace.kernel_classes
        if kernel.share >= _LEAST_SHARE
    )
    rows = tuple(
        _kernel_row(kernel, f"trace/kernels/{place}")
        for place, kernel in enumerate(trace.kernels[:_MOST_KERNELS])
    )
    return [
        Heading("Kernels, in % of their time", "Kernels"),
        Statement(f"By class: {classes}."),
        Table(("%", "count", "mean", "spread", "class", "bound", "kernel"), rows, gives_way=6),
    ]


def _hidden(kernel: KernelFacts) -> str:
    """How much of a class cost nothing, because something else computed meanwhile."""
    if kernel.hidden is None:
        return ""
    return f" ({_percent(kernel.hidden)} % of it hidden under compute)"


def _kernel_row(kernel: KernelFacts, path: str) -> tuple[str, ...]:
    spread = kernel.spread
    return (
        Number(_percent(kernel.share), kernel.share, f"{path}/share"),
        Number(number(kernel.count), kernel.count, f"{path}/count"),
        Number(duration(kernel.mean_seconds), kernel.mean_seconds, f"{path}/mean_seconds"),
        "" if spread is None else Number(f"{spread:.2f}", spread, f"{path}/spread"),
        kernel.kind,
        kernel.bound or "",
        kernel.name,
    )
