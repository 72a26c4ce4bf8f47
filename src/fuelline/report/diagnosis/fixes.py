"""What --fix did, for the report: each change with its trial, predicted against achieved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Block, Heading, Item, Items
from fuelline.schema.readings import Missing

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import Remedy
    from fuelline.schema.diagnosis.fixes import Fix, LoaderFixes


MOST_LOADERS = 5


def describe_fixes(fixes: list[LoaderFixes], settings: list[Remedy]) -> list[Block]:
    """A point for each loader and each setting left alone; nothing for a run without --fix."""
    if not fixes:
        return []
    told = [each for each in fixes if each.fixes or each.notes][:MOST_LOADERS] or fixes[:1]
    is_alone = len({each.pid for each in fixes}) == 1
    items = [Item(_title(each, is_alone=is_alone), tuple(_details(each))) for each in told]
    if len(fixes) > len(told):
        items.append(Item(f"{len(fixes) - len(told)} more loaders: `diagnose --json` lists them"))
    blocks: list[Block] = [Heading("What --fix did"), Items(tuple(items))]
    left = tuple(Item(each.setting, (each.why, each.risk or each.cost)) for each in settings)
    if left:
        blocks += [Heading("Settings that --fix leaves to you"), Items(left)]
    return blocks


def _title(loader: LoaderFixes, *, is_alone: bool) -> str:
    kept = [fix for fix in loader.fixes if fix.outcome == "kept"]
    name = loader.loader if is_alone else f"{loader.loader} (process {loader.pid})"
    if not loader.fixes:
        return f"{name}: nothing was changed"
    now = loader.workers_at_end
    own = "1 worker" if loader.workers == 1 else f"{loader.workers} workers"
    end = f", {now} at the end" if now is not None else ""
    count = len(loader.fixes)
    changes = "1 change" if count == 1 else f"{count} changes"
    return f"{name}: {changes}, {len(kept)} kept (the job has {own}{end})"


def _details(loader: LoaderFixes) -> list[str]:
    return [*(_sentence(fix) for fix in loader.fixes), *loader.notes]


def _sentence(fix: Fix) -> str:
    trial = fix.trial
    words = ", ".join(setting.text() for setting in trial.settings)
    predicted = (
        "" if isinstance(trial.predicted, Missing) else f"{trial.predicted.value:.2f}x predicted, "
    )
    if isinstance(trial.speedup, Missing):
        achieved = f"not judged ({trial.speedup.reason})"
    else:
        speedup = trial.speedup
        low, high = speedup.low or speedup.value, speedup.high or speedup.value
        achieved = f"{speedup.value:.2f}x achieved (95 %: {low:.2f}-{high:.2f})"
    return f"{words}: {predicted}{achieved}, {fix.outcome}; {fix.why}"
