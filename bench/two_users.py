"""Two users on one host: what can the one read, poison or take over of the other's?

The victim is whoever runs this (root), the attacker another user id without any right. Folders are
as friendly to the attacker as they may be: the store lies in a folder that all can enter, outputs
go to one that all can write, without the sticky bit, the umask is 022, and the attacker knows every
path. Each attempt is made for real; those on a running job while one trains with --fix and --zoom.
A minute on two cores.

    sudo python -m bench.two_users
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import results

if TYPE_CHECKING:
    from collections.abc import Callable

ATTACKER, HOMELESS = 61234, 61235
"""The attacker, and a second victim that has no home, as in many containers."""
COMMAND = (
    "import sys; sys.path[:] = [each for each in sys.path if each]; "
    "from fuelline.cli import main; sys.exit(main())"
)
"""As the console script does: it does not look for modules where one stands."""
PTRACE_ATTACH = 16
JOB = """\
import time, torch
from torch.utils.data import DataLoader
class Items(torch.utils.data.Dataset):
    def __len__(self): return 100000
    def __getitem__(self, at):
        open("{data}/%d" % (at % 4), "rb").read()
        time.sleep(0.001)
        return torch.randn(8)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
until = time.monotonic() + {seconds}
for batch in DataLoader(Items(), batch_size=4, num_workers=1):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if time.monotonic() > until:
        break
"""


@dataclass
class Attempt:
    """One thing that was tried."""

    sort: str
    """read, poison or hijack."""
    what: str
    result: str
    """What it gave the attacker; empty if nothing."""


class Host:
    """The folders of both, and what was tried so far."""

    def __init__(self, base: Path) -> None:
        self.base = base
        base.chmod(0o755)
        self.home = base / "home"
        self.shared = base / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o777)
        self.own = base / "victim"
        self.own.mkdir()
        self.precious = self.own / "precious"
        self.precious.write_text("precious")
        self.precious.chmod(0o600)
        self.data = self.own / "data"
        self.data.mkdir()
        for number in range(4):
            (self.data / str(number)).write_bytes(b"private data")
            (self.data / str(number)).chmod(0o600)
        self.attempts: list[Attempt] = []

    def note(self, sort: str, what: str, result: object) -> None:
        """Keep what an attempt gave."""
        self.attempts.append(Attempt(sort, what, str(result or "")))

    def is_touched(self) -> str:
        """Whether the victim's file is not what it was."""
        if not self.precious.exists():
            return "a file of the victim was deleted"
        if self.precious.read_text() != "precious":
            self.precious.write_text("precious")
            return "a file of the victim was overwritten"
        return ""

    def start(self, *words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        """A command of the victim's."""
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words],
            env={**os.environ, "FUELLINE_HOME": str(self.home)},
            cwd=cwd or self.own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, cwd: Path | None = None) -> str:
        """The same to its end; what it said."""
        return self.start(*words, cwd=cwd).communicate(timeout=120)[0]

    def write_job(self, seconds: float) -> Path:
        """The victim's script."""
        path = self.own / "train.py"
        text = JOB.replace("{data}", str(self.data)).replace("{seconds}", str(seconds))
        path.write_text(text)
        return path


