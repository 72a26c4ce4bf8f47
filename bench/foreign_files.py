"""Every command that writes, at places full of files that are not ours: none may change.

A folder gets what our own commands leave behind by name (drafts, objects, a journal, shards, an
index, tables, a manifest, markers), with other content; names that only nearly match; links to
files outside, and folders where files should be. Then a command is told to write there. Compared
before and after: content, mode, owner and time of every file and link, inside and outside. The
command may refuse or succeed; it may not hang, or show a traceback. Some folders are ours (a cache
with its marker, a pack that was cut short, a recorded run) and got foreign files later; there, what
has exactly the name of a file of ours counts as ours. Needs torch; five minutes.

    python -m bench.foreign_files [NAME ...]
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import results

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[1]
JOB = REPOSITORY / "tests" / "integration" / "jobs" / "sleepy.py"
LONGEST_S = 180.0
NOBODY = 4194305
"""A number that no process has."""
HASH = "0" * 32

NAMES = (
    "README.md", "index", ".index", "index.bak", "journal", "journal.jsonl", "ledger", "boot",
    "users", ".write", "shard-00000", "shard-00001", "shard-99999", "shard-0", "shard-00000.bak",
    "shard-", "drafts/notes.txt", f"drafts/{NOBODY}-0", f"drafts/{NOBODY}-0.txt",
    f"objects/00/{HASH}-5-1-1", f"objects/00/{HASH}-5-1-1.bak", "objects/ab/thesis.tex",
    "objects/photo.jpg", "objects/0/x", "manifest.json", ".manifest.json.1", "run.json",
    ".run.json", "events.parquet", "stacks.parquet", "notes.parquet", "observer.log",
    "spool/notes.txt", "fix/notes.txt", "zoom/notes.txt", "feed-1.json", "plan.json",
    f".fuelline-probe-{NOBODY}/thesis.tex", f".fuelline-probe-{NOBODY}/large", "cache.key",
    "out.json", ".out.json.1", "out.json.gz", "x.svg", "x-2.svg", "x.png", ".x.svg",
    "chips/mine.toml", "chips/mine.json", "undo/1.json", "runs/notes.txt", "host-0001/notes.txt",
    "job.py.orig", ".job.py.1", "lost+found/inode", "\x1b[2J", "caf\udce9",
)  # fmt: skip
LINKS = (
    "link", "objects/00/linked", "drafts/linked", f"drafts/{NOBODY}-1", "shard-00002", "linked.svg",
    "linked.json", "spool/linked", f"objects/01/{'1' * 32}-5-1-1",
)  # fmt: skip
FOLDERS = ("shard-00003", f"drafts/{NOBODY}-2", "folder.svg", "objects/02")


class Case(NamedTuple):
    """A command, and what is made before it."""

    name: str
    words: tuple[str, ...]
    """`{mine}` is the full folder, `{data}` some files, `{run}` a recorded run."""
    prepare: Callable[[Place], None] | None = None
    ours: str = "(?!)"
    """Names in a folder of ours that the command may change: not planted, and not compared."""


class Place:
    """A folder full of foreign files, and victims outside of it."""

    def __init__(self, top: Path) -> None:
        self.top, self.mine, self.data = top, top / "mine", top / "data"
        self.home, self.run, self.victims = top / "home", top / "run", top / "victims"
        for folder in (self.mine, self.data, self.home, self.victims):
            folder.mkdir()
        for number in range(20):
            (self.data / f"{number}.bin").write_bytes(os.urandom(2000))
        shutil.copy(JOB, self.data / "job.py")

    def fill(self, ours: str) -> None:
        """What is there already is left as it is."""
        for name in NAMES:
            path = self.mine / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(path) and not re.fullmatch(ours, name):
                path.write_bytes(f"mine: {name!a}\n".encode())
        for number, name in enumerate(LINKS):
            path = self.mine / name
            path.parent.mkdir(parents=True, exist_ok=True)
            victim = self.victims / str(number)
            victim.write_bytes(b"a victim\n")
            path.unlink(missing_ok=True)
            path.symlink_to(victim)
        for name in FOLDERS:
            (self.mine / name).mkdir(parents=True, exist_ok=True)
            (self.mine / name / "inside").write_bytes(b"mine\n")

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, with a home of its own."""
        places = {name: getattr(self, name) for name in ("mine", "data", "run", "home")}
        command = [sys.executable, "-m", "fuelline", *(word.format(**places) for word in words)]
        env = {**os.environ, "FUELLINE_HOME": str(self.home), "PYTHONPATH": str(REPOSITORY / "src")}
        return subprocess.run(
            command,
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST_S,
            check=False,
            cwd=self.data,
        )

    def name(self, path: str) -> str:
        """Of a file in the folder."""
        return os.path.relpath(path, self.mine)

    def look(self) -> dict[str, tuple[Any, ...]]:
        """Everything in the folder and outside of it that a command could have changed."""
        return {
            str(path): _see(path)
            for top in (self.mine, self.victims)
            for path in (top, *top.rglob("*"))
        }


