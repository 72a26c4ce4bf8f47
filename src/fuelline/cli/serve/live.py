"""Running jobs followed for whoever looks at them: one reader a job, however many look.

The reader is `fuelline watch --json` in a process of its own, with the bounds of that command; it
ends when the last page that shows the job is closed.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Literal

from fuelline.record.launch import own_python

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LiveKind = Literal["snapshot", "over"]
INTERVAL_S = 3
"""Between two looks."""
_GONE = "the run's folder is gone: what is below was the last to be seen of it"
_MOST_LINE_BYTES = 16 << 20
"""Of a snapshot: 64 ranks take some kilobytes."""


class LiveReaders:
    """Readers by run, each with how many look."""

    def __init__(self) -> None:
        self._readers: dict[Path, _Reader] = {}

    async def follow(self, run_dir: Path) -> AsyncIterator[tuple[LiveKind, str]]:
        """Snapshots as JSON, and at the end that it is over, or why there are none."""
        reader = self._readers.get(run_dir)
        if reader is None:
            reader = self._readers[run_dir] = _Reader(run_dir)
        reader.lookers += 1
        seen = 0
        try:
            while reader.event != "over":
                seen = await reader.wait_beyond(seen)
                yield reader.event, reader.words
        finally:
            reader.lookers -= 1
            if not reader.lookers:
                self._readers.pop(run_dir, None)
                reader.close()


class _Reader:
    """One running job."""

    def __init__(self, run_dir: Path) -> None:
        self.lookers = 0
        self.event: LiveKind = "snapshot"
        self.words = ""
        self._number = 0
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._read(run_dir))

    async def wait_beyond(self, seen: int) -> int:
        """Until there is something newer than what was seen."""
        async with self._news:
            await self._news.wait_for(lambda: self._number > seen)
            return self._number

    def close(self) -> None:
        """Nobody looks any more."""
        self._task.cancel()

    async def _read(self, run_dir: Path) -> None:
        words = ["watch", str(run_dir.absolute()), "--json", "--interval", str(INTERVAL_S)]
        child = await asyncio.create_subprocess_exec(
            *own_python("fuelline.cli.serve.making", words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MOST_LINE_BYTES,
        )
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            while line := await child.stdout.readline():
                await self._tell("snapshot", line.decode().strip())
            said = (await child.stderr.read()).decode("utf-8", "replace").strip()
            if not run_dir.exists():
                said = _GONE
            await self._tell("over", json.dumps(said))
        finally:
            if child.returncode is None:
                child.terminate()
                await child.wait()

    async def _tell(self, event: LiveKind, words: str) -> None:
        async with self._news:
            self.event, self.words = event, words
            self._number += 1
            self._news.notify_all()
