"""ARCHITECTURE.md and CONTRIBUTING.md name what exists: files, folders, functions, classes.

Of the other pages only paths and links are checked.

The notation is stated at the top of ARCHITECTURE.md. Names are looked up in syntax trees, so that
nothing heavy is imported; in C they are looked up as definitions in the text.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.contract.source import parse

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fuelline"
DOCUMENTS = ("ARCHITECTURE.md", "CONTRIBUTING.md")
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
TOPS = {"bench", "docs", "src", "tests", *(path.name for path in SOURCE.iterdir() if path.is_dir())}
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
_PATH = re.compile(r"(?P<path>[\w.-]+(?:/[\w.*-]+)*/?)(?::(?P<name>[A-Za-z_][\w.]*))?")
_SUFFIXES = (".c", ".csv", ".h", ".json", ".md", ".py", ".toml", ".txt")
_DRAWN = re.compile(r"(?<![\w/*.-])[a-z_]\w*(?:/\w+)+(?:\.(?:py|c|h|md|toml|json)\b|/(?=\s|$))")
_TYPE = re.compile(r"[A-Z]\w*[a-z]\w*(?:\.\w+)?")
_SNAKE = re.compile(r"_?[a-z0-9]+(?:_[a-z0-9]+)+|_[a-z]+")
_DOTTED = re.compile(r"fuelline(?:\.\w+)+")
_YOURS = re.compile(r"(test_)?(NAME|CODE|FORMAT|FRAMEWORK)")
"""The reader's own name stands there."""


def find_unknown(text: str) -> list[str]:
    """Every name in a document that leads nowhere."""
    drawings, prose = "\n".join(_FENCE.findall(text)), _FENCE.sub("", text)
    # A pair that is broken over two lines would hide what stands in it.
    unknown = [line for line in prose.splitlines() if line.count("`") % 2]
    unknown += [name for name in sorted(set(_QUOTED.findall(prose))) if not _is_known(name)]
    unknown += [path for path in sorted(set(_DRAWN.findall(drawings))) if not _exists(path)]
    return unknown + [link for link in _LINK.findall(prose) if not (ROOT / link).exists()]


def _is_known(quoted: str) -> bool:
    """Whether it exists; what is neither path nor name of ours (a command, an option) passes."""
    found = _PATH.fullmatch(quoted)
    if found and (found["path"].endswith(("/", *_SUFFIXES))):
        return _exists(found["path"]) and (not found["name"] or _defines(*found.groups()))
    if _DOTTED.fullmatch(quoted):
        return _has_module(quoted.split(".")[1:])
    if _SNAKE.fullmatch(quoted):
        return quoted in _members()
    return not _TYPE.fullmatch(quoted) or quoted in _types()


def _exists(path: str) -> bool:
    """From the top or from the package; before a name of the reader's the folder must be there."""
    parts = path.rstrip("/").split("/")
    stems = [part.partition(".")[0] for part in parts]
    yours = next((at for at, stem in enumerate(stems) if _YOURS.fullmatch(stem)), None)
    if yours is not None and len(parts) > 1:
        path = "/".join(parts[:yours]) + "/"
    return _locate(path) is not None


def _locate(path: str) -> Path | None:
    places = [base / path for base in (ROOT, SOURCE)]
    wanted = Path.is_dir if path.endswith("/") else Path.is_file
    found = [place for place in places if wanted(place)]
    if not found and "/" not in path:  # a sister of a file that was named with its folder
        found = [place for place in SOURCE.rglob(path) if place.is_file()]
    return found[0] if found else None


def _defines(path: str, name: str) -> bool:
    place = _locate(path)
    if place is None:
        return False
    text = place.read_text(encoding="utf-8")
    if place.suffix in (".c", ".h"):
        return re.search(rf"^static .*\b{name}\(", text, re.MULTILINE) is not None
    return name in _names(place)


@cache
def _names(place: Path) -> frozenset[str]:
    """What a module defines at its top, and what its classes define, with their name before it."""
    return frozenset(_list_names(parse(place).body))


