"""Processes that are part of a fault, never of the job: started here, ended here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.zoo.fault import Planted

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[3]
END_S = 5.0


@contextlib.contextmanager
def python(
    arguments: list[str], groups: tuple[Path, ...] = (), env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that runs for as long as the context, in these control groups."""
    command = Planted(Path(), groups).command([sys.executable, *arguments])
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """End a process and all of its group, kindly first. It must be a session of its own."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nobody is left, as it should be
