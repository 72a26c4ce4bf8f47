"""Published traces carry tokens in names and metadata; an imported run does not."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest import find_sources, import_trace, load_trace
from fuelline.ingest.name_book import NameBook
from tests.unit.ingest.foreign.nsight_maker import NVTX, OWNER, make
from tests.unit.ingest.kineto.texts import RUN, document, kernel, mark

if TYPE_CHECKING:
    from pathlib import Path

KEY = "Xq7Lr2Vw9Kp4Zt8B"


def everything(run: Path) -> str:
    """All names and contents of a run, tables unpacked."""
    texts = []
    for path in run.rglob("*"):
        texts += [path.name, path.read_bytes().decode("latin-1")]
        if path.suffix == ".parquet":
            texts.append(pl.read_parquet(path.read_bytes()).write_ndjson())
    return "\n".join(texts)


def test_names_host_and_metadata_of_a_kineto_trace_are_redacted(tmp_path: Path) -> None:
    events = [kernel(1, 2), mark(1, 5, f"fetch https://b/?sig={KEY}"), mark(2, 1, "get_token")]
    said = {"host_name": f"me:{KEY}@node", "distributedInfo": {"rank": 0, "token": KEY}}
    path = tmp_path / f"ghp_{KEY}aB3.json"
    path.write_text(json.dumps(document(events, **said)))
    import_trace(find_sources([path]), tmp_path / "run", RUN)
    text = everything(tmp_path / "run")
    assert KEY not in text
    assert "get_token" in text
    trace = load_trace(tmp_path / "run")
    assert trace.facts.ranks[0].host == "me:***@node"
    assert "fetch https://b/?sig=***" in trace.texts(0).values()


def test_ranges_and_messages_of_an_nsight_report_are_redacted(tmp_path: Path) -> None:
    path = make(
        tmp_path / "report.sqlite",
        NVTX_EVENTS=(NVTX, [(50, 500, 59, f"push --token {KEY}", OWNER + 5, None)]),
        TARGET_INFO_SYSTEM_ENV=(
            "name TEXT, value TEXT",
            [("Hostname", f"https://me:{KEY}@n"), ("Environment", f"TOKEN={KEY}")],
        ),
        DIAGNOSTIC_EVENT=("timestamp INTEGER, text TEXT", [(1, f"dropped: password={KEY}")]),
    )
    import_trace(find_sources([path]), tmp_path / "run", RUN)
    assert KEY not in everything(tmp_path / "run")


def test_an_imported_run_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document([kernel(1, 2)])))
    import_trace(find_sources([path]), tmp_path / "run", RUN)
    for each in (tmp_path / "run", *(tmp_path / "run").iterdir()):
        assert not stat.S_IMODE(each.stat().st_mode) & 0o077


def test_numbers_of_names_stay_when_a_secret_is_taken_out() -> None:
    names = NameBook()
    texts = ["gemm", f"token={KEY}", "aten::mm", f"token={KEY}2"]
    assert [names.number(text) for text in texts] == [0, 1, 2, 3]
    assert names.frame().rows() == [
        (0, "gemm"),
        (1, "token=***"),
        (2, "aten::mm"),
        (3, "token=***"),
    ]
