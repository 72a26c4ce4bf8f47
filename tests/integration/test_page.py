"""A real job's page: the numbers of `diagnose --json`, drawn by a browser where there is one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.report.pages import Page, find

pytestmark = [pytest.mark.integration, pytest.mark.torch]

JOB = """
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (batch,) in DataLoader(TensorDataset(torch.randn(400, 8)), batch_size=8, num_workers=1):
        time.sleep(0.004)
        model(batch).mean().backward()
        optimizer.step()
"""
CHROMIUM = Path("/usr/bin/chromium")


def fuelline(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fuelline", *words], capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and the page that was written at its end."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "job.py").write_text(JOB)
    run_dir, page = folder / "run", folder / "report.html"
    job = str(folder / "job.py")
    said = fuelline("run", "--quiet", "--run-dir", str(run_dir), "--html", str(page), job)
    assert f"page written to {page}" in said
    return run_dir, page


def test_the_page_of_a_run_has_the_numbers_of_its_json(recorded: tuple[Path, Path]) -> None:
    run_dir, page = recorded
    answer = json.loads(fuelline("diagnose", str(run_dir), "--json"))
    parsed = Page(page.read_text())
    told = [each.attributes for each in parsed.all("data") if "data-path" in each.attributes]
    assert len(told) >= 4
    for each in told:
        assert find(answer, each["data-path"]) == float(each["value"]), each
    assert answer["verdict"]["sentence"] in parsed.all("h1")[0].text


def test_the_picture_covers_all_steps_and_its_parts_are_the_budget(
    recorded: tuple[Path, Path],
) -> None:
    run_dir, page = recorded
    answer = json.loads(fuelline("diagnose", str(run_dir), "--json"))
    stories = [
        json.loads(each.text)
        for each in Page(page.read_text()).all("script")
        if each.attributes.get("type") == "application/json"
    ]
    (picture,) = [each["picture"] for each in stories if "picture" in each]
    finest = picture["levels"][0]
    assert sum(finest["steps"]) == answer["steps"]["count"]
    for part in answer["budget"]:
        shown = sum(finest["parts_us"].get(part["part"], [0])) / 1e6
        assert shown == pytest.approx(part["seconds"], abs=1e-3), part


def test_a_browser_draws_it_without_a_network(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}")
    done = subprocess.run(
        [
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--disable-quic", f"--user-data-dir={tmp_path}", "--dump-dom", recorded[1].as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    drawn = Page(done.stdout.replace("</input>", ""))
    (shown,) = [each.text for each in drawn.all("span") if each.attributes.get("class") == "shown"]
    assert "the whole run" in shown
    assert len(drawn.all("canvas")) == 1
    assert len(drawn.all("input")) >= 4
    assert any("as recorded" in each.text for each in drawn.all("output"))
