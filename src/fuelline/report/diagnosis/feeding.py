"""What `feed`, `probe` and `tune` measured by themselves, without a recording, as Documents.

How fast the input pipeline is, which chips it can feed and what limits it; a machine's ceilings;
which settings were tried and chosen, and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.diagnosis.forecasts import describe_recommended
from fuelline.report.diagnosis.words import label_of
from fuelline.report.document import Bar, Bars, Block, Document, Heading, Item, Items, Statement
from fuelline.schema.diagnosis.workloads import WORKLOADS, find_workload
from fuelline.schema.names import clean
from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.units import duration, number, percent, rate

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.ceilings import Ceiling, Probe
    from fuelline.schema.diagnosis.feeding import FedChip, Feed, SeenLoader
    from fuelline.schema.diagnosis.trials import Tuning


def write_feed(feed: Feed) -> Document:
    """The whole answer."""
    return Document(
        (
            *_rate(feed),
            *_accelerator(feed),
            *_chips(feed),
            *_limit(feed),
            *_loaders(feed),
            Statement(_next_command(feed)),
        )
    )


def _rate(feed: Feed) -> list[Block]:
    loader = feed.seen[feed.number - 1]
    start = (
        f"Not counted: {duration(feed.first_batch_seconds)} until the first batch, and the batches "
        "until the queue had settled."
    )
    blocks: list[Block] = [
        Statement(f"{_name(loader)}: {_with_doubt(feed.samples_per_s)} samples/s"),
        Statement(
            f"Measured over {duration(feed.seconds)}: {number(feed.batches)} batches, "
            f"{number(feed.samples)} samples"
            + (f", {feed.epochs} whole epochs" if feed.epochs else "")
            + (f", {feed.processes} processes in parallel" if feed.processes > 1 else "")
            + f". {start}"
        ),
    ]
    if feed.problem is not None:
        blocks.append(Statement(f"It ended early: {feed.problem}", alarm=True))
    return blocks


def _accelerator(feed: Feed) -> list[Block]:
    if isinstance(feed.utilisation, Missing):
        pace = feed.batch_seconds
        if isinstance(pace, Missing):
            return []
        step = duration(pace.value)
        return [
            Statement(
                f"No accelerator was emulated. One that takes {step} or more per batch would never "
                "wait; one that takes half as long would wait half of the time."
            )
        ]
    asked = (
        f"{duration(feed.step_seconds)} per step"
        if feed.step_seconds is not None
        else f"{number(feed.asked_samples_per_s or 0)} samples/s"
    )
    verb = "passes" if feed.is_fed else "fails"
    value = feed.utilisation.value
    return [
        Heading(f"An accelerator that takes {asked}"),
        Bars(
            (Bar("busy", value, "", marked=not feed.is_fed), Bar("waits for input", 1 - value, ""))
        ),
        Statement(
            f"It {verb} MLPerf Storage's requirement of {percent(feed.pass_share)} utilisation "
            "(compute over compute plus waiting).",
            alarm=not feed.is_fed,
        ),
    ]


def _chips(feed: Feed) -> list[Block]:
    workload = find_workload(feed.workload) if feed.workload else None
    if workload is None:
        return []
    items = tuple(Item(_fed(chip, feed.samples_per_s)) for chip in feed.chips)
    return [Heading(f"Chips that train {workload.name} ({workload.what})"), Items(items)]


def _fed(chip: FedChip, found: Signal) -> str:
    need = f"{chip.chip} takes {number(chip.needs_samples_per_s)} samples/s ({chip.basis})"
    if chip.count:
        return f"{need}: enough for {chip.count} of them"
    share = found.value / chip.needs_samples_per_s if isinstance(found, Reading) else 0.0
    return f"{need}: not enough, it would be busy {percent(share)} of the time"


def _limit(feed: Feed) -> list[Block]:
    verdict = feed.verdict
    label = label_of(verdict, feed.findings)
    blocks: list[Block] = [Heading("What limits it"), Statement(verdict.sentence, label)]
    top = next((found for found in feed.findings if found.code == verdict.code), None)
    if top is not None and top.remedies:
        items = tuple(Item(remedy.setting, (remedy.why,)) for remedy in top.remedies)
        blocks += [Heading("What to try next"), Items(items, numbered=True)]
    return blocks


def _loaders(feed: Feed) -> list[Block]:
    """Only if there was a choice."""
    if len(feed.seen) < 2:
        return []
    items = tuple(
        Item(f"{position}. {_name(loader)}" + ("  <- this one" if position == feed.number else ""))
        for position, loader in enumerate(feed.seen, start=1)
    )
    return [Heading("Loaders in the script; --loader N picks another"), Items(items)]


def _name(loader: SeenLoader) -> str:
    size = f"batch {loader.batch_size}" if loader.batch_size is not None else "its own batches"
    workers = f"{loader.workers} worker{'' if loader.workers == 1 else 's'}"
    return f"{loader.dataset}, {size}, {workers}"


def _with_doubt(signal: Signal) -> str:
    if isinstance(signal, Missing):
        return f"unknown ({signal.reason})"
    if signal.low is None or signal.high is None:
        return f"{number(signal.value)} (too few batches for an interval)"
    return f"{number(signal.value)} ({number(signal.low)} to {number(signal.high)})"


def _next_command(feed: Feed) -> str:
    if isinstance(feed.utilisation, Missing) and feed.workload is None:
        names = ", ".join(each.name for each in WORKLOADS)
        return f"Next: fuelline feed --step 45ms SCRIPT, or --workload NAME ({names})"
    return "Next: fuelline run SCRIPT records the training itself"


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
    """A machine's ceilings, group by group."""
    blocks: list[Block] = [
        Statement(f"{probe.host}: {probe.path} on {probe.mount} ({probe.fstype})")
    ]
    for group, title in _TITLES.items():
        items = tuple(Item(_ceiling(each)) for each in probe.ceilings if each.group == group)
        if items:
            blocks += [Heading(title), Items(items)]
    blocks.append(Statement(f"Took {duration(probe.seconds)}; nothing was left behind."))
    blocks.append(Statement("Next: fuelline feed SCRIPT"))
    return Document(tuple(blocks))


def _ceiling(ceiling: Ceiling) -> str:
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


_WRITTEN = "What --apply changes:"
_UNWRITTEN = "Next: `fuelline tune --apply ...` applies this patch; `fuelline undo` reverts it:"


def write_tuning(tuning: Tuning, *, is_written: bool = False) -> Document:
    """What was tried, what is recommended and why; the patch follows below it, unchanged.

    `is_written` if it is applied at once.
    """
    blocks: list[Block] = [
        Items(tuple(Item(clean(step)) for step in tuning.steps)),
        Statement(f"{tuning.trial_seconds:.0f} s of trials."),
        *describe_recommended(tuning.recommended),
    ]
    if tuning.patch:
        blocks.append(Statement(_WRITTEN if is_written else _UNWRITTEN))
    elif tuning.chosen:
        blocks.append(Statement(f"Next: change the script by hand: {tuning.paste}"))
    return Document(tuple(blocks))
