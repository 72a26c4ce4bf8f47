"""Workers elsewhere without Ray and without a second host: forked from a process that has torch.

`python -m bench.remote_zygote SOCKET` waits; `python bench/remote_zygote.py SOCKET ask ...` stands
in for "a Python on the other host" (`processes:` in fix.remote.placing): it passes on what it is
given, and lasts as long as the worker. What a worker runs is what it runs under Ray, from its first
line; only torch is loaded already, which saves three seconds for each of a thousand.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
from pathlib import Path


def ask(path: str) -> None:
    """Have a worker forked, note its number, and wait for its end."""
    given = sys.stdin.buffer.read()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(path)
        line.sendall(len(given).to_bytes(8, "little") + given)
        pid = int.from_bytes(line.recv(8), "little")
        (Path(path).parent / f"{os.getppid()}-{pid}").touch()
        line.recv(1)


def serve(path: str) -> None:
    """Fork a worker for each who asks."""
    import numpy as np
    import torch

    assert torch is not None
    assert np is not None
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(64)
        while True:
            line, _ = listener.accept()
            if os.fork():
                line.close()
                continue
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _work(line)


def _work(line: socket.socket) -> None:
    try:
        with line.makefile("rb") as file:
            given = file.read(int.from_bytes(file.read(8), "little"))
        line.sendall(os.getpid().to_bytes(8, "little"))
        text, content = pickle.loads(given)
        scope = {"__name__": "fuelline_bootstrap"}
        exec(text, scope)
        scope["start"](content)  # type: ignore[operator]
    finally:
        os._exit(0)


if __name__ == "__main__":
    (ask if "ask" in sys.argv else serve)(sys.argv[1])
