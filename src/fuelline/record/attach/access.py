"""What may be seen of a process that is not ours, and by whom: asked of the kernel, not guessed.

T0 needs what the kernel shows to the process's own user; T1 reads its memory, as a debugger may.
Every refusal comes with the command that would lift it.
"""

import os
import pwd
import shlex
from typing import NamedTuple

from fuelline.record.attach.processes import Seen, look_at
from fuelline.record.samplers.procfs import find_link, find_text
from fuelline.record.samplers.stacks import find_py_spy
from fuelline.schema.errors import InputError, RefusedError
from fuelline.schema.names import clean
from fuelline.schema.run.capabilities import Capability
from fuelline.schema.run.recording import Tier

MOST_THREADS = 2000
"""Of one process, for stacks: py-spy looks at each Python thread at every sample (py-spy#872)."""
NEWEST_PYTHON = (3, 14)
"""That py-spy 0.4 knows the layout of."""
OLDEST_PYTHON = (3, 8)
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_UNTOUCHED = "Nothing was attached to; the process is untouched."


class Access(NamedTuple):
    """What may be seen of one process."""

    tier: Tier
    why_not_more: str
    """Why it is not T1; empty if it is."""
    how: str
    """The command that would give more; empty if there is none."""


def find_process(pid: int) -> Seen:
    """A process that can be attached to in principle; raises InputError with what is wrong."""
    seen = look_at(pid)
    if seen is None:
        raise InputError(
            f"There is no process {pid} on this host. {_UNTOUCHED[:-1]}: it may have ended, or its "
            "number is that of a container's own count. `fuelline attach` lists the jobs here."
        )
    name = clean(seen.stat.name)
    if seen.stat.has_ended:
        raise InputError(
            f"Process {pid} ({name}) has ended: it is a zombie whose exit code process "
            f"{seen.stat.ppid} has not taken yet. There is nothing left to look at. `fuelline "
            "attach` lists the jobs that run."
        )
    if seen.stat.state in "Tt":
        what = "is stopped" if seen.stat.state == "T" else "is being traced by a debugger"
        raise InputError(
            f"Process {pid} ({name}) {what}, so there is nothing to measure. {_UNTOUCHED} "
            f"`kill -CONT {pid}` lets a stopped process go on; then attach again."
        )
    if not seen.words and find_link(f"/proc/{pid}/exe") is None and not seen.is_refused:
        raise InputError(
            f"Process {pid} ({name}) is a thread of the kernel, not a job. `fuelline attach` lists "
            "the jobs here."
        )
    return seen


def is_same(seen: Seen) -> bool:
    """Whether the number still stands for that process."""
    now = look_at(seen.pid)
    return now is not None and now.stat.start_ticks == seen.stat.start_ticks


def find_access(seen: Seen) -> Access | None:
    """What may be seen of it; None if that is less than T0."""
    if not _may_read(f"/proc/{seen.pid}/io"):
        return None
    if find_py_spy() is None:
        return Access("T0", "py-spy is not installed beside this interpreter", "pip install py-spy")
    if seen.stat.threads > MOST_THREADS:
        why = f"it has {seen.stat.threads:,} threads, and a look at the stacks of more than "
        return Access("T0", f"{why}{MOST_THREADS:,} would cost it too much", "")
    version = _numbers(seen.python)
    if version is not None and not OLDEST_PYTHON <= version <= NEWEST_PYTHON:
        oldest, newest = (".".join(map(str, each)) for each in (OLDEST_PYTHON, NEWEST_PYTHON))
        return Access(
            "T0", f"it runs Python {seen.python}; stacks can be read of {oldest} to {newest}", ""
        )
    if not _may_open_memory(seen.pid):
        return Access("T0", *_explain_memory(seen))
    return Access("T1", "", "")


def refuse(seen: Seen) -> RefusedError:
    """The message where not even T0 is allowed, with what would allow it."""
    why, how = explain_refusal(seen)
    return RefusedError(f"{why} {_UNTOUCHED} {how}")


def explain_refusal(seen: Seen) -> tuple[str, str]:
    """Why the kernel shows nothing of a process, and what to type."""
    again = shlex.join(["fuelline", "attach", str(seen.pid)])
    name = f"Process {seen.pid} ({clean(seen.stat.name)})"
    if seen.uid != os.geteuid():
        user, me = user_name(seen.uid), user_name(os.geteuid())
        why = f"{name} belongs to {user} (uid {seen.uid}); you are {me} (uid {os.geteuid()}), "
        why += "and the kernel shows its counters to their owner only."
        return why, f"`sudo -u {shlex.quote(user)} {again}` or `sudo {again}`."
    if owner_of(seen.pid) != seen.uid:
        why = f"{name} may not be looked at by its own user: it has set PR_SET_DUMPABLE to 0, or "
        why += "its program has capabilities or the setuid bit."
        return why, f"`sudo {again}` may."
    why = f"The kernel refuses /proc/{seen.pid}/io ({name}): a security module or a container "
    why += "without the right to trace forbids it."
    how = "Inside a container: `docker run --cap-add SYS_PTRACE`, or attach from the host."
    return why, how


