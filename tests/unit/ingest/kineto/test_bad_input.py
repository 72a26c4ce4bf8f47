"""Bad files: a clear refusal with file and byte, no crash, and nothing left behind."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
import zstandard

from fuelline.cli import main
from fuelline.ingest import load_trace, unpack
from fuelline.ingest.kineto import split
from fuelline.schema.errors import InputError
from fuelline.signals.traced import measure_trace
from tests.unit.ingest.kineto.texts import call, document, kernel, lay_out, load, op, write

FOUND = Path(__file__).with_name("found")
"""Inputs that fuzzing found to crash or to be taken for whole; each must be refused or read."""
EVENTS = [op(0, 9), call(1, 2, 1), kernel(4, 3, 1), kernel(8, 2, 2)] * 3
TEXT = lay_out(EVENTS, "kineto", ',\n  "traceName": "x",\n  "displayTimeUnit": "ms"\n')


def refuse(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        load(tmp_path, path)
    assert str(path) in str(caught.value)
    assert "byte" in str(caught.value)
    assert "Nothing was imported" in str(caught.value)
    assert not list(tmp_path.glob("run*")), "a partial run was left behind"
    assert not list(tmp_path.glob(".run*")), "a draft was left behind"
    return str(caught.value)


@pytest.mark.parametrize("cut", [*range(1, 60, 11), *range(60, len(TEXT) - 2, 97), len(TEXT) - 3])
def test_a_file_that_was_cut_at_any_byte_is_refused(tmp_path: Path, cut: int) -> None:
    refuse(tmp_path, TEXT[:cut])


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_file_that_was_cut_is_refused(tmp_path: Path, pack: Any) -> None:
    packed = pack(TEXT)
    for cut in range(8, len(packed) - 1, 61):
        refuse(tmp_path, packed[:cut])


def test_what_there_is_of_a_cut_file_is_read_if_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_bytes(TEXT[: len(TEXT) // 2])
    trace = load(tmp_path, path, partial=True)
    assert 0 < trace.table("device", 0).height < 6
    assert [each.code for each in trace.facts.quality] == ["truncated"]
    assert f"byte {len(TEXT) // 2}" in trace.facts.quality[0].problem


def test_bits_that_flipped_never_crash(tmp_path: Path) -> None:
    rng = random.Random(4)
    for number in range(60):
        data = bytearray(TEXT)
        for _ in range(rng.choice((1, 1, 3))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path = tmp_path / f"flipped{number}"
        path.write_bytes(bytes(data))
        try:
            measure_trace(load(tmp_path, path))
        except InputError as refused:
            assert "byte" in str(refused)  # noqa: PT017 - both outcomes are allowed


def test_flipped_bits_of_packed_data_are_noticed(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT)
    rng = random.Random(5)
    for _ in range(15):
        data = bytearray(packed)
        data[rng.randrange(10, len(data))] ^= 1 << rng.randrange(8)
        refuse(tmp_path, bytes(data))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
        (bytes(range(256)) * 40, "begins with"),
        (b'{"a": 1}', "begins with"),
        (b'{"schemaVersion": 1, "events": []}', "no array"),
        (b'{"traceEvents": 7}', "no array"),
        (b'{"traceEvents": ["a", 1]}', "not a trace"),
        (b'{"traceEvents": [' + b"[" * 5000, "byte"),
        (b'{"traceEvents": [{"ph": "X", "ts": {', "cut short"),
    ],
)
def test_what_is_no_trace_is_told_what_it_looks_like(
    tmp_path: Path, data: bytes, words: str
) -> None:
    assert words in refuse(tmp_path, data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("ts", value) for value in ("noon", None, 1e300, [1], "nan", "-Infinity")),
        *(("dur", value) for value in ("long", 1e300, "nan", "Infinity")),
    ],
)
def test_a_time_that_is_none_is_refused(tmp_path: Path, field: str, value: object) -> None:
    refuse(tmp_path, json.dumps(document([*EVENTS, kernel(9, 1) | {field: value}])).encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"name": None},
        {"name": 7},
        {"args": [1, 2]},
        {"args": {"correlation": {"a": 1}, "grid": {"x": 1}, "device": 10**40, "bytes": "many"}},
        {"pid": {}, "tid": [], "args": {}},
        {"cat": 5},
        {"args": {"grid": [-1, 0, 10**30], "block": [], "registers per thread": 1e99}},
    ],
)
def test_other_fields_of_a_wrong_type_count_as_absent(tmp_path: Path, changes: Any) -> None:
    trace = load(tmp_path, write(tmp_path / "odd", [*EVENTS, kernel(90, 1) | changes]))
    assert trace.table("device", 0).height + trace.table("host", 0).height == 13
    measure_trace(trace)


def test_a_bomb_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack, "_BOMB_BYTES", 2**20)
    for text in (b" " * 2**23, b'{"traceEvents": [' + b" " * 2**23, TEXT + b"\n" * 2**23):
        for packed in (gzip.compress(text), zstandard.compress(text)):
            assert "bomb" in refuse(tmp_path, packed) or not text.strip()


def test_an_event_without_end_is_refused_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuelline.ingest.kineto.split.MOST_EVENT_BYTES", 2**20)
    monkeypatch.setattr("fuelline.ingest.kineto.split.PIECE_BYTES", 2**16)
    endless = b'{"traceEvents": [{"ph": "X", "name": "' + b"a" * 2**22
    assert "does not end" in refuse(tmp_path, endless + b'"}]}')


HOSTILE = ("[red]markup[/]", "\x1b[2J\x07\u202e", "a" * 2**20, "", "\U0001f600", "../../etc/passwd")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_shown_and_do_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    events = [op(0, 50, name), call(45, 2, 1), kernel(0, 2, 0, name), kernel(60, 30, 1, name)]
    path = write(tmp_path / "hostile.json", events)
    assert main(["import", str(path), "-o", str(tmp_path / "run")]) == 0
    assert main(["diagnose", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown
    assert "\x07" not in shown
    lines = [line for line in shown.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 80
    longest = max(len(text) for text in load_trace(tmp_path / "run").texts(0).values())
    assert longest < 17_000


def test_overlapping_steps_are_taken_as_they_are(tmp_path: Path) -> None:
    steps = [op(n * 10, 25, f"ProfilerStep#{n}") for n in range(4)]
    trace = load(tmp_path, write(tmp_path / "steps", [*steps, *EVENTS]))
    assert measure_trace(trace).facts.steps.count == 4


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json", EVENTS)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert main(["import", str(path), "-o", str(tmp_path / "mine")]) == 3
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_one_bad_rank_of_many_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", EVENTS)
    (tmp_path / "rank1.json").write_bytes(TEXT[:900])
    paths = [str(tmp_path / f"rank{n}.json") for n in (0, 1)]
    assert main(["import", *paths, "-o", str(tmp_path / "run")]) == 3
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("path", sorted(FOUND.glob("*")), ids=lambda path: path.name)
def test_what_fuzzing_found_is_refused_or_read(tmp_path: Path, path: Path) -> None:
    try:
        measure_trace(load(tmp_path, path))
    except InputError as refused:
        assert "byte" in str(refused)  # noqa: PT017 - both outcomes are allowed


@pytest.mark.parametrize("ts", ["nan", '"soon"', "null", "[1]", "1e400", "9999999999999999.5"])
def test_a_time_that_is_none_among_exact_ones_is_refused(tmp_path: Path, ts: str) -> None:
    """Found by fuzzing: what was compared with a decimal that is no number ended in a traceback."""
    text = lay_out([kernel(1, 2), kernel(3, 4)], "spaced")
    exact = text.replace(b'"ts": 1,', b'"ts": 1712195495519689.047,')
    path = tmp_path / "trace"
    path.write_bytes(exact.replace(b'"ts": 3,', f'"ts": {ts},'.encode()))
    with pytest.raises(InputError, match="byte"):
        load(tmp_path, path)


def test_a_number_out_of_range_that_nobody_asks_for_is_passed_over(tmp_path: Path) -> None:
    """Found by fuzzing: whether it was refused depended on the events beside it."""
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 7, "pid": 0, "tid": 0}
    meta = {"ph": "M", "name": "process_name", "ts": 7, "args": {"name": "python"}}
    text = lay_out([flow, kernel(1, 2), meta], "spaced").replace(b'"ts": 7', b'"ts": 1e400')
    path = tmp_path / "trace"
    path.write_bytes(text)
    assert load(tmp_path, path).table("device", 0).height == 1


def test_a_string_of_quotes_that_does_not_end_is_refused_without_delay(tmp_path: Path) -> None:
    """Looking for its end once for each quote would take hours for these two megabytes."""
    head = b'{"traceEvents": [{"ph": "X", "name": "'
    assert "cut short" in refuse(tmp_path, head + rb"\"" * 1_000_000)


def test_brackets_in_strings_are_no_structure() -> None:
    text = rb'{"a": "}]\"}", "b": [1]}, {"c": "]}'
    assert split.find_last_event_end(text) == text.index(b", {")
