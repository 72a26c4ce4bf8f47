"""Speed and memory of this tree beside an older one, in turns: hooks, fixed cost, import, 64 ranks.

    git worktree add --detach ../before REV && make -C ../before .venv/.demo
    python -m bench.before_after ../before [--turns 3]

Each tree runs its own benchmarks with its own Python, so that names may have changed in between;
the figures are compared by their medians. Nothing is written to the older tree's results.
About 12 minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench import results
from bench.trace_import import SOURCE
from bench.traces.repeat import repeat

ROOT = Path(__file__).parent.parent
QUIETLY = "import json; from bench import results; results.write_section = lambda *_: None\n"
ASKED = {
    "hooks": f"""{QUIETLY}
import torch
from bench import overhead
torch.set_num_threads(1)
overhead.STEPS, overhead.WARM_UP = 2000, 1000
print(json.dumps({{
    "with workers, us per step": overhead.time_in_turn(1, rounds=1)["hooks_us_per_step"],
    "without, us per step": overhead.time_in_turn(0, rounds=1)["hooks_us_per_step"],
}}))
""",
    "fixed cost": f"""{QUIETLY}
from bench import fixed_cost
fixed_cost.PAIRS = 2
print(json.dumps({{"added to a short job, s": fixed_cost.main()["added_s"]}}))
""",
    "trace import": """
import json, runpy, sys, io, contextlib
shown = io.StringIO()
with contextlib.redirect_stdout(shown):
    runpy.run_module("bench.traces.ours", run_name="__main__", alter_sys=True)
found = json.loads(shown.getvalue().splitlines()[-1])
print(json.dumps({
    "324 MB, CPU s": found["cpu_s"], "324 MB, peak MB": found["peak_rss_bytes"] / 1e6
}))
""",
    "64 ranks": f"""{QUIETLY}
from bench import many_ranks
found = many_ranks.main()
print(json.dumps({{
    "one hour, CPU s": found["cpu_seconds"], "one hour, peak MB": found["peak_rss_bytes"] / 1e6
}}))
""",
}
"""What each tree's Python is asked; the last line that it prints is JSON."""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path, help="a checkout of the older revision, with .venv")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args(argv)
    trees = {"before": options.before.resolve(), "after": ROOT}
    figures: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="fuelline-before-") as folder:
        trace = Path(folder) / "t324.json.gz"
        repeat(SOURCE, trace, 6)
        for turn in range(options.turns):
            for subject, program in ASKED.items():
                order = list(trees.items())
                for side, tree in order if turn % 2 == 0 else reversed(order):
                    for name, value in ask(tree, program, trace).items():
                        kept = figures.setdefault(f"{subject}: {name}", {})
                        kept.setdefault(side, []).append(value)
    results.write_section("before_after", section(figures, trees))
    return figures


def ask(tree: Path, program: str, trace: Path) -> dict[str, float]:
    """What one tree measures of itself."""
    done = subprocess.run(
        [tree / ".venv/bin/python", "-c", program, trace],
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def section(figures: dict[str, dict[str, list[float]]], trees: dict[str, Path]) -> str:
    """The section of the results page: medians, and the range of the turns."""
    revisions = {
        side: subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=tree,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for side, tree in trees.items()
    }
    rows = "\n".join(
        f"| {name} | {_range(sides['before'])} | {_range(sides['after'])} |"
        for name, sides in figures.items()
    )
    return f"""## Before and after

`python -m bench.before_after`, {results.machine()}. {revisions["before"]} and
{revisions["after"]} in turns; medians, and the range of the turns.

| figure | before | after |
| --- | --- | --- |
{rows}"""


def _range(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
