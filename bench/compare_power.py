"""Does `compare` keep quiet about the same job, and see one that is a tenth slower? Under load.

Two jobs of known work (bench/compare_job.py), plain and with a tenth more of it in one place or
everywhere, are recorded many times while neighbours come and go: 0 to 2 processes that compute or
copy memory, for random times. Then every recording is compared with every other of its job: two of
the same side must be the same (an A/A pair), a slower one must be called slower than a plain one.
The same with several recordings of each side, drawn at random. The pairs share recordings, so they
are not independent; the recordings are.

    python -m bench.compare_power [--record N] [--keep]     about 60 s for each N; 0 only judges
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bench import compare_job, results
from bench.zoo.faults import processes
from bench.zoo.record import FUELLINE
from fuelline.pipeline.compared import sample_run
from fuelline.schema.diagnosis.comparison import MOST_RECORDINGS
from fuelline.signals.changes import compare_sides

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.schema.diagnosis.comparison import RunComparison, RunSamples

RUNS = Path(__file__).parent / "out" / "compare"
PLACES = {"compute": ("loop", "forward", "all"), "input": ("samples",)}
"""Where a tenth more work is planted, by job; `plain` is the side that has none."""
SLOWER_FRAC = 0.10
MOST_NEIGHBOURS = 2
MOST_FALSE = 0.01
LEAST_CAUGHT = 0.95
SIZES = (3, 5)
DRAWS = 100
WORDS = {
    "plain": "none",
    "loop": "in the loop",
    "forward": "in the forward pass",
    "all": "in all parts alike",
    "samples": "in the samples",
}
NEIGHBOUR = """
import random, sys, time
chance = random.Random(int(sys.argv[1]))
block = bytearray(8 << 20)
while True:
    copies, until = chance.random() < 0.3, time.monotonic() + chance.uniform(0.2, 3)
    while time.monotonic() < until:
        if copies:
            block[:] = bytes(block)
    time.sleep(chance.uniform(0.2, 3))
"""


def main(record: int = 10, *, keep: bool = False) -> dict[str, Any]:
    """Record, compare all pairs, write the section, give the figures."""
    if not keep:
        shutil.rmtree(RUNS, ignore_errors=True)
    record_all(record)
    rows = [row for kind in PLACES for row in judge(kind)]
    one_place = [row for row in rows if row["side"] != "all"]
    alarms = sum(row["alarms"] for row in rows) / sum(row["same_pairs"] for row in rows)
    caught = sum(row["caught"] for row in one_place) / sum(row["pairs"] for row in one_place)
    results.write_section("compare_power", section(rows))
    return {
        "false_alarm_frac": round(alarms, 4),
        "caught_frac": round(caught, 4),
        "passed": alarms <= MOST_FALSE and caught >= LEAST_CAUGHT,
    }


def record_all(count: int) -> None:
    """So many more recordings of each kind and side, in any order, each beside other neighbours."""
    if not count:
        return
    RUNS.mkdir(parents=True, exist_ok=True)
    have = len(list(RUNS.glob("compute.plain.*")))
    chance = random.Random(have)
    sides = [(kind, side) for kind, places in PLACES.items() for side in ("plain", *places)]
    wanted = list(itertools.product(sides, range(have, have + count)))
    chance.shuffle(wanted)
    kept = RUNS / "extra.json"
    if not kept.exists():  # the same work for all recordings of a side
        kept.write_text(json.dumps({kind: find_extra(kind) for kind in PLACES}))
    extra = json.loads(kept.read_text())
    print(f"a tenth of a step, in units of work: {extra}", flush=True)
    for (kind, side), number in wanted:
        with neighbours(chance):
            record_one(RUNS / f"{kind}.{side}.{number}", kind, side, extra[kind])


def find_extra(kind: str) -> int:
    """Units of work that take a tenth as long as a step, in CPU time, medians of many."""
    torch.set_num_threads(1)
    model, optimizer = compare_job.build(kind)
    batch = torch.zeros(compare_job.BATCH, 256)
    units, steps = [], []
    for _ in range(100):
        start_ns = time.thread_time_ns()
        compare_job.work(10)
        middle_ns = time.thread_time_ns()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        units.append((middle_ns - start_ns) / 10)
        steps.append(time.thread_time_ns() - middle_ns)
    unit_ns = statistics.median(units)
    step_ns = statistics.median(steps) + compare_job.BATCH_UNITS.get(kind, 0) * unit_ns
    return round(SLOWER_FRAC * step_ns / unit_ns)


@contextlib.contextmanager
def neighbours(chance: random.Random) -> Iterator[None]:
    """None, one or two of them."""
    with contextlib.ExitStack() as stack:
        for _ in range(chance.randint(0, MOST_NEIGHBOURS)):
            seed = str(chance.randrange(1 << 30))
            stack.enter_context(processes.python(["-c", NEIGHBOUR, seed]))
        yield


def record_one(run_dir: Path, kind: str, side: str, extra: int) -> None:
    """The job under `fuelline run`."""
    planted = [] if side == "plain" else ["--where", side, "--extra", str(extra)]
    job = ["-m", "bench.compare_job", kind, *planted]
    subprocess.run(
        [*FUELLINE, "run", "--quiet", "--run-dir", str(run_dir), *job],
        env={**os.environ, "PYTHONPATH": str(processes.REPOSITORY)},
        check=True,
        capture_output=True,
    )


def judge(kind: str) -> list[dict[str, Any]]:
    """All pairs of a job's recordings, then groups of them; a row for each side."""
    sides = {
        side: [sample_run(path, path.name) for path in sorted(RUNS.glob(f"{kind}.{side}.*"))]
        for side in ("plain", *PLACES[kind])
    }
    rows = [judge_side(kind, side, runs, sides["plain"]) for side, runs in sides.items()]
    for row in rows:
        print(row, flush=True)
    return rows


