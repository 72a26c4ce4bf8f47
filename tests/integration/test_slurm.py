"""The recipes of docs/fleet.md for Slurm, on a cluster of one node that is started for them."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
DAEMONS = ("munged", "slurmctld", "slurmd")

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd runs as root"),
    pytest.mark.skipif(
        not all(map(shutil.which, DAEMONS)), reason="needs slurm-wlm and munge of Debian"
    ),
]
CONFIGURATION = """\
ClusterName=fuelline
SlurmctldHost=localhost
AuthInfo=socket={home}/munge.socket
ProctrackType=proctrack/linuxproc
ReturnToService=2
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.log
SlurmdSpoolDir={home}/spool
StateSaveLocation={home}/state
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MinJobAge=600
Prolog={scripts}/prolog.sh
TaskEpilog={scripts}/task_epilog.sh
Epilog={scripts}/epilog.sh
NodeName=localhost CPUs={cores} State=UNKNOWN
PartitionName=main Nodes=localhost Default=YES State=UP OverSubscribe=FORCE:4
"""


class Cluster:
    """One node; its scripts are the examples, with places of this test's own."""

    def __init__(self, home: Path) -> None:
        self.home, self.scripts, self.shared = home, home / "scripts", home / "shared"
        for folder in (self.scripts, self.shared, self.home / "state", self.home / "spool"):
            folder.mkdir()
        for script in EXAMPLES.glob("*.sh"):
            text = script.read_text()
            for place in ("/shared/", "/local/", "/var/log/"):
                text = text.replace(place, f"{self.shared}/")
            text = re.sub(r"\bfuelline (?=run|fleet)", f"{sys.executable} -m fuelline ", text)
            (self.scripts / script.name).write_text(text)
            (self.scripts / script.name).chmod(0o755)
        self.conf = home / "slurm.conf"
        cores = len(os.sched_getaffinity(0))
        self.conf.write_text(
            CONFIGURATION.format(home=home, scripts=self.scripts, ports=_find_ports(), cores=cores)
        )
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(self.conf),
            "FUELLINE_HOME": str(home / "fuelline"),
        }
        self.daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        key = self.home / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        at = f"{self.home}/munge"
        places = [f"--socket={at}.socket", f"--pid-file={at}.pid", f"--seed-file={at}.seed"]
        places.append(f"--log-file={at}.log")
        self._spawn("munged", "--foreground", "--force", f"--key-file={key}", *places)
        _wait_for(Path(f"{self.home}/munge.socket").exists)
        self._spawn("slurmctld", "-D", "-f", self.conf)
        self._spawn("slurmd", "-D", "-f", self.conf, "-N", "localhost")
        _wait_for(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T"))

    def _spawn(self, *words: object) -> None:
        quiet = subprocess.DEVNULL
        self.daemons.append(
            subprocess.Popen(
                list(map(str, words)), env=self.environment, stdout=quiet, stderr=quiet
            )
        )

    def stop(self) -> None:
        self.ask("scancel", "--user=root")
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait(30)

    def ask(self, *words: object) -> str:
        asked = subprocess.run(
            list(map(str, words)), env=self.environment, capture_output=True, text=True, check=False
        )
        return asked.stdout.strip()

    def submit(self, *words: object) -> str:
        output = self.shared / "output-%A_%a.txt"
        return self.ask("sbatch", "--parsable", "-o", output, *words)

    def end(self, job: str) -> dict[str, str]:
        """What Slurm says of a job that has ended."""
        _wait_for(lambda: self._say(job).get("JobState") in {"COMPLETED", "FAILED"})
        return self._say(job)

    def _say(self, job: str) -> dict[str, str]:
        said = self.ask("scontrol", "-o", "show", "job", job)
        return dict(re.findall(r"(\w+)=(.*?)(?= \w+=|$)", said))

    def list_rows(self) -> list[Path]:
        return sorted((self.shared / "fleet").glob("*/*.parquet"))


def _find_ports() -> tuple[int, int]:
    with socket.create_server(("", 0)) as one, socket.create_server(("", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def _wait_for(condition: Callable[[], object]) -> None:
    until_s = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def script(cluster: Cluster) -> Path:
    path = cluster.shared / "train.py"
    path.write_text("import os, time\ntime.sleep(0.5)\nraise SystemExit(int(os.environ['CODE']))\n")
    return path


def test_a_job_has_its_verdict_as_comment_and_its_own_exit_code(
    cluster: Cluster, script: Path
) -> None:
    job = cluster.submit("--export=ALL,CODE=3", cluster.scripts / "job.sh", script)
    said = cluster.end(job)
    assert said["ExitCode"] == "3:0"
    assert said["Comment"].startswith("fuelline: train, ")
    assert len(cluster.list_rows()) == 1
    assert (cluster.shared / "fuelline-cache").stat().st_mode & 0o7777 == 0o1777
    log = cluster.shared / "fuelline-jobs.log"
    _wait_for(lambda: log.exists() and f" {job} fuelline: train, " in log.read_text())


def test_each_task_of_an_array_is_a_run_of_its_own(cluster: Cluster, script: Path) -> None:
    before = len(cluster.list_rows())
    job = cluster.submit("--array=1-3", "--export=ALL,CODE=0", cluster.scripts / "job.sh", script)
    comments = [cluster.end(f"{job}_{task}")["Comment"] for task in (1, 2, 3)]
    assert all(each.startswith("fuelline: train, ") for each in comments)
    assert len(cluster.list_rows()) == before + 3


def test_tasks_of_one_job_leave_one_row(cluster: Cluster, script: Path) -> None:
    before = len(cluster.list_rows())
    words = ("--overcommit", "--export=ALL,CODE=0", cluster.scripts / "ranks.sh", script)
    job = cluster.submit(*words)
    said = cluster.end(job)
    assert said["JobState"] == "COMPLETED"
    assert re.match(r"fuelline: (?!no run)\w+", said["Comment"]), said["Comment"]
    assert len(cluster.list_rows()) == before + 1
    line = f"{sys.executable} -m fuelline fleet {cluster.shared}/fleet --json".split()
    answer = json.loads(cluster.ask(*line))
    assert answer["runs"] == before + 1
