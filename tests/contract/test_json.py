"""`diagnose --json` is a contract: its schema in the docs is the one that is encoded."""

import json
from pathlib import Path

import msgspec
import pytest
from docs.generate import generate

from fuelline.schema.diagnosis.findings import DIAGNOSIS_VERSION, Diagnosis
from tests.golden.freeze import make_diagnoses

ROOT = Path(__file__).parents[2]
PROMISED = {
    "verdict": {"code", "stage", "limit", "share_of_wall", "sentence"},
    "budget": {"part", "seconds", "share"},
    "findings": {"code", "stage", "limit", "lost_seconds", "lost_usd", "evidence", "remedies"},
    "steps": {"count", "mean", "p50", "p95"},
    "blindspots": {"what", "why", "forbids"},
    "devices": {"device", "name", "uuid", "pids", "seconds", "ladder", "rungs"},
}
"""Keys that scripts may rely on in version 1."""


def test_the_schema_in_the_docs_is_the_one_that_is_encoded() -> None:
    frozen = json.loads((ROOT / "docs" / "diagnosis.schema.json").read_text())
    assert frozen == msgspec.json.schema(Diagnosis), "run `make docs` and read the diff"


@pytest.mark.parametrize("path", generate(), ids=lambda path: path.name)
def test_generated_pages_are_up_to_date(path: Path) -> None:
    assert path.read_text() == generate()[path], "run `make docs` and read the diff"


@pytest.mark.parametrize("name", ["starved", "throttled", "healthy", "cannot_tell"])
def test_every_promised_key_is_there_even_when_it_is_null(name: str) -> None:
    answer = json.loads(msgspec.json.encode(make_diagnoses()[name]))
    assert answer["schema_version"] == DIAGNOSIS_VERSION == 1
    for key, promised in PROMISED.items():
        entries = answer[key] if isinstance(answer[key], list) else [answer[key]]
        for entry in entries:
            assert promised <= entry.keys()


def test_a_null_verdict_has_a_reason_and_a_named_one_has_none() -> None:
    for diagnosis in make_diagnoses().values():
        assert (diagnosis.verdict.code is None) == (diagnosis.verdict.reason is not None)


def test_docs_name_every_key_of_the_answer() -> None:
    page = (ROOT / "docs" / "json.md").read_text()
    for key in Diagnosis.__struct_fields__:
        assert f"`{key}`" in page
