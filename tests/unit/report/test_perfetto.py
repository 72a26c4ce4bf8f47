from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.report.perfetto.track import Instants, Spans, Values
from fuelline.report.perfetto.writer import SIGN, write_tracks
from fuelline.report.renderers.whole_file import write_named
from fuelline.schema.errors import RefusedError

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.report.perfetto.track import Track


def written(*tracks: Track) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    count = write_tracks(tracks, stream, "a title")
    events = json.loads(stream.getvalue())["traceEvents"]
    assert len(events) == count
    return list(events)


def spans(*rows: tuple[int, int], name: str = "t", **details: list[object]) -> Spans:
    frame = pl.DataFrame(
        {
            "start_ns": [start for start, _ in rows],
            "end_ns": [end for _, end in rows],
            "name": [f"{start}-{end}" for start, end in rows],
            **details,
        }
    )
    return Spans(process="p", name=name, frame=frame)


def check_nesting(events: list[dict[str, Any]]) -> None:
    """On every line, in the order of the file: starts ascend, and spans nest or lie apart."""
    lines: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            line = lines.setdefault((event["pid"], event["tid"]), [])
            line.append((event["ts"], event["ts"] + event["dur"]))
    for line in lines.values():
        open_ends: list[float] = []
        assert [start for start, _ in line] == sorted(start for start, _ in line)
        for start, end in line:
            while open_ends and open_ends[-1] <= start + 1e-9:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 1e-9
            open_ends.append(end)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40))
def test_spans_on_a_line_always_nest(rows: list[tuple[int, int]]) -> None:
    events = written(spans(*((start, start + length) for start, length in rows)))
    check_nesting(events)
    assert sum(event["ph"] == "X" for event in events) == len(rows)


def test_overlaps_get_lines_of_their_own() -> None:
    events = written(spans((0, 10), (5, 15), (6, 9)))
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == ["t", "t (2)"]
    check_nesting(events)


def test_times_are_exact_to_the_nanosecond_however_late() -> None:
    stream = io.BytesIO()
    write_tracks([spans((1_700_000_000_000_000_001, 1_700_000_000_000_000_003))], stream, "")
    assert b'"ts":1700000000000000.001,"dur":0.002' in stream.getvalue()


def test_details_are_shown_and_missing_ones_are_not() -> None:
    (event,) = (
        event for event in written(spans((0, 1), bytes=[4096], path=[None])) if event["ph"] == "X"
    )
    assert event["args"] == {"bytes": 4096}


@pytest.mark.parametrize("name", ["</script>", "\x1b[31m\0", "\ud800", "x" * 1_000_000, '"}],'])
def test_hostile_names_are_text(name: str) -> None:
    frame = pl.DataFrame(
        {"start_ns": [0], "end_ns": [1], "name": [name.encode("utf-8", "replace").decode()]}
    )
    (event,) = (
        event
        for event in written(Spans(process=name, name=name, frame=frame))
        if event["ph"] == "X"
    )
    assert len(event["name"]) <= 2000


def test_instants_and_values_are_written() -> None:
    frame = pl.DataFrame({"at_ns": [5], "name": ["now"]})
    numbers = pl.DataFrame({"at_ns": [1, 2], "value": [0.5, 1.0]})
    events = written(
        Instants(process="p", name="i", frame=frame), Values(process="p", name="v", frame=numbers)
    )
    kinds = [event["ph"] for event in events if event["ph"] != "M"]
    assert kinds == ["i", "C", "C"]


def test_an_empty_track_leaves_no_line() -> None:
    assert written(spans()) == []


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    before = SIGN.decode() + "0.1: run"
    path.write_text(before)

    def fail() -> None:
        with write_named(path, SIGN) as stream:
            stream.write(b"half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(RefusedError, match="cannot be written"),
        write_named(tmp_path / "no" / "x", SIGN),
    ):
        pass
