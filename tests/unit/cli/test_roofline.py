"""`fuelline roofline` on models that work and on all that can be wrong with one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import msgspec
import pytest
import torch
from msgspec.structs import replace

from fuelline.cli import main
from fuelline.plan.roofline import seam, torch_device
from fuelline.plan.roofline.inputs import InputShape, parse_input
from fuelline.plan.roofline.measured import write_entry
from fuelline.schema.errors import UsageError
from tests.unit.plan.rooflines import roofline

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2, 4)
    def forward(self, ids, mask=None):
        return self.table(ids) * mask.unsqueeze(-1)

def scores(a, b):
    return a @ b

def pair():
    return nn.Linear(4, 4), {"input": torch.ones(2, 4)}

ready = nn.Linear(4, 2)
number = 7

def broken():
    raise ValueError("no weights here")

def leaves():
    raise SystemExit(2)
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUELLINE_HOME", str(tmp_path / "home"))
    chips = tmp_path / "home" / "chips"
    chips.mkdir(parents=True)
    (chips / "here.json").write_bytes(msgspec.json.encode(roofline()))
    (chips / "here.toml").write_text(write_entry(roofline(), "here"))
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def run(*words: str) -> int:
    return main(["roofline", *words, "--on", "here", "--rounds", "3", "--device", "cpu"])


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("build", ("3x8",)),
        ("Words", ("2x5:int64", "mask=2x5:float32")),
        ("scores", ("4x8", "8x2")),
        ("pair", ()),
        ("ready", ("1x4",)),
    ],
)
def test_modules_builders_classes_and_functions_can_be_placed(
    target: Path, capsys: pytest.CaptureFixture[str], name: str, inputs: tuple[str, ...]
) -> None:
    words = [word for shape in inputs for word in ("--input", shape)]
    assert run(f"{target}:{name}", *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["points"]
    assert found["schema_version"] == 1


def test_the_report_fits_a_terminal_and_the_plot_is_written(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "points.svg"
    assert run(f"{target}:build", "--input", "3x8", "--plot", str(plot)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"Plot written to {plot}" in lines
    assert all(len(line) <= 80 or line.startswith("Plot written") for line in lines)
    assert any("bound" in line for line in lines)
    assert plot.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nowhere.py:build",), 3, "there is no file nowhere.py"),
        (("MODEL",), 2, "names no function"),
        (("MODEL:nothing",), 3, "has no 'nothing'. It has: build"),
        (("MODEL:broken",), 3, "ValueError: no weights here (line 25)"),
        (("MODEL:leaves",), 3, "SystemExit"),
        (("MODEL:number",), 3, "gave a int, which cannot be called"),
        (("MODEL:build",), 2, "says nothing of its inputs"),
        (("MODEL:build", "--input", "3x9"), 3, "does not take 3x9: RuntimeError"),
        (("MODEL:build", "--input", "3xx"), 2, "is not a shape"),
        (("MODEL:build", "--input", "0x8"), 2, "has 0 elements"),
        (("MODEL:build", "--input", "3x8:int7"), 2, "no dtype 'int7'"),
        (("MODEL:build", "--input", "3x8", "--plot", "x.gif"), 2, "must end in .svg or .png"),
        (("MODEL:build", "--input", "3x8", "--precision", "fp8"), 2, "no precision 'fp8'"),
        (("--input", "3x8"), 2, "--input needs a model"),
    ],
)
def test_what_is_wrong_is_told_without_a_traceback(
    target: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, said: str
) -> None:
    typed = [word.replace("MODEL", str(target)) for word in words]
    assert run(*typed) == code
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


def test_a_roofline_that_was_never_saved_is_told(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["roofline", f"{target}:ready", "--input", "1x4", "--on", "gone"])
    assert code == 3
    assert "Saved: here" in capsys.readouterr().err


def test_a_saved_device_can_be_planned_with(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del target
    assert main(["plan", "serve", "llama-3.2-1b", "--chip", "here", "--in", "64", "--json"]) == 0
    option = json.loads(capsys.readouterr().out)["options"][0]
    assert option["chip"] == "here"
    # 1.24 billion weights of 2 bytes over 10 GB/s cannot take less than a quarter of a second.
    assert option["tpot_s"]["value"] > 0.24


def test_a_device_saved_under_any_umask_can_be_planned_with(
    target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_device, "measure_device", lambda *_: roofline())
    before = os.umask(0o002)
    try:
        assert main(["roofline", "--save", "shared", "--device", "cpu"]) == 0
    finally:
        os.umask(before)
    for path in (target.parent / "home" / "chips").glob("shared.*"):
        assert path.stat().st_mode & 0o777 == 0o600
    assert main(["plan", "serve", "llama-3.2-1b", "--chip", "shared", "--in", "64"]) == 0
    assert not capsys.readouterr().err.count("ignored")


def test_a_saved_device_that_is_ignored_is_named_once(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = target.parent / "home" / "chips" / "here.toml"
    path.chmod(0o664)
    assert main(["plan", "serve", "llama-3.2-1b", "--chip", "h100-sxm", "--in", "64"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert said.count(f"{path} is ignored") == 1
    assert f"`chmod go-w {path}`" in said


@pytest.mark.parametrize("name", seam.PARTS)
def test_a_torch_without_a_part_is_refused_by_name_before_anything_is_measured(
    target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(seam.PARTS, name, f"{seam.PARTS[name]}_of_before")
    monkeypatch.delattr(torch_device, "measure_device")
    assert main(["roofline", f"{target}:build", "--input", "1x4", "--device", "cpu"]) == 4
    said = " ".join(capsys.readouterr().err.split())
    shown = seam.PARTS[name].replace(":", ".").replace("#", ".")
    assert f"torch {torch.__version__} has no {shown}. Nothing was measured." in said


def test_a_measurement_under_load_warns_and_says_how_to_repeat(
    target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del target
    measured = replace(roofline(), spread_frac=0.31)
    monkeypatch.setattr(torch_device, "measure_device", lambda *_: measured)
    assert main(["roofline", "--save", "busy", "--device", "cpu"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Measured under load: rounds of the same probe differ by 31 %" in said
    assert f"fuelline roofline --rounds {3 * measured.rounds} --save busy" in said
    measured = replace(roofline(), spread_frac=0.03)
    assert main(["roofline", "--device", "cpu"]) == 0
    assert "under load" not in capsys.readouterr().out


def test_shapes_are_read_as_people_write_them() -> None:
    assert parse_input("1x3x224x224") == InputShape((1, 3, 224, 224))
    assert parse_input("mask=2x5:bool") == InputShape((2, 5), "bool", "mask")
    assert parse_input("4:bf16") == InputShape((4,), "bfloat16")
    assert parse_input("scalar:long") == InputShape((), "int64")
    with pytest.raises(UsageError, match="cannot be a keyword"):
        parse_input("a-b=2x2")
