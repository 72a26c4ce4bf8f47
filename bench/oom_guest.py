"""Runs inside the virtual machine of bench/oom_group.py, as its first process.

It mounts what is needed, takes the cases from /cases.json and prints a line of JSON for each on the
serial port: how the job ended, what it printed, and what the kernel counted in its control group.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MARK = "@case "
"""Starts a line that is a result; the kernel writes to the same port."""
PATIENCE_S = 400.0
"""For one job: a machine in software is slow, and a full group reads libraries over and over."""
HOLD_S = 8.0
"""Long enough for the observer to be there, on a machine in software too."""
TREE = Path("/sys/fs/cgroup")
MIB = 1 << 20
CLONE_NEWNS, CLONE_NEWCGROUP = 0x00020000, 0x02000000
MS_REC, MS_PRIVATE, MNT_DETACH = 0x4000, 0x40000, 2

JOBS = {
    "small": "import time; kept = [bytes(1000) for _ in range(3000)]; time.sleep(1); print('done')",
    "torch": """
import torch
from torch.utils.data import DataLoader
class Items(torch.utils.data.Dataset):
    def __len__(self): return 80
    def __getitem__(self, at): return torch.full((64,), float(at))
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for batch in DataLoader(Items(), batch_size=4, num_workers=2):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print('done')
""",
    "fill": """
import sys, time
kept = b'x' * int(sys.argv[1])
time.sleep(float(sys.argv[2]))
print('done', flush=True)
sys.exit(int(sys.argv[3]))
""",
    "leave": """
import sys
with open('/dev/shm/left', 'wb') as file:
    for _ in range(int(sys.argv[1]) >> 20): file.write(bytes(1 << 20))
print('done', flush=True)
sys.exit(int(sys.argv[3]))
""",
    "grow": """
import os, sys, time
print('done', flush=True)
job = os.getpid()
if os.fork() == 0:
    kept = [b'x' * (600 << 20)]
    while os.getppid() == job:
        time.sleep(0.05)
    for _ in range((int(sys.argv[1]) >> 20) - 600):
        kept.append(b'x' * (1 << 20))
        time.sleep(0.02)
    open('/tmp/grown', 'w').close()
    time.sleep(600)
time.sleep(4)
os._exit(int(sys.argv[3]))
""",
    "eat": """
