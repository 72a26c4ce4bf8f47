"""Writes the parts of the documentation that the code already knows: `make docs`.

docs/rules.md from the rules' docstrings, docs/diagnosis.schema.json from the structs, and the
tables of docs/api.md. A test fails when what is in the tree differs from what this would write.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.diagnose.engine import HEALTHY_CODE
from fuelline.diagnose.rules import RULES
from fuelline.pipeline.opened import RECORDED, TRACED
from fuelline.schema.diagnosis.findings import Diagnosis
from fuelline.timeline import columns
from fuelline.timeline.events import name_events
from fuelline.timeline.tables import TABLES, empty_table
from fuelline.timeline.trace import TRACE_TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.diagnose.rule import Rule

ROOT = Path(__file__).parent.parent


def generate() -> dict[Path, str]:
    """File to content, for every generated file."""
    return {
        ROOT / "docs" / "rules.md": _rules_page(),
        ROOT / "docs" / "diagnosis.schema.json": _schema(),
        ROOT / "docs" / "api.md": _api_page(),
    }


def _rules_page() -> str:
    parts = [
        "# What Fuelline can name\n",
        "Generated from the rules by `make docs`. Within a stage the most specific rule answers.\n",
        _table(),
    ]
    for rule in RULES:
        summary, _, body = _docstring(rule).partition("\n\n")
        parts.append(
            f"## {summary}\n\nstage `{rule.stage}`, limit `{rule.limit}`\n\n{_paragraphs(body)}\n"
        )
    parts.append(
        f"## {HEALTHY_CODE} healthy\n\nstage `compute`, limit `math`\n\n"
        "No finding costs a tenth of the window: the steps themselves take the time.\n"
    )
    return "\n".join(parts)


def _docstring(rule: Rule) -> str:
    return (sys.modules[type(rule).__module__].__doc__ or "").strip()


def _paragraphs(body: str) -> str:
    """Each `Word:` that starts a line starts a paragraph."""
    return re.sub(r"\n(?=[A-Z][A-Za-z ]*:)", "\n\n", body.strip())


def _table() -> str:
    rows = ["| finding | stage x limit | what it says |", "|---|---|---|"]
    for rule in RULES:
        sentence = _docstring(rule).partition("\n")[0].partition(": ")[2]
        title = f"{rule.code} {rule.name.replace('-', ' ')}"
        rows.append(f"| {title} | {rule.stage} x {rule.limit} | {sentence} |")
    return "\n".join(rows) + "\n"


def _api_page() -> str:
    """The page as it is, with the tables between its two marks as the code has them."""
    page = (ROOT / "docs" / "api.md").read_text()
    before, _, rest = page.partition(_TABLES_FROM)
    _, _, after = rest.partition(_TABLES_UNTIL)
    recorded = {name: _columns_of(name) for name in RECORDED}
    traced = {name: {"rank": pl.Int32(), **TRACE_TABLES[name]} for name in TRACED}
    return "".join(
        (
            before,
            _TABLES_FROM,
            "\n### Of a recorded run\n\n",
            _describe_tables(recorded, columns.TABLES),
            "\n### Of an imported trace\n\n",
            _describe_tables(traced, columns.TRACE_TABLES),
            _TABLES_UNTIL,
            after,
        )
    )


_TABLES_FROM = "<!-- tables: written by `make docs` -->\n"
_TABLES_UNTIL = "<!-- end of tables -->\n"


def _columns_of(table: str) -> dict[str, pl.DataType]:
    if table in TABLES:
        return {"host": pl.Int32(), **TABLES[table]}
    return {"host": pl.Int32(), **name_events(empty_table("events"), table).schema}


def _describe_tables(
    tables: dict[str, dict[str, pl.DataType]],
    described: Mapping[str, tuple[str, Mapping[str, str]]],
) -> str:
    parts = []
    for table, kinds in tables.items():
        sentence, own = described[table]
        rows = [
            f"| `{name}` | {kind} | {own.get(name) or columns.SHARED[name]} |"
            for name, kind in kinds.items()
        ]
        heading = "| column | type | meaning |\n|---|---|---|"
        parts.append(f"**`{table}`** {sentence}\n\n{heading}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _schema() -> str:
    return json.dumps(msgspec.json.schema(Diagnosis), indent=2) + "\n"


if __name__ == "__main__":
    for path, content in generate().items():
        path.write_text(content)
