"""Laws that continuous batching cannot break, whatever comes in."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.plan.simulation import Arrivals, Lengths, Room, draw_requests, run_replica
from fuelline.schema.plan.simulated import Request

if TYPE_CHECKING:
    from fuelline.schema.plan.estimates import Slice

BASE_S, ROW_S, CACHED_S = 0.010, 0.0001, 0.000001


def step(slices: list[Slice]) -> float:
    """A step that is linear in its tokens and its cache, as a memory-bound one is."""
    rows = sum(each.count * each.new for each in slices)
    cached = sum(each.count * each.past for each in slices)
    return BASE_S + ROW_S * rows + CACHED_S * cached


ROOMY = Room(cache_tokens=1e9, most_sequences=10_000, chunk_tokens=4096)

requests = st.lists(
    st.builds(
        Request,
        st.floats(0, 20, allow_nan=False),
        st.integers(1, 600),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=40,
)
rooms = st.builds(
    lambda cache, most, chunk, chunked: Room(
        cache_tokens=cache, most_sequences=most, chunk_tokens=chunk, chunked=chunked
    ),
    st.integers(100, 3000),
    st.integers(1, 30),
    st.integers(1, 2000),
    st.booleans(),
)


@given(requests, rooms)
def test_every_request_is_served_once_or_refused(asked: list[Request], room: Room) -> None:
    run = run_replica(asked, step, room)
    ended = [*(each.request for each in run.served), *run.refused]
    assert Counter(ended) == Counter(asked)
    assert all(each.prompt + each.output > room.cache_tokens for each in run.refused)


@given(requests, rooms)
def test_time_goes_from_arrival_over_the_first_token_to_the_end(
    asked: list[Request], room: Room
) -> None:
    run = run_replica(asked, step, room)
    for each in run.served:
        assert each.request.arrival_s <= each.started_s + 1e-9
        assert each.started_s < each.first_s <= each.end_s <= run.end_s + 1e-9
        if each.request.output > 1:
            assert each.end_s > each.first_s


@given(requests, rooms)
def test_present_time_is_the_sum_of_all_stays(asked: list[Request], room: Room) -> None:
    """Little's law without its division: both sides are counted by different code."""
    run = run_replica(asked, step, room)
    stays = sum(each.end_s - each.request.arrival_s for each in run.served)
    assert run.present_s == pytest.approx(stays, rel=1e-6, abs=1e-6)


@given(requests, rooms)
def test_no_step_holds_more_than_the_room_allows(asked: list[Request], room: Room) -> None:
    def watched(slices: list[Slice]) -> float:
        reading = sum(each.new for each in slices if each.past == 0 or each.new > 1)
        held = sum(each.count * each.past for each in slices)
        assert held <= room.cache_tokens + 1e-6
        assert sum(each.count for each in slices) <= room.most_sequences
        assert reading <= room.chunk_tokens
        return step(slices)

    run_replica(asked, watched, room)


def test_a_prompt_that_is_being_read_gives_way_to_the_last_that_decodes() -> None:
    """Admitted with a token to spare, it is read so slowly that the other grows into its room."""
    held: list[float] = []

    def watched(slices: list[Slice]) -> float:
        held.append(sum(each.count * each.past for each in slices))
        return step(slices)

    asked = [Request(0.0, 380, 60), Request(2.1, 30, 2)]
    room = Room(cache_tokens=440, most_sequences=30, chunk_tokens=2, chunked=True)
    run = run_replica(asked, watched, room)
    assert max(held) <= room.cache_tokens
    assert {each.request: each.preempted for each in run.served} == {asked[0]: 0, asked[1]: 1}


def test_a_request_alone_takes_its_prefill_and_its_decode_steps() -> None:
    run = run_replica([Request(3.0, 1000, 101)], step, ROOMY)
    (served,) = run.served
    assert served.ttft_s == pytest.approx(BASE_S + 1000 * ROW_S)
    mean_context = 1000 + (100 - 1) / 2
    assert served.tpot_s == pytest.approx(BASE_S + ROW_S + CACHED_S * mean_context)


def test_a_light_load_feels_like_an_empty_replica() -> None:
    alone = run_replica([Request(0.0, 200, 20)], step, ROOMY).served[0]
    even = Arrivals(rate_per_s=1, burstiness=0)
    stream = draw_requests(50, even, Lengths(mean=200), Lengths(mean=20))
    run = run_replica(stream, step, ROOMY)
    for each in run.served:
        assert each.ttft_s == pytest.approx(alone.ttft_s)
        assert each.tpot_s == pytest.approx(alone.tpot_s)


def test_latency_never_falls_when_the_same_requests_come_faster() -> None:
    """The same lengths in the same order, gaps shrunk: nobody can gain on average."""
    base = draw_requests(
        300, Arrivals(rate_per_s=1), Lengths(mean=300, spread=1), Lengths(mean=40, spread=1)
    )
    means = []
    for rate in (0.05, 0.5, 2, 8, 32):
        faster = [Request(each.arrival_s / rate, each.prompt, each.output) for each in base]
        run = run_replica(faster, step, Room(cache_tokens=20_000, most_sequences=64))
        stays = [each.end_s - each.request.arrival_s for each in run.served]
        means.append(sum(stays) / len(stays))
    assert means == sorted(means)


def test_a_small_cache_preempts_and_still_serves_all() -> None:
    asked = [Request(0.0, 100, 200) for _ in range(10)]
    tight = run_replica(asked, step, Room(cache_tokens=1200, most_sequences=64))
    roomy = run_replica(asked, step, ROOMY)
    assert len(tight.served) == 10
    assert sum(each.preempted for each in tight.served) > 0
    assert sum(each.preempted for each in roomy.served) == 0
    assert tight.end_s > roomy.end_s


def test_chunks_keep_tokens_flowing_while_a_long_prompt_is_read() -> None:
    asked = [Request(0.0, 10, 200), Request(0.5, 8000, 2)]
    smooth = run_replica(asked, step, Room(cache_tokens=1e6, most_sequences=8, chunk_tokens=500))
    whole = run_replica(asked, step, Room(cache_tokens=1e6, most_sequences=8, chunk_tokens=8192))
    first = {room: _ttft_of_long(run) for room, run in (("smooth", smooth), ("whole", whole))}
    assert first["smooth"] > first["whole"]


def _ttft_of_long(run: object) -> float:
    return next(each.ttft_s for each in run.served if each.request.prompt == 8000)  # type: ignore[attr-defined]


def test_a_cache_from_elsewhere_is_not_read_again() -> None:
    handed = Request(1.0, 5000, 11, first_s=0.9, asked_s=0.0)
    (served,) = run_replica([handed], step, ROOMY).served
    assert served.ttft_s == pytest.approx(0.9)
    assert served.end_s == pytest.approx(1.0 + 10 * (BASE_S + ROW_S + CACHED_S * 5004.5))