import sys, time
time.sleep(float(sys.argv[2]) / 2)
kept = b'x' * int(sys.argv[1])
""",
}
"""`fill` holds memory to its end; `leave` leaves it behind in a file that the group pays for;
`grow` leaves a process behind that takes more and more while the report is made; `eat` takes what
the outer group does not have while the job runs."""


def main() -> None:
    """All cases, then the machine is switched off."""
    prepare()
    with Path("/dev/ttyS0").open("w", buffering=1) as port:
        try:
            for case in json.loads(Path("/cases.json").read_text()):
                port.write(f"\n{MARK}{json.dumps(run(case))}\n")
        except BaseException:  # noqa: BLE001 - the port is all there is to tell it
            port.write(traceback.format_exc())
    os.sync()
    Path("/proc/sysrq-trigger").write_text("b")  # ends qemu, which was told not to start again


def prepare() -> None:
    """Mount the file systems of the kernel, and hand the memory controller to the groups below."""
    for kind, path in (
        ("devtmpfs", "/dev"),
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("cgroup2", str(TREE)),
        ("tmpfs", "/dev/shm"),
    ):
        mount(kind, path)
    (TREE / "cgroup.subtree_control").write_text("+memory +pids")
    Path("/tmp").mkdir(exist_ok=True)


def mount(kind: str, path: str, flags: int = 0) -> None:
    """Mount a file system of the kernel, in a folder that is made."""
    Path(path).mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(kind.encode(), path.encode(), kind.encode(), flags, None) != 0:
        raise OSError(ctypes.get_errno(), f"mount {kind} on {path}")


def run(case: dict[str, Any]) -> dict[str, Any]:
    """One job in new groups: the outer one, and the one in it that holds the job."""
    forget_libraries()
    outer = TREE / "outer"
    inner, other = outer / "inner", outer / "other"
    outer.mkdir()
    (outer / "cgroup.subtree_control").write_text("+memory +pids")
    inner.mkdir()
    other.mkdir()
    for group, name in ((outer, "outer"), (inner, "inner")):
        for file, value in case.get(name, {}).items():
            (group / file).write_text(str(value))
    sidecar = start_beside(case, inner)
    began = time.monotonic()
    eater = start_eater(case, other)
    job = start(list_words(case), inner, case, "/tmp/job")
    try:
        code: int | None = job.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        code = None
    if case["job"] == "grow":
        wait_for(lambda: Path("/tmp/grown").exists() or not (inner / "cgroup.procs").read_text())
    seconds = round(time.monotonic() - began, 1)
    events = dict(line.split() for line in (inner / "memory.events").read_text().splitlines())
    result = {
        "case": case,
        "code": code,
        "out": Path("/tmp/job.out").read_text()[-200:],
        "said": [
            line
            for line in Path("/tmp/job.err").read_text().splitlines()
            if "report:" in line or "recorded" in line or "rror" in line
        ][-4:],
        "lines": len(Path("/tmp/job.err").read_text().splitlines()),
        "grown": Path("/tmp/grown").exists(),
        "peak_mib": int((inner / "memory.peak").read_text()) >> 20,
        "kills": int(events["oom_kill"]),
        "group_kills": int(events["oom_group_kill"]),
        "lost_sidecar": sidecar is not None and sidecar.poll() is not None,
        "eater": None if eater is None else eater.wait(),
        "seconds": seconds,
    }
    clear([inner, other, outer], [job, sidecar])
    return result


def clear(groups: list[Path], processes: list[subprocess.Popen[bytes] | None]) -> None:
    """Nothing is left of a case: not in its groups, which go the inner ones first, nor in files."""
    for group in groups:
        (group / "cgroup.kill").write_text("1")
    for process in processes:
        if process is not None:
            process.wait()
    for group in groups:
        while (group / "cgroup.procs").read_text():
            reap()
            time.sleep(0.01)
        group.rmdir()
    for left in ("/dev/shm/left", "/tmp/grown"):
        Path(left).unlink(missing_ok=True)
    reap()


def forget_libraries() -> None:
    """Whoever reads a library first pays for its pages, so each case is to read them anew.

    Not by drop_caches: ext4 of Debian's 6.1.192 stumbles over a NULL when its bitmaps are dropped.
    """
    for path in list_libraries():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@functools.cache
def list_libraries() -> list[Path]:
    """What is mapped by jobs here."""
    return [path for at in {sys.prefix, sys.base_prefix} for path in Path(at).rglob("*.so*")]


def start_beside(case: dict[str, Any], group: Path) -> subprocess.Popen[bytes] | None:
    """Another process of the group that holds memory, if the case has one."""
    if "beside_mib" not in case:
        return None
    size_bytes = case["beside_mib"] * MIB
    process = start(
        with_memory("fill", case["beside_mib"], PATIENCE_S, 0), group, {}, "/tmp/sidecar"
    )
    wait_for(lambda: int((group / "memory.current").read_text()) >= size_bytes)
    return process


def start_eater(case: dict[str, Any], group: Path) -> subprocess.Popen[bytes] | None:
    """A process of another group that will ask for more than there is, if the case has one."""
    if "eaten_mib" not in case:
        return None
    return start(with_memory("eat", case["eaten_mib"], HOLD_S, 0), group, {}, "/tmp/eater")


def reap() -> None:
    """Orphans are ours."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def with_memory(job: str, mib: float, seconds: float, code: int) -> list[str]:
    """A job that takes so much memory for a while."""
    return [sys.executable, "-c", JOBS[job], str(int(mib * MIB)), str(seconds), str(code)]


def list_words(case: dict[str, Any]) -> list[str]:
    """The command of a case, plain or recorded."""
    words = [sys.executable, "-c", JOBS[case["job"]]]
    if "mib" in case:
        words = with_memory(case["job"], case["mib"], HOLD_S, case.get("exits", 0))
    if case["recorded"]:
        start_ours = "import sys; from fuelline.cli import main; sys.exit(main())"
        return [sys.executable, "-c", start_ours, "run", *words]
    return words


def start(
    words: list[str], group: Path, case: dict[str, Any], output: str
) -> subprocess.Popen[bytes]:
    """A process in a group, seen as from a container if the case says so."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter() -> None:
        (group / "cgroup.procs").write_text("0")
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if case.get("sees"):
            libc.unshare(CLONE_NEWCGROUP | CLONE_NEWNS)
            libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        if case.get("sees") == "container":
            libc.umount2(bytes(TREE), MNT_DETACH)
            mount("cgroup2", str(TREE))

    environment = {"HOME": "/root", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    with Path(f"{output}.out").open("wb") as out, Path(f"{output}.err").open("wb") as err:
        return subprocess.Popen(
            words,
            stdout=out,
            stderr=err,
            env=environment,
            preexec_fn=enter,  # noqa: PLW1509 - no threads here
        )


def wait_for(is_so: Callable[[], bool]) -> None:
    """At most a minute."""
    until = time.monotonic() + 60
    while not is_so() and time.monotonic() < until:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
