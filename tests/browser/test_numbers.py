"""Of every kind of page: a number that the browser shows is the one of `--json`, rounded."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from fuelline.plan.roofline.points import place
from fuelline.report import render_page, write_comparison, write_document
from fuelline.report.plan.roofline import write_points
from fuelline.schema.foreign import encode_json
from fuelline.schema.plan.roofline import ModelPoints
from fuelline.schema.readings import Reading
from fuelline.signals.changes import compare_samples
from tests.golden.freeze import make_diagnoses
from tests.unit.api.test_answers import TRACE
from tests.unit.plan.rooflines import roofline
from tests.unit.plan.test_points import work
from tests.unit.report.pages import drawn, find
from tests.unit.report.test_comparison import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCALES = {
    "%": 0.01, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0,
    "k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "": 1.0, "x": 1.0, "USD": 1.0,
    "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "d": 86400.0,
}  # fmt: skip
ONE = re.compile(r"([-+]?)([\d,]*\.?\d+)\s*([a-zA-Z%]*)")
MILLI = re.compile(r"\bms\b")
SHOWN = """[...document.querySelectorAll('data[data-path]')].map(
  e => [e.dataset.path, e.dataset.of, e.value, e.innerText, e.closest('table')?.tHead
    ? e.closest('table').tHead.rows[0].cells[e.closest('td').cellIndex].innerText : ''])"""


def says(text: str, header: str, value: float) -> bool:
    """Whether this text is that number, rounded."""
    words = re.sub(r" \(.*?\)", "", text.removeprefix("at most "))
    found = ONE.findall(words)
    assert found, text
    told, finest = 0.0, 0.0
    of_header = 0.01 if header.startswith(("%", "MFU %")) else 1e-3 if MILLI.search(header) else 1.0
    for _, digits, unit in found:
        scale = SCALES.get(unit, 1.0) * of_header
        told += float(digits.replace(",", "")) * scale
        finest = 10.0 ** -len(digits.partition(".")[2]) * scale
    whole = 100 if words.replace(",", "").isdecimal() and abs(value) >= 1000 else 1
    return abs(told - abs(value)) <= 0.51 * finest * whole + 5e-3 * abs(value)


def check(page: Any, answer: Any, least: int) -> None:
    shown = page.evaluate(SHOWN)
    assert len(shown) >= least
    for path, whole, value, text, header in shown:
        assert float(value) == find(answer, path), path
        if whole:
            assert says(text, "%", float(value) / find(answer, whole)), (path, text, value)
        elif "/evidence/" in path:
            named = ONE.finditer(text)
            assert any(says(each[0], header, float(value)) for each in named), (path, text, value)
        else:
            assert says(text, header, float(value)), (path, text, value)


def test_of_a_comparison(show: Callable[..., Any]) -> None:
    comparison = compare_samples(run(starts_s=0.5), run(step_s=0.02), threshold=0.05)
    page = show(render_page(write_comparison(comparison), "two runs"))
    check(page, json.loads(encode_json(comparison)), 8)


def test_of_a_roofline(show: Callable[..., Any]) -> None:
    operators = [
        place(each, roofline(), 3.0, 1) for each in (work(1e9, 1e9, 0), work(1e11, 1e9, 1e9))
    ]
    found = ModelPoints(
        target="model", inputs="8", roofline=roofline(), total_s=Reading(value=3.0, unit="s"),
        traced_s=3.0, flops=2e9, moved_bytes=1e9, params=10, batch=1, points=tuple(operators),
    )  # fmt: skip
    page = show(render_page(write_points(found), "a roofline"))
    check(page, json.loads(encode_json(found)), 4)
    assert page.locator(".chart text", has_text="addmm").count() > 0


def fuelline(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fuelline", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


TRAIN = ("train", "llama-3-8b", "--chip", "h100", "--tokens", "15e12")


@pytest.mark.parametrize(
    ("words", "least"),
    [
        (("serve", "llama-3-8b", "--rate", "4", "--measured", "40", "--explain"), 25),
        (("serve", "llama-3-8b", "--chip", "h100", "--rate", "2..8", "--slo", "tpot=40ms"), 40),
        (("serve", "mixtral-8x7b", "--batch", "1..64"), 40),
        (("train", "llama-3-8b", "--chip", "h100", "--tokens", "15e12", "--chips", "1024"), 18),
        (
            ("train", "llama-3-8b", "--chip", "h100", "--tokens", "15e12", "--chips", "256..1024"),
            30,
        ),
    ],
)
def test_of_a_plan(
    show: Callable[..., Any], tmp_path: Path, words: tuple[str, ...], least: int
) -> None:
    fuelline("plan", *words, "--html", str(tmp_path / "page.html"))
    page = show((tmp_path / "page.html").read_text())
    check(page, json.loads(fuelline("plan", *words, "--json")), least)


@pytest.mark.parametrize("name", sorted(make_diagnoses()))
def test_of_a_diagnosis_and_its_evidence(show: Callable[..., Any], name: str) -> None:
    diagnosis = make_diagnoses()[name]
    page = show(render_page(write_document(diagnosis, "a run", None, drawn()), "a run"))
    stated = [each for found in diagnosis.findings[:1] for each in found.evidence if each.signal]
    check(page, json.loads(encode_json(diagnosis)), len(stated) + len(diagnosis.budget))
    assert page.locator("data[data-path*='/evidence/']").count() == len(stated)


def test_of_chips(show: Callable[..., Any], tmp_path: Path) -> None:
    words = ("plan", "chips", "llama-3-8b")
    fuelline(*words, "--html", str(tmp_path / "page.html"))
    page = show((tmp_path / "page.html").read_text())
    check(page, json.loads(fuelline(*words, "--json")), 100)


def test_of_an_imported_trace(
    show: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUELLINE_HOME", str(tmp_path / "home"))
    (tmp_path / "rank0.json").write_text(TRACE)
    fuelline("import", str(tmp_path / "rank0.json"), "--output", str(tmp_path / "run"))
    fuelline("diagnose", str(tmp_path / "run"), "--html", str(tmp_path / "page.html"))
    page = show((tmp_path / "page.html").read_text())
    check(page, json.loads(fuelline("diagnose", str(tmp_path / "run"), "--json")), 20)
