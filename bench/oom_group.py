"""Whether a recorded job lives and ends as the plain one where the kernel kills a whole group.

With `memory.oom.group` (control groups version 2; Kubernetes sets it) one allocation too many ends
every process of the group, so what recording takes could cost the job its life, or its exit code.
Each case is run plain and recorded in a real group. That needs a kernel whose memory controller is
on version 2, so a small virtual machine is started: Debian's kernel, and a disk with this Python,
its environment and the project.

Needs qemu-system-x86, e2fsprogs and apt-get, which downloads `linux-image-cloud-amd64`; it is
unpacked into a temporary folder and not installed. In software the machine takes a quarter of an
hour; `--kvm` is faster where it works, which inside another virtual machine it may not.

    python -m bench.oom_group [--kvm] [--only WORD]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import results
from bench.oom_guest import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY_MIB = 6144
DISK_MIB = 4096
PROJECT = Path(__file__).resolve().parent.parent
LEFT_OUT = ("site-packages", "test", "tests", "include", "share", "idlelib", "config-*")
MIB = 1 << 20
HEAD = "| case | plain | recorded | how recorded | MiB at most, plain and recorded |"


def list_cases() -> Iterator[dict[str, Any]]:
    """Each once; `how` is what a recording must be: whole, inside, or either if it is not said."""
    for mib in (1000, 800, 1500, 4096):
        yield make("small", mib, how="whole")
    for left in (600, 850, 960):
        yield make("leave", 1000, mib=left, exits=7, how="whole")
    yield make("grow", 1000, mib=955, exits=7, how="whole")
    for beside in (850, 950):
        yield make("fill", 1000, mib=4, exits=7, beside_mib=beside, how="inside")
    for most, part in ((100, 0.9), (400, 0.9), (800, 0.8), (800, 0.9), (800, 0.97), (1500, 0.97)):
        yield make("fill", most, mib=part * most - 8, how="inside" if most < 800 else "whole")
    yield make("fill", 100, mib=130)
    yield make("fill", 800, mib=1000)
    for mib in (64, 100, 150, 200, 400, 600):
        yield make("small", mib, how="inside")
    marked, limited = {"memory.oom.group": 1}, {"memory.max": 300 * MIB}
    yield {"job": "small", "outer": marked, "inner": limited, "how": "whole"}
    yield {"job": "small", "outer": limited, "inner": marked, "how": "inside"}
    yield {"job": "small", "outer": marked | limited, "how": "inside"}
    hidden = {"outer": {"memory.max": 800 * MIB}, "inner": marked, "eaten_mib": 1000}
    for sees in ("container", "host's tree"):
        yield {"job": "fill", "mib": 50, "exits": 7, **hidden, "sees": sees}
    for sees in ("container", "host's tree"):
        yield make("small", 150, sees=sees, how="inside")
    for mib in (64, 150, 200, 1000):
        yield make("small", mib, mark=0, how="inside" if mib < 200 else "whole")
    yield make("fill", 200, mark=0, mib=172, how="whole")
    yield make("fill", 400, mark=0, mib=380, how="whole")
    yield make("fill", 400, mark=0, mib=500)
    yield make("torch", 1000, how="whole")
    yield make("torch", 400, how="inside")


def make(job: str, most_mib: int, *, mark: int = 1, **more: Any) -> dict[str, Any]:
    """A job in a group with a limit, marked to be ended as a whole or not."""
    return {"job": job, "inner": {"memory.max": most_mib * MIB, "memory.oom.group": mark}, **more}


def build_disk(folder: Path, cases: list[dict[str, Any]]) -> Path:
    """A file system with this Python, its environment and the project, each at its own path."""
    root = folder / "root"
    for path in ("dev", "proc", "sys", "tmp", "root", "dev/shm"):
        (root / path).mkdir(parents=True)
    base, environment = Path(sys.base_prefix), Path(sys.prefix)
    copy(base, root, shutil.ignore_patterns(*LEFT_OUT))
    if environment != base:
        copy(
            environment, root, shutil.ignore_patterns("mypy*", "*__mypyc*", "pip", "sympy/*/tests")
        )
    for part in ("src", "bench"):
        copy(PROJECT / part, root, shutil.ignore_patterns("__pycache__", "out"))
    for library in list_libraries(root):
        target = root / library.relative_to("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    (root / "cases.json").write_text(json.dumps(cases))
    init = root / "init"
    init.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = [{str(PROJECT)!r}]\n"
        "from bench.oom_guest import main\nmain()\n"
    )
    init.chmod(0o755)
    disk = folder / "disk.img"
    with disk.open("wb") as file:
        file.truncate(DISK_MIB << 20)
    subprocess.run(
        [find("mke2fs") or "", "-q", "-t", "ext4", "-O", "^has_journal", "-d", root, disk],
        check=True,
    )
    return disk


def copy(source: Path, root: Path, ignore: Any) -> None:
    """A folder at its path below `root`; files are linked where that is possible."""

    def place(path: str, target: str) -> None:
        try:
            os.link(path, target, follow_symlinks=False)
        except OSError:
            shutil.copy2(path, target, follow_symlinks=False)

    shutil.copytree(
        source,
        root / source.relative_to("/"),
        symlinks=True,
        ignore=ignore,
        copy_function=place,
        dirs_exist_ok=True,
    )


def list_libraries(root: Path) -> set[Path]:
    """Shared libraries of the system that what is on the disk needs."""
    programs = [path for path in root.rglob("*") if path.is_file() and ".so" in path.name]
    found = set()
    for program in [Path(sys.executable), *programs]:
        told = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for word in told.split():
            path = Path(word)
            if word.startswith(("/lib", "/usr/lib")):
                found.add(path)
    return found


def fetch_kernel(folder: Path) -> Path:
    """Debian's kernel for virtual machines: disk and ext4 are built in."""
    told = subprocess.run(
        ["apt-cache", "depends", "linux-image-cloud-amd64"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    package = next(word for word in told.split() if word.startswith("linux-image-6"))
    subprocess.run(
        ["apt-get", "download", "-q", package], cwd=folder, check=True, capture_output=True
    )
    (archive,) = folder.glob("*.deb")
    subprocess.run(["dpkg", "-x", archive, folder / "kernel"], check=True)
    return next((folder / "kernel" / "boot").glob("vmlinuz-*"))


def boot(kernel: Path, disk: Path, *, kvm: bool) -> Iterator[dict[str, Any]]:
    """Start the machine and give its results as they come."""
    words = [
        "qemu-system-x86_64",
        "-accel",
        "kvm" if kvm else "tcg,thread=multi",
        "-cpu",
        "host" if kvm else "Haswell-noTSX",
        "-smp",
        "2",
        "-m",
        str(MEMORY_MIB),
        "-nographic",
        "-no-reboot",
        "-kernel",
        str(kernel),
        "-drive",
        f"file={disk},if=none,id=disk,format=raw,cache=unsafe",
        "-device",
        "nvme,drive=disk,serial=1",
        "-net",
        "none",
        "-append",
        "console=ttyS0 root=/dev/nvme0n1 rw init=/init panic=-1 loglevel=3 mitigations=off nokaslr",
    ]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as machine:
        try:
            for line in machine.stdout or ():
                if line.startswith(MARK):
                    yield json.loads(line[len(MARK) :])
                else:
                    print(line, end="", file=sys.stderr)
        finally:
            machine.kill()


def main(words: list[str] | None = None) -> dict[str, Any]:
    """All cases, plain and recorded, and those that went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kvm", action="store_true")
    parser.add_argument("--only", default="", help="cases whose name has this word")
    options = parser.parse_args(words or [])
    missing = [name for name in ("qemu-system-x86_64", "mke2fs", "apt-get") if not find(name)]
    if missing:
        print(f"needs {', '.join(missing)}: apt-get install qemu-system-x86 e2fsprogs")
        return {"passed": False, "missing": missing}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the machine and its disk must go
    chosen = [case for case in list_cases() if options.only in describe(case)]
    cases = [{**case, "recorded": is_so} for case in chosen for is_so in (False, True)]
    told = []
    with tempfile.TemporaryDirectory(prefix="fuelline-bench-") as name:
        kernel, disk = fetch_kernel(Path(name)), build_disk(Path(name), cases)
        for result in boot(kernel, disk, kvm=options.kvm):
            print(describe(result["case"]), json.dumps(result), flush=True)
            told.append(result)
        release = kernel.name.removeprefix("vmlinuz-")
    rows = [judge(plain, ours) for plain, ours in zip(told[::2], told[1::2], strict=False)]
    failed = [row["case"] for row in rows if row["wrong"]]
    figures = {
        "cases": len(chosen),
        "tried": len(rows),
        "failed": failed,
        "passed": not failed and len(rows) == len(chosen),
    }
    if not options.only:
        results.write_section("oom_group", markdown(figures, rows, release))
    return figures


def find(name: str) -> str | None:
    """Where a program is; those for file systems are not on everybody's PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def describe(case: dict[str, Any]) -> str:
    """A case in words."""
    words = []
    for name in ("outer", "inner"):
        group = case.get(name, {})
        if "memory.max" in group:
            words.append(f"{name} limit {group['memory.max'] // MIB} MiB")
        if group.get("memory.oom.group"):
            words.append(f"{name} oom.group")
    doing = {
        "fill": "holds",
        "leave": "leaves behind",
        "grow": "leaves a process that grows to",
    }.get(case["job"], case["job"])
    text = f"{', '.join(words)}: {doing}"
    if "mib" in case:
        text += f" {case['mib']:.0f} MiB"
    if "beside_mib" in case:
        text += f" beside {case['beside_mib']} MiB of another process"
    if "eaten_mib" in case:
        text += f" while a neighbour of the outer group asks for {case['eaten_mib']} MiB"
    if "sees" in case:
        text += f", in a namespace that sees the {case['sees']}"
    return text


def judge(plain: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """What differs between the two."""
    said = " ".join(ours["said"])
    how = "inside" if "recorded from inside" in said else "whole"
    if how == "whole" and ours["code"] != -9:
        how += ", report left out" if "no report:" in said else ", report"
    is_same = all(
        plain.get(key) == ours.get(key) for key in ("code", "out", "lost_sidecar", "grown", "eater")
    )
    is_as_meant = how.startswith(ours["case"].get("how", how))
    return {
        "case": describe(ours["case"]),
        "plain": plain["code"],
        "ours": ours["code"],
        "how": how,
        "peaks": f"{plain['peak_mib']}, {ours['peak_mib']}",
        "wrong": not is_same or not is_as_meant,
    }


def markdown(figures: dict[str, Any], rows: list[dict[str, Any]], release: str) -> str:
    """The section of the results page."""
    lines = "\n".join(
        f"| {row['case']} | {row['plain']} | {row['ours']}{' **wrong**' if row['wrong'] else ''} "
        f"| {row['how']} | {row['peaks']} |"
        for row in rows
    )
    return f"""## A control group that is killed as a whole

`python -m bench.oom_group`, {results.machine()}; in a virtual machine with Linux {release}, without
swap. Exit codes, or the signal that ended the job (-9: out of memory). {figures["tried"]} of
{figures["cases"]} cases ran, {len(figures["failed"])} went wrong (bar: none): another exit code
or output than the plain job's, another process of the group lost, or recorded to another extent
than the limits call for.
`inside` is by the hooks alone. Peaks hold cached files, which the kernel gives back.

{HEAD}
| --- | --- | --- | --- | --- |
{lines}"""


if __name__ == "__main__":
    measured = main(sys.argv[1:])
    print(json.dumps(measured, indent=1))
    sys.exit(0 if measured["passed"] else 1)
