"""Runs one case plain and recorded, and says how the two differ."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.torture.job import OURS, children, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.torture.case import Case

JOB = Path(__file__).with_name("job.py")
LIMIT_S = 180
"""Longer than anything takes on a busy machine; who needs it hangs."""
LEAVING_S = 20
"""How long processes that were killed from outside may take to be gone."""
GOES_ON = {-signal.SIGKILL, -signal.SIGSEGV}
"""What ends a launcher without its passing anything on."""
FIRST_USER = 50_000
LEAST_KIB = 40_000
"""Less memory than that no interpreter starts in, and we are one more of them for a moment."""
MARK = "FUELLINE_TORTURE"
_OPTIONS = {
    "fix": ["--fix"],
    "zoom": ["--zoom", "2@3"],
    "quiet": ["--quiet"],
    "node": ["--node-rank", "0"],
}
_MAY_LEAVE = re.compile(r"__pycache__|\.pyc$|/torchelastic_|/pymp-|/tmp/tmp[a-z0-9_]{8}$")
"""Torch leaves the last of plain jobs, too: of 14 whose worker was killed, in 4."""


@dataclass
class Result:
    """What can be seen of a job from outside."""

    returncode: int
    stdout: str
    stderr: str
    results: dict[str, str]
    left: list[str]
    orphans: list[str] = field(default_factory=list)
    peak_kib: int = 0
    hangs: bool = False
    seen: str | None = None
    """The output that was read before the driver sent its signal; None if it sent none."""


LARGE_BYTES = 1_500_000
"""One file above all limits of file size that are tried (`ulimit -f 1000` is 1,024,000 bytes)."""


def write_files(folder: Path) -> None:
    """What the jobs train on: many small files and a large one."""
    folder.mkdir()
    for number in range(16):
        (folder / f"{number:02d}").write_bytes(bytes((number * at) % 256 for at in range(64)))
    (folder / "large").write_bytes(random.Random(0).randbytes(LARGE_BYTES))


class Bench:
    """The data that all cases share, and the outcomes of plain jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        write_files(self.data)
        self.pack = folder / "pack"
        words = [sys.executable, "-m", "fuelline", "pack", str(self.data), "-o", str(self.pack)]
        subprocess.run(words, check=True, capture_output=True)
        self._known: dict[str, Result] = {}
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def plain(self, case: Case, *, is_clean: bool) -> Result:
        """The outcome without us; with what happens to it, or without."""
        told = dict(case.told)
        if is_clean:
            told = {key: told[key] for key in ("kind", "steps", "pause_s", "workers", "end")}
            key = json.dumps(told, sort_keys=True)
        else:
            key = json.dumps([told, case.limit, case.streams], sort_keys=True)
        streams = "" if is_clean else case.streams
        limit = None if is_clean else self.find_limit(case)
        return self._remember(key, lambda: self.run(case, told, None, limit, streams))

    def plain_again(self, case: Case) -> Result:
        """One more run without us, with what happens to it."""
        outside = dict(case.outside)
        if outside.get("whom") == "job":
            outside["whom"] = "launcher"  # the process that we start is the job itself
        limit = self.find_limit(case)
        return self.run(case, dict(case.told), None, limit, case.streams, outside)

    def plain_without_torchrun(self, case: Case) -> Result:
        """What stays of a plain job with ranks whose torchrun is killed early; tried once."""
        told = {**case.told, "whom": "torchrun"}
        return self._remember("no torchrun", lambda: self.run(case, told, None, None, ""))

    def _remember(self, key: str, run: Callable[[], Result]) -> Result:
        """Each is a second's work, and asked for many times."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._known:
                self._known[key] = run()
            return self._known[key]

    def find_limit(self, case: Case) -> tuple[str, int] | None:
        """In numbers: memory is given as a part of what the plain job needs."""
        kind, value = case.limit
        if kind not in {"-v", "memory"}:
            return (kind, int(value)) if kind else None
        told = {key: case.told[key] for key in ("kind", "steps", "pause_s", "workers", "end")}
        group = ("memory", 0) if kind == "memory" else None
        key = json.dumps([told, "peak", kind], sort_keys=True)
        peak = self._remember(key, lambda: self.run(case, told, None, group, "")).peak_kib
        return kind, max(int(peak * value), LEAST_KIB)

    def run(  # noqa: PLR0917 - the driver's own
        self,
        case: Case,
        told: dict[str, Any],
        options: list[str] | None,
        limit: tuple[str, int] | None,
        streams: str,
        outside: dict[str, Any] | None = None,
    ) -> Result:
        """To its end; recorded if there are options for `fuelline run`."""
        with ExitStack() as stack:
            place = Path(stack.enter_context(_scratch(self.folder)))
            disk = place / "disk"
            if told.get("whom") == "filled":
                stack.enter_context(_small_disk(disk))
            command = self._command(place, told)
            if options is not None:
                rec = disk / "rec"
                words = [word.replace("PLACE", str(place)) for word in options]
                ours = [sys.executable, "-m", "fuelline", "run", "--run-dir", str(rec), *words]
                command = [*ours, *command[1:]]  # which finds a python by itself
            shell = stack.enter_context(_limited(limit, case.seed, place))
            line = f"{shell} {' '.join(map(_quote, command))} {streams}"
            return _watch(line, place, outside or {}, f"{case.seed}-{os.getpid()}-{time.time_ns()}")

    def record(self, case: Case) -> Result:
        """The outcome with us."""
        options = list(_OPTIONS.get(case.mode, []))
        if case.mode == "cache":
            options += ["--cache", "PLACE/cache", "--cache-from", str(self.data)]
        if case.mode == "packed":
            options += ["--packed", str(self.pack)]
        limit = self.find_limit(case)
        return self.run(case, dict(case.told), options, limit, case.streams, case.outside)

    def _command(self, place: Path, told: dict[str, Any]) -> list[str]:
        told = {**told, "folder": str(self.data), "result": str(place / "out" / "result")}
        script = [str(JOB), json.dumps(told)]
        if told["kind"] == "ranks":
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            return [sys.executable, *launcher, *script]
        return [sys.executable, *script]


def _quote(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(dir=folder, prefix="case-"))
    for name in ("", "out", "tmp", "home", "work", "disk"):
        (place / name).mkdir(exist_ok=True)
        (place / name).chmod(0o1777)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _small_disk(disk: Path) -> Iterator[None]:
    words = ["mount", "-t", "tmpfs", "-o", "size=200k,mode=1777", "fuelline-torture", str(disk)]
    subprocess.run(words, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@contextmanager
def _limited(limit: tuple[str, int] | None, seed: int, place: Path) -> Iterator[str]:
    """The beginning of a shell's line that runs what follows under a limit."""
    kind, value = limit or ("", 0)
    if kind == "-u":
        user = FIRST_USER + seed % 10_000
        caps = "-all,+dac_override"
        become = f"setpriv --reuid={user} --clear-groups --inh-caps={caps} --ambient-caps={caps} "
        become += f"--bounding-set={caps}"
        yield f"exec {become} bash -c 'ulimit -u {value}; exec \"$@\"' -"
    elif kind == "memory":
        with _memory_group(value << 10, place) as group:
            yield f"echo $$ > {group}/cgroup.procs; exec"
    else:
        yield (f"ulimit {kind} {value}; " if kind else "") + "exec"


