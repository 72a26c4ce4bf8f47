"""Hostile run folders, traces, packs and caches, each read by a real `fuelline` command.

Hand-made cases (`bench.hostile_cases`), then sound runs and traces damaged at random: bits flipped,
cut short, files swapped between runs, cells rewritten under a right checksum, links and FIFOs put
in. Each command runs as its own process under a watchdog. What is found is a failure:

- a file outside the case read or changed (by strace where there is one, and by a canary)
- anything changed in a folder of another owner, or a draft left behind
- more than 60 s, or more than 500 MB over all processes of the command
- a traceback, a panic, an error that nobody foresaw, a death by a signal, an escape on the screen

    python -m bench.hostile [--seconds 600] [--seed 1] [--only TEXT] [--keep FOLDER] [--no-page]
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import fuzz_importers, results
from bench.hostile_cases import CANARY, CASES, Arena, read_all, replace_by_link, reseal
from fuelline.schema.run.journal import decode_frames, encode_frame
from fuelline.schema.run.recording import MANIFEST_FILE
from fuelline.schema.run.samples import JOURNAL_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

SECTION = "hostile"
MOST_SECONDS = 60.0
MOST_BYTES = 500 * 10**6
_LOOK_SECONDS = 0.01
_JOB = """
import torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 320
    def __getitem__(self, i):
        return sum(torch.rand(100, 100).flatten().sort().values for _ in range(8))
