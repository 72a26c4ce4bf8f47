"""What `fuelline serve` costs while 64 ranks train: CPU, memory, and how long a scrape takes.

A process writes spools and a journal as 64 ranks with a worker each do, ten steps a second. The
server follows them for one page that stays open and for a Prometheus that scrapes: the server, its
reader and the diagnoses that it asks for are measured together. Then the same server over a store
of 10,000 runs, of which none is running.

    python -m bench.serve_cost
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import results, watch_cost
from fuelline.schema.run.recording import RUN_FILE, SPOOL_DIR, RunFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

RANKS, RUNS = 64, 10_000
PAST_S, STEP_NS = 120, 100_000_000
SETTLE_S, MEASURED_S, SCRAPES = 60, 120, 40
OUT = Path(__file__).with_name("out") / "serve"
BARS = {"core_share": 0.02, "pss_bytes": 100e6, "scrape_ms": 20.0}
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> dict[str, Any]:
    """The figures and whether they meet their bars."""
    shutil.rmtree(OUT, ignore_errors=True)
    figures = measure_live() | measure_store()
    figures["passed"] = all(figures[name] <= bar for name, bar in BARS.items())
    results.write_section("serve_cost", section(figures))
    shutil.rmtree(OUT)
    return figures


def measure_live() -> dict[str, float]:
    """While 64 ranks train, a page of them is open, and Prometheus scrapes."""
    run_dir = OUT / "live" / "runs" / "20260412-093015-train-1"
    (run_dir / SPOOL_DIR).mkdir(parents=True)
    run_dir.parent.chmod(0o700)
    watch_cost.PAST_S, watch_cost.STEP_NS = PAST_S, STEP_NS
    facts = RunFacts(
        run_id=run_dir.name,
        command=["python", "train.py"],
        host=os.uname().nodename,
        started_wall_ns=time.time_ns() - PAST_S * 10**9,
        started_ns=time.monotonic_ns() - PAST_S * 10**9,
        launcher_pid=os.getpid(),
    )
    (run_dir / RUN_FILE).write_bytes(msgspec.json.encode(facts))
    ready = multiprocessing.Event()
    writer = multiprocessing.Process(
        target=watch_cost.write_job, args=(run_dir, RANKS, 1, ready), daemon=True
    )
    writer.start()
    try:
        ready.wait()
        with serving(OUT / "live") as (server, port, token):
            wait_for_rank(port, token)
            threading.Thread(target=look, args=(port, token, run_dir.name), daemon=True).start()
            time.sleep(SETTLE_S)
            begin, began_s = Usage.of(server), time.monotonic()
            scrapes = []
            for _ in range(SCRAPES):
                scrapes.append(scrape(port, token)[0])
                time.sleep(MEASURED_S / SCRAPES)
            end, took_s = Usage.of(server), time.monotonic() - began_s
    finally:
        writer.kill()
        writer.join()
    return {
        "core_share": (end.cpu_s - begin.cpu_s) / took_s,
        "server_share": (end.own_s - begin.own_s) / took_s,
        "pss_bytes": end.pss_bytes,
        "scrape_ms": statistics.median(scrapes) * 1e3,
        "scrape_most_ms": max(scrapes) * 1e3,
    }


def measure_store() -> dict[str, float]:
    """Over many runs that have ended."""
    runs = OUT / "many" / "runs"
    runs.mkdir(parents=True)
    runs.chmod(0o700)
    for number in range(RUNS):
        run_dir = runs / f"20260412-{number:06d}-train-{number}"
        run_dir.mkdir()
        facts = RunFacts(
            run_id=run_dir.name, command=["python", "train.py"], host="elsewhere", exit_code=0,
            started_wall_ns=(1_700_000_000 + number) * 10**9, started_ns=0, ended_ns=10**9,
        )  # fmt: skip
        (run_dir / RUN_FILE).write_bytes(msgspec.json.encode(facts))
    with serving(OUT / "many") as (server, port, token):
        began_s = time.monotonic()
        while ask(port, token, "/api/runs")["known"] < RUNS:
            time.sleep(0.2)
        listed_s = time.monotonic() - began_s
        began_s = time.monotonic()
        found = ask(port, token, "/api/runs?words=train+4711")
        search_s = time.monotonic() - began_s
        assert found["count"] == 1
        time.sleep(5)
        begin, began_s = Usage.of(server), time.monotonic()
        time.sleep(SETTLE_S)
        end, took_s = Usage.of(server), time.monotonic() - began_s
    return {
        "store_listed_s": listed_s,
        "store_search_ms": search_s * 1e3,
        "store_core_share": (end.cpu_s - begin.cpu_s) / took_s,
        "store_pss_bytes": end.pss_bytes,
    }


@contextmanager
def serving(home: Path) -> Iterator[tuple[int, int, str]]:
    """A server for this store: its pid, port and token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = home / "token"
    words = ["serve", "--no-open", "--port", str(port), "--token-file", str(token)]
    server = subprocess.Popen(
        [sys.executable, "-m", "fuelline", *words],
        env={**os.environ, "FUELLINE_HOME": str(home)},
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    server.stdout.readline()
    try:
        yield server.pid, port, token.read_text().strip()
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def get(port: int, token: str, path: str) -> bytes:
    """What the server answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
    body = connection.getresponse().read()
    connection.close()
    return body


def ask(port: int, token: str, path: str) -> dict[str, Any]:
    """The same as JSON."""
    told: dict[str, Any] = json.loads(get(port, token, path))
    return told


def scrape(port: int, token: str) -> tuple[float, bytes]:
    """Seconds, and what was answered."""
    began_s = time.perf_counter()
    body = get(port, token, "/metrics")
    return time.perf_counter() - began_s, body


def wait_for_rank(port: int, token: str) -> None:
    while b'rank="0"' not in scrape(port, token)[1]:
        time.sleep(0.5)


def look(port: int, token: str, run_id: str) -> None:
    """As a page that stays open does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    headers = {"authorization": f"Bearer {token}"}
    connection.request("GET", f"/live/{run_id}/events", headers=headers)
    answer = connection.getresponse()
    try:
        while answer.readline():
            pass
    except OSError:  # the server was ended
        return


class Usage:
    """CPU seconds and memory of a process and all below it; children that have ended count."""

    def __init__(self, own_s: float, cpu_s: float, pss_bytes: float) -> None:
        self.own_s, self.cpu_s, self.pss_bytes = own_s, cpu_s, pss_bytes

    @staticmethod
    def of(pid: int) -> Usage:
        """Now."""
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        own_s, ended_s = (sum(map(int, words[at : at + 2])) / TICKS for at in (11, 13))
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        pss_bytes = int(rollup.partition("Pss:")[2].split()[0]) * 1024.0
        found = Usage(own_s, own_s + ended_s, pss_bytes)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            try:
                below = Usage.of(int(child))
            except (FileNotFoundError, ProcessLookupError):
                continue
            found.cpu_s += below.cpu_s
            found.pss_bytes += below.pss_bytes
        return found


def section(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    units = {"share": 100, "bytes": 1e-6}
    rows = "\n".join(
        f"| {name} | {value * units.get(name.rpartition('_')[2], 1):.3g} "
        f"| {BARS[name] * units.get(name.rpartition('_')[2], 1) if name in BARS else ''} |"
        for name, value in figures.items()
        if name != "passed"
    )
    return (
        f"## Cost of serving: 64 live ranks, and a store of 10,000 runs\n\n"
        f"`python -m bench.serve_cost`, {results.machine()}. Shares in % of a core, sizes in MB; "
        "server, readers and diagnoses together, a page open and Prometheus scraping.\n\n"
        f"| figure | measured | at most |\n|---|---|---|\n{rows}"
    )


if __name__ == "__main__":
    measured = main()
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
