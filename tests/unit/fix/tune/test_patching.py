"""A patch changes the keywords of one call and nothing else."""

import ast
import subprocess
from pathlib import Path

import pytest

from fuelline.fix.tune.patching import NoPatch, Patch, make_patch
from fuelline.schema.diagnosis.trials import Setting

WORKERS = Setting(knob="num_workers", value=4)
PREFETCH = Setting(knob="prefetch_factor", value=8)


def patched(source: str, *settings: Setting, line: int = 1) -> str:
    patch = make_patch("train.py", source, line, settings or (WORKERS,))
    assert isinstance(patch, Patch), patch
    ast.parse(patch.after)
    return patch.after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("d = DataLoader(x)", "d = DataLoader(x, num_workers=4)"),
        ("d = DataLoader()", "d = DataLoader(num_workers=4)"),
        ("d = DataLoader(x, num_workers=0)", "d = DataLoader(x, num_workers=4)"),
        ("d = data.DataLoader(x, 16,)", "d = data.DataLoader(x, 16, num_workers=4)"),
        ("d = DataLoader(x, batch_size=(16))", "d = DataLoader(x, batch_size=(16), num_workers=4)"),
        ("d = DataLoader(f(x))  # (, )", "d = DataLoader(f(x), num_workers=4)  # (, )"),
        ("ü = DataLoader('ä', num_workers=1)", "ü = DataLoader('ä', num_workers=4)"),
        (
            "d = DataLoader(\n    x,  # the data, all of it\n    num_workers=2,\n)",
            "d = DataLoader(\n    x,  # the data, all of it\n    num_workers=4,\n)",
        ),
        (
            "d = DataLoader(\n    x,\n    shuffle=True,  # (always)\n)",
            "d = DataLoader(\n    x,\n    shuffle=True,\n    num_workers=4,  # (always)\n)",
        ),
    ],
)
def test_the_call_gets_the_setting_and_the_rest_stays(before: str, after: str) -> None:
    assert patched(before) == after


def test_several_settings_in_one_call() -> None:
    source = "a = 1\nd = DataLoader(x, num_workers=0, pin_memory=False)\nb = DataLoader(y)\n"
    assert patched(source, WORKERS, PREFETCH, line=2) == (
        "a = 1\nd = DataLoader(x, num_workers=4, pin_memory=False, prefetch_factor=8)\n"
        "b = DataLoader(y)\n"
    )


def test_windows_line_ends_stay() -> None:
    assert patched("a = 1\r\nd = DataLoader(x)\r\n", line=2) == (
        "a = 1\r\nd = DataLoader(x, num_workers=4)\r\n"
    )


def test_the_innermost_call_at_the_line_is_the_one() -> None:
    assert (
        patched("p = prepare(DataLoader(x), 3)") == "p = prepare(DataLoader(x, num_workers=4), 3)"
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("d = DataLoader(x, num_workers=args.workers)", "args.workers"),
        ("d = DataLoader(x, **settings)", "**keywords"),
        ("d = DataLoader(*arguments)", "*arguments"),
        ("d = make_batches(x)", "no DataLoader call"),
        ("d = (", "cannot be parsed"),
    ],
)
def test_what_is_not_ours_to_edit_is_left_alone(source: str, reason: str) -> None:
    told = make_patch("train.py", source, 1, [WORKERS])
    assert isinstance(told, NoPatch)
    assert reason in told.reason


def test_the_diff_is_one_that_patch_takes(tmp_path: Path) -> None:
    source = "import x\n\nloader = DataLoader(x.data)\nprint(loader)"
    script = tmp_path / "train.py"
    script.write_text(source)
    patch = make_patch("train.py", source, 3, [WORKERS])
    assert isinstance(patch, Patch)
    assert "+loader = DataLoader(x.data, num_workers=4)" in patch.diff()
    done = subprocess.run(
        ["git", "apply", "--check", "-"], input=patch.diff(), cwd=tmp_path, text=True, check=False
    )
    assert done.returncode == 0
