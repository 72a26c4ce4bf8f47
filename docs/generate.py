"""Writes the parts of the documentation that the code already knows: `make docs`.

docs/rules.md from the rules' docstrings and docs/diagnosis.schema.json from the structs. A test
fails when what is in the tree differs from what this would write.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fuelline.diagnose.engine import HEALTHY_CODE
from fuelline.diagnose.rules import RULES
from fuelline.schema.diagnosis.findings import Diagnosis

if TYPE_CHECKING:
    from fuelline.diagnose.rule import Rule

ROOT = Path(__file__).parent.parent


def generate() -> dict[Path, str]:
    """File to content, for every generated file."""
    return {
        ROOT / "docs" / "rules.md": _rules_page(),
        ROOT / "docs" / "diagnosis.schema.json": _schema(),
    }


def _rules_page() -> str:
    parts = [
        "# What Fuelline can name\n",
        "Generated from the rules by `make docs`. Within a stage the more specific rule speaks.\n",
        _table(),
    ]
    for rule in RULES:
        summary, _, body = _docstring(rule).partition("\n\n")
        parts.append(
            f"## {summary}\n\nstage `{rule.stage}`, limit `{rule.limit}`\n\n{_paragraphs(body)}\n"
        )
    parts.append(
        f"## {HEALTHY_CODE} healthy\n\nstage `compute`, limit `math`\n\n"
        "No finding costs a tenth of the window: the steps themselves are what takes the time.\n"
    )
    return "\n".join(parts)


def _docstring(rule: Rule) -> str:
    return (sys.modules[type(rule).__module__].__doc__ or "").strip()


def _paragraphs(body: str) -> str:
    """Each `Word:` that starts a line starts a paragraph."""
    return re.sub(r"\n(?=[A-Z][A-Za-z ]*:)", "\n\n", body.strip())


def _table() -> str:
    rows = ["| code | stage x limit | what it says |", "|---|---|---|"]
    for rule in RULES:
        sentence = _docstring(rule).partition("\n")[0].partition(": ")[2]
        rows.append(f"| {rule.code} | {rule.stage} x {rule.limit} | {sentence} |")
    return "\n".join(rows) + "\n"


def _schema() -> str:
    return json.dumps(msgspec.json.schema(Diagnosis), indent=2) + "\n"


if __name__ == "__main__":
    for path, content in generate().items():
        path.write_text(content)
