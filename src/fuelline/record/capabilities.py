"""What the recorder can see on this machine, asked without starting a job.

Each function looks at one source and gives one `Capability`; nothing is changed, nothing installed,
no framework imported. Questions that need a job's process are asked of a short-lived child of ours,
because what a parent may see of its child is what the observer may see of the job.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from fuelline.record import buffer
from fuelline.record.device_capabilities import find_accelerators
from fuelline.record.samplers.cgroup import V2, ControlGroup, find_groups
from fuelline.record.samplers.limits import read_limits
from fuelline.record.samplers.mounts import MountTable
from fuelline.record.samplers.procfs import find_text, read_once
from fuelline.record.samplers.stacks import find_py_spy
from fuelline.record.samplers.syscalls import HERE
from fuelline.schema.mounts import is_slow_type
from fuelline.schema.run.capabilities import Capability
from fuelline.schema.run.samples import Limits

WANTED_FREE_BYTES = 256 * 1024 * 1024
"""An hour of recording takes a few MB; less room than this is worth a word."""
_PROBE_TIMEOUT_S = 10.0
_MIB = 1024 * 1024


def find_capabilities(runs_folder: Path) -> list[Capability]:
    """All sources, in the order in which a diagnosis leans on them."""
    with _probe() as pid:
        of_a_process = [
            find_system_calls(pid),
            find_schedstat(pid),
            find_process_io(pid),
            find_stacks(pid),
        ]
    return [
        find_linux(),
        *of_a_process,
        find_other_processes(),
        find_pressure(),
        find_cgroups(),
        find_cores_and_memory(),
        find_remote_mounts(),
        find_torch(),
        find_compiled_hooks(),
        *find_accelerators(),
        find_disk_space(runs_folder),
    ]


@contextmanager
def _probe() -> Iterator[int]:
    """A Python process of our own that waits; gives its pid once it has begun to wait."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        if child.stdout is not None:
            child.stdout.readline()
        yield child.pid
    finally:
        child.communicate()


def find_linux() -> Capability:
    """Everything outside the hooks comes from /proc."""
    has_proc = Path("/proc/self/task").is_dir()
    system = os.uname()
    return Capability(
        name="Linux /proc",
        ok=has_proc and bool(HERE),
        detail=f"{system.sysname} {system.release} on {system.machine}"
        + ("" if HERE else ", whose system call numbers Fuelline does not know"),
        enables="everything the observer sees, in addition to the hooks' own events",
        how_to_enable="" if has_proc else "record on Linux, with /proc mounted",
    )


def find_system_calls(pid: int) -> Capability:
    """Whether a blocked thread's system call, descriptor and memory can be read."""
    refusal = _find_refusal(f"/proc/{pid}/syscall") or _find_refusal(f"/proc/{pid}/mem", size=0)
    scope = (find_text("/proc/sys/kernel/yama/ptrace_scope") or "").strip()
    detail = f"refused: {refusal}" if refusal else "blocked threads show what they are blocked on"
    if scope not in {"", "0"}:
        detail += f"; kernel.yama.ptrace_scope is {scope}"
        if scope == "1":
            detail += ", and jobs give our observer access when their hooks start"
    return Capability(
        name="system calls of threads",
        ok=refusal is None,
        detail=detail,
        enables="whether storage or CPU is slow, down to the file, mount and system call",
        how_to_enable="" if refusal is None else _explain_ptrace(scope),
    )


def _explain_ptrace(scope: str) -> str:
    if scope in {"2", "3"}:
        return "sudo sysctl kernel.yama.ptrace_scope=1 (3 needs a reboot), or run as root"
    if _is_container():
        return "start the container with --cap-add=SYS_PTRACE"
    return "run as the user who owns the job, or as root"


def _is_container() -> bool:
    return Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()


def find_schedstat(pid: int) -> Capability:
    """On-CPU and run-queue time per thread, in nanoseconds."""
    content = find_text(f"/proc/{pid}/task/{pid}/schedstat")
    is_kept = content is not None and any(int(word) for word in content.split()[:2])
    return Capability(
        name="scheduler clocks",
        ok=is_kept,
        detail="on-CPU and run-queue time per thread" if is_kept else "the kernel keeps none",
        enables="whether workers compute or wait for a core",
        how_to_enable="" if is_kept else "use a kernel built with CONFIG_SCHED_INFO",
    )


def find_process_io(pid: int) -> Capability:
    """Bytes read by a process, and how many of them came from a device."""
    refusal = _find_refusal(f"/proc/{pid}/io")
    return Capability(
        name="I/O of processes",
        ok=refusal is None,
        detail=f"/proc/PID/io: {refusal}" if refusal else "bytes per process, cached or from disk",
        enables="whether reads come from the page cache or reach the disk",
        how_to_enable="" if refusal is None else "run as the job's user, or as root",
    )


def find_stacks(pid: int) -> Capability:
    """py-spy, tried on a real Python process."""
    binary = find_py_spy()
    problem = "py-spy is not installed" if binary is None else _try_py_spy(binary, pid)
    return Capability(
        name="Python stacks",
        ok=problem is None,
        detail=problem or f"{binary} reads the stacks of another process",
        enables="the line of user code that the workers spend their time in",
        how_to_enable=""
        if problem is None
        else f"{Path(sys.executable).name} -m pip install py-spy"
        if binary is None
        else "allow system calls of threads, as above",
    )