def _see(path: Path) -> tuple[Any, ...]:
    status = path.lstat()
    about = status.st_mode, status.st_uid
    if stat.S_ISDIR(status.st_mode):
        return about  # its time changes with what is added to it
    is_link = stat.S_ISLNK(status.st_mode)
    content = str(path.readlink()) if is_link else path.read_bytes()
    return *about, status.st_mtime_ns, content


def _own_cache(place: Place) -> None:
    """A cache with copies in it, that a job filled."""
    reading = f"import time; time.sleep(2.1); open({str(place.data / '0.bin')!r}, 'rb').read()"
    words = ("run", "--quiet", "--cache", "{mine}", "--cache-from", "{data}", sys.executable)
    place.call(*words, "-c", reading.replace("{", "{{").replace("}", "}}"))
    (place.mine / "boot").write_text("another boot")


def _shared_cache(place: Place) -> None:
    place.mine.chmod(0o1777)
    place.call("run", "--quiet", "--cache", "{mine}", "--cache-shared", "true")


def _cut_pack(place: Place) -> None:
    place.call("pack", "{data}", "-o", "{mine}")
    (place.mine / "index").unlink()


def _record(place: Place) -> None:
    place.call("run", "--quiet", "--run-dir", "{run}", "{data}/job.py", "10")


def _recorded(place: Place) -> None:
    """The full folder is a run itself, not yet compacted."""
    place.mine.rmdir()
    place.call("run", "--quiet", "--run-dir", "{mine}", "{data}/job.py", "10")


def _own_home(place: Place) -> None:
    place.home.rmdir()
    place.home = place.mine


def _script(place: Place) -> None:
    shutil.copy(JOB, place.mine / "job.py")


def _trace(place: Place) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2}
    trace = {"schemaVersion": 1, "traceEvents": [{**event, "args": {"device": 0}}]}
    (place.data / "trace.json").write_text(json.dumps(trace))


_PLAN = ("plan", "serve", "llama-3.1-8b", "--chip", "h100", "--batch", "1..64", "--plot")
_JOB = ("{data}/job.py", "10")
_OBJECTS = r"objects/../[0-9a-f]{32}-\d+-\d+-\d+"
_OWN_CACHE = rf"boot|ledger|users|drafts/\d+-\d+|{_OBJECTS}"
_OWN_PACK = r"index|journal|shard-\d{5,}"
_OWN_RUN = r"(run|manifest)\.json|observer\.(journal|log)|spool|spool/\d+.*|(?!notes)\w+\.parquet"


def _trace_and_own_home(place: Place) -> None:
    _trace(place)
    _own_home(place)