def judge_side(
    kind: str, side: str, runs: list[RunSamples], plain: list[RunSamples]
) -> dict[str, Any]:
    """A side against itself and, if it is not the plain one, against that."""
    lengths = [statistics.fmean(run.steps) * 1e3 for run in runs]
    chance = random.Random(len(runs))
    alike = max((_of_equal_work(runs, each) for each in runs), key=len)
    same = [
        ([one], [other])
        for one, other in itertools.combinations(runs, 2)
        if one.command == other.command
    ]
    slower = [] if side == "plain" else [([one], [other]) for one in plain for other in runs]
    found = [compare_sides(*pair) for pair in slower]
    row = {
        "kind": kind,
        "side": side,
        "recordings": len(runs),
        "lengths_ms": f"{min(lengths):.1f} to {max(lengths):.1f}",
        "same_pairs": len(same),
        "alarms": count(same, "slower", "faster"),
        "pairs": len(slower),
        "caught": sum(each.judgement == "slower" for each in found),
        "by_parts": sum((each.judgement, each.judged_by) == ("slower", "parts") for each in found),
        "by_cpu": sum((each.judgement, each.judged_by) == ("slower", "cpu") for each in found),
        "wrong": sum(each.judgement == "faster" for each in found),
        "unsure": sum(each.judgement == "cannot tell" for each in found),
        "needed": _median_needed([compare_sides(*pair) for pair in slower or same]),
    }
    for size in SIZES:
        enough = len(alike) >= 2 * size
        halves = [chance.sample(alike, 2 * size) for _ in range(DRAWS)] if enough else []
        again = [(each[:size], each[size:]) for each in halves]
        most = min(len(plain), len(runs), size)
        drawn = [(chance.sample(plain, most), chance.sample(runs, most)) for _ in range(DRAWS)]
        row[f"alarms_{size}"] = f"{count(again, 'slower', 'faster')} of {DRAWS}" if again else "-"
        row[f"caught_{size}"] = count(drawn, "slower") if slower else 0
        row[f"wrong_{size}"] = count(drawn, "faster") if slower else 0
    return row


