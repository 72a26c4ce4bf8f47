"""How busy the accelerators really were: the utilisation ladder, and one line per device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Bar, Bars, Block, Heading, Item, Items, Statement
from fuelline.schema.diagnosis.devices import RUNGS
from fuelline.schema.readings import Missing, Reading, value_of
from fuelline.schema.run.trace import TRACE_RUNGS
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.devices import DeviceFacts, RungName
    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.schema.parts import DevicePart

_WORDS = {
    "reported utilisation": "reported as busy",
    "tensor cores active": "tensor cores",
    "estimated occupancy": "est. occupancy",
    "tensor-core kernels": "tensor-core work",
}
_MOST_DEVICES = 16
LEAST_USD = 0.005
"""Less would be shown as nothing."""
_LONGER = 1.05
_SHOWN = 0.01
DEVICE_WORDS: dict[DevicePart, str] = {
    "host-paced": "computing or waiting for launches",
    "unknown": "not known",
}
_MEANING = "Reported as busy means that some kernel was running, not that the chip was full."


def describe_devices(diagnosis: Diagnosis) -> list[Block]:
    """The section about accelerators; nothing if none could be read."""
    devices = diagnosis.devices
    if not devices:
        return []
    names = sorted({device.name or "unnamed chip" for device in devices})
    title = f"How busy the accelerators were: {len(devices)} x {', '.join(names)}, "
    return [
        Heading(title + duration(_longer(diagnosis) or devices[0].seconds), "Devices"),
        Bars(
            tuple(_bar(devices, rung, _longer(diagnosis)) for rung in _rungs(diagnosis)),
            falling=diagnosis.trace is None,
        ),
        Items((*_unknown(devices), *_lines(diagnosis))),
        Statement(" ".join([_meaning(diagnosis), *_mfu(devices), *_unused(diagnosis)])),
    ]


def _meaning(diagnosis: Diagnosis) -> str:
    whole = "the allocated time"
    if diagnosis.trace is not None:
        whole = "the time from each device's first event to its last"
        longer = _longer(diagnosis)
        if longer is not None:
            recorded = max(device.seconds for device in diagnosis.devices)
            whole = (
                f"the {duration(longer)} that the steps took; from each device's first event to "
            )
            whole += f"its last it is {duration(recorded)}"
    return f"Shares of {whole}. {_MEANING}"


def _mfu(devices: list[DeviceFacts]) -> list[str]:
    known = any(device.ladder.get("MFU") is not None for device in devices)
    return ["MFU is the share of the chip's peak rate of math that was reached."] if known else []


def _longer(diagnosis: Diagnosis) -> float | None:
    """What marked steps took, where devices had events in a part of that only."""
    window = diagnosis.window
    recorded = max(device.seconds for device in diagnosis.devices)
    if diagnosis.trace is None or window is None or window.seconds <= _LONGER * recorded:
        return None
    return window.seconds


def _rungs(diagnosis: Diagnosis) -> Sequence[RungName]:
    return RUNGS if diagnosis.trace is None else TRACE_RUNGS


def _lines(diagnosis: Diagnosis) -> list[Item]:
    """One a device; an imported trace has a ledger instead."""
    if diagnosis.trace is not None:
        return []
    return [_line(device) for device in diagnosis.devices[:_MOST_DEVICES]]


def _bar(devices: list[DeviceFacts], rung: RungName, seconds: float | None) -> Bar:
    """The mean over the devices that know this rung, and what was paid for all of them.

    Of so many seconds: a device without events does nothing.
    """
    known = [
        share * (device.seconds / seconds if seconds else 1.0)
        for device in devices
        if (share := device.ladder.get(rung)) is not None
    ]
    paid = [each.usd for device in devices for each in device.rungs if each.rung == rung]
    usd = [price for price in paid if price is not None]
    detail = f"{sum(usd):.2f} USD" if sum(usd) >= LEAST_USD else ""
    if 0 < len(known) < len(devices):
        detail = f"{len(known)} of {len(devices)} devices"
    share = sum(known) / len(known) if known else None
    path = f"devices/0/ladder/{rung}" if len(devices) == 1 and not seconds else ""
    return Bar(label=_WORDS.get(rung, rung), share=share, detail=detail, path=path)


def _unknown(devices: list[DeviceFacts]) -> list[Item]:
    """Rungs that not all devices know, those with the same reason together."""
    rungs_by_reason: dict[str, dict[str, None]] = {}
    for rung in (rung for device in devices for rung in device.rungs):
        if isinstance(rung.share, Missing):
            name = _WORDS.get(rung.rung, rung.rung)
            rungs_by_reason.setdefault(rung.share.reason, {})[name] = None
    return [
        Item(f"{', '.join(rungs)} unknown: {reason}") for reason, rungs in rungs_by_reason.items()
    ]


def _line(device: DeviceFacts) -> Item:
    """`gpu3 (pid 4711): busy 95 %, clock 56 %, power 93 %, memory 25 %, 91 C`."""
    shares = (
        ("busy", device.utilisation),
        ("clock", device.clock_share),
        ("power", device.power_share),
        ("memory", device.memory_share),
    )
    words = [
        f"{word} {percent(signal.value)}" for word, signal in shares if isinstance(signal, Reading)
    ]
    degrees = value_of(device.temperature_celsius)
    words += [f"{degrees:.0f} C"] if degrees is not None else []
    words += ["lost by the driver"] if device.is_lost else []
    link = value_of(device.link_share)
    words += [str(device.link_text)] if link is not None and link < 1 else []
    pids = f" (pid {', '.join(map(str, device.pids))})" if device.pids else ""
    return Item(f"{device.device}{pids}: {', '.join(words) or 'nothing could be read'}")


def _unused(diagnosis: Diagnosis) -> list[str]:
    unused = diagnosis.unused_devices
    if not unused:
        return []
    return [f"Visible but not used by the job: {', '.join(unused)}."]


def describe_device_side(diagnosis: Diagnosis) -> list[Block]:
    """Where the device's own time went, in one line."""
    budget = diagnosis.device_budget
    if budget is None:
        return []
    parts = sorted(budget.parts, key=budget.share_of, reverse=True)
    shown = [
        f"{DEVICE_WORDS.get(part, part)} {percent(budget.share_of(part))}"
        for part in parts
        if budget.share_of(part) >= _SHOWN
    ]
    return [Statement(f"By its own clock the accelerator spends: {', '.join(shown)}.")]
