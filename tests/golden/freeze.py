"""Writes the golden reports: `python -m tests.golden.freeze`; then read the diff."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fuelline.diagnose import cannot_tell, diagnose
from fuelline.report import render_terminal, write_document
from fuelline.schema.diagnosis.devices import RUNGS, Rung, RungName
from fuelline.schema.diagnosis.findings import Diagnosis, RunSummary
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.run.recording import Blindspot
from tests.golden.watched import draw_watched, make_snapshots
from tests.rules.cases import build_facts

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts

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
        "throttled": diagnose(_throttled(), RUN, [], price_usd_per_hour=2.5),
        "healthy": diagnose(build_facts({"base": "healthy"}), RUN, []),
        "cannot_tell": cannot_tell(
            RUN, [UNSEEN], "PyTorch was loaded, but no batch was taken and no optimizer stepped."
        ),
    }


def _throttled() -> Facts:
    """Two devices with their ladders, one of them hot and with few counters."""
    hot = {"thermal_share": 0.9, "throttled_clock": 0.6, "clock_share": 0.62, "pids": [4712]}
    hot |= {"link_share": 0.5, "link_text": "PCIe 5 x8 of 5 x16", "temperature_celsius": 91}
    facts = build_facts({"base": "healthy", "facts": {"devices": [{"pids": [4711]}, hot]}})
    shares = ((1.0, 0.9, 0.85, 0.8, 0.5, 0.2, None), (1.0, 0.9, 0.95, None, None, None, None))
    devices = [
        msgspec.structs.replace(
            device,
            ladder=dict(zip(RUNGS, known, strict=True)),
            rungs=[_rung(name, share) for name, share in zip(RUNGS, known, strict=True)],
        )
        for device, known in zip(facts.devices, shares, strict=True)
    ]
    return msgspec.structs.replace(facts, devices=devices, unused_devices=["gpu2"])


def _rung(name: RungName, share: float | None) -> Rung:
    if share is None:
        why = "operations per step were not counted" if name == "MFU" else "this driver has no GPM"
        return Rung(rung=name, share=Missing(reason=why))
    return Rung(rung=name, share=Reading(value=share, unit="frac", origin=name))


def draw(diagnosis: Diagnosis) -> str:
    """The report as it goes to a pipe."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
    render_terminal(write_document(diagnosis, diagnosis.run.run_id, "/usr/bin/python"), stream)
    stream.seek(0)
    return stream.read()


if __name__ == "__main__":
    for name, diagnosis in make_diagnoses().items():
        (REPORTS / f"{name}.txt").write_text(draw(diagnosis), encoding="utf-8")
    for name, (snapshot, view) in make_snapshots().items():
        (REPORTS / f"{name}.txt").write_text(draw_watched(snapshot, view), encoding="utf-8")
