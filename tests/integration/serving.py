"""A real server with runs of its own, and a job that goes on while somebody looks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOB = """
import sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(torch.randn(int(sys.argv[1]), 8)), batch_size=8):
    time.sleep(0.02)
    model(batch).mean().backward()
    optimizer.step()
"""
FUELLINE = (sys.executable, "-m", "fuelline")


class Home:
    """A run store, and commands that use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "FUELLINE_HOME": str(folder / "home")}
        (folder / "job.py").write_text(JOB)

    def command(self, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Started, with a pipe for what it says unless nobody is to hear it."""
        return subprocess.Popen(
            [*FUELLINE, *words],
            cwd=self.folder,
            env=self.environment,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def train(self, steps: int) -> subprocess.Popen[str]:
        """A job of so many steps, fifty a second at most."""
        words = ("run", "--quiet", "job.py", str(8 * steps))
        return self.command(*words, stdout=subprocess.DEVNULL)


@contextmanager
def served(home: Home, *words: str) -> Iterator[str]:
    """The address that it prints; at the end the server leaves when it is interrupted."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = home.command("serve", "--no-open", "--port", str(port), *words)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().split()[-1]
    finally:
        server.send_signal(signal.SIGINT)
        said, _ = server.communicate(timeout=30)
        assert "Traceback" not in said, said