def as_user(user: int, work: Callable[[], Any]) -> Any:
    """Do something as another user, without any group; None if it raises."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.write(writer, pickle.dumps(work())[:60000])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return pickle.loads(told) if told else None


def read_all(paths: list[str]) -> list[str]:
    """What of these can be listed or read; for the attacker."""
    seen = []
    for path in paths:
        try:
            if os.path.isdir(path):  # noqa: PTH112 - quick, and in a fork
                os.listdir(path)  # noqa: PTH208
            else:
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        except OSError:
            continue
        seen.append(path)
    return seen


def try_reading(host: Host, what: str, folder: Path) -> None:
    """All below a folder, each path known to the attacker."""
    paths = [str(folder), *(str(path) for path in folder.rglob("*"))]
    seen = as_user(ATTACKER, lambda: read_all(paths))
    host.note("read", f"{what} ({len(paths)} paths)", seen and f"{len(seen)}, as {seen[-1]}")


def main() -> dict[str, Any]:
    """Everything that was tried, and what succeeded."""
    if os.geteuid() != 0:
        print("needs root: it becomes two users")
        return {"passed": False}
    before = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory(prefix="fuelline-bench-", dir="/tmp") as name:
            host = Host(Path(name))
            for attack in ATTACKS:
                attack(host)
    finally:
        os.umask(before)
    succeeded = [each for each in host.attempts if each.result]
    figures = {
        "tried": len(host.attempts),
        **{sort: sum(each.sort == sort for each in host.attempts) for sort in SORTS},
        "succeeded": [f"{each.sort} {each.what}: {each.result}" for each in succeeded],
        "passed": not succeeded,
    }
    results.write_section("two_users", markdown(figures, host.attempts))
    return figures


SORTS = ("read", "poison", "hijack")


def attack_running_job(host: Host) -> None:
    """A job that trains: its folder, its processes, what it shares."""
    shm = set(Path("/dev/shm").iterdir())
    temporary = set(Path("/tmp").iterdir())
    job = host.start("run", "--fix", "--zoom", "2@20", str(host.write_job(9)))
    run = _wait_for_run(host, job)
    _wait_until(lambda: any((run / "spool").iterdir()) and (run / "fix").exists())
    try_reading(host, "a run while it is recorded: spools, journal, log, --fix journal", run)
    pids = _list_descendants(job.pid)
    for file in ("environ", "mem", "maps", "fd", "cwd/.", "syscall"):
        paths = [f"/proc/{pid}/{file}" for pid in pids]
        host.note("read", f"/proc/PID/{file} of {len(pids)} processes", _try(paths))
    host.note("read", "the job by ptrace", as_user(ATTACKER, lambda: _attach(pids)))
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
        signalled = as_user(ATTACKER, partial(_signal, pids, number))
        host.note("hijack", f"{number.name} to launcher, observer, job", signalled)
    new = [str(path) for path in set(Path("/dev/shm").iterdir()) - shm]
    host.note("read", f"{len(new)} new files in /dev/shm", _try(new))
    mine = set(Path("/tmp").iterdir()) - temporary
    new = [str(path) for path in mine if path.lstat().st_uid == 0 and "fuelline" in path.name]
    host.note("read", f"{len(new)} new files of ours in /tmp", _try(new))
    abstract = [line for line in Path("/proc/net/unix").read_text().splitlines() if "@" in line]
    host.note("hijack", "abstract sockets", [each for each in abstract if "fuelline" in each])
    planted = as_user(ATTACKER, lambda: _plant_in(run))
    host.note("poison", "files and links planted in a run", planted)
    job.communicate(timeout=120)
    try_reading(host, "a run after its report: tables, manifest, profile", run)


def attack_store(host: Host) -> None:
    """What else lies in the store."""
    trace = host.own / "trace.json"
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2}
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    host.run("import", str(trace))
    from fuelline.fix.tune.undoing import apply_change

    script = host.own / "tuned.py"
    script.write_text("old\n")
    apply_change(script, b"old\n", b"new\n", host.home / "undo", 1)
    try_reading(host, "the store: imported runs, originals for undo", host.home)


def attack_output_folders(host: Host) -> None:
    """Outputs that go where the attacker can write."""
    job = str(host.write_job(1))
    run = host.shared / "run"
    as_user(ATTACKER, partial(_open_folder, run))
    host.run("run", "--quiet", "--run-dir", str(run), job)
    host.note("poison", "a planted folder as --run-dir", [path.name for path in run.iterdir()])
    link = host.shared / "link"
    as_user(ATTACKER, lambda: link.symlink_to(host.own / "through"))
    host.run("run", "--quiet", "--run-dir", str(link), job)
    through = (host.own / "through").exists() and "written through"
    host.note("poison", "a planted link as --run-dir", through)
    host.run("run", "--quiet", "--node-rank", "0", "--run-dir", str(run), job)
    host.note("poison", "a planted folder for parts of several hosts", [*run.iterdir()])
    target = host.shared / "out.json"
    drafts = [host.shared / f".{target.name}.{pid}" for pid in _next_pids()]
    as_user(ATTACKER, partial(_link, drafts, host.precious))
    host.run("export", "--perfetto", str(target))
    host.note("poison", "planted links where an export is drafted", host.is_touched())


def attack_probe(host: Host) -> None:
    """`fuelline probe` in a folder that all can write."""
    stale = host.shared / ".fuelline-probe-4194303"

    def plant() -> None:
        stale.mkdir()
        (stale / "kept").write_text("the attacker's")
        (stale / "link").symlink_to(host.own)

    as_user(ATTACKER, plant)
    probe = host.start("probe", str(host.shared), "--size", "32M", "--seconds", "1")
    made: list[Path] = []

    def is_made_or_over() -> bool:
        made.extend(_find_probes(host, stale))
        return bool(made) or probe.poll() is not None

    _wait_until(is_made_or_over)
    seen = as_user(ATTACKER, lambda: read_all([str(each) for each in made]))
    host.note("read", f"the folder of a probe ({len(made)})", seen)
    probe.communicate(timeout=120)
    host.note("poison", "a planted old folder with links in it", host.is_touched())
    lost = not (stale / "kept").exists() and "the attacker's own file was deleted"
    host.note("poison", "a folder that only looks like an old probe's", lost)


def attack_cache_and_pack(host: Host) -> None:
    """Folders that a job is served from."""
    job = str(host.write_job(2))
    cache = host.shared / "cache"
    as_user(ATTACKER, partial(_open_folder, cache))
    host.run("run", "--quiet", "--cache", str(cache), "--cache-from", str(host.data), job)
    used = [path for path in cache.rglob("*") if path.lstat().st_uid == 0]
    host.note("poison", "a planted folder as --cache", used and f"used: {used[-1].name}")
    own = host.base / "cache"
    host.run("run", "--quiet", "--cache", str(own), "--cache-from", str(host.data), job)
    try_reading(host, "the victim's cache", own)
    pack = host.shared / "pack"

    def plant() -> None:
        pack.mkdir()
        pack.chmod(0o777)
        for name in ("shard-00000", "shard-0", "journal", "index", ".index"):
            (pack / name).symlink_to(host.precious)

    as_user(ATTACKER, plant)
    host.run("pack", str(host.data), "-o", str(pack))
    host.note("poison", "planted links as shards of a pack", host.is_touched())
    own = host.base / "pack"
    host.run("pack", str(host.data), "-o", str(own))
    try_reading(host, "a pack of private files", own)


def attack_reading(host: Host) -> None:
    """A run that the attacker left for the victim to diagnose."""
    run = host.own / "raw"
    host.run("run", "--quiet", "--run-dir", str(run), str(host.write_job(1)))
    given = host.shared / "given"
    shutil.copytree(run, given)
    facts = json.loads((given / "run.json").read_bytes())
    (given / "run.json").write_bytes(json.dumps(facts | {"host": "elsewhere"}).encode())
    for path in (given, *given.rglob("*")):
        os.chown(path, ATTACKER, ATTACKER)
        path.chmod(0o777)
    drafts = [
        f".{name}.{pid}" for name in ("manifest.json", "events.parquet") for pid in _next_pids()
    ]
    as_user(ATTACKER, partial(_link, [given / each for each in drafts], host.precious))
    host.run("diagnose", str(given))
    host.note("poison", "planted links in a run that is diagnosed", host.is_touched())
    written = [path.name for path in given.rglob("*") if path.lstat().st_uid == 0]
    host.note("poison", "a run of another owner that is diagnosed", written and "written into")


def attack_modules(host: Host) -> None:
    """Code of the attacker's that the victim might load."""
    import fuelline

    package = Path(fuelline.__file__).parent
    paths = [str(package), *(str(path) for path in package.rglob("*"))]
    writable = as_user(ATTACKER, lambda: [each for each in paths if os.access(each, os.W_OK)])
    host.note("hijack", "files of the package, hooks and site folders", writable)
    stand = host.shared / "stand"
    names = ["fuelline", "msgspec", "polars", "sitecustomize", "usercustomize", "fuelline_watch"]
    names += ("re", "json", "multiprocessing", "secrets", "select", "resource", "py-spy", "rich")

    def plant() -> None:
        stand.mkdir()
        stand.chmod(0o777)
        (stand / "out").mkdir()
        (stand / "out").chmod(0o777)
        for name in names:
            code = f"open({str(stand / 'out' / name)!r}, 'w').write('loaded')\n"
            (stand / f"{name}.py").write_text(code)

    as_user(ATTACKER, plant)
    trace = host.own / "trace.json"
    many = [host.own / f"rank{number}.json" for number in range(2)]
    event = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2},'
    for path in many:
        body = (event * 40000).rstrip(",")
        path.write_text(f'{{"schemaVersion":1,"traceEvents":[{body}]}}')
    commands: dict[str, tuple[str, ...]] = {
        "run": ("run", "--fix", str(host.write_job(4))),
        "diagnose": ("diagnose",),
        "import": ("import", str(trace)),
        "import of many files": ("import", *map(str, many)),
        "doctor": ("doctor",),
    }
    for name, words in commands.items():
        host.run(*words, cwd=stand)
        loaded = sorted(path.name for path in (stand / "out").iterdir())
        host.note("hijack", f"modules in the folder that `{name}` is started from", loaded)
        for path in (stand / "out").iterdir():
            path.unlink()