def _of_equal_work(runs: list[RunSamples], like: RunSamples) -> list[RunSamples]:
    return [run for run in runs if run.command == like.command]


def _median_needed(found: list[RunComparison]) -> str:
    """Recordings of each side that a pair says would show a tenth in all of a step."""
    counts = sorted(each.recordings_needed or MOST_RECORDINGS + 1 for each in found)
    median = counts[len(counts) // 2]
    return f"over {MOST_RECORDINGS}" if median > MOST_RECORDINGS else str(median)


def count(pairs: list[tuple[list[RunSamples], list[RunSamples]]], *judgements: str) -> int:
    """How many of these comparisons come to one of these judgements."""
    return sum(compare_sides(*pair).judgement in judgements for pair in pairs)


def section(rows: list[dict[str, Any]]) -> str:
    """The section of the results page."""
    table = "\n".join(
        f"| {row['kind']} | {WORDS[row['side']]} | {row['recordings']} | {row['lengths_ms']} | "
        f"{row['alarms']} of {row['same_pairs']} | {_caught(row)} | {row['needed']} | "
        + " | ".join(f"{row[f'alarms_{size}']}; {_caught(row, size)}" for size in SIZES)
        + " |"
        for row in rows
    )
    heads = " | ".join(f"{size} each: false; caught" for size in SIZES)
    return f"""## Comparing runs under load

`python -m bench.compare_power`, {results.machine()}. Recordings of the same job, and of one with a
tenth more work in every step, beside 0 to {MOST_NEIGHBOURS} neighbours of the benchmark's own that
come and go, and whatever else the machine did; every pair of recordings is compared. Bars: false
alarms in at most 1 of 100 pairs of the same job, slower jobs caught in at least 95 of 100. With
several recordings of each side: {DRAWS} random draws of so many against as many, which share
recordings. Needed: of each side, for a tenth in all of a step, as the median pair says.

| job | a tenth more work | recordings | mean step, ms | false alarms | caught | needed | {heads} |
| --- | --- | --- | --- | --- | --- | --- | {" | ".join("---" for _ in SIZES)} |
{table}

{_totals(rows)} No recording in this table was used to choose anything: method and constants were
fixed on 162 earlier recordings of these jobs before these were looked at."""


def _totals(rows: list[dict[str, Any]]) -> str:
    """By the number of recordings of each side: false alarms, and what was caught in one place."""
    one_place = [row for row in rows if row["side"] not in ("plain", "all")]
    alarms, same = sum(row["alarms"] for row in rows), sum(row["same_pairs"] for row in rows)
    caught, pairs = (sum(row[each] for row in one_place) for each in ("caught", "pairs"))
    said = [f"single pairs {alarms} of {same} false, {caught} of {pairs} caught in one place"]
    for size in SIZES:
        known = [row[f"alarms_{size}"] for row in rows if row[f"alarms_{size}"] != "-"]
        false = sum(int(each.split()[0]) for each in known)
        found = sum(row[f"caught_{size}"] for row in one_place)
        said.append(
            f"{size} each {false} of {DRAWS * len(known)} false, {found} of "
            f"{DRAWS * len(one_place)} caught"
        )
    return f"In all: {'; '.join(said)}."


def _caught(row: dict[str, Any], size: int = 1) -> str:
    if not row["pairs"]:
        return "-"
    if size > 1:
        wrong = row[f"wrong_{size}"]
        return f"{row[f'caught_{size}']} of {DRAWS}" + (f", {wrong} called faster" if wrong else "")
    how = f"{row['by_parts']} by parts, {row['by_cpu']} by CPU time"
    wrong = f", {row['wrong']} called faster" if row["wrong"] else ""
    return f"{row['caught']} of {row['pairs']} ({how}{wrong}); {row['unsure']} cannot tell"


def _ask() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=int, default=10, metavar="N")
    parser.add_argument("--keep", action="store_true", help="add to the recordings that are there")
    return parser.parse_args()


if __name__ == "__main__":
    asked = _ask()
    measured = main(asked.record, keep=asked.keep)
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
