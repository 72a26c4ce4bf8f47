"""Streams of requests, drawn and read."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

import pytest

from fuelline.plan.simulation import Arrivals, Lengths, draw_requests, read_requests, trace
from fuelline.plan.simulation.arrivals import draw_underway
from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("burstiness", [0.0, 1.0, 3.0])
def test_gaps_have_the_mean_and_the_spread_asked_for(burstiness: float) -> None:
    arrivals = Arrivals(rate_per_s=4, burstiness=burstiness)
    found = draw_requests(20_000, arrivals, Lengths(mean=10), Lengths(mean=10))
    times = [0.0, *(each.arrival_s for each in found)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    mean = statistics.mean(gaps)
    assert mean == pytest.approx(0.25, rel=0.08)
    assert statistics.pstdev(gaps) / mean == pytest.approx(burstiness, rel=0.1, abs=1e-6)


def test_lengths_vary_around_their_mean() -> None:
    found = draw_requests(
        20_000, Arrivals(rate_per_s=1), Lengths(mean=500, spread=1.0), Lengths(mean=7)
    )
    prompts = [each.prompt for each in found]
    assert statistics.mean(prompts) == pytest.approx(500, rel=0.05)
    assert statistics.pstdev(prompts) / 500 == pytest.approx(1.0, rel=0.15)
    assert {each.output for each in found} == {7}


def test_the_same_seed_gives_the_same_requests() -> None:
    def draw(seed: int) -> object:
        return draw_requests(
            50, Arrivals(rate_per_s=1), Lengths(mean=9, spread=1), Lengths(mean=9), seed
        )

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


@pytest.mark.parametrize("rate", [0.0, -1.0, 1e30])
def test_an_absurd_rate_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="must be between"):
        Arrivals(rate_per_s=rate).check()


TRACES = {
    "ours.csv": "arrival_s,prompt,output\n5.5,1024,120\n3.0,7,1\n",
    "azure.csv": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:48.5000000,1024,120\n2023-11-16 18:15:46.0000000,7,1\n"
    ),
    "mooncake.jsonl": (
        '{"timestamp": 2500, "input_length": 1024, "output_length": 120, "hash_ids": [1]}\n'
        '{"timestamp": 0, "input_length": 7, "output_length": 1, "hash_ids": []}\n'
    ),
}


@pytest.mark.parametrize("name", TRACES)
def test_public_traces_are_read_in_their_order_of_arrival(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TRACES[name])
    first, second = read_requests(path)
    assert (first.arrival_s, first.prompt, first.output) == (0.0, 7, 1)
    assert (second.arrival_s, second.prompt, second.output) == (2.5, 1024, 120)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("arrival_s,prompt,output\n1,2,x\n", "line 2 .* output is 'x'"),
        ("arrival_s,prompt\n1,2\n", "no column says how long its output"),
        ("when,prompt,output\n1,2,3\n", "no column says when"),
        ("arrival_s,prompt,output\n-1,2,3\n", "its time is '-1'"),
        ("arrival_s,prompt,output\n1,1e30,3\n", "prompt is '1e30'"),
        ("arrival_s,prompt,output\n1,2,3,4\n", "more cells"),
        ('{"timestamp": 1\n', "line 1"),
        ("arrival_s,prompt,output\n", "no requests"),
        ("arrival_s,prompt,output\n1,2," + "9" * (1 << 20), "line 2 .* 1048576 characters"),
        ("arrival_s,prompt,output\n1,2," + "9" * (1 << 18), "field larger"),
        ("", "no requests"),
    ],
)
def test_a_broken_trace_is_refused_with_its_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        read_requests(path)


def test_a_trace_of_too_many_requests_is_told_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "MOST_REQUESTS", 2)
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt,output\n1,2,3\n2,2,3\n")
    assert len(read_requests(path)) == 2
    path.write_text("arrival_s,prompt,output\n1,2,3\n2,2,3\n3,2,3\n")
    with pytest.raises(InputError, match="more than 2 lines"):
        read_requests(path)


def test_a_trace_of_too_many_bytes_is_told_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "MOST_BYTES", 1 << 20)
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\n" * ((1 << 20) + 1))
    with pytest.raises(InputError, match="more than 1 MiB"):
        read_requests(path)


def test_a_missing_trace_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the trace"):
        read_requests(tmp_path / "none.csv")


def test_requests_underway_are_evenly_far_and_mostly_long_ones() -> None:
    drawn = draw_underway(4000, Lengths(mean=100), Lengths(mean=400, spread=1.0))
    assert all(each.underway and each.output >= 1 for each in drawn)
    left = sum(each.output for each in drawn) / len(drawn)
    # Mean residual of a lognormal with spread 1: (1 + spread^2) / 2 times its mean.
    assert left == pytest.approx(400, rel=0.15)
    alike = draw_underway(4000, Lengths(mean=100), Lengths(mean=400))
    assert sum(each.output for each in alike) / 4000 == pytest.approx(200, rel=0.05)
    assert all(each.prompt + each.output == 500 for each in alike)
