"""Running jobs followed for whoever looks at them: one reader a job, however many look.

The reader is that of `fuelline watch`; it stops when the last page that shows the job is closed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from fuelline.cli.record.so_far import VerdictSoFar
from fuelline.schema.errors import FuellineError
from fuelline.schema.foreign import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from fuelline.pipeline import RunWatch

INTERVAL_S = 2.0
"""Between two looks."""
_OVER = ("ended", "lost")


class LiveReaders:
    """Readers by run, each with how many look."""

    def __init__(self) -> None:
        self._readers: dict[Path, _Reader] = {}

    async def follow(self, run_dir: Path) -> AsyncIterator[str]:
        """Server-sent events: a snapshot now and then, the last one when the job is over."""
        reader = self._readers.setdefault(run_dir, _Reader(run_dir))
        reader.lookers += 1
        try:
            seen = -1
            while True:
                await reader.advance(seen)
                seen = reader.number
                yield f"event: {reader.event}\ndata: {reader.words}\n\n"
                if reader.event != "snapshot":
                    return
        finally:
            reader.lookers -= 1
            if not reader.lookers:
                self._readers.pop(run_dir, None)
                reader.close()


class _Reader:
    """One running job."""

    def __init__(self, run_dir: Path) -> None:
        self.lookers = 0
        self.number = -1
        self.event = "snapshot"
        self.words = ""
        self._run_dir = run_dir
        self._watch: RunWatch | None = None
        self._verdict = VerdictSoFar(run_dir)
        self._turn = asyncio.Lock()

    async def advance(self, seen: int) -> None:
        """Until there is something newer than what was seen; the first to ask looks for all."""
        async with self._turn:
            if self.number > seen:
                return
            if self.number >= 0:
                await asyncio.sleep(INTERVAL_S)
            await asyncio.to_thread(self._look)
            self.number += 1

    def _look(self) -> None:
        try:
            if self._watch is None:
                from fuelline.pipeline import RunWatch  # noqa: PLC0415 - loads polars, when needed

                self._watch = RunWatch(self._run_dir)
            self._watch.look()
            snapshot = self._watch.snapshot(workers=False)
        except (FuellineError, OSError) as error:  # the run has vanished, say
            self.event, self.words = "gone", encode_json(str(error), is_indented=False)
            return
        is_over = snapshot.state in _OVER
        self._verdict.follow(self._run_dir, is_over=is_over)
        told = msgspec.structs.replace(snapshot, verdict=self._verdict.words)
        self.event = "over" if is_over else "snapshot"
        self.words = encode_json(told, is_indented=False)

    def close(self) -> None:
        """Nobody looks any more."""
        self._verdict.__exit__(None, None, None)
