"""`python -m bench.on_gpu`: what only a real accelerator settles, as one table for an issue.

What the hooks cost, whether they do harm (numbers, graph breaks, contexts on other devices, workers
forked after events were made), the device's clock against the profiler's truth, the roofline, and
what of the driver may be read. Under 15 minutes on a CUDA or ROCm machine; `--device emu` tries the
command itself on the emulated device, where there is no roofline and the device's log is the truth.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[1]
JOB = Path(__file__).with_name("on_gpu_job.py")
FUELLINE = (sys.executable, "-m", "fuelline")
TURNS = 5
MICROBATCHES = 9
COST_BAR_US, EACH_BAR_US, CLOCK_BAR_POINTS = 25.0, 8.0, 2.0
_JOB_SECONDS = 180
_STEPS, _STEPS_EMULATED = 1500, 200
"""For the cost; the emulated device's kernels are the CPU's."""


class Row(NamedTuple):
    """One line of the table."""

    figure: str
    measured: str
    bar: str = ""
    is_good: bool | None = None
    """None where there is no bar."""


class Runner:
    """Starts the job, alone or recorded."""

    def __init__(self, device: str, folder: Path) -> None:
        self.device = device
        self._folder = folder
        self._count = 0

    def run(self, *options: str, is_recorded: bool) -> tuple[dict[str, Any], Path]:
        """The job's last line, and the folder of the recording."""
        self._count += 1
        target = self._folder / f"run-{self._count}"
        recorder = [*FUELLINE, "run", "--quiet", "--run-dir", str(target), "--"]
        command = [sys.executable, str(JOB), "--device", self.device, *options]
        told = subprocess.run(
            [*recorder, *command] if is_recorded else command,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=_JOB_SECONDS,
            check=False,
        )
        lines = [line for line in told.stdout.splitlines() if line.startswith('{"on_gpu"')]
        if told.returncode or not lines:
            raise RuntimeError(f"{' '.join(options)} ended with {told.returncode}: {told.stderr}")
        return json.loads(lines[-1])["on_gpu"], target


def measure_cost(runner: Runner, turns: int) -> list[Row]:
    """Of a step with one batch, one copy and one read value; and of each further microbatch."""
    added_us = []
    for accumulate in (1, MICROBATCHES):
        steps = _STEPS_EMULATED if runner.device.startswith("emu") else _STEPS
        small = ("--kind", "reads", "--small", "--steps", str(steps), "--workers", "0")
        options = (*small, "--accumulate", str(accumulate))
        pairs = [
            [runner.run(*options, is_recorded=on)[0]["step_us"] for on in (True, False)]
            for _ in range(turns)
        ]
        added_us.append(statistics.median(on - off for on, off in pairs))
    each_us = (added_us[1] - added_us[0]) / (MICROBATCHES - 1)
    return [
        _bar("hooks, per step (batch, copy, read)", added_us[0], COST_BAR_US, "us"),
        _bar("hooks, per further microbatch", each_us, EACH_BAR_US, "us"),
    ]


def try_harm(runner: Runner) -> list[Row]:
    """The same job with and without us."""
    rows = []
    for name, options in (
        ("plain", ("--kind", "busy", "--steps", "40")),
        ("torch.compile", ("--kind", "busy", "--steps", "20", "--compile")),
        ("workers forked in later epochs", ("--kind", "launch", "--steps", "200")),
        ("last device, never made current", ("--kind", "launch", "--steps", "40")),
    ):
        there = Runner(_last_device(runner.device), runner._folder / "last")
        chosen = there if name.startswith("last device") else runner
        on, off = (chosen.run(*options, is_recorded=each)[0] for each in (True, False))
        for figure in ("losses", "graph_breaks", "contexts"):
            is_same = on[figure] == off[figure]
            said = "same" if is_same else f"{on[figure]} with, {off[figure]} without"
            rows.append(Row(f"{name}: {figure.replace('_', ' ')}", said, "same", is_same))
    return rows


def compare_clock(runner: Runner) -> list[Row]:
    """Idle time of the device by the diagnosis and by the profiler, of three kinds of jobs."""
    rows = []
    for kind in ("busy", "launch", "starved"):
        trace = runner._folder / f"{kind}.json"
        told, folder = runner.run(
            *("--kind", kind, "--steps", "120", "--trace", str(trace)), is_recorded=True
        )
        true = told["device_idle"] if told["device_idle"] is not None else _idle_of(trace)
        found = _idle_found(folder)
        rows.append(_clock_row(f"device idle, {kind} job", found, true))
    return rows


def _clock_row(figure: str, found: tuple[float, float] | None, true: float) -> Row:
    """Good if the truth is within two points of what was found, which may be an interval."""
    if found is None:
        return Row(figure, f"unknown, true {100 * true:.1f} %", "2 points", is_good=False)
    low, high = (100 * share for share in found)
    said = f"{low:.1f} %" if high - low < 1 else f"{low:.1f} to {high:.1f} %"
    is_good = low - CLOCK_BAR_POINTS <= 100 * true <= high + CLOCK_BAR_POINTS
    return Row(figure, f"{said}, true {100 * true:.1f} %", "2 points", is_good)


