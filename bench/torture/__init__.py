"""Randomised kills and faults over all modes of `fuelline run`: does the job end as without us?

Each case is drawn from its seed: a mode, a small job (with torch or without), and something that
happens: signals to the job, its workers, the observer, the report, py-spy, the launcher or all of
them; a run's folder that is removed, replaced, filled, garbled; limits of descriptors, processes,
file size, address space and memory; closed streams; jobs that end or behave oddly. The plain job is
run under the same fault where that makes sense (see `judge`). Nothing may be left running, and
nothing be left behind outside the run's folder. Where the plain job's end is a race, both are run
again (see `_ask_again`). 1,000 cases take 40 minutes on two idle cores;
mounts, users and control groups need root, and cases that need them are skipped without.

    python -m bench.torture --seed 1 --count 1000 --jobs 2     goes on where this commit was stopped
    python -m bench.torture --only 100042                      one of them again
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import results
from bench.torture.case import draw, is_felt_plain, is_race, kills_torchrun, needs_root
from bench.torture.drive import Bench
from bench.torture.judge import find_complaint, find_remains, is_alike, without_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.torture.case import Case
    from bench.torture.drive import Result

OUT = Path(__file__).parents[1] / "out"
RACES = 5
"""Plain runs that are asked where the plain job does not always end alike either."""
RACES_RECORDED = 3
"""Recorded runs of which one must then end as the first plain run did."""
STRIDE = 100_000
"""Case 42 of seed 1 has the seed 100,042 of its own."""


def main(words: list[str] | None = None) -> dict[str, Any]:
    """The figures, and whether all cases came out as the plain job."""
    parser = argparse.ArgumentParser(prog="python -m bench.torture")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, nargs="+", help="seeds of single cases")
    parser.add_argument("--mode", help="only cases of this mode")
    parser.add_argument("--fault", help="only cases of this fault")
    parser.add_argument("--fresh", action="store_true", help="forget what was done before")
    options = parser.parse_args(words or [])
    state = OUT / f"torture-{options.seed}.jsonl"
    state.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh or options.only:
        state = state.with_name("torture-now.jsonl")
        state.unlink(missing_ok=True)
    commit = find_commit()
    seeds = options.only or [options.seed * STRIDE + at for at in range(options.count)]
    rows = _run_all(_wanted(seeds, options), state, options.jobs, commit)
    figures = _sum_up(rows)
    print(_table(rows))
    if not (options.only or options.mode or options.fault):
        results.write_section("torture", markdown(figures, rows, options.seed, commit))
    return figures


def _wanted(seeds: Iterable[int], options: argparse.Namespace) -> list[int]:
    return [
        seed
        for seed in seeds
        if options.mode in (None, draw(seed).mode) and options.fault in (None, draw(seed).fault)
    ]


def find_commit() -> str:
    """What is tried; ends with `-dirty` if it is more than that commit."""
    here = Path(__file__).parents[2]
    own = ":!bench/RESULTS.md"  # which the benches write
    head, changed = (
        subprocess.run(["git", *words], cwd=here, check=True, capture_output=True, text=True).stdout
        for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", ".", own])
    )
    return head.strip() + ("-dirty" if changed else "")


def load_rows(state: Path, commit: str) -> list[dict[str, Any]]:
    """What was done before of the same commit; what a changed tree gave cannot be known again."""
    if commit.endswith("-dirty") or not state.exists():
        return []
    rows = [json.loads(line) for line in state.read_text().splitlines()]
    return [row for row in rows if row.get("commit") == commit]


def _run_all(seeds: list[int], state: Path, jobs: int, commit: str) -> list[dict[str, Any]]:
    rows = [row for row in load_rows(state, commit) if row["seed"] in set(seeds)]
    left = [seed for seed in seeds if seed not in {row["seed"] for row in rows}]
    lock = threading.Lock()
    with tempfile.TemporaryDirectory(prefix="fuelline-torture-") as name:
        Path(name).chmod(0o755)
        bench = Bench(Path(name))

        def run(seed: int) -> None:
            row = {**_run_one(bench, seed), "commit": commit}
            with lock, state.open("a") as file:
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                if row["complaint"] or len(seeds) < 50:
                    verdict = row["complaint"] or row["verdict"]
                    print(f"{seed} {row['name']} ({row['seconds']} s): {verdict}", flush=True)

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(run, left))
    return sorted(rows, key=lambda row: int(row["seed"]))


def _run_one(bench: Bench, seed: int) -> dict[str, Any]:
    case, begun_s = draw(seed), time.monotonic()
    row = {"seed": seed, "mode": case.mode, "fault": case.fault, "name": case.name, "complaint": ""}
    if needs_root(case):
        return {**row, "verdict": "skipped", "seconds": 0}
    clean = bench.plain(case, is_clean=True)
    plain = bench.plain(case, is_clean=False) if is_felt_plain(case) else clean
    got = _record(bench, case)
    complaint = find_complaint(case, got, plain, clean) or ""
    verdict = "differs" if complaint else "same"
    if complaint and is_race(case) and find_remains(got, plain) is None:
        complaint = _ask_again(bench, case, got, plain, clean) or ""
        verdict = "differs" if complaint else "same as another plain run"
    if complaint:
        row["stderr"] = got.stderr
    seconds = round(time.monotonic() - begun_s, 1)
    return {**row, "complaint": complaint, "verdict": verdict, "seconds": seconds}


def _record(bench: Bench, case: Case) -> Result:
    got = bench.record(case)
    if got.orphans and kills_torchrun(case):
        return without_ranks(got, bench.plain_without_torchrun(case))
    return got


def _ask_again(bench: Bench, case: Case, got: Result, plain: Result, clean: Result) -> str | None:
    """What is wrong although the plain job's end is a race.

    Another plain run must end as the recorded one did, and another recorded run as the first plain
    one: a defect that always turns the rare outcome into the usual one must show.
    """
    plains = (bench.plain_again(case) for _ in range(RACES))
    if not any(is_alike(case, got, other, clean) for other in plains):
        return find_complaint(case, got, plain, clean)
    for _ in range(RACES_RECORDED):
        again = _record(bench, case)
        if find_complaint(case, again, plain, clean) is None:
            return None
        if remains := find_remains(again, plain):
            return remains
    return f"never as the plain run: {find_complaint(case, got, plain, clean)}"


def _sum_up(rows: list[dict[str, Any]]) -> dict[str, Any]:
    verdicts = Counter(row["verdict"] for row in rows)
    return {
        "cases": len(rows) - verdicts["skipped"],
        "same": verdicts["same"] + verdicts["same as another plain run"],
        "raced": verdicts["same as another plain run"],
        "skipped": verdicts["skipped"],
        "failed": [row["seed"] for row in rows if row["verdict"] == "differs"],
        "passed": verdicts["same"] > 0 and not verdicts["differs"],
    }


def _table(rows: list[dict[str, Any]]) -> str:
    """Faults down, modes across; `7` of them came out the same, or `6/7` did."""
    modes = sorted({row["mode"] for row in rows})
    lines = ["| fault | " + " | ".join(modes) + " |", "| --- |" + " ---: |" * len(modes)]
    for fault in sorted({row["fault"] for row in rows}):
        cells = [_cell([r for r in rows if (r["fault"], r["mode"]) == (fault, m)]) for m in modes]
        lines.append(f"| {fault} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(rows: list[dict[str, Any]]) -> str:
    tried = [row for row in rows if row["verdict"] != "skipped"]
    same = sum(row["verdict"] != "differs" for row in tried)
    return (str(same) if same == len(tried) else f"{same}/{len(tried)}") if tried else ""


def markdown(figures: dict[str, Any], rows: list[dict[str, Any]], seed: int, commit: str) -> str:
    """The section of the results page."""
    failed = ", ".join(map(str, figures["failed"])) or "none"
    return f"""## Torture

`python -m bench.torture --seed {seed} --count {len(rows)}`, {results.machine()}, commit {commit}.

| figure | measured | bar |
| --- | --- | --- |
| cases whose outcome equals the plain job's | {figures["same"]} of {figures["cases"]} | all |
| of these, as another plain run (killed workers and ranks: a race) | {figures["raced"]} | |
| seeds that differ | {failed} | none |

{_table(rows)}"""
