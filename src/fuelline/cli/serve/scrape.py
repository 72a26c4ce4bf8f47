"""`/metrics`: running jobs as they are now, and what runs of the last hour came to.

Running jobs are followed from the first scrape on, and no longer when nobody has scraped for a
while. A scrape itself reads nothing: it renders what the readers told last.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from fuelline.report.metrics import list_ended, list_live, render_metrics
from fuelline.schema.diagnosis.live import Snapshot
from fuelline.schema.foreign import decode_json
from fuelline.store.runs import job_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fuelline.cli.serve.live import LiveReaders
    from fuelline.cli.serve.shelf import RunShelf
    from fuelline.report.metrics import Metric
    from fuelline.store.listing import ListedRun

MOST_FOLLOWED = 16
"""Running jobs; of more, the newest."""
MOST_ENDED = 50
ENDED_S = 3600.0
"""For how long a run that is over is still told of: longer than any usual interval of scrapes."""
FORGOTTEN_S = 600.0
"""After the last scrape nothing is followed any more."""
OPEN, TEXT = "application/openmetrics-text", "text/plain"


class Scraper:
    """What the next scrape is answered."""

    def __init__(
        self,
        shelf: RunShelf,
        live: LiveReaders,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = lambda: time.time_ns() / 1e9,
    ) -> None:
        self._shelf, self._live, self._clock, self._wall = shelf, live, clock, wall
        self._followed: dict[str, _ScrapedJob] = {}
        self._scraped_s = 0.0

    def answer(self, accepted: str) -> tuple[str, str]:
        """Content type and text."""
        self._scraped_s = self._clock()
        listed = self._shelf.newest()
        running = [run for run in listed if run.state == "running"][:MOST_FOLLOWED]
        for run in running:
            path = self._shelf.find(run.run)
            if run.run not in self._followed and path is not None:
                self._followed[run.run] = _ScrapedJob(self._follow(run.run, path))
        ended = [run for run in listed if self._has_just_ended(run)][:MOST_ENDED]
        metrics = [each for run in running for each in self._tell(run)]
        metrics += [each for run in ended for each in _list_over(run)]
        is_open = OPEN in accepted
        kind = f"{OPEN}; version=1.0.0" if is_open else f"{TEXT}; version=0.0.4"
        return f"{kind}; charset=utf-8", render_metrics(metrics, is_open=is_open)

    def close(self) -> None:
        """Nothing is followed any more."""
        for followed in self._followed.values():
            followed.task.cancel()

    def _tell(self, run: ListedRun) -> list[Metric]:
        followed = self._followed.get(run.run)
        if followed is None or followed.snapshot is None:
            return list_ended(run.run, job_of(run.run), run.state, None)
        return list_live(followed.snapshot, run.run, job_of(run.run))

    async def _follow(self, run_id: str, path: Path) -> None:
        try:
            async for kind, words in self._live.follow(path):
                snapshot = _read(words) if kind == "snapshot" else None
                if snapshot is None or self._clock() - self._scraped_s > FORGOTTEN_S:
                    return
                self._followed[run_id].snapshot = snapshot
        finally:
            self._followed.pop(run_id, None)

    def _has_just_ended(self, run: ListedRun) -> bool:
        if run.state not in ("ok", "failed") or run.started is None or run.seconds is None:
            return False
        over_s = datetime.fromisoformat(run.started).timestamp() + run.seconds
        return self._wall() - over_s < ENDED_S


class _ScrapedJob:
    """One running job."""

    def __init__(self, following: object) -> None:
        self.snapshot: Snapshot | None = None
        self.task = asyncio.ensure_future(following)  # type: ignore[call-overload]


def _list_over(run: ListedRun) -> list[Metric]:
    verdict = run.verdict
    told = None if verdict is None else (verdict.code, verdict.stage, verdict.limit)
    return list_ended(run.run, job_of(run.run), run.state, told)


def _read(words: str) -> Snapshot | None:
    """None if that is not what `watch --json` prints."""
    try:
        return decode_json(words, Snapshot)
    except msgspec.MsgspecError:
        return None