_YAMA_WHY = {
    "1": "only a process's own parent may read its memory",
    "2": "only an administrator may read a process's memory",
    "3": "nobody may read a process's memory until the next boot",
}


def _explain_memory(seen: Seen) -> tuple[str, str]:
    """Why the memory of a process may not be read, and what would allow it."""
    scope = (find_text(_YAMA) or "").strip()
    binary = shlex.quote(os.path.realpath(find_py_spy() or "py-spy"))
    capable = f"`sudo setcap cap_sys_ptrace=eip {binary}`"
    if scope not in _YAMA_WHY:
        how = "in a container: start it with `--cap-add SYS_PTRACE`, or attach from the host with "
        return f"the kernel refuses /proc/{seen.pid}/mem", f"{how}sudo"
    hows = {
        "1": f"one of: {capable}; `sudo sysctl kernel.yama.ptrace_scope=0`; start the job with "
        "FUELLINE_ATTACHABLE=1 in its environment",
        "2": f"{capable}, or attach with sudo",
        "3": "",
    }
    return f"kernel.yama.ptrace_scope is {scope}: {_YAMA_WHY[scope]}", hows[scope]


def owner_of(pid: int) -> int | None:
    """Who owns the process's files in /proc: root, if it is not dumpable.

    Its folder is its own user's all the same.
    """
    try:
        return os.stat(f"/proc/{pid}/stat").st_uid  # noqa: PTH116 - no Path for a glance
    except OSError:
        return None


def user_name(uid: int) -> str:
    """The user's name, else the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def is_elsewhere(pid: int, kind: str) -> bool:
    """Whether it is in another namespace of this kind (`pid`, `mnt`) than we are."""
    ours, its = find_link(f"/proc/self/ns/{kind}"), find_link(f"/proc/{pid}/ns/{kind}")
    return its is not None and its != ours


def _may_read(path: str) -> bool:
    """By reading it: the kernel lets some files be opened whose content it refuses."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a byte of /proc
            file.read(1)
    except OSError:
        return False
    return True


def _may_open_memory(pid: int) -> bool:
    """The same check as for process_vm_readv(2): PTRACE_MODE_ATTACH; nothing is read."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _numbers(version: str) -> tuple[int, int] | None:
    major, _, minor = version.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def describe_process(seen: Seen) -> list[Capability]:
    """What can be seen of one process, by whom, and how to see more: `fuelline doctor --pid`."""
    pid = seen.pid
    access = find_access(seen)
    why, how = explain_refusal(seen) if access is None else ("", "")
    found = [
        Capability(
            name="process",
            ok=True,
            detail=f"{pid} ({clean(seen.stat.name)}) of {user_name(seen.uid)}, "
            f"{seen.stat.threads:,} thread{'' if seen.stat.threads == 1 else 's'}, "
            + ("in uninterruptible sleep" if seen.stat.state == "D" else "alive"),
            enables="",
        ),
        Capability(
            name="T0: thread states, system calls, counters",
            ok=access is not None,
            detail=why or "readable",
            enables="pace of the training, share of waiting for input, files and mounts",
            how_to_enable=how.strip("."),
        ),
        Capability(
            name="T1: Python stacks",
            ok=access is not None and access.tier == "T1",
            detail="readable"
            if access and access.tier == "T1"
            else access.why_not_more
            if access
            else why,
            enables="parts of a step, stages of preparing a batch, lines of code",
            how_to_enable=(access.how if access else how).strip("."),
        ),
        _describe_python(seen),
        Capability(
            name="framework",
            ok=bool(seen.frameworks) or seen.is_refused,
            detail=", ".join(seen.frameworks)
            or ("its maps may not be read" if seen.is_refused else "none loaded"),
            enables="telling a step's parts apart",
            how_to_enable="attach to the process that trains: `fuelline attach` lists them",
        ),
    ]
    for kind, what in (("pid", "process numbers"), ("mnt", "mounts and files")):
        if is_elsewhere(pid, kind):
            found.append(
                Capability(
                    name=f"container: own {what}",
                    ok=True,
                    detail=f"seen from here, through /proc/{pid}/"
                    + ("status" if kind == "pid" else "root"),
                    enables="",
                )
            )
    return found


def _describe_python(seen: Seen) -> Capability:
    version = _numbers(seen.python)
    is_known = version is not None and OLDEST_PYTHON <= version <= NEWEST_PYTHON
    hooks = (
        "" if version is None or version < (3, 14) else "; hooks could be put in (sys.remote_exec)"
    )
    detail = f"Python {seen.python}{hooks}" if seen.python else "no Python in it"
    if seen.is_refused:
        detail = "its maps may not be read"
    return Capability(
        name="Python",
        ok=is_known,
        detail=detail,
        enables="stacks; below 3.11 only those of main threads are told apart",
        how_to_enable=""
        if is_known or not seen.python
        else "py-spy reads the stacks of Python 3.8 to 3.14; without them tier T0 is left",
    )
