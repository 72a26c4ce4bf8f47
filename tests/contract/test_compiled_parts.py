"""The package installs with a compiler and without one, and tags its wheels accordingly."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OLDEST_GLIBC = (2, 17)
"""manylinux_2_17, also called manylinux2014: what the README says of our wheels."""


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """hatch_build.py as it stands beside a copy of the source."""
    for source in (Path("src/fuelline/ingest/kineto/scanner"), Path("src/fuelline/record")):
        only_c = shutil.ignore_patterns("*.py", "*.so", "__pycache__", "hooks", "samplers")
        shutil.copytree(ROOT / source, tmp_path / source, ignore=only_c)
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    spec = importlib.util.spec_from_file_location("hatch_build", tmp_path / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv("CC", raising=False)
    return module


def ask(hook: ModuleType) -> tuple[dict[str, Any], list[str]]:
    """What hatchling would pack, and the warnings that it would show."""
    warned: list[str] = []
    build_data: dict[str, Any] = {"artifacts": []}
    app = SimpleNamespace(display_warning=warned.append)
    fake = SimpleNamespace(target_name="wheel", app=app)
    hook.PartsHook.initialize(fake, "standard", build_data)
    return build_data, warned


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
@pytest.mark.integration
def test_with_a_compiler_the_wheel_is_one_of_this_platform(hook: ModuleType) -> None:
    build_data, warned = ask(hook)
    assert warned == []
    assert build_data["artifacts"] == [
        "src/fuelline/ingest/kineto/_scan.abi3.so",
        "src/fuelline/record/_buffer.abi3.so",
    ]
    assert build_data["pure_python"] is False
    assert build_data["tag"].startswith("cp310-abi3-linux_")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no glibc here")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
@pytest.mark.integration
def test_a_published_wheel_runs_on_every_glibc_that_its_tag_will_name(hook: ModuleType) -> None:
    """`make dist` takes the tag from these very names; a newer one would shut old systems out."""
    for part in hook.PARTS:
        assert hook.build(part) == ""
        names = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", part.target.read_bytes())
        assert names
        assert max((int(major), int(minor)) for major, minor in names) <= OLDEST_GLIBC


@pytest.mark.parametrize(
    "source", sorted((ROOT / "src").rglob("*.[ch]")), ids=lambda path: path.name
)
def test_what_a_later_python_builds_is_understood_by_earlier_ones(source: Path) -> None:
    """The headers since 3.13 ask for lengths ("y#") in a way that 3.12 and before refuse."""
    assert not re.findall(r'"[^"\n]*[syz]#[^"\n]*"', source.read_text())


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false", f"{sys.executable} -c exit(0)"])
def test_without_one_the_wheel_is_for_all_and_the_user_is_told(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    for part in hook.PARTS:
        part.target.write_bytes(b"of another machine")
    build_data, warned = ask(hook)
    assert build_data == {"artifacts": []}
    assert len(warned) == 2
    assert "slower" in warned[0]
    assert "costs more" in warned[1]
    assert not any(part.target.exists() for part in hook.PARTS)
