"""Do all commands recommend the same, and is it right? `python -m bench.one_answer [JOB ...]`.

Twelve small jobs that are not the zoo's. Each is asked through `run`, `whatif`, `tune` and
`run --fix`. Then a grid of settings runs whole, the start of workers included. The bar: all four
name the same number of workers, within one step of the grid, and it is within one step of the
grid's best, or within 5 % of its time. About 40 minutes on a quiet machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import results

ROOT = Path(__file__).parents[1]
GRID = (0, 1, 2, 4, 8, 16, 32)
AS_GOOD = 1.05
"""The same setting differs by this much from run to run."""
FUELLINE = (sys.executable, "-m", "fuelline")
OUT = ROOT / "bench" / "out" / "one_answer.json"


@dataclass(frozen=True)
class Job:
    """One job: what a sample does, and how the script asks for its loader."""

    ways: str
    samples: int
    workers: int = 1
    epochs: int = 1
    more: str = ""

    def command(self, workers: int | None = None, *, persistent: bool = False) -> list[str]:
        count = self.workers if workers is None else workers
        words = f"--ways {self.ways} --samples {self.samples} --epochs {self.epochs} {self.more}"
        stays = ["--persistent"] if persistent and count else []
        script = str(ROOT / "bench" / "one_answer_job.py")
        return [script, *words.split(), "--workers", str(count), *stays]


JOBS = {
    "asleep": Job("sleep=8", 1600),
    "asleep, short epochs": Job("sleep=8", 320, epochs=4),
    "asleep, no workers": Job("sleep=4", 1600, workers=0),
    "computes": Job("compute=5", 1600),
    "computes, no workers": Job("compute=4", 1600, workers=0),
    "computes, too many workers": Job("compute=4", 1600, workers=16),
    "computes and sleeps": Job("compute=1,sleep=6", 1600),
    "uneven": Job("uneven=6", 1600, workers=2),
    "a service": Job("ask=0", 1600, workers=2, more="--serve-ms 8"),
    "a service in turn": Job("ask=0", 1600, workers=4, more="--serve-ms 3 --serial"),
    "reads and computes": Job("read=0,compute=2", 1200, workers=1),
    "fed, short epochs": Job("compute=0.5", 240, workers=2, epochs=12, more="--step-ms 12"),
}


def ask(job: Job, folder: Path) -> dict[str, Any]:
    """The recommendation of each command: workers and the settings to write."""
    recorded, fixed = folder / "run", folder / "fix"
    now = job.workers
    _run([*FUELLINE, "run", "--run-dir", str(recorded), *job.command()])
    _run([*FUELLINE, "run", "--fix", "--run-dir", str(fixed), *job.command()])
    return {
        "run": _recommended([*FUELLINE, "diagnose", "--json", str(recorded)], now),
        "whatif": _recommended([*FUELLINE, "whatif", "--json", str(recorded)], now),
        "tune": _recommended([*FUELLINE, "tune", "--json", *job.command()], now),
        "--fix": _recommended([*FUELLINE, "diagnose", "--json", str(fixed)], now),
    }


def _recommended(command: list[str], now: int) -> dict[str, Any]:
    """What the job would have if the settings were written, not what is said beside them."""
    told = json.loads(_run(command))["recommended"]
    if told is None:
        return {"workers": None, "settings": []}
    settings = [f"{each['knob']}={each['value']}" for each in told["settings"]]
    value = {each["knob"]: each["value"] for each in told["settings"]}
    return {"workers": value.get("num_workers", now), "settings": settings}


def _run(command: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    return done.stdout


def measure_grid(job: Job) -> dict[str, float]:
    """Whole seconds by setting: number of workers, with a `p` if they stay."""
    ways = [False, True] if job.epochs > 1 else [False]
    times = {}
    for workers in GRID:
        for stays in ways if workers else [False]:
            line = _run([sys.executable, *job.command(workers, persistent=stays)])
            times[f"{workers}{'p' * stays}"] = json.loads(line.splitlines()[-1])["whole_s"]
    return times


def judge(answers: dict[str, Any], times: dict[str, float]) -> tuple[bool, bool]:
    """Whether all say the same, and whether that is right."""
    counts = [answer["workers"] for answer in answers.values()]
    if None in counts:
        return False, False
    steps = [place(count) for count in counts]
    return max(steps) - min(steps) <= 1, all(is_right(count, times) for count in counts)


def place(workers: int) -> int:
    """The nearest place in the grid, by ratio."""
    return min(range(len(GRID)), key=lambda at: abs(_size(GRID[at]) - _size(workers)))


def _size(workers: int) -> float:
    return float(workers.bit_length() + workers / (1 << workers.bit_length()))


def is_right(workers: int, times: dict[str, float]) -> bool:
    """One step beside the best setting, or as fast as it."""
    best = min(times, key=lambda name: times[name])
    if abs(place(workers) - place(int(best.rstrip("p")))) <= 1:
        return True
    here = [time_s for name, time_s in times.items() if int(name.rstrip("p")) == _nearest(workers)]
    return min(here) <= AS_GOOD * times[best]


def _nearest(workers: int) -> int:
    return GRID[place(workers)]


def main(names: list[str] | None = None) -> dict[str, Any]:
    """Ask, measure, keep what came of it after each job, write the section."""
    kept: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name, job in JOBS.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory(prefix="one-answer-") as folder:
            answers = ask(job, Path(folder))
        times = measure_grid(job)
        same, right = judge(answers, times)
        kept[name] = {"answers": answers, "times": times, "same": same, "right": right}
        said = ", ".join(f"{way} {each['workers']}" for way, each in answers.items())
        best = min(times, key=lambda name: times[name])
        print(f"{name}: {said}; best {best}; same {same}, right {right}", flush=True)
        OUT.parent.mkdir(parents=True, exist_ok=True)
        OUT.write_text(json.dumps(kept))
    results.write_section("one_answer", _section(kept))
    passed = len(kept) == len(JOBS) and all(
        each["same"] and each["right"] for each in kept.values()
    )
    return {"jobs": len(kept), "passed": passed}


def _section(kept: dict[str, Any]) -> str:
    good = sum(each["same"] and each["right"] for each in kept.values())
    rows = [_row(name, each) for name, each in kept.items()]
    head = "| job | `run` | `whatif` | `tune` | `--fix` | best | its time | same | right |"
    words = (
        f"`python -m bench.one_answer` ({results.machine()}): number of workers that each command "
        "recommends, and the best of a grid of whole jobs, the start of workers included (`p`: "
        f"they stay). Same and right: {good} of {len(kept)} jobs that were run, of {len(JOBS)}.\n"
    )
    return "\n".join(("## One recommendation\n", words, head, "|---" * 9 + "|", *rows))


def _row(name: str, each: dict[str, Any]) -> str:
    times = each["times"]
    best = min(times, key=lambda setting: times[setting])
    said = " | ".join(str(answer["workers"]) for answer in each["answers"].values())
    words = " | ".join("yes" if each[bar] else "**no**" for bar in ("same", "right"))
    return f"| {name} | {said} | {best} | {times[best]:.1f} s | {words} |"


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:])["passed"] else 1)
