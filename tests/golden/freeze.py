"""Writes the golden reports: `python -m tests.golden.freeze`; then read the diff."""

from __future__ import annotations

import io
from pathlib import Path

from fuelline.diagnose import cannot_tell, diagnose
from fuelline.report import render_terminal, write_document
from fuelline.schema.findings import Diagnosis, RunSummary
from fuelline.schema.recording import Blindspot
from tests.golden.watched import draw_watched, make_snapshots
from tests.rules.cases import build_facts

REPORTS = Path(__file__).parent / "reports"
RUN = RunSummary(
    run_id="20260412-093015-train-4711",
    command=["/usr/bin/python", "train.py", "--epochs", "2"],
    host="node7",
    exit_code=0,
    seconds=70.2,
    path="/home/me/.local/share/fuelline/runs/20260412-093015-train-4711",
)
UNSEEN = Blindspot(
    what="GPU counters",
    why="no NVML library was found",
    forbids="anything about the accelerator itself",
)


def make_diagnoses() -> dict[str, Diagnosis]:
    """A job that reads starve, a healthy one, and one that nothing can be said about."""
    starved = build_facts({"base": "reading", "facts": {"budget": {"input": 0.61, "loop": 0.06}}})
    return {
        "starved": diagnose(starved, RUN, [UNSEEN], price_usd_per_hour=2.5),
        "healthy": diagnose(build_facts({"base": "healthy"}), RUN, []),
        "cannot_tell": cannot_tell(
            RUN, [UNSEEN], "PyTorch was loaded, but no batch was taken and no optimizer stepped."
        ),
    }


def draw(diagnosis: Diagnosis) -> str:
    """The report as it goes to a pipe."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
    render_terminal(write_document(diagnosis), stream)
    stream.seek(0)
    return stream.read()


if __name__ == "__main__":
    for name, diagnosis in make_diagnoses().items():
        (REPORTS / f"{name}.txt").write_text(draw(diagnosis), encoding="utf-8")
    for name, (snapshot, view) in make_snapshots().items():
        (REPORTS / f"{name}.txt").write_text(draw_watched(snapshot, view), encoding="utf-8")
