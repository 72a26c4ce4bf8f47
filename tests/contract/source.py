"""Our own source as syntax trees, for contracts about what it says; each file is parsed once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import fuelline

SOURCE = Path(fuelline.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