def attack_fallback_store(host: Host) -> None:
    """A victim without a home: its store under /tmp, planted before."""
    script = host.shared / "homeless.py"
    script.write_text("current\n")
    os.chown(script, HOMELESS, HOMELESS)
    store = Path(f"/tmp/fuelline-{HOMELESS}")
    change = {
        "script": str(script),
        "original": msgspec.to_builtins(b"import evil\n"),
        "changed_sha256": hashlib.sha256(b"current\n").hexdigest(),
        "made_ns": 1,
    }

    def plant() -> None:
        (store / "undo").mkdir(parents=True)
        for path in (store, store / "undo"):
            path.chmod(0o777)
        (store / "undo" / "1.json").write_text(json.dumps(change))
        (store / "undo" / "1.json").chmod(0o644)

    try:
        as_user(ATTACKER, plant)
        _as_homeless("undo", FUELLINE_HOME=str(host.own))  # loads what the other user cannot read
        if as_user(HOMELESS, lambda: _as_homeless("undo")) is None:
            raise RuntimeError("the second victim could not run `fuelline undo` at all")
        is_evil = script.read_text() != "current\n" and "its code was installed"
        host.note("hijack", "originals for undo planted in the store under /tmp", is_evil)
    finally:
        shutil.rmtree(store, ignore_errors=True)


