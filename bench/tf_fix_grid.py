"""`run --fix` on tf.data pipelines against a full grid of the pool's sizes, and its batches.

Each pipeline is run once per setting of the grid and once under `--fix`, in turns. The rate is that
of the last seconds of a job, so that what `--fix` tries first is not in it. The order and values of
all samples are hashed by the job. Runs in the environment of `make zoo-tensorflow`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import results
from bench.zoo.case import DATA
from bench.zoo.faults.preload import SlowReads

JOB = Path(__file__).with_name("tf_fix_job.py")
POOLS = (0, 4, 16, 32)
"""Threads of the pool; 0: as the job has it."""
PIPELINES = {"reads of 10 ms": 10.0, "reads of 30 ms": 30.0}
STEPS = 220


def main() -> dict[str, Any]:
    """Measure and write the section."""
    rows, shares, is_same = [], [], True
    for name, delay_ms in PIPELINES.items():
        with SlowReads(delay_ms).plant(DATA / "images") as planted:
            env = {**os.environ, **(planted.env or {})}
            grid = {pool: run(env, pool) for pool in POOLS}
            fixed = run(env, 0, is_fixed=True)
        best = max(told["rate"] for told in grid.values())
        shares.append(fixed["rate"] / best)
        is_same &= len({told["samples"] for told in (*grid.values(), fixed)}) == 1
        rates = " / ".join(f"{told['rate']:.0f}" for told in grid.values())
        rows.append(f"| {name} | {rates} | {fixed['rate']:.0f} | {shares[-1]:.0%} |")
    sizes = " / ".join(str(pool or "as it is") for pool in POOLS)
    load = os.getloadavg()[0]
    told = (
        "Samples a second of the last 60 of 220 steps, in one epoch without an end; bar: 95 % of "
        f"the grid's best. Same samples in the same order: {'yes' if is_same else '**no**'}."
    )
    head = f"| pipeline | pool of {sizes} threads | --fix | of the best |"
    body = [
        "## run --fix on tf.data against a full grid",
        f"`python -m bench.tf_fix_grid`, {results.machine()}, load {load:.0f}. {told}",
        "\n".join([head, "| --- | --- | --- | --- |", *rows]),
    ]
    results.write_section("tf_fix_grid", "\n\n".join(body))
    return {"least_share": min(shares), "is_same": is_same, "passed": min(shares) >= 0.95}


def run(env: dict[str, str], pool: int, *, is_fixed: bool = False) -> dict[str, Any]:
    """One job; its own account."""
    words = [str(JOB), str(DATA / "images"), str(pool), str(STEPS)]
    with tempfile.TemporaryDirectory(prefix="fuelline-tf-fix-") as folder:
        before = [sys.executable]
        if is_fixed:
            fuelline = str(Path(sys.executable).with_name("fuelline"))
            before = [fuelline, "run", "--fix", "--quiet", "--run-dir", f"{folder}/run"]
            env = {**env, "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
        done = subprocess.run(
            [*before, *words], env=env, capture_output=True, text=True, check=True
        )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


if __name__ == "__main__":
    print(json.dumps(main()))