if __name__ == "__main__":
    model = torch.nn.Linear(10_000, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(2):
        for batch in DataLoader(Slow(), batch_size=8, num_workers=1):
            optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
"""
_STRACE = shutil.which("strace")
_WATCHED = (
    "open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,truncate,mkdir,mkdirat"
)
_OPENED = re.compile(r"open\w*\(.*?(?P<flags>O_\w[\w|]*).*\) = \d+<(?P<path>[^>]*)>")
_NAMED = re.compile(r"(?P<call>rename\w*|unlink\w*|truncate|mkdir\w*|creat)\((?P<words>.*)\) = 0")
_QUOTED = re.compile(r'(?:<(?P<folder>[^>]*)>, )?"(?P<name>(?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_CRASHED = (
    "Traceback (most recent",
    "cannot be read: unexpected",
    "panicked at",
    "Segmentation fault",
)
_SYSTEM = tuple(
    os.path.realpath(path)
    for path in (
        *(path for path in sys.path if path),
        *(
            sys.prefix,
            sys.base_prefix,
            str(Path(__file__).parents[1]),
            "/usr",
            "/lib",
            "/lib64",
            "/sys",
        ),
        *("/etc/ld.so.cache", "/etc/localtime", "/etc/terminfo", "/etc/locale.alias", "/etc/ssl"),
        *("/dev/null", "/dev/tty", "/dev/urandom", "/dev/shm"),
    )
)
"""What any Python reads."""
_OF_PROC = re.compile(
    r"/proc/(\d+|self|stat|meminfo|cpuinfo|filesystems|sys/.*|mounts|version.*)"
    r"(/(task(/.*)?|statm?|status|maps|cgroup|mountinfo|cmdline|children|fd))?/?"
)

_OWN_SEMAPHORE = re.compile(r"/dev/shm/(sem\.|pym-)")
"""Made and removed by Python's own multiprocessing."""


@dataclass
class Outcome:
    """What came of one command."""

    words: list[str]
    seconds: float = 0.0
    peak_bytes: int = 0
    code: int | None = None
    output: str = ""
    problems: list[str] = field(default_factory=list)


def run_command(words: list[str], arena: Arena, log: Path) -> Outcome:
    """One command under the watchdog; problems that show in itself are noted."""
    outcome = Outcome(words)
    traced = [
        _STRACE,
        "-f",
        "-y",
        "-qq",
        "--seccomp-bpf",
        "-e",
        f"trace={_WATCHED}",
        "-o",
        str(log),
    ]
    command = [sys.executable, "-m", "fuelline", *words]
    home = {"FUELLINE_HOME": str(arena.folder / "home"), "COLUMNS": "80"}
    environment = {**os.environ, **home, "CANARY_VARIABLE": CANARY, "TMPDIR": str(arena.folder)}
    started_s = time.monotonic()
    with (arena.folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [*traced, *command] if _STRACE else command,  # type: ignore[list-item]
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
            cwd=arena.folder, start_new_session=True,
        )  # fmt: skip
        peaks: dict[int, int] = {}
        while process.poll() is None:
            for pid in _descend(process.pid, [] if _STRACE else [process.pid]):
                peaks[pid] = max(peaks.get(pid, 0), _peak_bytes(pid))
            if time.monotonic() - started_s > MOST_SECONDS:
                outcome.problems.append(f"took more than {MOST_SECONDS:.0f} s")
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(_LOOK_SECONDS)
    outcome.seconds = time.monotonic() - started_s
    outcome.peak_bytes = sum(peaks.values())
    outcome.code = process.returncode
    outcome.output = (arena.folder / "output").read_bytes().decode("utf-8", "replace")
    (arena.folder / "output").unlink()
    return outcome


def _descend(pid: int, found: list[int]) -> list[int]:
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found.append(int(child))
                _descend(int(child), found)
    except OSError:
        pass
    return found


def _peak_bytes(pid: int) -> int:
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def judge(outcome: Outcome, arena: Arena, log: Path) -> None:
    """Note all that must not be."""
    problems = outcome.problems
    if outcome.peak_bytes > MOST_BYTES:
        problems.append(f"{outcome.peak_bytes / 1e6:.0f} MB")
    problems += [f"says {word!r}" for word in _CRASHED if word in outcome.output]
    if outcome.code is not None and outcome.code not in range(5):
        problems.append(f"ended with {outcome.code}")
    if CANARY in outcome.output:
        problems.append("the canary is in its output")
    escape = _ESCAPE.search(outcome.output)
    if escape is not None:
        problems.append(f"{escape[0]!r} in its output")
    if outcome.code == 3 and len(outcome.output) > 4000:
        problems.append(f"a refusal of {len(outcome.output)} characters")
    if log.exists() and outcome.words[0] != "run":  # whose observer looks all over /proc
        found = _find_trespasses(log.read_text(errors="replace"), arena)
        named = {f"read {word}" for word in outcome.words}  # the victim's own word
        problems += sorted(set(found) - named)[:5]


def _find_trespasses(traced: str, arena: Arena) -> list[str]:
    inside = os.path.realpath(arena.folder)
    outside = os.path.realpath(arena.outside)
    found = []
    for line in traced.splitlines():
        opened, named = _OPENED.search(line), _NAMED.search(line)
        if opened is not None:
            path = opened["path"].removesuffix(" (deleted)")
            writes = "O_WRONLY" in opened["flags"] or "O_RDWR" in opened["flags"]
            if _is_foreign(path, inside, outside, writes=writes):
                found.append(f"{'wrote' if writes else 'read'} {path}")
        elif named is not None:
            for each in _QUOTED.finditer(named["words"]):
                path = os.path.normpath(Path(each["folder"] or inside, each["name"]))
                if _OWN_SEMAPHORE.match(path):
                    continue
                if not _is_within(path, inside) or _is_within(path, outside):
                    found.append(f"{named['call']} {path}")
    return found


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _is_foreign(path: str, inside: str, outside: str, *, writes: bool) -> bool:
    if not path.startswith("/"):  # a pipe, a socket, memory
        return False
    if _is_within(path, outside):
        return True
    if _is_within(path, inside) or path == "/" or _OWN_SEMAPHORE.match(path):
        return False
    if writes:
        return path not in ("/dev/null", "/dev/tty") and "/__pycache__/" not in path
    if inside.startswith(path + "/"):  # a folder on the way
        return False
    return not any(_is_within(path, each) for each in _SYSTEM) and not _OF_PROC.fullmatch(path)


def snapshot(folder: Path) -> dict[str, str]:
    """All names below a folder, with what they hold."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = f"{status.st_mode:o} {status.st_uid} {status.st_size}"
        if path.is_symlink():
            content += str(path.readlink())
        elif path.is_file() and status.st_size < 1 << 28:
            content += hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = content
    return found


def try_case(build: Callable[[Arena], Any], seeds: Seeds, folder: Path) -> list[Outcome]:
    """Build a case, run its commands, judge each."""
    arena = Arena(folder, seeds.runs, seeds.traces)
    (folder / "home").mkdir(parents=True)
    arena.outside.mkdir()
    arena.secret.write_text(f"password = '{CANARY}'\n")
    outcomes = []
    commands = build(arena)
    guarded = [arena.outside, *(path for path in [folder / "theirs"] if path.exists())]
    plain = _run_plain(arena)
    before = [snapshot(each) for each in guarded]
    for number, words in enumerate(commands):
        if words[0] == "!spoil":
            words[1]()
            continue
        log = folder.with_name(f"{folder.name}.{number}.log")
        outcome = run_command(words, arena, log)
        judge(outcome, arena, log)
        log.unlink(missing_ok=True)
        if words[0] == "run" and outcome.code == 0 and plain not in outcome.output:
            outcome.problems.append("the job saw other bytes")
        outcomes.append(outcome)
    if [snapshot(each) for each in guarded] != before:
        outcomes[-1].problems.append("something outside was changed")
    if any(_holds_canary(path) for path in folder.rglob("*") if arena.outside not in path.parents):
        outcomes[-1].problems.append("the canary was copied")
    left = [path.name for path in folder.rglob(".*") if re.search(r"\.[0-9a-f]{12}$", path.name)]
    if left:
        outcomes[-1].problems.append(f"left behind: {left[:3]}")
    return outcomes


def _run_plain(arena: Arena) -> str:
    """What the job of a case prints without us."""
    job = arena.folder / "job.py"
    if not job.exists():
        return ""
    command = [sys.executable, str(job), str(arena.folder / "data")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _holds_canary(path: Path) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 1 << 28:
        return False
    return CANARY.encode() in path.read_bytes()


@dataclass(frozen=True)
class Seeds:
    """What is sound."""

    runs: dict[str, Path]
    traces: dict[str, list[bytes]]


def make_seeds(folder: Path) -> Seeds:
    """Record a job, compact a copy, import a trace of each of two formats."""
    traces = {kind: fuzz_importers.read_seeds(kind) for kind in fuzz_importers.SOURCES}
    job = folder / "train.py"
    job.write_text(_JOB)
    home = {**os.environ, "FUELLINE_HOME": str(folder / "home")}
    fuelline = [sys.executable, "-m", "fuelline"]

    def call(*words: str | Path) -> None:
        subprocess.run([*fuelline, *map(str, words)], env=home, check=True, capture_output=True)

    runs = {name: folder / name for name in ("raw", "compacted", "trace", "stages")}
    call("run", "--quiet", "--run-dir", runs["raw"], job)
    shutil.copytree(runs["raw"], runs["compacted"])
    call("diagnose", runs["compacted"])
    for name, kind in (("trace", "kineto"), ("stages", "straggler")):
        path = folder / f"{name}.seed"
        path.write_bytes(min(traces[kind], key=len))
        call("import", path, "-o", runs[name])
    return Seeds(runs, traces)


def fuzz_case(seed: int) -> Callable[[Arena], Any]:
    """A case from its number alone."""

    def build(arena: Arena) -> list[list[str]]:
        chance = random.Random(f"hostile {seed}")
        if chance.random() < 0.25:
            kind = chance.choice(sorted(arena.traces))
            data, _ = fuzz_importers.make_case(kind, seed, arena.traces)
            path, out = arena.put("trace", data), str(arena.folder / "imported")
            return [["import", str(path), "-o", out], ["diagnose", out]]
        run = arena.take(chance.choice(sorted(arena.seeds)))
        for _ in range(chance.choice((1, 1, 2, 4))):
            chance.choice(SPOILERS)(run, chance, arena)
        if _is_sound(run / MANIFEST_FILE) and chance.random() < 0.8:
            try:
                reseal(run)
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                pass  # what it says of its tables is spoilt already
        return [chance.choice(read_all(run)), ["diagnose", str(run)]]

    return build


def _choose(run: Path, chance: random.Random) -> Path:
    files = sorted(path for path in run.rglob("*") if _is_sound(path)) or [run / "nothing"]
    weighty = [path for path in files if path.suffix == ".json" or path.name == JOURNAL_NAME]
    return chance.choice(weighty if weighty and chance.random() < 0.4 else files)


def _is_sound(path: Path) -> bool:
    """A regular file that was not replaced by holes yet."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 28


def _damage(run: Path, chance: random.Random, arena: Arena) -> None:
    path = _choose(run, chance)
    path.touch()
    others = [each for group in arena.traces.values() for each in group]
    path.write_bytes(fuzz_importers.damage(path.read_bytes() or b"\0", chance, others))


def _rewrite(run: Path, chance: random.Random, _: Arena) -> None:
    """Sound tables with strange cells."""
    tables = sorted(path for path in run.glob("*.parquet") if _is_sound(path))
    for path in chance.sample(tables, min(len(tables), 3)):
        try:
            path.write_bytes(fuzz_importers._rewrite_table(path.read_bytes(), chance))
        except Exception:  # noqa: BLE001, PERF203, S112 - refused by polars in its ways
            continue


def _reword(run: Path, chance: random.Random, _: Arena) -> None:
    """Sound JSON with strange values."""
    texts = sorted(path for path in run.glob("*.json") if _is_sound(path))
    for path in texts:
        try:
            said = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            continue
        for _turn in range(chance.choice((1, 3, 10))):
            _spoil_value(said, chance)
        path.write_text(json.dumps(said))


_VALUES: tuple[Any, ...] = (
    None, -1, 0, 1, 2**31, 2**62, 2**63 - 1, 10**30, 0.5, -1e300, "", "x" * 100_000, [], {}, True,
    "\x1b[31m\x00\u202e", ["a"], {"a": 1}, "../../outside/secret.py", "/etc/passwd",
)  # fmt: skip


def _spoil_value(said: Any, chance: random.Random) -> None:
    while isinstance(said, (dict, list)) and said:
        key = chance.choice(sorted(said) if isinstance(said, dict) else range(len(said)))
        if not isinstance(said[key], (dict, list)) or not said[key] or chance.random() < 0.15:
            said[key] = copy.deepcopy(chance.choice(_VALUES))
            return
        said = said[key]


def _spoil_rows(run: Path, chance: random.Random, _: Arena) -> None:
    """Rows of a journal with strange values, under a right checksum."""
    path = run / JOURNAL_NAME
    if not _is_sound(path):
        return
    rows = decode_frames(path.read_bytes()).rows
    for _turn in range(chance.choice((1, 5, 50))):
        if rows:
            at = chance.randrange(len(rows))
            name = chance.choice(rows[at].__struct_fields__)
            value = getattr(rows[at], name)
            same = [each for each in _ODD if isinstance(each, type(value))]
            if same:
                rows[at] = msgspec.structs.replace(rows[at], **{name: chance.choice(same)})
    path.write_bytes(b"".join(encode_frame(rows[at : at + 500]) for at in range(0, len(rows), 500)))


_ODD: tuple[Any, ...] = (
    -1, 0, 2**31, 2**62, 2**63 - 1, -(2**63), 2**64 - 1, float("nan"), float("inf"), -1e300, "",
    "x" * 10_000, "\x1b[31m\u202e", "f (/etc/shadow:1)", [], ["f (/etc/passwd:1)"], ["", "("], {},
    {"cpu.busy_ns": float("nan")}, {"": -1e300}, True, False,
)  # fmt: skip


def _swap(run: Path, chance: random.Random, arena: Arena) -> None:
    """A file of another run in the place of this one's."""
    other = arena.seeds[chance.choice(sorted(arena.seeds))]
    theirs = _choose(other, chance)  # which is sound
    name = (
        theirs.relative_to(other)
        if chance.random() < 0.5
        else _choose(run, chance).relative_to(run)
    )
    (run / name).parent.mkdir(exist_ok=True)
    shutil.copyfile(theirs, run / name)


def _plant(run: Path, chance: random.Random, arena: Arena) -> None:
    """A link, a FIFO, a folder or holes in the place of a file."""
    path = _choose(run, chance)
    way = chance.randrange(4)
    if way == 0:
        replace_by_link(path, chance.choice((arena.secret, "/dev/zero", "/etc/passwd", "..", path)))
        return
    path.unlink(missing_ok=True)
    if way == 1:
        os.mkfifo(path)
    elif way == 2:
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(chance.choice((0, 1, 4096, 1 << 31, 100 << 30)))


SPOILERS = (_damage, _damage, _rewrite, _rewrite, _reword, _reword, _spoil_rows, _swap, _plant)


def attack(seconds: float, first: int, only: str, keep: Path | None) -> dict[str, Any]:
    """All hand-made cases, then random ones until the time is over."""
    tally: dict[str, Any] = {"cases": 0, "fuzzed": 0, "commands": 0, "peak_mb": 0, "seconds": 0.0}
    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(os.path.realpath(name))
        (folder / "seeds").mkdir()
        seeds = make_seeds(folder / "seeds")

        def one(title: str, build: Callable[[Arena], Any]) -> None:
            place = folder / "case"
            for outcome in try_case(build, seeds, place):
                tally["commands"] += 1
                tally["peak_mb"] = max(tally["peak_mb"], round(outcome.peak_bytes / 1e6))
                tally["seconds"] = max(tally["seconds"], round(outcome.seconds, 1))
                if outcome.problems:
                    said = f"{' '.join(outcome.words)[:100]}: {'; '.join(outcome.problems)}"
                    found.setdefault(title, []).append(said)
                    print(f"{title}: {said}\n    {outcome.output[-600:]!r}", flush=True)
            if keep is not None and title in found:
                shutil.copytree(place, keep / re.sub(r"\W+", "-", title), symlinks=True)
            shutil.rmtree(place)

        for title, build in CASES.items():
            if only in title:
                tally["cases"] += 1
                one(title, build)
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            one(f"seed {first + tally['fuzzed']}", fuzz_case(first + tally["fuzzed"]))
            tally["fuzzed"] += 1
    return {**tally, "found": len(found), "failing": sorted(found), "passed": not found}


def main(words: list[str] | None = None) -> dict[str, Any]:
    """All cases, and ten minutes of random ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--no-page", action="store_true")
    options = parser.parse_args([] if words is None else words)
    figures = attack(options.seconds, options.seed, options.only, options.keep)
    if not options.no_page:
        results.write_section(SECTION, _section(figures))
    return figures


def _section(figures: dict[str, Any]) -> str:
    failing = "".join(f"\n- {name}" for name in figures["failing"]) or " none"
    how = "opens and writes by strace" if _STRACE else "by canaries alone, without strace"
    return (
        "## Hostile runs, traces, packs and caches\n\n"
        f"`python -m bench.hostile`, {results.machine()}; {how}. {figures['cases']} hand-made and "
        f"{figures['fuzzed']} random cases, {figures['commands']} commands. The longest took "
        f"{figures['seconds']} s (bar: {MOST_SECONDS:.0f} s), the largest {figures['peak_mb']} MB "
        f"over all its processes (bar: {MOST_BYTES / 1e6:.0f} MB). Read or written outside, hung, "
        f"crashed, or raw escapes shown:{failing}\n"
    )


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=2))
