"""A line passes whole messages in order, descriptors with them, and its sender never waits."""

import gc
import os
import pickle
import resource
from pathlib import Path
from typing import Any

import pytest
import torch

from fuelline.fix.elastic.channel import FRAGMENT_BYTES, MOST_DESCRIPTORS, SocketChannel


@pytest.fixture
def ends() -> Any:
    near = SocketChannel()
    far = near.connect()
    yield near, far
    near.close()
    far.close()


def take(line: SocketChannel) -> Any:
    """The next message, waited for."""
    while line.wait(10):
        try:
            return line.receive()
        except BlockingIOError:  # noqa: PERF203
            continue
    raise TimeoutError


def count_open() -> int:
    gc.collect()  # what other tests left behind must not be closed between two counts
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("size", [0, 100, FRAGMENT_BYTES - 50, FRAGMENT_BYTES, 10 * FRAGMENT_BYTES])
def test_a_message_of_any_size_comes_whole(
    ends: tuple[SocketChannel, SocketChannel], size: int
) -> None:
    message = os.urandom(size)
    ends[0].put((1, message))
    ends[1].put((2, message))
    assert take(ends[1]) == (1, message)
    assert take(ends[0]) == (2, message)


def test_a_sender_never_waits_and_order_is_kept(ends: tuple[SocketChannel, SocketChannel]) -> None:
    messages = [(number, bytes(40_000 * (number % 3))) for number in range(60)]
    for message in messages:
        ends[0].put(message)
    assert [take(ends[1]) for _ in messages] == messages
    ends[0].put("after the backlog")
    assert take(ends[1]) == "after the backlog"


def test_tensors_share_memory_with_their_sender(ends: tuple[SocketChannel, SocketChannel]) -> None:
    sent = torch.zeros(4)
    ends[0].put([sent, sent[2:]])
    whole, part = take(ends[1])
    sent[3] = 7
    assert whole.tolist() == [0, 0, 0, 7]
    assert part.tolist() == [0, 7]


def test_more_tensors_than_a_packet_takes_arrive_and_leave_no_descriptor(
    ends: tuple[SocketChannel, SocketChannel],
) -> None:
    take_after = count_open()
    ends[0].put([torch.full((2,), number) for number in range(2 * MOST_DESCRIPTORS + 3)])
    got = take(ends[1])
    assert [each[0].item() for each in got] == list(range(2 * MOST_DESCRIPTORS + 3))
    del got
    assert count_open() == take_after


class Fresh:
    """Makes its tensor while it is pickled: nothing holds it when it is sent."""

    def __reduce__(self) -> Any:
        return _first, (torch.full((3,), 5),)


def _first(tensor: torch.Tensor) -> list[int]:
    return tensor.tolist()


def test_what_is_made_while_pickling_arrives(ends: tuple[SocketChannel, SocketChannel]) -> None:
    for _ in range(30):
        ends[0].put([Fresh(), bytes(30_000)])
    assert [take(ends[1])[0] for _ in range(30)] == [[5, 5, 5]] * 30


def test_what_cannot_be_pickled_is_told_and_leaves_nothing_behind(
    ends: tuple[SocketChannel, SocketChannel],
) -> None:
    before = count_open()
    with pytest.raises((pickle.PicklingError, AttributeError)):
        ends[0].put([torch.zeros(2), lambda: 1])
    assert count_open() == before
    ends[0].put("next")
    assert take(ends[1]) == "next"


def test_what_was_sent_before_an_end_is_received_after_it(
    ends: tuple[SocketChannel, SocketChannel],
) -> None:
    near, far = ends
    near.put("never read")
    far.put("first")
    far.put(torch.ones(2))
    far.close()
    assert take(near) == "first"
    assert take(near).tolist() == [1, 1]
    with pytest.raises(EOFError):
        near.receive()
    near.put("nobody is told")


def test_a_receiver_with_too_many_open_files_says_so_and_keeps_none(
    ends: tuple[SocketChannel, SocketChannel],
) -> None:
    ends[0].put([torch.zeros(1) for _ in range(40)])
    before = count_open()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 10, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            take(ends[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert count_open() == before