@contextmanager
def _memory_group(limit_bytes: int, place: Path) -> Iterator[Path]:
    root = Path("/sys/fs/cgroup/memory")
    group = (root if root.is_dir() else root.parent) / f"fuelline-{place.name}"
    group.mkdir()
    is_old = (group / "memory.limit_in_bytes").exists()
    if limit_bytes:
        (group / ("memory.limit_in_bytes" if is_old else "memory.max")).write_text(str(limit_bytes))
    try:
        yield group
    finally:
        peak = group / ("memory.max_usage_in_bytes" if is_old else "memory.peak")
        (place / "peak").write_text(peak.read_text())
        _wait_for(lambda: not (group / "cgroup.procs").read_text().split(), LEAVING_S)
        group.rmdir()


def _watch(line: str, place: Path, outside: dict[str, Any], mark: str) -> Result:
    kept = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    own = {"TMPDIR": str(place / "tmp"), "HOME": str(place / "home"), MARK: mark}
    own |= {"FUELLINE_HOME": str(place / "disk" / "store"), "PYTHONDONTWRITEBYTECODE": "1"}
    own |= {"PYTHONFAULTHANDLER": "1"}  # an abort in a rank says where
    process = subprocess.Popen(
        ["bash", "-c", line],
        env={**kept, **own, "OMP_NUM_THREADS": "1"},
        cwd=place / "work",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    out, err = _Reader(process.stdout), _Reader(process.stderr)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(_send_from_outside, process, out, outside)
        hangs = _wait_out(process)
    is_alone = process.returncode in GOES_ON  # the job goes on without its launcher, to its end
    leaving_s = LIMIT_S if is_alone else LEAVING_S
    _wait_for(lambda: not _marked(mark), 0 if hangs else leaving_s)
    orphans = [read(pid).replace("\0", " ")[:200] for pid in _marked(mark)]
    for pid in _marked(mark):
        _kill(pid)
    process.wait()
    out.thread.join(10)
    err.thread.join(10)
    return Result(
        process.returncode,
        bytes(out.content).decode(errors="replace"),
        bytes(err.content).decode(errors="replace"),
        {
            path.name: path.read_text()
            for path in (place / "out").iterdir()
            if path.suffix != ".kib"
        },
        sorted(_list_left(place)),
        orphans,
        _find_peak(place),
        hangs,
        sent.result(),
    )


def _wait_out(process: subprocess.Popen[bytes]) -> bool:
    """Whether it hangs."""
    try:
        process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        return True
    return False


class _Reader:
    """Takes what comes, so that nobody waits for us."""

    def __init__(self, stream: Any) -> None:
        self.content = bytearray()
        self._stream = stream
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while part := os.read(self._stream.fileno(), 65536):
            self.content += part
        self._stream.close()


def _send_from_outside(
    process: subprocess.Popen[bytes], out: _Reader, what: dict[str, Any]
) -> str | None:
    """What the job had said until then, if anything was sent."""
    if not what:
        return None
    if not what["from_start"]:
        _wait_for(lambda: b"step" in out.content or process.poll() is not None, LIMIT_S)
    until_s = time.monotonic() + what["after_s"]
    _wait_for(lambda: time.monotonic() > until_s or process.poll() is not None, LIMIT_S)
    if process.poll() is not None:
        return None
    whom, launcher = what["whom"], process.pid
    seen = bytes(out.content).decode(errors="replace")
    if whom == "group":
        os.killpg(launcher, what["signal"])
        return seen
    pids = [launcher]
    if whom in OURS:
        pids = [pid for pid in children(launcher) if OURS[whom] in read(pid)]
    elif whom == "job":
        pids = [
            pid
            for pid in children(launcher)
            if JOB.name in read(pid) and not any(each in read(pid) for each in OURS.values())
        ]
    for pid in pids:
        _kill(pid, what["signal"])
    return seen if pids else None


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _wait_for(is_so: Any, longest_s: float) -> None:
    until_s = time.monotonic() + longest_s
    while not is_so() and time.monotonic() < until_s:
        time.sleep(0.02)


def _marked(mark: str) -> list[int]:
    """Living processes that come from this case, wherever they are now."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are what is asked for
        if name.isdecimal() and int(name) != os.getpid():
            try:
                content = Path(f"/proc/{name}/environ").read_bytes()
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if f"{MARK}={mark}".encode() in content and state not in "ZX":
                found.append(int(name))
    return found


def _list_left(place: Path) -> Iterator[str]:
    """Files outside the run's folder and the job's own output."""
    for folder in ("tmp", "home", "work"):
        for path in (place / folder).rglob("*"):
            if not _MAY_LEAVE.search(str(path)):
                yield re.sub(r"\d{3,}|[a-z0-9_]{8}$", "N", str(path.relative_to(place)))


def _find_peak(place: Path) -> int:
    """KiB: of the group if there is one, else of the job's address space."""
    if (place / "peak").exists():
        return int((place / "peak").read_text()) >> 10
    own = place / "out" / "result.kib"
    return int(own.read_text()) if own.exists() else 0
