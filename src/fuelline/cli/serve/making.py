"""Pages and tracks of runs, each made by the command that a user would type, in its own process.

So the server stays small whatever a run holds, the command's own bounds hold (cli/bounded.py), and
a page here is the file that `--html` writes, byte for byte but for the way back to the list.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuelline.record.launch import own_python

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_KEPT = 64
_MOST_AT_ONCE = 2
_LONGEST_S = 600.0
_ENDINGS = {"export": ".json.gz"}
_BRAND = b'class="brand" href="#main"><b>fuelline</b></a>'
_TRACKS = b'<a href="?as=tracks">Open in Perfetto</a>'
_HOME = b'class="brand" href="/"><b>fuelline</b></a>'
GROUPINGS = ("cause", "user", "job", "host", "chip")
_GROUPED = "".join(f'<a href="?by={each}">By {each}</a>' for each in GROUPINGS).encode()
FLEET_S = 60.0
"""A page of a store is shown for that long: nothing tells us when a run was added to a bucket."""
_SLIDERS = b'<div class="sliders"'
_TURNED = {
    **dict.fromkeys(("workers", "prefetch", "batch-size"), r"\d{1,7}"),
    "storage": "nvme|warm",
    "cores": r"\d{1,4}(\.\d{1,3})?",
    "chip": r"\d{1,3}(\.\d{1,3})?x",
}
"""Options of `whatif` that a slider turns, and what their values look like."""


class PageMaker:
    """Makes pages and keeps the last ones, as long as their runs do not change."""

    def __init__(self, price: float | None) -> None:
        self._price = price
        self._folder = tempfile.TemporaryDirectory(prefix="fuelline-serve-")
        self._kept: dict[str, bytes] = {}
        self._fleets: dict[str, tuple[float, bytes]] = {}
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)

    def close(self) -> None:
        """Nothing stays."""
        self._folder.cleanup()

    async def make(self, command: str, runs: Sequence[Path]) -> bytes | str:
        """What `diagnose RUN`, `compare A B` or `export RUN` writes; else what the command said."""
        key = hashlib.sha256(repr((command, [_state(run) for run in runs])).encode()).hexdigest()
        async with self._room:
            if key not in self._kept:
                made = await self._write(key, command, self._list_words(command, runs))
                if isinstance(made, str):
                    return made
                self._kept[key] = _lead_home(made, command)
                for oldest in list(self._kept)[:-_MOST_KEPT]:
                    del self._kept[oldest]
        return self._kept[key]

    async def ask(self, run: Path, turned: Mapping[str, str]) -> list[Any] | None:
        """What `whatif RUN` answers about these settings, as a page keeps it."""
        if not turned or not all(
            name in _TURNED and re.fullmatch(_TURNED[name], value) for name, value in turned.items()
        ):
            return None
        # Not for the readers, which are this module too: what they load is there 64 times.
        import msgspec  # noqa: PLC0415

        from fuelline.report.renderers.page import list_answer  # noqa: PLC0415
        from fuelline.schema.diagnosis.forecasts import ForecastReport  # noqa: PLC0415
        from fuelline.schema.foreign import decode_json  # noqa: PLC0415

        words = ["whatif", str(run.absolute()), "--json"]
        for name, value in turned.items():
            words += [f"--{name}", value]
        async with self._room:
            child = await self._start(words, asyncio.subprocess.PIPE)
            said, _ = await self._end(child)
        try:
            found = decode_json(said, ForecastReport).forecasts
        except msgspec.MsgspecError:
            return None
        return list_answer(found[0]) if found else None

    @staticmethod
    async def _start(words: list[str], stdout: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *own_python("fuelline.cli.serve.making", words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
        )

    @staticmethod
    async def _end(child: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
        """What it said; it ends with whoever waits for it, and when it takes too long."""
        try:
            return await asyncio.wait_for(child.communicate(), _LONGEST_S)
        except asyncio.TimeoutError:
            return b"", b""
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()

    async def make_fleet(self, store: str, by: str) -> bytes | str:
        """What `fleet STORE --by` writes."""
        async with self._room:
            made_s, made = self._fleets.get(by, (-FLEET_S, b""))
            if time.monotonic() - made_s < FLEET_S:
                return made
            words = ["fleet", store, "--by", by]
            if self._price is not None:
                words += ["--price", str(self._price)]
            written = await self._write(f"fleet-{by}", "fleet", words)
            if isinstance(written, bytes):
                written = written.replace(_BRAND, _HOME + _GROUPED, 1)
                self._fleets[by] = time.monotonic(), written
        return written

    def _list_words(self, command: str, runs: Sequence[Path]) -> list[str]:
        words = [command, *(str(run.absolute()) for run in runs)]
        if self._price is not None and command == "diagnose":
            words += ["--price", str(self._price)]
        return words

    async def _write(self, key: str, command: str, words: list[str]) -> bytes | str:
        path = Path(self._folder.name) / f"{key[:32]}{_ENDINGS.get(command, '.html')}"
        words = [*words, "--perfetto" if command == "export" else "--html", str(path)]
        child = await self._start(words, asyncio.subprocess.DEVNULL)
        _, said = await self._end(child)
        try:
            return path.read_bytes()
        except OSError:
            return said.decode("utf-8", "replace").strip() or (
                f"No page was written, within {_LONGEST_S:.0f} s at most. Run `fuelline {command}` "
                "in a terminal; it may show why."
            )
        finally:
            path.unlink(missing_ok=True)


def _lead_home(made: bytes, command: str) -> bytes:
    """A report gets ways to the list and to Perfetto, which the file on a disk has not."""
    if command == "export":
        return made
    made = made.replace(_BRAND, _HOME + (_TRACKS if command == "diagnose" else b""), 1)
    if _SLIDERS not in made:
        return made
    from fuelline.report.renderers.page import add_script  # noqa: PLC0415 - as in `ask`

    return add_script(made, (Path(__file__).parent / "assets" / "whatif.js").read_text("utf-8"))


def _state(run: Path) -> tuple[str, int, int]:
    """What changes when a run grows or is compacted."""
    files = [file for file in (run, *run.glob("*"), *run.glob("spool/*")) if file.exists()]
    try:
        times = [file.stat().st_mtime_ns for file in files if file.name != "verdict.json"]
    except OSError:
        times = []
    return str(run), len(files), max(times[1:], default=0)


def main(words: list[str]) -> int:
    """The process itself: the command as if it had been typed, with its bounds."""
    from fuelline import cli  # noqa: PLC0415 - the server need not load it

    sys.argv[1:] = words
    return cli.main()
