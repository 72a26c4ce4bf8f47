"""`fuelline_ci` in somebody's own pytest: a loader that keeps up, one that does not, no change."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.integration.serving import Home

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.torch]
CHECKS = """
def test_fed(fuelline_ci):
    told = fuelline_ci.feed("job.py", "80000", step="20ms", at_least=50, seconds=2)
    assert told["is_fed"] is not None

def test_starved(fuelline_ci):
    fuelline_ci.feed("slow.py", "80000", step="1ms", at_least=90, seconds=2)

def test_pace(fuelline_ci):
    fuelline_ci.compare("job", "job", threshold=20)

def test_no_such_run(fuelline_ci):
    fuelline_ci.compare("nothing", "job", threshold=20)
"""


def test_checks_pass_fail_and_refuse_with_words_and_numbers(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.train(60).wait(120) == 0
    slow = (tmp_path / "job.py").read_text().replace("TensorDataset(", "Slow(", 1)
    slow = slow.replace(
        "model =",
        "class Slow(TensorDataset):\n"
        "    def __getitem__(self, at):\n"
        "        time.sleep(0.002)\n"
        "        return super().__getitem__(at)\n\nmodel =",
    )
    (tmp_path / "slow.py").write_text(
        slow.replace("in DataLoader(TensorDataset", "in DataLoader(Slow")
    )
    (tmp_path / "test_ci.py").write_text(CHECKS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "fuelline.tools.pytest_plugin",
         "--junitxml=out.xml", "test_ci.py"],
        cwd=tmp_path,
        env={**home.environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    cases = {
        each.get("name"): each for each in ElementTree.parse(tmp_path / "out.xml").iter("testcase")
    }
    assert done.returncode == 1, done.stdout
    assert cases["test_fed"].find("failure") is None
    assert 0.5 <= float(found(cases["test_fed"])) <= 1
    message = cases["test_starved"].find("failure").get("message")
    share, verdict = message.splitlines()[:2]
    assert "less than 90 %" in share
    assert "waiting" in verdict or "Cannot tell" in verdict  # few looks, on a busy machine
    assert cases["test_pace"].find("failure") is None  # passed, or skipped as one that cannot tell
    assert "neither a folder nor a recorded run" in cases["test_no_such_run"].find("failure").get(
        "message"
    )


def found(case: ElementTree.Element) -> str:
    (named,) = case.iter("property")
    assert named.get("name") == "fuelline_utilisation"
    return named.get("value") or ""
