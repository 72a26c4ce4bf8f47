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
from fuelline.whatif import fit, value_remedies
from tests.golden.watched import draw_watched, make_snapshots
from tests.rules.cases import build_facts
from tests.unit.whatif.jobs import make_facts, ms, plain

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


def make_jobs() -> dict[str, Facts]:
    """Jobs that reads starve, that sleep, that compute, whose epochs are short; a healthy one."""
    starved = {"base": "reading", "facts": {"budget": {"input": 0.61, "loop": 0.06}}}
    return {
        "starved": build_facts(starved),
        "throttled": _throttled(),
        "healthy": build_facts({"base": "healthy"}),
        "asleep": _asleep(),
        "computing": _computing(),
        "restarting": _restarting(),
    }


def make_diagnoses() -> dict[str, Diagnosis]:
    """The answers to them, as the pipeline gives them, and one that nothing can be said about."""
    unseen = {"starved": [UNSEEN]}
    priced = {"starved": 2.5, "throttled": 2.5}
    found = {
        name: judge(facts, unseen.get(name, []), priced.get(name))
        for name, facts in make_jobs().items()
    }
    nothing = "PyTorch was loaded, but no batch was taken and no optimizer stepped."
    return {**found, "cannot_tell": cannot_tell(RUN, [UNSEEN], nothing)}


def judge(
    facts: Facts, unseen: list[Blindspot] | None = None, price: float | None = None
) -> Diagnosis:
    """The diagnosis of a recorded run, its remedies valued."""
    return value_remedies(diagnose(facts, RUN, unseen or [], price), fit(facts))


def _asleep() -> Facts:
    """One worker sleeps 8 ms for each of 8 samples; a step of its own takes 4 ms."""
    facts = {
        "budget": {"input": 0.94},
        "window_seconds": 66,
        "step_seconds": 0.066,
        "steps": 1000,
        "loader": {"num_workers": 1, "batch_size": 8},
        "input": {
            "exposed_share": 0.94, "wait_share": 0.94, "cpu_share": 0.022, "core_wait_share": 0.0,
            "read_share": 0.0, "metadata_share": 0.0, "sleep_share": 0.97, "blocked_share": 0.97,
            "idle_share": 0.0, "fetchers": 1.0, "fetch_seconds": 0.066, "collate_share": 0.01,
            "unpickle_share": 0.0, "pickle_share": 0.0, "lock_share": 0.0,
        },
        "cores": {"allowed": 2, "host": 2, "used": 0.1, "idle": 1.9, "others": 0.0},
        "fetch_lines": [
            {"line": "/job/train.py:31", "function": "__getitem__", "share": 1.0, "stage": "sleep"}
        ],
    }  # fmt: skip
    asleep = {"sleep_frac": plain(1.0), "job_batches": None}
    model = make_facts(
        batch=66, workers=1, cpu=1.5, blocked=64.5, read=0.0, host=1.0, device=4.0, cores=2,
        demands=asleep,
    )  # fmt: skip
    return _modelled(build_facts({"base": "healthy", "facts": facts}), model)


def _computing() -> Facts:
    """One worker decodes 40 ms a batch; a second core is free."""
    facts = {
        "budget": {"input": 0.72},
        "window_seconds": 63,
        "step_seconds": 0.042,
        "steps": 1500,
        "loader": {"num_workers": 1, "batch_size": 16},
        "input": {
            "exposed_share": 0.72, "wait_share": 0.72, "cpu_share": 0.97, "core_wait_share": 0.02,
            "read_share": 0.01, "metadata_share": 0.0, "idle_share": 0.0, "fetchers": 1.0,
            "fetch_seconds": 0.041,
        },
        "cores": {"allowed": 2, "host": 2, "used": 1.2, "idle": 0.8, "others": 0.0},
    }  # fmt: skip
    model = make_facts(batch=42, workers=1, cpu=40, blocked=0.5, host=2.0, device=11, cores=2)
    return _modelled(build_facts({"base": "preparing", "facts": facts}), model)


def _restarting() -> Facts:
    """Two workers are started again for every 20 batches."""
    facts = {
        "budget": {"input": 0.01, "epoch start": 0.4},
        "step_seconds": 0.02,
        "steps": 3000,
        "loader": {"num_workers": 2, "batch_size": 16},
    }
    model = make_facts(
        batch=20, workers=2, cpu=12, host=2.0, device=12, pauses={"epoch start": 8.0},
        demands={"start_seconds": ms(30), "pause_counts": {"epoch start": 15}},
    )  # fmt: skip
    return _modelled(build_facts({"base": "healthy", "facts": facts}), model)


def _modelled(facts: Facts, model: Facts) -> Facts:
    """A job with what the pipeline model asks of it."""
    assert facts.loader is not None
    return msgspec.structs.replace(
        facts,
        demands=model.demands,
        loader=msgspec.structs.replace(facts.loader, prefetch_factor=2),
    )


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
