"""The examples in docs/api.md run as they stand, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.api.test_answers import TRACE
from tests.unit.ingest.remains import write_run

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def train():
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (batch,) in DataLoader(TensorDataset(torch.randn(80, 8)), batch_size=4):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.torch
def test_the_examples_run_as_they_stand(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 7
    write_run(tmp_path / "home" / "runs" / "a-run")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "rank0.json").write_text(TRACE)
    (tmp_path / "page.py").write_text("\n".join(examples))
    done = subprocess.run(
        [sys.executable, "-W", "error", "page.py"],
        cwd=tmp_path,
        env={**os.environ, "FUELLINE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("<Run ")
    assert done.stdout.splitlines()[1].startswith("<Diagnosis ")
    assert "'no-such-run' is neither a folder nor a recorded run" in done.stdout