def _try_py_spy(binary: str, pid: int) -> str | None:
    try:
        result = subprocess.run(
            [binary, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"py-spy does not run: {error}"
    if result.returncode == 0:
        return None
    lines = result.stderr.strip().splitlines()
    return f"py-spy: {lines[0] if lines else f'exit code {result.returncode}'}"


def find_other_processes() -> Capability:
    """Whether processes of other users are visible: /proc may be mounted with hidepid."""
    refusal = _find_refusal("/proc/1/stat")
    return Capability(
        name="other processes",
        ok=refusal is None,
        detail=f"hidden (/proc/1/stat: {refusal})" if refusal else "visible",
        enables="the name of the neighbour that takes cores or storage from the job",
        how_to_enable="" if refusal is None else "remount /proc without hidepid, or run as root",
    )


def find_pressure() -> Capability:
    """Pressure stall information of the whole machine."""
    refusal = _find_refusal("/proc/pressure/io")
    return Capability(
        name="pressure (PSI)",
        ok=refusal is None,
        detail=f"/proc/pressure/io: {refusal}" if refusal else "on",
        enables="share of time in which tasks of the machine waited for I/O, CPU or memory",
        how_to_enable="" if refusal is None else "boot with psi=1",
    )


def find_cgroups() -> Capability:
    """Which cgroup hierarchies we are in, and whether a limit applies."""
    groups = _list_own_groups()
    versions = {("v2" if group.controller == V2 else "v1") for group in groups}
    return Capability(
        name="cgroups",
        ok=bool(groups),
        detail=f"{' and '.join(sorted(versions))}; {_describe_limits(_read_own_limits(groups))}"
        if groups
        else "no cgroup hierarchy is mounted",
        enables="CPU quota, throttling, memory and I/O limits of the job",
        how_to_enable=""
        if groups
        else "mount /sys/fs/cgroup into the container, read-only will do",
    )


def _list_own_groups() -> list[ControlGroup]:
    return find_groups(find_text("/proc/self/cgroup") or "", MountTable().mounts)


def _read_own_limits(groups: list[ControlGroup]) -> Limits:
    return read_limits(time.monotonic_ns(), [os.getpid()], groups)


def _describe_limits(limits: Limits) -> str:
    found = []
    if limits.quota_cores is not None:
        found.append(f"quota of {limits.quota_cores:g} cores")
    if limits.memory_limit_bytes is not None:
        found.append(f"{limits.memory_limit_bytes // _MIB} MiB of memory")
    if limits.io_limits:
        found.append(f"I/O limits on {', '.join(sorted(limits.io_limits))}")
    return "limits: " + ", ".join(found) if found else "no limits set"


def find_cores_and_memory() -> Capability:
    """What a job started here may use."""
    limits = _read_own_limits(_list_own_groups())
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    usable = min(limits.memory_limit_bytes or total, total)
    return Capability(
        name="cores and memory",
        ok=True,
        detail=f"{limits.cpus_allowed} of {limits.host_cpus} cores,"
        f" {usable // _MIB} of {total // _MIB} MiB",
        enables="how many loader workers are worth having",
        how_to_enable="",
    )


def find_remote_mounts() -> Capability:
    """Mounts whose latency the network or a daemon decides."""
    mounts = [mount for mount in MountTable().mounts if is_slow_type(mount.fstype)]
    names = ", ".join(f"{mount.point} ({mount.fstype})" for mount in mounts[:5])
    has_nfs = any(mount.fstype.startswith("nfs") for mount in mounts)
    counted = "; NFS operations are counted" if has_nfs else ""
    return Capability(
        name="remote mounts",
        ok=True,
        detail=f"{len(mounts)}: {names}{counted}" if mounts else "none",
        enables="latency per operation on NFS; for others what blocked threads show",
        how_to_enable="",
    )


def find_torch() -> Capability:
    """PyTorch in the interpreter that runs us; a job may use another one."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        version = None
    return Capability(
        name="PyTorch",
        ok=version is not None,
        detail=f"torch {version} in {sys.executable}"
        if version
        else f"not in {sys.executable}; a job may bring its own",
        enables="steps, loader waits, fetches and copies, from hooks inside the job",
        how_to_enable="" if version else "nothing to do if the job's own interpreter has it",
    )


def find_compiled_hooks() -> Capability:
    """Whether the hooks have their compiled half."""
    is_left_out = bool(os.environ.get(buffer.LEFT_OUT))
    absent = f"{'left out' if is_left_out else 'not built'}; hooks are all in Python"
    how = "install gcc and Python's headers, then reinstall fuelline"
    return Capability(
        name="compiled hooks",
        ok=buffer.is_compiled(),
        detail="built into this package" if buffer.is_compiled() else absent,
        enables="a step is recorded for a tenth of the cost, and garbage collections are seen",
        how_to_enable=f"unset {buffer.LEFT_OUT}" if is_left_out else how,
    )


def find_disk_space(runs_folder: Path) -> Capability:
    """Room where recordings are kept, and whether we may write there."""
    existing = next(path for path in (runs_folder, *runs_folder.parents) if _is_there(path))
    free = shutil.disk_usage(existing).free
    may_write = os.access(existing, os.W_OK | os.X_OK)
    is_fine = may_write and free >= WANTED_FREE_BYTES
    word = f"{free // _MIB} MiB free" if may_write else f"{existing} cannot be written"
    return Capability(
        name="room for recordings",
        ok=is_fine,
        detail=f"{runs_folder}: {word}",
        enables="recordings of whole jobs; one that runs out of space ends early and says so",
        how_to_enable="" if is_fine else "free some space, or set FUELLINE_HOME to another folder",
    )


def _is_there(path: Path) -> bool:
    """Whether it can be seen that there is something; `exists` raises where it may not look."""
    try:
        return path.exists()
    except OSError:
        return False


def _find_refusal(path: str, size: int = 64) -> str | None:
    """Why a file cannot be read, or None; with size 0 opening it is enough."""
    try:
        if size:
            read_once(path)
        else:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.strerror or str(error)
    return None