def _as_homeless(*words: str, **more: str) -> int:
    """A command in this process, whose modules need no longer be read; its exit code."""
    from fuelline.cli import main as command

    kept = dict(os.environ)
    for name in ("HOME", "FUELLINE_HOME", "XDG_DATA_HOME"):
        os.environ.pop(name, None)
    os.environ.update(more)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            return command(list(words))
    finally:
        os.environ.clear()
        os.environ.update(kept)


ATTACKS = (
    attack_running_job,
    attack_store,
    attack_output_folders,
    attack_probe,
    attack_cache_and_pack,
    attack_reading,
    attack_modules,
    attack_fallback_store,
)


def _try(paths: list[str]) -> str:
    seen = as_user(ATTACKER, lambda: read_all(paths))
    return f"{len(seen)}, as {seen[0]}" if seen else ""


def _open_folder(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def _link(links: list[Path], target: Path) -> None:
    for link in links:
        link.symlink_to(target)


def _wait_until(is_so: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not is_so() and time.monotonic() < until:
        time.sleep(0.01)


def _wait_for_run(host: Host, job: subprocess.Popen[str]) -> Path:
    runs = host.home / "runs"
    _wait_until(lambda: runs.is_dir() and any(runs.iterdir()))
    if job.poll() is not None or not runs.is_dir():
        raise RuntimeError(f"the victim's job did not start: {job.communicate()[0]}")
    return next(iter(runs.iterdir()))


def _list_descendants(pid: int) -> list[int]:
    found, left = [pid], [pid]
    while left:
        children = Path(f"/proc/{left[0]}/task/{left.pop(0)}/children").read_text().split()
        found += map(int, children)
        left += map(int, children)
    return found


def _find_probes(host: Host, planted: Path) -> list[Path]:
    found = [path for path in host.shared.glob(".fuelline-probe-*") if path != planted]
    return [each for path in found for each in (path, *path.iterdir())]


def _next_pids() -> range:
    last = int(Path("/proc/loadavg").read_text().split()[-1])
    return range(last, last + 400)


def _attach(pids: list[int]) -> list[int]:
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    return [pid for pid in pids if ptrace(PTRACE_ATTACH, pid, None, None) == 0]


def _signal(pids: list[int], number: int) -> list[int]:
    reached = []
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue
        reached.append(pid)
    return reached


def _plant_in(run: Path) -> list[str]:
    planted = []
    for name in ("run.json", "manifest.json", "observer.journal", "spool/1-1.spool", "fix/1.jsonl"):
        try:
            (run / name).symlink_to("/etc/passwd")
        except OSError:
            continue
        planted.append(name)
    return planted


def markdown(figures: dict[str, Any], attempts: list[Attempt]) -> str:
    """The section of the results page."""
    rows = "\n".join(
        f"| {each.sort} | {each.what} | {each.result.replace('|', ' ') or 'nothing'} |"
        for each in attempts
    )
    return f"""## Two users on one host

`python -m bench.two_users`, {results.machine()}. The victim is root, the attacker a user without
rights; fs.protected_symlinks is {Path("/proc/sys/fs/protected_symlinks").read_text().strip()}.
{figures["tried"]} attempts, {len(figures["succeeded"])} succeeded (bar: none).

| sort | tried | what it gave |
| --- | --- | --- |
{rows}"""


if __name__ == "__main__":
    measured = main()
    print(json.dumps(measured, indent=1))
    sys.exit(0 if measured["passed"] else 1)
