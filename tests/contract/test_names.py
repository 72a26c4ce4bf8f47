"""Names that say nothing, and imports that a guest may not bring, stay out."""

import ast
import subprocess
import sys

import pytest

from tests.contract.source import FILES, SOURCE, parse

BANNED = ("Manager", "Helper", "Handler", "Processor", "Data", "Info", "Util", "Utils")
HEAVY = ("polars", "msgspec", "rich", "torch", "numpy")


def test_no_class_has_a_name_that_says_nothing() -> None:
    found = [
        f"{path.relative_to(SOURCE)}: {node.name}"
        for path in FILES
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef) and node.name.strip("_").endswith(BANNED)
    ]
    assert not found


def test_one_noun_names_one_class() -> None:
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef):
                home = path.relative_to(SOURCE).as_posix()
                homes.setdefault(node.name, []).append(home)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_there_is_no_room_for_homeless_functions() -> None:
    homeless = {"utils", "util", "common", "helpers", "core", "base", "misc"}
    assert not [path for path in FILES if homeless & {path.stem, path.parent.name}]


def test_every_file_says_what_it_holds() -> None:
    assert not [path for path in FILES if not ast.get_docstring(parse(path))]


@pytest.mark.parametrize(
    "module",
    ["fuelline", "fuelline.record.hooks", "fuelline.record.spool", "fuelline.schema.wire"],
)
def test_what_runs_inside_the_job_brings_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_does_not_wait_for_polars() -> None:
    code = "import sys, fuelline.cli; print('polars' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