CASES = (
    Case("run --cache", ("run", "--cache", "{mine}", *_JOB)),
    Case("run --cache, ours", ("run", "--cache", "{mine}", *_JOB), _own_cache, _OWN_CACHE),
    Case("run --cache --cache-shared", ("run", "--cache", "{mine}", "--cache-shared", "true")),
    Case(
        "the same, ours",
        ("run", "--cache", "{mine}", "--cache-shared", "true"),
        _shared_cache,
        rf"0/ledger|{_OBJECTS}",
    ),
    Case("pack", ("pack", "{data}", "-o", "{mine}")),
    Case("pack, no index there", ("pack", "{data}", "-o", "{mine}"), None, "index"),
    Case("pack, cut short", ("pack", "{data}", "-o", "{mine}"), _cut_pack, _OWN_PACK),
    Case("pack --check", ("pack", "{data}", "-o", "{mine}", "--check")),
    Case("run --packed", ("run", "--packed", "{mine}", "true")),
    Case("run --run-dir", ("run", "--run-dir", "{mine}", "true")),
    Case("run --run-dir, below", ("run", "--run-dir", "{mine}/spool", "true")),
    Case("run --node-rank", ("run", "--node-rank", "1", "--run-dir", "{mine}", *_JOB), _record),
    Case("run, home", ("run", *_JOB), _own_home),
    Case("run --fix, home", ("run", "--fix", *_JOB), _own_home),
    Case("diagnose", ("diagnose", "{mine}")),
    Case("diagnose, a run", ("diagnose", "{mine}"), _recorded, _OWN_RUN),
    Case("whatif, a run", ("whatif", "{mine}"), _recorded, _OWN_RUN),
    Case("compare, a run", ("compare", "{mine}", "{mine}"), _recorded, _OWN_RUN),
    Case("watch --once", ("watch", "--once", "{mine}")),
    Case("runs, home", ("runs",), _own_home),
    Case("import -o", ("import", "{data}/trace.json", "-o", "{mine}"), _trace),
    Case("import, home", ("import", "{data}/trace.json"), _trace_and_own_home),
    *(
        Case(f"export {name}", ("export", "{run}", "--perfetto", f"{{mine}}/{name}"), _record)
        for name in ("out.json", "out.json.gz", "README.md", "linked.json", "shard-00003")
    ),
    *(
        Case(f"plan --plot {name}", (*_PLAN, f"{{mine}}/{name}"))
        for name in ("x.svg", "x.png", "linked.svg", "folder.svg")
    ),
    Case("roofline --save", ("roofline", "--rounds", "3", "--save", "mine"), _own_home),
    Case("roofline --plot", ("roofline", "--rounds", "3", "--plot", "{mine}/x.svg")),
    Case("feed --run-dir", ("feed", "--run-dir", "{mine}", *_JOB)),
    Case("probe", ("probe", "{mine}", "--size", "16M", "--seconds", "0.1")),
    Case(
        "tune --apply",
        ("tune", "--seconds", "0.6", "--rounds", "1", "--apply", "{mine}/job.py", "60"),
        _script,
        r"job\.py",
    ),
    Case("undo, home", ("undo",), _own_home),
)


class Found(NamedTuple):
    """What a command did."""

    name: str
    code: int | None
    """None: it did not end."""
    planted: int
    changed: tuple[str, ...]
    has_traceback: bool


def try_case(case: Case) -> Found:
    """Fill a folder, run the command, compare."""
    with tempfile.TemporaryDirectory(prefix="fuelline-bench-") as name:
        place = Place(Path(name))
        if case.prepare is not None:
            case.prepare(place)
        place.fill(case.ours)
        before = place.look()
        try:
            done = place.call(*case.words)
        except subprocess.TimeoutExpired:
            return Found(case.name, None, len(before), (), has_traceback=False)
        after = place.look()
        changed = [
            place.name(path)
            for path, was in before.items()
            if after.get(path) != was
            and (stat.S_ISLNK(was[0]) or not re.fullmatch(case.ours, place.name(path)))
        ]
        told = done.stdout + done.stderr
        return Found(case.name, done.returncode, len(before), tuple(changed), "Traceback" in told)


def main(names: list[str] | None = None) -> dict[str, Any]:
    """The figures and whether nothing was touched."""
    found = []
    for case in CASES:
        if names and case.name not in names:
            continue
        one = try_case(case)
        found.append(one)
        print(f"{one.name}: {one.code}, {len(one.changed)} changed {one.changed or ''}", flush=True)
    figures: dict[str, Any] = {
        "commands": len(found),
        "planted": sum(each.planted for each in found),
        "changed": sum(len(each.changed) for each in found),
        "hung": sum(each.code is None for each in found),
        "tracebacks": sum(each.has_traceback for each in found),
    }
    bad = {each.name: each.changed for each in found if each.changed or each.has_traceback}
    figures["bad"] = bad
    figures["passed"] = not (figures["changed"] or figures["hung"] or figures["tracebacks"])
    if not names:
        results.write_section("foreign_files", markdown(figures))
    return figures


def markdown(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    return f"""## Foreign files

`python -m bench.foreign_files`, {results.machine()}. Each of {figures["commands"]} commands that
write, at a folder full of files that are not ours, with our names and nearly our names, and links.

| figure | measured | bar |
| --- | --- | --- |
| foreign files, links and folders planted | {figures["planted"]:,} | |
| deleted, overwritten or changed | {figures["changed"]} | 0 |
| commands that hung | {figures["hung"]} | 0 |
| commands that showed a traceback | {figures["tracebacks"]} | 0 |"""


if __name__ == "__main__":
    measured = main(sys.argv[1:])
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
