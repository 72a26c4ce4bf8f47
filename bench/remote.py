"""Batches prepared on other hosts: the same, fast enough, and no harm?

`python -m bench.remote [PART]`. Parts: `equal [N]`, `line`, `failures`, `gain`, `ray`; all of them
without one. Root is needed for all but the first: other hosts are network namespaces on this
machine, with links of a set rate.

- equal: N (500) randomised loaders (bench.remote_case), without Ray: the helper process, the
  protocol and the worker are the real ones, workers are forked from a process that has torch.
- line: one worker behind a link of 1 Gbit, batches of 0.2 to 38 MB that take no time to make.
- failures: a killed worker, a cut link, a killed helper (what Ray's dead head does) in mid-epoch.
- gain: a job limited by its core, `fuelline run --fix` and its own prediction.
- ray: the same with Ray: a head and two nodes; then the head is killed under the job.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench import remote_job, results
from bench.remote_case import Zygote, differs, draw_remote_case
from bench.remote_hosts import Hosts

COUNT = 500
SHARES = 2
PROGRESS = 20
RATE = "1gbit"
LINE_BYTES = 125e6 * 1448 / 1538
"""Of payload a second: 1 Gbit, less the heads of each packet of 1,500 bytes."""
SIZES = (200_000, 2_000_000, 9_600_000, 38_000_000)
PORT = 6399
FIGURES = Path(__file__).parent / "out" / "remote.json"


def measure_equal(count: int = COUNT) -> dict[str, Any]:
    """How many configurations were run, and what differed."""
    context = multiprocessing.get_context("spawn")
    counts = [(count + number) // SHARES for number in range(SHARES)]
    together: Counter[str] = Counter()
    with ProcessPoolExecutor(SHARES, mp_context=context) as pool:
        for share in pool.map(measure_share, range(SHARES), counts):
            together.update(share)
    return dict(together)


def measure_share(seed: int, count: int) -> Counter[str]:
    """A part of them, drawn from this seed; what differs is told at once."""
    import torch

    torch.set_num_threads(1)
    draw, seen = random.Random(seed), Counter[str]()
    with Zygote() as zygote:
        for _ in range(count):
            case = draw_remote_case(draw)
            with contextlib.redirect_stderr(io.StringIO()):
                problem, told = differs(case, zygote)
            seen.update({"configurations": 1, "different": int(bool(problem))})
            seen.update({"with batches from elsewhere": int(told["batches"] > 0)})
            seen.update({"batches from elsewhere": told["batches"], "kills": told["kills"]})
            if seen["configurations"] % PROGRESS == 0:
                print(f"share {seed}: {dict(seen)}", flush=True)
            if problem:
                print(f"differs in {problem}: {case}", flush=True)
    return seen


def measure_line() -> list[dict[str, float]]:
    """Batches a second through the link, and the trainer's CPU for each."""
    found = []
    with Hosts(1, RATE) as hosts:
        for size in SIZES:
            answer = _ask_job(hosts, "line", {"size": size})
            answer["share"] = answer["bytes_per_s"] / LINE_BYTES
            found.append(answer)
            print(answer, flush=True)
    return found


def measure_failures() -> dict[str, dict[str, float]]:
    """Seconds until it was noticed, batches that were prepared again, and whether all came."""
    found = {}
    for what in ("worker", "link", "helper"):
        with Hosts(1, RATE) as hosts:
            found[what] = _ask_job(hosts, "failure", {"what": what}, cut=lambda: hosts.cut(1))
            print(what, found[what], flush=True)
    return found