def _list_names(body: list[ast.stmt]) -> list[str]:
    found: list[str] = []
    for node in body:
        if isinstance(node, ast.If):
            found += _list_names(node.body)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.append(node.name)
            if isinstance(node, ast.ClassDef):
                found += [f"{node.name}.{inner}" for inner in _list_names(node.body)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return found


@cache
def _types() -> frozenset[str]:
    """Every class and type alias of the package, with its members."""
    return frozenset(name for path in SOURCE.rglob("*.py") for name in _names(path))


@cache
def _members() -> frozenset[str]:
    """The same without the classes' names: functions, methods, fields."""
    return frozenset(name.rpartition(".")[2] for name in _types())


def _has_module(parts: list[str]) -> bool:
    """`fuelline.a.b`, or a name in it."""
    place = SOURCE.joinpath(*parts)
    if place.with_suffix(".py").is_file() or place.is_dir():
        return True
    outer = SOURCE.joinpath(*parts[:-1])
    files = (outer.with_suffix(".py"), outer / "__init__.py")
    return any(file.is_file() and parts[-1] in _names(file) for file in files)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_name_in_the_map_exists(name: str) -> None:
    assert find_unknown((ROOT / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "`timeline/tiles.py`",
        "`timeline/segments.py:cut_tiles`",
        "`record/hooks/torch/loader.py:Take.grab`",
        "`record/_buffer.c:take_slowly`",
        "`diagnose/desks/`",
        "`tests/unit/nowhere/NAME.py`",
        "`LoaderDesk`",
        "`mourn_worker`",
        "`fuelline.predict.model`",
        "`fuelline.pipeline.recorded.nothing`",
        "[a page](docs/nowhere.md)",
        "```\nsignals/nowhere/ -> report/nothing.py\n```",
    ],
)
def test_a_made_up_name_is_reported(wrong: str) -> None:
    assert find_unknown(f"Before, {wrong}\n, after.".replace("Before, ```", "Before,\n```"))


def test_what_is_no_name_of_ours_passes() -> None:
    text = (
        "`fuelline run --fix`, `--json`, `IN105`, `tests/rules/CODE/`, `schema/wire.py:Kind.WAIT`"
    )
    assert find_unknown(text) == []


def test_no_folder_of_the_package_is_left_off_the_map() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    folders = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    missing = [each for each in sorted(folders - {"."}) if f"{each}/" not in text]
    assert missing == []


def test_a_walk_is_at_most_ten_files_long() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walks = text.partition("## Four walks")[2].partition("\n## ")[0].split("\n### ")[1:]
    assert len(walks) == 4
    for walk in walks:
        steps = re.search(r"^1\. .*?(?=\n\n|\Z)", walk, re.MULTILINE | re.DOTALL)
        assert steps is not None
        named = [_PATH.fullmatch(quoted) for quoted in _QUOTED.findall(steps[0])]
        files = {each["path"] for each in named if each and each["path"].endswith(_SUFFIXES)}
        assert 5 <= len(files - {"chips.toml", "fitted.toml"}) <= 10, sorted(files)


def test_a_noun_of_the_glossary_is_in_the_file_beside_it() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    glossary = text.partition("## Glossary")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*`) \| .* \| (`.*`) \|$", glossary, re.MULTILINE)
    assert len(rows) > 40
    for nouns, files in rows:
        places = [_locate(path) for path in _QUOTED.findall(files)]
        defined = {name for place in places if place is not None for name in _names(place)}
        assert set(_QUOTED.findall(nouns)) <= defined, nouns


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_other_pages_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = [_PATH.fullmatch(quoted) for quoted in _QUOTED.findall(_FENCE.sub("", text))]
    paths = [each["path"].partition("*")[0] for each in named if each]
    ours = [path for path in paths if path.partition("/")[0] in TOPS and "/" in path]
    assert [path for path in ours if not _exists(path) and not _exists(f"{path}/")] == []
    links = _LINK.findall(_FENCE.sub("", text))
    assert [link for link in links if not (page.parent / link).exists()] == []
