"""Nothing branches on English: wording can change without changing a result.

A comparison, a search in a text or a look-up with words for people in it is refused. Allowed are
the members of a `Literal`, which mypy checks wherever they are compared, and the words of other
programs' files, listed below by what they are.
"""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

import pytest

from tests.contract.source import FILES, SOURCE, parse

if TYPE_CHECKING:
    from pathlib import Path

SEARCHES = {"startswith", "endswith", "removeprefix", "removesuffix", "find", "rfind", "index"}
SEARCHES |= {"count", "partition", "rpartition", "split", "rsplit", "pop"}

FOREIGN = {
    "ingest/kineto/events.py": (
        "Input Dims",
        "Input type",
        "Concrete Inputs",
    ),  # keys in Kineto's JSON
    "ingest/kineto/reader.py": (  # msgspec gives no other sign of either
        "Input data was truncated",
        "trailing characters (byte ",
    ),
    "ingest/kineto/shapes.py": ("signed char",),  # a type of C, as PyTorch names it
    "ingest/recording/folder.py": (  # what version 0.1.0 wrote
        "hook loader wait",
        "hook backward",
        "hook optimizer step",
    ),
    "ingest/xplane/importer.py": ("Stream #", "XLA Ops"),  # lines of an XPlane
    "plan/check/case.py": ("fp8 kv",),  # notes of published tables
    "plan/check/training.py": ("selective recompute",),  # likewise
    "plan/roofline/torch_device.py": ("model name",),  # a key in /proc/cpuinfo
    "record/samplers/stacks.py": ("not permitted", ": MainThread", "<frozen importlib"),  # py-spy's
    "signals/recorded/start_stages.py": ("<frozen importlib.",),  # as Python names its importer
}
"""Words of others by the file that reads them; each is still used."""


def texts_in(node: ast.AST) -> list[str]:
    return [
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]


class Module:
    """A file with the texts that its constants stand for."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path = path
        self.tree = tree
        self.name = ".".join(("fuelline", *path.relative_to(SOURCE).with_suffix("").parts))
        self.constants: dict[str, ast.expr] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if node.value is not None and ast.unparse(node.annotation) != "TypeAlias":
                    self.constants[node.target.id] = node.value
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module, alias.name)


@functools.cache
def read_modules() -> dict[str, Module]:
    """Every file of ours by its name in imports."""
    return {module.name: module for path in FILES for module in (Module(path, parse(path)),)}


def read_codes() -> set[str]:
    """Members of all `Literal`s."""
    return {
        text
        for module in read_modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Literal"
        for text in texts_in(node.slice)
    }


def said_by(node: ast.expr, module: Module) -> list[str]:
    """Texts that an operand stands for: itself, a group of them, a constant, keys of a mapping."""
    if isinstance(node, ast.Name):
        where, name = module.imports.get(node.id, (module.name, node.id))
        owner = module if where == module.name else read_modules().get(where)
        value = owner.constants.get(name) if owner is not None else None
        return said_by(value, owner) if owner is not None and value is not None else []
    if isinstance(node, ast.Dict):
        return [text for key in node.keys if key is not None for text in said_by(key, module)]
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return [text for each in node.elts for text in said_by(each, module)]
    if isinstance(node, ast.Starred):
        return said_by(node.value, module)
    return texts_in(node) if isinstance(node, (ast.Constant, ast.JoinedStr)) else []


def branched_on(node: ast.AST, module: Module) -> list[str]:
    """Texts that decide something here."""
    if isinstance(node, ast.Compare):
        return [t for side in (node.left, *node.comparators) for t in said_by(side, module)]
    if isinstance(node, ast.MatchValue):
        return said_by(node.value, module)
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        return said_by(node.slice, module)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr == "get":
            return [*said_by(node.args[0], module), *said_by(node.func.value, module)]
        is_pattern = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        if node.func.attr in SEARCHES and not is_pattern:
            return said_by(node.args[0], module)
    return []


def find_words() -> dict[str, dict[str, int]]:
    """File to text to line, for all words that something is decided by."""
    found: dict[str, dict[str, int]] = {}
    codes = read_codes()
    for module in read_modules().values():
        for node in ast.walk(module.tree):
            for text in branched_on(node, module):
                if " " in text.strip() and text not in codes:
                    name = str(module.path.relative_to(SOURCE))
                    found.setdefault(name, {})[text] = getattr(node, "lineno", 0)
    return found


def test_nothing_branches_on_english() -> None:
    found = find_words()
    ours = [
        f"{name}:{line}: {text!r}"
        for name, texts in found.items()
        for text, line in texts.items()
        if text not in FOREIGN.get(name, ())
    ]
    assert not ours
    unused = {name: set(texts) - set(found.get(name, ())) for name, texts in FOREIGN.items()}
    assert not any(unused.values()), "no longer read: strike them off FOREIGN"


@pytest.mark.parametrize(
    "line",
    [
        "spot.what == 'the spool of a process'",
        "'does not fit' in str(error)",
        "spot.what.startswith(PREFIX)",
        "kind in KINDS",
        "WORDS.get(kind)",
        "shares['own time']",
    ],
)
def test_the_next_one_is_found(line: str) -> None:
    before = "PREFIX = 'the spool '\nKINDS = ('one kind', 'other')\nWORDS = {'one kind': 1}\n"
    module = Module(SOURCE / "new.py", ast.parse(before + line))
    assert any(" " in text for node in ast.walk(module.tree) for text in branched_on(node, module))
