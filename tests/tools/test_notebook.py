"""A real kernel: a cell recorded by `%%fuelline`, and a diagnosis that shows its first screen."""

from __future__ import annotations

import ast
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

nbclient = pytest.importorskip("nbclient", reason="`make tools` has it")
nbformat = pytest.importorskip("nbformat", reason="`make tools` has it")

TRAIN = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(torch.randn(480, 8)), batch_size=8):
    time.sleep(0.02)
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
"""


def run(
    *cells: str, home: Path, monkeypatch: pytest.MonkeyPatch, goes_on: bool = False
) -> list[list[dict[str, Any]]]:
    """The outputs of each cell."""
    monkeypatch.setenv("FUELLINE_HOME", str(home))
    monkeypatch.setenv("IPYTHONDIR", str(home / "ipython"))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(book, timeout=120, kernel_name="python3", allow_errors=goes_on)
    client.execute()
    return [cell.outputs for cell in book.cells]


def test_a_cell_is_recorded_and_shows_its_verdict_and_nothing_stays(tmp_path, monkeypatch) -> None:
    outputs = run(
        "import os\nbefore = set(globals()) | {'before'}",
        "%load_ext fuelline",
        "%%fuelline my training" + TRAIN,
        "import fuelline\nnew = set(globals()) - before - {'fuelline'}\n"
        "print(sorted(name for name in new if not name.startswith('_')))\n"
        "print([name for name in os.environ if 'FUELLINE' in name])\n"
        "print(Out)\n"
        "print(torch.optim.SGD.step.__module__, DataLoader.__iter__.__module__)",
        "fuelline.diagnose('my_training')",
        "fuelline.diagnose('my_training')._repr_html_()[:7]",
        "%unload_ext fuelline",
        home=tmp_path,
        monkeypatch=monkeypatch,
    )
    (shown,) = [each["data"] for each in outputs[2] if each["output_type"] == "display_data"]
    page = unescape(shown["text/html"])
    assert page.startswith('<iframe sandbox=""')
    assert "<h1" in page
    assert "<script" not in page
    assert shown["text/plain"].startswith("<Diagnosis ")
    names, variables, out, modules = outputs[3][0]["text"].splitlines()
    own = {"DataLoader", "TensorDataset", "batch", "loss", "model", "optimizer", "time", "torch"}
    assert set(ast.literal_eval(names)) == own
    assert variables == "['FUELLINE_HOME']"
    assert out == "{}"
    assert "fuelline" not in modules
    assert "text/html" in outputs[4][0]["data"]
    assert outputs[5][0]["data"]["text/plain"] == "'<iframe'"


def test_a_cell_that_fails_shows_its_own_error(tmp_path, monkeypatch) -> None:
    cells = ("%load_ext fuelline", "%%fuelline\n1 / 0", "after = 1")
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        run(*cells, home=tmp_path, monkeypatch=monkeypatch)
    outputs = run(*cells, home=tmp_path, monkeypatch=monkeypatch, goes_on=True)
    assert "ZeroDivisionError" in [each.get("ename") for each in outputs[1]]
