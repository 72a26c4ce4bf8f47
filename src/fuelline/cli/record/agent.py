"""`fuelline agent`: for a node's administrator: every job on it, a short look now and then."""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.saying import say
from fuelline.schema.errors import RefusedError
from fuelline.schema.names import clean
from fuelline.store.runs import new_run_dir

if TYPE_CHECKING:
    from fuelline.record.attach.jobs import Job

CORE_SHARE = 0.005
"""Of one core, over the agent's life: looks that cost more wait until it has been earned."""
CREDIT_S = 10.0
"""CPU seconds that may be spent at once: the price of two looks with their diagnosis."""
LOOK_PRICE_S = 5.0
"""CPU of a look with stacks and its diagnosis, until the first one has been weighed."""
STARVES_FRAC = 0.2
"""Of a glance: a job that waits more is looked at closely; a glance has 60 looks, so chance takes
5 % for it in one of thousand."""
AGAIN_S = 3600.0
"""A job with a verdict is left alone for so long."""
GLANCE_LOOKS, GLANCE_APART_S = 60, 0.25
_UNITS = {"s": 1, "m": 60, "h": 3600}
_EPILOG = """\
examples:
  fuelline agent                            look around every 10 minutes
  fuelline agent --every 30m --store /var/lib/fuelline
  fuelline agent --once                     one round, then exit
  fuelline agent --metrics /var/lib/node_exporter/fuelline.prom

It takes at most 0.5 % of a core. Jobs of other users are seen by root only. A
systemd unit and a Kubernetes DaemonSet are in docs/attach.md.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "agent",
        help="watch all jobs of a node, for its administrator; a verdict for those that starve",
        description="Find the jobs on this node, and diagnose those that wait.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--every",
        type=_interval,
        default=600.0,
        metavar="TIME",
        help="time between two rounds, such as 90s, 10m or 1h (default: 10m)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="length of a close look (default: 20)",
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help="folder for the runs of close looks (default: the run store)",
    )
    parser.add_argument(
        "--metrics",
        type=Path,
        metavar="FILE",
        help="write figures of each job for Prometheus's textfile collector (default: none)",
    )
    parser.add_argument(
        "--once", action="store_true", help="one round, then exit (default: until ended)"
    )
    parser.set_defaults(act=act)


def _interval(word: str) -> float:
    found = re.fullmatch(r"(\d+)([smh])", word)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 30 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{word!r} is not a time from 30s to 24h, such as 10m")
    return float(seconds)


class KnownJob:
    """What the agent remembers of a job."""

    def __init__(self) -> None:
        self.wait_frac: float | None = None
        self.glances = self.starved = 0
        self.diagnosed_s = float("-inf")
        self.verdict = ""


class NodeAgent:
    """Rounds over the jobs of this node, within a share of a core."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._started_s = time.monotonic()
        self._over = threading.Event()
        self._known: dict[tuple[int, int], KnownJob] = {}
        self._price_s = LOOK_PRICE_S

    def stop(self) -> None:
        """End after what is being done now, which is ended early."""
        self._over.set()

    def run(self) -> None:
        """Round after round."""
        while not self._over.is_set():
            begun_s = time.monotonic()
            self._go_round()
            if self._options.once:
                return
            self._over.wait(max(0.0, self._options.every - (time.monotonic() - begun_s)))

    def _go_round(self) -> None:
        from fuelline.record.attach.glance import glance  # noqa: PLC0415 - loads msgspec
        from fuelline.record.attach.jobs import find_jobs  # noqa: PLC0415

        jobs = find_jobs()
        waits = glance(jobs, self._over.wait, GLANCE_LOOKS, GLANCE_APART_S)
        alive = {}
        for job in jobs:
            key = job.root.pid, job.root.stat.start_ticks
            known = alive[key] = self._known.get(key) or KnownJob()
            known.wait_frac = waits.get(job.root.pid)
            known.glances += 1
            known.starved += (known.wait_frac or 0.0) >= STARVES_FRAC
        self._known = alive
        self._write_metrics(jobs)
        hungry = sorted(jobs, key=lambda job: -(waits.get(job.root.pid) or 0.0))
        for job in hungry:
            known = self._known[job.root.pid, job.root.stat.start_ticks]
            is_due = time.monotonic() - known.diagnosed_s >= AGAIN_S
            if (known.wait_frac or 0.0) < STARVES_FRAC or not is_due or self._over.is_set():
                continue
            if self._spent_s() + self._price_s > self._earned_s():
                return  # the next round has earned more
            self._look_closely(job, known)

    def _look_closely(self, job: Job, known: KnownJob) -> None:
        from fuelline.record.attach.access import find_access  # noqa: PLC0415
        from fuelline.record.attach.session import Session  # noqa: PLC0415

        access = find_access(job.trainers[0])
        known.diagnosed_s = time.monotonic()
        if access is None:
            return
        before_s = self._spent_s()
        run_dir = new_run_dir(job.name)
        if self._options.store is not None:
            self._options.store.mkdir(parents=True, exist_ok=True)
            run_dir = self._options.store / run_dir.name
        trainers = {each.pid: "+".join(each.frameworks) for each in job.trainers}
        session = Session(job.root, trainers, access.tier, run_dir, shows=True)
        try:
            session.start()
        except RefusedError as refusal:
            say(str(refusal))
            return
        until_s = time.monotonic() + self._options.seconds
        while time.monotonic() < until_s and not session.is_over and not self._over.is_set():
            self._over.wait(1.0)
        session.stop()
        known.verdict = _diagnose(run_dir)
        self._price_s = max(1.0, self._spent_s() - before_s)
        name = clean(job.name)
        where = f"slurm {job.slurm}, " if job.slurm else ""
        print(
            f"{_now()} pid {job.root.pid} ({name}, {where}{access.tier}): {known.verdict}  "
            f"[{run_dir}]",
            flush=True,
        )

    def _spent_s(self) -> float:
        """CPU of ours and of all our helpers that have ended."""
        usages = (
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    def _earned_s(self) -> float:
        return CREDIT_S + CORE_SHARE * (time.monotonic() - self._started_s)

    def _write_metrics(self, jobs: list[Job]) -> None:
        """Whole or not at all: the collector may read at any moment."""
        path = self._options.metrics
        if path is None:
            return
        lines = [
            "# HELP fuelline_job_wait_ratio Share of a glance in which training waited for data.",
            "# TYPE fuelline_job_wait_ratio gauge",
        ]
        for job in jobs:
            known = self._known[job.root.pid, job.root.stat.start_ticks]
            if known.wait_frac is not None:
                labels = {
                    "pid": str(job.root.pid),
                    "job": job.name,
                    "framework": "+".join(job.frameworks),
                    "slurm": job.slurm,
                    "pod": job.pod,
                }
                text = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
                lines.append(f"fuelline_job_wait_ratio{{{text}}} {known.wait_frac:.3f}")
        lines += [
            "# HELP fuelline_agent_cpu_seconds_total CPU time of the agent and its helpers.",
            "# TYPE fuelline_agent_cpu_seconds_total counter",
            f"fuelline_agent_cpu_seconds_total {self._spent_s():.3f}",
        ]
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            partial.write_text("\n".join(lines) + "\n")
            partial.replace(path)
        except OSError as error:
            say(
                f"{path} cannot be written ({error.strerror}); the jobs are looked at all the same."
            )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S")


def _diagnose(run_dir: Path) -> str:
    """In a process of its own: it loads a hundred megabytes, and gives them back."""
    command = [sys.executable, "-m", "fuelline", "diagnose", str(run_dir), "--json"]
    told = subprocess.run(
        command, capture_output=True, text=True, check=False, preexec_fn=lambda: os.nice(15)
    )
    try:
        verdict = json.loads(told.stdout)["verdict"]
    except (ValueError, KeyError, TypeError):
        return f"no diagnosis: {told.stderr.strip()[-200:] or 'it gave no answer'}"
    if not verdict["code"]:
        return f"cannot tell: {verdict.get('reason') or 'no reason given'}"
    return f"{verdict['code']} {verdict['sentence']}"


def act(options: argparse.Namespace) -> int:
    """Until ended by a signal."""
    if not sys.platform.startswith("linux"):
        raise RefusedError("The agent needs Linux, whose /proc shows what processes do.")
    agent = NodeAgent(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: agent.stop())
    if os.geteuid() != 0:
        say("only jobs of your own are seen; as root the agent sees all of the node.")
    agent.run()
    return 0
