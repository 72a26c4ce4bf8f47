"""Frames arrive whole, and only from those who know the job's secret."""

import socket
import threading
from collections.abc import Iterator

import pytest

from fuelline.fix.remote.wire import FrameKind, WorkerLink, meet_helper, meet_worker

SECRET = b"of this job"


def meet(theirs: bytes) -> tuple[object, object]:
    """What the helper and the worker come to, errors included."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found: list[object] = []

        def ask() -> None:
            try:
                found.append(meet_helper(listener.getsockname(), theirs, 7))
            except (OSError, EOFError) as error:
                found.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        end, _ = listener.accept()
        try:
            met: object = meet_worker(end, SECRET)
        except (OSError, EOFError) as error:
            end.close()
            met = error
        thread.join()
    return met, found[0]


@pytest.fixture
def links() -> Iterator[tuple[WorkerLink, WorkerLink]]:
    met, worker = meet(SECRET)
    assert isinstance(met, tuple)
    assert met[0] == 7
    assert isinstance(worker, WorkerLink)
    yield met[1], worker
    met[1].hang_up()
    worker.hang_up()


def test_a_frame_arrives_with_its_parts(links: tuple[WorkerLink, WorkerLink]) -> None:
    helper, worker = links
    parts = [memoryview(bytes([number]) * size) for number, size in ((1, 3), (2, 5_000_000))]
    sender = threading.Thread(
        target=worker.send, args=(FrameKind.MESSAGE, b"body", parts), kwargs={"session": 3}
    )
    sender.start()
    frame = helper.receive_head()
    assert frame == (FrameKind.MESSAGE, 3, 4, (3, 5_000_000))
    assert helper.receive(4) == b"body"
    for part in parts:
        assert helper.receive(part.nbytes) == part
    sender.join()


def test_the_end_of_the_other_side_is_an_end(links: tuple[WorkerLink, WorkerLink]) -> None:
    helper, worker = links
    worker.hang_up()
    with pytest.raises(EOFError):
        helper.receive_head()


def test_who_does_not_know_the_secret_is_turned_away() -> None:
    met, worker = meet(b"of another job")
    assert isinstance(met, ConnectionError)
    assert isinstance(worker, (OSError, EOFError))
