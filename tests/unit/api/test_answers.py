"""Functions answer as commands do, objects say what they are, mistakes are told in a sentence."""

from __future__ import annotations

import json
import re
import traceback
from typing import TYPE_CHECKING

import msgspec
import polars as pl
import pytest

import fuelline
from fuelline.cli import main
from fuelline.schema.diagnosis.forecasts import Forecast, WhatIf
from fuelline.schema.readings import Missing, Reading
from tests.golden.freeze import make_diagnoses
from tests.unit.ingest.remains import training_records, write_run

if TYPE_CHECKING:
    from pathlib import Path

TRACE = json.dumps(
    {
        "schemaVersion": 1,
        "traceEvents": [
            {
                "ph": "X", "cat": "kernel", "name": "gemm", "ts": 100 * at, "dur": 60,
                "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7},
            }
            for at in range(20)
        ],
    }
)  # fmt: skip


@pytest.fixture
def run(store: Path) -> fuelline.Run:
    write_run(store / "runs" / "a-run")
    return fuelline.load("a-run")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "rank0.json"
    path.write_text(TRACE)
    return path


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> object:
    assert main([*words, "--json"]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def as_json(answer: object) -> object:
    return json.loads(msgspec.json.encode(answer))


def test_a_diagnosis_is_that_of_the_command(
    run: fuelline.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ask(capsys, "diagnose", "a-run", "--price", "2.5")
    assert as_json(fuelline.diagnose(run, usd_per_hour=2.5)) == said
    assert as_json(fuelline.diagnose(None, usd_per_hour=2.5)) == said
    assert as_json(run.diagnose(usd_per_hour=2.5)) == said


def test_a_forecast_is_that_of_the_command(
    run: fuelline.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--workers", "8", "--pin", "on", "--storage", "2x", "--chip", "B200", "--alone")
    said = ask(capsys, "whatif", "a-run", *words, "--rarer", "checkpoint=10", "--transform", "2x")
    asked = fuelline.whatif(
        run, workers=8, pin=True, storage="2x", chip="b200", alone=True,
        rarer={"checkpoint": 10}, transform=2,
    )  # fmt: skip
    assert [as_json(asked)] == said["forecasts"]  # type: ignore[index]
    assert [as_json(each) for each in run.suggest()] == ask(capsys, "whatif", "a-run")["forecasts"]  # type: ignore[index]


def test_a_comparison_is_that_of_the_command(
    run: fuelline.Run, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(store / "runs" / "b-run")
    said = ask(capsys, "compare", "a-run", "b-run", "--threshold", "5")
    assert as_json(fuelline.compare("a-run", "b-run", threshold=0.05)) == said
    assert as_json(run.compare("b-run", threshold=0.05)) == said


def test_traces_are_imported(trace: Path, store: Path, tmp_path: Path) -> None:
    imported = fuelline.import_traces(trace)
    assert imported.path.parent == store / "runs"
    assert imported.kind == "trace"
    assert imported.tables["device"].columns[0] == "rank"
    assert imported.tables["device"].height == 20
    assert imported.tables["names"]["text"].to_list() == ["gemm"]
    named = fuelline.import_traces([trace], output=tmp_path / "named")
    assert named.path == tmp_path / "named"
    assert named.diagnose().trace is not None
    assert "imported" in repr(named)


def test_a_run_has_its_facts_and_tables(run: fuelline.Run) -> None:
    assert run.facts.exit_code == 0
    assert run.kind == "recorded"
    assert set(run.tables) >= {"waits", "fetches", "host", "stacks"}
    assert "events" not in run.tables
    assert all(run.tables[name].columns[0] == "host" for name in run.tables)
    waits = run.tables["waits"]
    assert waits.height == sum(1 for each in training_records() if each[-2] == 1)
    for name in run.tables:
        frame = run.tables[name]
        numbers = frame.select(each for each in frame.columns if frame.schema[each].is_integer())
        assert not (numbers < 0).select(pl.any_horizontal(pl.all().any())).item(), name
    assert fuelline.load(run) == run
    assert repr(run).startswith("<Run a-run: recorded, ")
    assert "waits, " in repr(run.tables)


def test_objects_say_what_matters() -> None:
    made = make_diagnoses()
    assert repr(made["starved"]).startswith(f"<Diagnosis {made['starved'].verdict.code} ")
    assert " %; " in repr(made["starved"])
    assert repr(made["healthy"]).startswith("<Diagnosis CP400 healthy ")
    assert repr(made["cannot_tell"]).startswith("<Diagnosis cannot tell (")
    finding = made["starved"].findings[0]
    assert repr(finding).startswith(f"<Finding {finding.code} {finding.name.replace('-', ' ')} ")
    speedup = Reading(value=1.73, unit="x", low=1.49, high=2.01)
    forecast = Forecast(
        question=WhatIf(workers=2), words="2 workers", speedup=speedup, limit_words="cores"
    )
    assert repr(forecast) == "<Forecast 2 workers: 1.7x (1.5-2.0), then cores>"
    sure = msgspec.structs.replace(forecast, speedup=Reading(value=1.73, unit="x"))
    assert repr(sure) == "<Forecast 2 workers: 1.7x, then cores>"
    unknown = msgspec.structs.replace(forecast, speedup=Missing(reason="few batches"))
    assert repr(unknown) == "<Forecast 2 workers: cannot tell (few batches)>"


MISTAKES = {
    "no such run": lambda: fuelline.load("nowhere"),
    "no run": lambda: fuelline.load("/"),
    "no such table": lambda: fuelline.load("a-run").tables["events"],
    "no change": lambda: fuelline.whatif("a-run"),
    "too many workers": lambda: fuelline.whatif("a-run", workers=10_000),
    "half a worker": lambda: fuelline.whatif("a-run", workers=1.5),  # type: ignore[arg-type]
    "a word for workers": lambda: fuelline.whatif("a-run", workers="8"),  # type: ignore[arg-type]
    "no such storage": lambda: fuelline.whatif("a-run", storage="floppy"),
    "no such probe": lambda: fuelline.whatif("a-run", storage="nowhere.json"),
    "no such chip": lambda: fuelline.whatif("a-run", chip="Q900"),
    "no such pause": lambda: fuelline.whatif("a-run", rarer={"lunch": 2}),
    "prefetch without workers": lambda: fuelline.whatif("a-run", workers=0, prefetch=2),
    "no price": lambda: fuelline.diagnose("a-run", usd_per_hour=-1),
    "no file": lambda: fuelline.import_traces([]),
    "no such file": lambda: fuelline.import_traces("/nowhere.json"),
    "no trace": lambda: fuelline.import_traces(__file__),
    "no such model": lambda: fuelline.plan.serve("no-such-model"),
    "three heads": lambda: fuelline.plan.serve("llama-3.1-8b", chip="h100", tp=3),
    "two ranges": lambda: fuelline.plan.train("llama-3.1-8b", chip="h100", tp=[1, 2], pp=[1, 2]),
    "odd bits": lambda: fuelline.plan.serve("llama-3.1-8b", kv_bits=7),
    "no arrivals": lambda: fuelline.plan.serve("llama-3.1-8b", arrivals="never"),  # type: ignore[arg-type]
    "no recompute": lambda: fuelline.plan.train("llama-3.1-8b", chip="h100", recompute="half"),  # type: ignore[arg-type]
    "a word for a number": lambda: fuelline.plan.train("llama-3.1-8b", chip="h100", chips="8"),
}


@pytest.mark.parametrize("what", MISTAKES)
@pytest.mark.usefixtures("run")
def test_a_mistake_is_told_without_the_depths(what: str) -> None:
    with pytest.raises(fuelline.FuellineError) as caught:
        MISTAKES[what]()
    words = str(caught.value)
    assert words.rstrip().endswith((".", "?"))
    assert not re.search(r"--(tp|pp|kv|workers|prefetch|chips?)\b", words), "Python's own words"
    frames = traceback.extract_tb(caught.value.__traceback__)
    ours = [frame for frame in frames if "/src/fuelline/" in frame.filename]
    assert len(ours) <= 2, "a short traceback"


def test_a_damaged_run_is_told(run: fuelline.Run) -> None:
    run.diagnose()  # compacts it
    table = next(run.path.glob("events.parquet"))
    table.write_bytes(table.read_bytes()[:-20])
    with pytest.raises(fuelline.DamagedRecordingError):
        run.diagnose()
