"""Probe in, Document out: a machine's ceilings for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Document, Heading, Item, Items, Statement
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.units import duration, number, rate

if TYPE_CHECKING:
    from fuelline.report.document import Block
    from fuelline.schema.diagnosis.ceilings import Ceiling, Probe

_TITLES = {
    "storage": "Storage",
    "metadata": "Small files and metadata",
    "memory": "Memory",
    "cores": "Cores",
    "decode": "Decoding",
    "network": "Network",
    "device": "Host to device",
}


def write_probe(probe: Probe) -> Document:
    """All ceilings, group by group."""
    blocks: list[Block] = [
        Statement(f"{probe.host}: {probe.path} on {probe.mount} ({probe.fstype})")
    ]
    for group, title in _TITLES.items():
        items = tuple(Item(_line(each)) for each in probe.ceilings if each.group == group)
        if items:
            blocks += [Heading(title), Items(items)]
    blocks.append(Statement(f"Took {duration(probe.seconds)}; nothing was left behind."))
    blocks.append(Statement("Next: fuelline probe --json; fuelline feed SCRIPT"))
    return Document(tuple(blocks))


def _line(ceiling: Ceiling) -> str:
    signal = ceiling.signal
    if isinstance(signal, Missing):
        return f"{ceiling.what}: not measured, {signal.reason}"
    return f"{ceiling.what}: {_amount(signal, signal.value)}{_doubt(signal)}{_difference(ceiling)}"


def _difference(ceiling: Ceiling) -> str:
    mean, most = ceiling.mean_difference, ceiling.most_difference
    if mean is None or most is None:
        return ""
    if not most:
        return "; the same pixels"
    return f"; pixels differ by {mean:.2g} of 255 on average, {most:.0f} at most"


def _doubt(signal: Reading) -> str:
    if signal.low is None or signal.high is None:
        return ""
    return f" ({_amount(signal, signal.low)} to {_amount(signal, signal.high)})"


def _amount(signal: Reading, value: float) -> str:
    if signal.unit == "bytes/s":
        return rate(value)
    if signal.unit == "s":
        return duration(value)
    if signal.unit == "count/s":
        return f"{number(value)}/s"
    return number(value)