def _ask_job(hosts: Hosts, what: str, given: dict[str, Any], cut: Any = None) -> dict[str, Any]:
    """Run a part of bench.remote_job on the first host; `cut` is called when it asks for it."""
    command = hosts.command(1, [sys.executable])
    place = {"address": hosts.addresses[1], "cores": 2, "command": command}
    words = [sys.executable, "-m", "bench.remote_job", what]
    job = hosts.start(
        0,
        [*words, json.dumps({**given, "address": "processes:" + json.dumps([place])})],
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in job.stdout or ():
        if line.startswith("cut") and cut is not None:
            cut()
        elif line.startswith("{"):
            return dict(json.loads(line))
    raise RuntimeError(f"{what} ended with {job.wait()}")


def measure_gain(*, with_ray: bool, kill_head: bool = False) -> dict[str, Any]:
    """What `fuelline run --fix` predicted and achieved for a job limited by its core."""
    with Hosts(2, RATE) as hosts, tempfile.TemporaryDirectory(prefix="fuelline-remote-") as folder:
        environment = {**os.environ, "FUELLINE_BENCH_HASH": f"{folder}/hash"}
        words = [f"{Path(sys.executable).parent}/fuelline", "run", "--fix", "--quiet"]
        words += ["--run-dir", f"{folder}/run"]
        head = None
        if with_ray:
            head = _start_ray(hosts, folder)
            words += ["--ray", f"{hosts.addresses[0]}:{PORT}"]
            environment["RAY_AUTH_MODE"] = "disabled"
        else:
            places = [
                {
                    "address": hosts.addresses[number],
                    "cores": 2,
                    "command": hosts.command(
                        number, ["env", "FAR=1", "taskset", "-c", "0-63", sys.executable]
                    ),
                }
                for number in (1, 2)
            ]
            environment["FUELLINE_RAY"] = "processes:" + json.dumps(places)
        words += [remote_job.__file__, "job"]
        job = hosts.start(0, ["taskset", "-c", "0", *words], env=environment)
        if kill_head and head is not None:
            _await_event(folder, "remote_ready", job)
            time.sleep(6)
            head.send_signal(signal.SIGKILL)
            _kill_named(folder, "gcs_server")
        code = job.wait()
        events = _read_events(folder)
        same = Path(f"{folder}/hash").read_text() if Path(f"{folder}/hash").exists() else ""
    trial = next((e for e in events if e["event"] == "trial" and e["remote"]), None)
    answer: dict[str, Any] = {"code": code, "hash": same, "events": [e["event"] for e in events]}
    if trial is not None:
        before, after = statistics.fmean(trial["before"]), statistics.fmean(trial["after"] or [0])
        answer |= {
            "predicted": trial["predicted"],
            "achieved": after / before,
            "verdict": trial["verdict"],
            "remote": trial["remote"],
        }
    lost = [e for e in events if e["event"] == "remote_lost"]
    end = next((e for e in events if e["event"] == "remote_end"), {})
    left = [e["why"] for e in events if e["event"] == "remote_left"]
    return {**answer, "lost": len(lost), "batches": end.get("batches"), "left": left}


def _start_ray(hosts: Hosts, folder: str) -> subprocess.Popen[Any]:
    """A head that lends no core, and two nodes."""
    program = f"{Path(sys.executable).parent}/ray"
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = [program, "start", "--block", "--node-ip-address"]
    head = hosts.start(
        0,
        [*words, hosts.addresses[0], "--head", "--port", str(PORT), "--num-cpus", "0",
         "--include-dashboard", "false", "--temp-dir", f"{folder}/ray"],
        env=environment, **quiet,
    )  # fmt: skip
    time.sleep(15)
    for number in (1, 2):
        hosts.start(
            number,
            [*words, hosts.addresses[number], "--address", f"{hosts.addresses[0]}:{PORT}",
             "--num-cpus", "2"],
            env={**environment, "FAR": "1"}, **quiet,
        )  # fmt: skip
    time.sleep(15)
    return head


def _kill_named(folder: str, name: str) -> None:
    """Ray's own processes of this cluster, which its folder marks."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if name in words and folder in words:
            os.kill(int(entry.name), signal.SIGKILL)


def _await_event(folder: str, event: str, job: subprocess.Popen[Any]) -> None:
    while job.poll() is None and event not in {e["event"] for e in _read_events(folder)}:
        time.sleep(0.2)


def _read_events(folder: str) -> list[dict[str, Any]]:
    text = "".join(path.read_text() for path in Path(folder).glob("run*/fix/*.jsonl"))
    return [json.loads(line) for line in dict.fromkeys(text.splitlines()) if line.endswith("}")]


def main(parts: list[str]) -> dict[str, Any]:
    """Measure these parts, keep their figures, write the section."""
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for part in parts or ["equal", "line", "failures", "gain", "ray"]:
        if part.isdecimal():
            continue
        if part == "equal":
            count = next((int(word) for word in parts if word.isdecimal()), COUNT)
            known[part] = measure_equal(count)
        elif part == "line":
            known[part] = measure_line()
        elif part == "failures":
            known[part] = measure_failures()
        elif part == "gain":
            known[part] = measure_gain(with_ray=False)
        elif part == "ray":
            known[part] = [measure_gain(with_ray=True), measure_gain(with_ray=True, kill_head=True)]
            known["plain"] = remote_job.run_plainly()
        FIGURES.parent.mkdir(exist_ok=True)
        FIGURES.write_text(json.dumps(known))
        print(part, known[part], flush=True)
    results.write_section("remote", _section(known))
    return known


def _section(known: dict[str, Any]) -> str:
    rows = [
        *_equal_rows(known.get("equal", {})),
        *_line_rows(known.get("line", [])),
        *_failure_rows(known.get("failures", {})),
        *_gain_rows(known),
    ]
    table = "\n".join(rows)
    return f"""## Batches prepared on other hosts

`python -m bench.remote`, {results.machine()}. Other hosts are network namespaces with links of
1 Gbit on the same cores, so work there is emulated by sleeping. "Without Ray": helper, protocol and
worker are the real ones, and workers plain processes. A link of 1 Gbit carries 117.7 MB/s of
payload in packets of 1,500 bytes; here segments leave in one piece, so more than 100 % is possible.

| figure | bar | measured |
| --- | --- | --- |
{table}"""


def _equal_rows(found: dict[str, Any]) -> list[str]:
    if not found:
        return ["| configurations without Ray that are bit-identical | all of 500 | not measured |"]
    count, bad = found["configurations"], found["different"]
    same = "configurations without Ray: bit-identical, and no process after 2 s"
    more = "of these with batches from elsewhere; such batches; kills of workers, nodes, helpers"
    elsewhere = found["with batches from elsewhere"], found["batches from elsewhere"]
    return [
        f"| {same} | all of 500 | {count - bad:,} of {count:,} |",
        f"| {more} | | {elsewhere[0]:,}; {elsewhere[1]:,}; {found['kills']:,} |",
    ]


def _line_rows(found: list[dict[str, float]]) -> list[str]:
    return [
        f"| share of line rate with batches of {each['size'] / 1e6:.1f} MB; CPU of the trainer a "
        f"batch | >= 95 %; <= 1 ms | {100 * each['share']:.0f} %; {1e3 * each['cpu_s']:.2f} ms |"
        for each in found
    ]


def _failure_rows(found: dict[str, dict[str, float]]) -> list[str]:
    words = {"worker": "a killed worker", "link": "a cut link", "helper": "a killed helper"}
    return [
        f"| {words[what]} in mid-epoch: noticed after; batches prepared again of those under way; "
        f"all batches came | < 5 s; <= 1 each; yes | {each['seconds']:.2f} s; "
        f"{each['again']:.0f} of {each['under_way']:.0f}; {'yes' if each['is_same'] else 'no'} |"
        for what, each in found.items()
    ]


def _gain_rows(known: dict[str, Any]) -> list[str]:
    rows = []
    for what, found in (
        ("without Ray", known.get("gain")),
        ("with Ray", (known.get("ray") or [None])[0]),
    ):
        if found and found.get("predicted"):
            share = found["achieved"] / found["predicted"]
            job = f"job limited by one core, {what}: predicted, achieved, share of the prediction"
            rows.append(
                f"| {job} | >= 90 % | {found['predicted']:.2f}x, {found['achieved']:.2f}x, "
                f"{100 * share:.0f} % ({found['verdict']}) |"
            )
    if known.get("ray"):
        plain, (first, second) = known.get("plain"), known["ray"]
        rows.append(
            "| with Ray: all batches of the job are those of the plain loader; also when the head "
            f"is killed under it | yes; yes | {'yes' if first['hash'] == plain else 'no'} "
            f"({first['batches']} from elsewhere); {'yes' if second['hash'] == plain else 'no'} "
            f"({second['batches']} from elsewhere, {second['lost']} workers lost, exit code "
            f"{second['code']}) |"
        )
    if not rows:
        rows.append("| job limited by one core; the same with Ray | >= 90 % | not measured |")
    return rows


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=1))