def _idle_found(folder: Path) -> tuple[float, float] | None:
    """From least to most: without the driver's counters launches and kernels are not divided."""
    told = subprocess.run(
        [*FUELLINE, "diagnose", str(folder), "--json"], capture_output=True, text=True, check=False
    )
    budget = json.loads(told.stdout).get("device_budget")
    if budget is None:
        return None
    parts, whole = budget["parts"], budget["seconds"]
    least = sum(parts[part] for part in ("waiting for input", "waiting for the host", "pauses"))
    return least / whole, (least + parts["host-paced"]) / whole


def _idle_of(trace: Path) -> float:
    from fuelline.ingest import load_trace
    from fuelline.pipeline.imported import import_files
    from fuelline.signals.traced import survey_trace

    folder = trace.with_suffix(".run")
    import_files([trace], folder, partial=False, jobs=None)
    ledger = survey_trace(load_trace(folder)).accounts[0].ledger
    return 1 - ledger.busy_ns / ledger.wall_ns


def measure_roofline() -> list[Row]:
    """What the device can do at most."""
    told = subprocess.run(
        [*FUELLINE, "roofline", "--json"], capture_output=True, text=True, check=False
    )
    if told.returncode:
        return [Row("roofline", told.stderr.strip()[-200:], "", is_good=False)]
    found = json.loads(told.stdout)
    rows = [Row("memory, read", f"{found['read_bytes_per_s']['value'] / 1e9:.0f} GB/s")]
    for ceiling in found["math"]:
        rate = ceiling["flops_per_s"].get("value")
        said = "unknown" if rate is None else f"{rate / 1e12:.1f} TFLOP/s"
        rows.append(Row(f"math, {ceiling['precision']}", said))
    return [*rows, Row("launch", f"{found['launch_s']['value'] * 1e6:.1f} us")]


def list_permissions(folder: Path) -> list[Row]:
    """What `fuelline doctor` says."""
    from fuelline.record.capabilities import find_capabilities

    return [
        Row(each.name, ("yes: " if each.ok else "no: ") + each.detail)
        for each in find_capabilities(folder)
    ]


def main(argv: list[str] | None = None) -> int:
    """Everything, as a table; 0 if nothing missed its bar."""
    options = _options(argv)
    device = options.device or _find_device()
    with tempfile.TemporaryDirectory(prefix="fuelline-on-gpu-") as folder:
        runner = Runner(device, Path(folder))
        parts: list[tuple[str, Callable[[], list[Row]]]] = [
            ("cost of the hooks", lambda: measure_cost(runner, options.turns)),
            ("no harm", lambda: try_harm(runner)),
            ("device clock", lambda: compare_clock(runner)),
            ("roofline", measure_roofline),
            ("permissions", lambda: list_permissions(Path(folder))),
        ]
        rows = [Row("machine", _describe(device))]
        for name, measure in parts:
            if name == "roofline" and device.startswith("emu"):
                continue
            print(f"... {name}", file=sys.stderr, flush=True)
            rows += measure()
    print(_table(rows))
    return 1 if any(row.is_good is False for row in rows) else 0


def _table(rows: list[Row]) -> str:
    marks = {True: "ok", False: "**missed**", None: ""}
    lines = ["| figure | measured | bar | |", "| --- | --- | --- | --- |"]
    lines += [f"| {r.figure} | {r.measured} | {r.bar} | {marks[r.is_good]} |" for r in rows]
    return "\n".join(lines)


def _bar(figure: str, value: float, bar: float, unit: str) -> Row:
    return Row(figure, f"{value:.1f} {unit}", f"at most {bar:.0f} {unit}", value <= bar)


def _find_device() -> str:
    import torch

    found = torch.accelerator.current_accelerator()
    if found is None:
        sys.exit(
            f"torch {torch.__version__} sees no accelerator here, so there is nothing to measure. "
            "On this machine try the command itself: python -m bench.on_gpu --device emu"
        )
    return str(found.type)


def _last_device(device: str) -> str:
    if device.startswith("emu"):
        return "emu:3"
    import torch

    return f"{device}:{torch.accelerator.device_count() - 1}"


def _describe(device: str) -> str:
    import torch

    name = device
    if device.startswith("cuda"):
        name = torch.cuda.get_device_name()
    return f"{name}, torch {torch.__version__}, Python {sys.version.split()[0]}"


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.on_gpu", description=__doc__)
    parser.add_argument("--device", default="", help="cuda, xpu, emu ... (default: what torch has)")
    parser.add_argument(
        "--turns", type=int, default=TURNS, help=f"pairs of runs for the cost (default {TURNS})"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
