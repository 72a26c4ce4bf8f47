"""A service on this host that takes its time to answer, all at once or in turn."""

from __future__ import annotations

import socketserver
import threading
import time
from typing import Any

ANSWER = bytes(range(64))


class Service(socketserver.ThreadingTCPServer):
    """Answers each request after a while; `turn` is held meanwhile if it serves one at a time."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer_s: float, *, is_serial: bool) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.answer_s = answer_s
        self.turn = threading.Semaphore(1 if is_serial else 1024)


class Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        service: Any = self.server
        while self.request.recv(8):
            with service.turn:
                time.sleep(service.answer_s)
            self.request.sendall(ANSWER)


def serve(answer_ms: float, is_serial: bool, found: Any) -> None:  # noqa: FBT001 - of a process
    """Answer until ended; `found` is told the port."""
    with Service(answer_ms / 1e3, is_serial=is_serial) as service:
        found.send(service.server_address[1])
        service.serve_forever()
