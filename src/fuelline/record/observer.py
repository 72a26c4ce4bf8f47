"""The observer: a process beside the job that watches it through /proc and writes a journal.

    python -m fuelline.record.observer --run-dir DIR --root-pid PID

It ends when the job's processes are gone, on SIGTERM, when its own parent dies, or when the job may
need its memory and would die with it for lack of that (`headroom.MemoryRoom`). It never sends a
signal to the job, never stops or traces it, and never writes anything but its journal. A task that
fails is written down as a blindspot and given up; the others go on.
"""

import gc
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from fuelline.record.headroom import MemoryRoom
from fuelline.record.pace import FAILURES_TO_GIVE_UP, ShareGovernor, Task, run_guarded
from fuelline.record.samplers.blocked import Resolver
from fuelline.record.samplers.cgroup import ControlGroup, GroupCounters, find_groups
from fuelline.record.samplers.clocks import Clocks, time_spin
from fuelline.record.samplers.descriptors import Descriptors
from fuelline.record.samplers.devices.sampler import Devices
from fuelline.record.samplers.host import HostCounters, NamespaceLinks, allowed_cpus
from fuelline.record.samplers.limits import count_allowed, read_limits
from fuelline.record.samplers.mounts import MountTable
from fuelline.record.samplers.others import Others
from fuelline.record.samplers.phases import Phases
from fuelline.record.samplers.places import Places
from fuelline.record.samplers.procfs import find_text
from fuelline.record.samplers.stacks import Stacks, find_py_spy, is_at_work
from fuelline.record.samplers.threads import ThreadStates, has_ray_task, is_python
from fuelline.record.samplers.tree import Process, Tree
from fuelline.schema.files import open_own
from fuelline.schema.run.journal import encode_frame
from fuelline.schema.run.samples import JOURNAL_NAME, Blind, HostSample, Limits, Row, StackSample

MS = 1_000_000
S = 1000 * MS
CORE_SHARE = 0.0045
"""Of one core, without start-up, py-spy and accelerators; with the first two below 1 % over a
minute. Accelerators have their own share (samplers/devices/sampler.py)."""
CGROUP_EVERY_S = 2
"""Reading memory.stat makes the kernel add up all cores' counters."""
MAX_FRAME_ROWS = 4096
"""Of one frame of the journal."""


class Observer:
    """All samplers of one job, and the order in which they take turns."""

    def __init__(self, run_dir: Path, root_pid: int) -> None:
        self._root_pid = root_pid
        self._journal = JournalWriter(run_dir / JOURNAL_NAME)
        self._mounts = MountTable()
        self._places = Places()
        self._tree = Tree(root_pid, _raise_descriptor_limit(), own_pid=os.getpid())
        self._phases = self._make_phases(run_dir)
        self._links = NamespaceLinks()
        descriptors = Descriptors(self._places, self._mounts)
        self._resolver = Resolver(descriptors)
        self._threads = self._make_threads()
        self._clocks = Clocks(self._tree)
        has_nfs = any(mount.fstype.startswith("nfs") for mount in self._mounts.mounts)
        self._host = HostCounters(allowed_cpus(root_pid), has_nfs=has_nfs)
        self._cgroup = GroupCounters()
        self._others = Others(self._tree, self._resolver, descriptors)
        self._stacks = Stacks(find_py_spy())
        self._devices = Devices()
        self._limits: Limits | None = None
        self._groups: frozenset[ControlGroup] = frozenset()
        self._seconds = 0
        self._turn = 0
        self._has_reported_left_out = False
        self._cpu_base_ns: float | None = None
        self._others_cpu_ns = 0.0
        self._room = MemoryRoom.find()
        self.is_in_the_way = False
        """Whether the job may soon need our memory, where it would die with us for lack of it."""
        self.tasks = self._list_tasks()
        self._governor = ShareGovernor(self.tasks[0], CORE_SHARE)

    def _make_phases(self, run_dir: Path) -> Phases:
        return Phases(run_dir / "spool")

    def _make_threads(self) -> ThreadStates:
        return ThreadStates(self._tree, self._phases, self._resolver)

    def _list_tasks(self) -> list[Task]:
        """The rates, and shares of a core that add up to 0.47 % at worst."""
        return [
            Task("threads", self._threads.sample, 50 * MS, 0.0019, jitter_frac=0.3, slack_frac=0),
            Task("children", self._look_for_children, 250 * MS, 0.0003),
            Task("processes", self._sample_processes, 1 * S, 0.0008),
            Task("host", self._sample_host, 1 * S, 0.0007),
            Task("others", self._sample_others, 2 * S, 0.0005, head_start_ns=30 * MS),
            Task("limits", self._check_limits, 10 * S, 0.0002),
            Task("stacks", self._sample_stacks, 500 * MS, 0.0002, head_start_ns=100 * MS),
            Task("journal", self._flush, 1 * S, 0.0003),
            *([] if self._room is None else [Task("room", self._check_room, 50 * MS, 0.0005)]),
        ]

    @property
    def sees_the_job(self) -> bool:
        """Whether any process of the job is left."""
        return bool(self._tree.processes)

    def start(self) -> None:
        """Meet the job's first process, and the accelerators."""
        self._look_for_children(time.monotonic_ns())
        self._devices.start()

    def take_turns(self) -> int:
        """Run the tasks that are due; gives the time until the next one."""
        for task in self.tasks:
            now_ns = time.monotonic_ns()
            if task.due_ns <= now_ns and task.failures < FAILURES_TO_GIVE_UP:
                self._journal.add(run_guarded(task, now_ns))
        wake_ns = min(task.wake_ns for task in self.tasks if task.failures < FAILURES_TO_GIVE_UP)
        return max(wake_ns - time.monotonic_ns(), 0)

    def note_end_of(self) -> None:
        """Look at once who is left, when the first process has ended."""
        self._tree.refresh()
        self._threads.sort_threads()

    def finish(self) -> None:
        """Write down everything that was seen until now."""
        now_ns = time.monotonic_ns()
        self._devices.stop()
        self._journal.add(self._stacks.stop(now_ns))
        self._sample_host(now_ns)
        self._threads.finish()
        self._flush(now_ns)
        self._journal.close()

    def _look_for_children(self, now_ns: int) -> None:
        new = self._tree.look_for_children()
        if new:
            self._journal.add(self._clocks.introduce(new, now_ns))
            self._phases.assign(self._tree)
        if self._tree.replace_threads() or new:
            self._threads.sort_threads()

    def _sample_processes(self, now_ns: int) -> None:
        self._governor.adjust(now_ns, time.process_time_ns() - self._devices.cpu_ns)
        self._tree.refresh()
        self._devices.job_pids = frozenset(self._tree.processes)
        self._journal.add([HostSample(now_ns, dict(self._shares()))])
        self._tree.offer(self._phases.look_for_spools())
        self._journal.add(self._clocks.introduce(self._tree.look_for_children(), now_ns))
        self._journal.add(self._clocks.sample(now_ns))
        self._tell_left_out()
        self._phases.assign(self._tree)
        self._journal.add(self._phases.drain())
        self._threads.sort_threads()

    def _tell_left_out(self) -> None:
        if self._tree.threads_left_out and not self._has_reported_left_out:
            self._has_reported_left_out = True
            why = "each needs two of our file descriptors, and the limit (ulimit -n) is reached"
            what = f"{self._tree.threads_left_out} threads of the job"
            self._journal.add([Blind(what, why, "what those threads do; the others are seen")])

    def _sample_host(self, now_ns: int) -> None:
        self._journal.add([self._host.sample(now_ns, self._own_values())])

    def _own_values(self) -> Iterator[tuple[str, float]]:
        """What the host's counters do not hold: the job's cgroups, the others, ourselves."""
        self._seconds += 1
        if self._seconds % CGROUP_EVERY_S == 1:
            groups = frozenset(self._find_groups())
            if groups != self._groups or self._has_other_cores():  # other limits apply from now on
                self._groups = groups
                self._check_limits(time.monotonic_ns())
            yield from self._cgroup.read(groups)
            yield from self._links.read(each.pid for each in self._list_trainers())
        yield "core.spin_ns", time_spin()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        yield "observer.cpu_ns", time.process_time_ns()
        yield "observer.stacks_cpu_ns", int((usage.ru_utime + usage.ru_stime) * S)
        yield "observer.interval_ns", self.tasks[0].interval_ns
        if self._devices.cpu_ns:
            yield "observer.devices_cpu_ns", self._devices.cpu_ns
        rss_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        yield "observer.peak_rss_bytes", rss_kib * 1024

    def _shares(self) -> Iterator[tuple[str, float]]:
        """What the job got, and what others got: busy time less the job's and ours."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        ours_ns = time.process_time_ns() + int((usage.ru_utime + usage.ru_stime) * S)
        yield "job.cpu_ns", self._tree.cpu_ns
        rest_ns = self._host.read_busy_ns() - self._tree.cpu_ns - ours_ns
        self._cpu_base_ns = rest_ns if self._cpu_base_ns is None else self._cpu_base_ns
        self._others_cpu_ns = max(self._others_cpu_ns, rest_ns - self._cpu_base_ns)
        yield "others.cpu_ns", self._others_cpu_ns
        yield "others.looks", self._others.looks
        if self._others.read_bytes is not None and self._others.write_bytes is not None:
            yield "others.read_bytes", self._others.read_bytes
            yield "others.write_bytes", self._others.write_bytes

    def _sample_others(self, now_ns: int) -> None:
        own = frozenset({os.getpid(), os.getppid(), *self._list_helpers()})
        self._journal.add(self._others.sample(now_ns, own))

    def _list_helpers(self) -> frozenset[int]:
        """Processes that work for us now."""
        return self._stacks.pids

    def _has_other_cores(self) -> bool:
        """Whether it was bound to other cores; libraries do so for a moment while they load."""
        pids = [process.pid for process in self._list_members()]
        return self._limits is not None and count_allowed(pids) != self._limits.cpus_allowed

    def _check_limits(self, now_ns: int) -> None:
        self._mounts.refresh()
        pids = [process.pid for process in self._list_members()]
        if not pids:
            return
        limits = read_limits(now_ns, pids, self._find_groups())
        if not limits.cpus_allowed:  # all of them have ended since they were listed
            return
        self._host.allowed_cpus = allowed_cpus(pids[0]) or self._host.allowed_cpus
        if self._limits is None or not _is_same(self._limits, limits):
            self._limits = limits
            self._journal.add([limits])

    def _sample_stacks(self, now_ns: int) -> None:
        rows = self._stacks.collect(now_ns)
        self._journal.add(rows)
        self._note_work(rows)
        trainers, workers = self._list_trainers(), self._list_workers()
        if not trainers:
            self._stacks.start_early(now_ns, self._choose_early(workers))
            return
        self._stacks.begin_training(now_ns)
        self._stacks.start_if_due(
            now_ns, [each.pid for each in trainers], [each.pid for each in workers]
        )

    def _note_work(self, rows: Iterable[Row]) -> None:
        """Threads whose stacks show more than a wait are looked at as often as those that compute.

        One that is blocked in something other than a file would hardly be looked at otherwise.
        """
        for row in rows:
            process = self._tree.processes.get(row.pid) if isinstance(row, StackSample) else None
            if process is not None and isinstance(row, StackSample) and is_at_work(row):
                thread = process.threads.get(row.tid)
                if thread is not None:
                    thread.is_at_work = True

    def _choose_early(self, processes: list[Process]) -> list[int]:
        """Before there is a trainer: those that start none of the others, in turns, and the first.

        A launcher waits for its children; what it waits for is seen in them.
        """
        parents = {each.ppid for each in processes}
        last = [each.pid for each in processes if each.pid not in parents]
        self._turn += 1
        turned = last[self._turn % len(last) :] + last[: self._turn % len(last)] if last else []
        first = [each.pid for each in processes if each.pid in parents]
        return [*turned[:1], *first[:1], *turned[1:]]

    def _check_room(self, _now_ns: int) -> None:
        if self._room is not None and self._room.is_short() and not self.is_in_the_way:
            self.is_in_the_way = True
            why = "its control group came near its limit of memory, where the kernel ends all of "
            why += "it at once (memory.oom.group), and the observer left"
            blind = "conclusions from thread states, host and cgroup counters over the whole run"
            self._journal.add([Blind("everything outside the job after that moment", why, blind)])

    def _flush(self, _now_ns: int) -> None:
        states = self._threads.drain()
        self._journal.add(self._places.drain())
        self._journal.add(states)
        self._journal.add(self._devices.drain())
        self._journal.flush()

    def _list_trainers(self) -> list[Process]:
        return [each for each in self._tree.processes.values() if each.has_own_phase]

    def _list_workers(self) -> list[Process]:
        """Python processes that follow a trainer without being one; of Ray's those with a task."""
        found = [
            each
            for each in self._tree.processes.values()
            if is_python(each) and not each.has_own_phase
        ]
        return [each for each in found if has_ray_task(each)] or found

    def _list_members(self) -> list[Process]:
        """The processes whose cgroups stand for the job: a trainer and its newest worker."""
        everyone = list(self._tree.processes.values())
        return [*(self._list_trainers() or everyone)[:1], *self._list_workers()[-1:]]

    def _find_groups(self) -> list[ControlGroup]:
        texts = {find_text("cgroup", each.dir_fd) or "" for each in self._list_members()}
        return [group for text in texts for group in find_groups(text, self._mounts.mounts)]


def _is_same(one: Limits, other: Limits) -> bool:
    return (
        one.cpus_allowed == other.cpus_allowed
        and one.host_cpus == other.host_cpus
        and one.quota_cores == other.quota_cores
        and one.memory_limit_bytes == other.memory_limit_bytes
        and one.io_limits == other.io_limits
    )


def _raise_descriptor_limit() -> int:
    """Allow ourselves as many descriptors as we may have; each watched thread needs two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard if hard != resource.RLIM_INFINITY else 8192, 8192)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(wanted, soft)


class JournalWriter:
    """Appends rows to the journal, about once a second as one frame; the disk never makes it raise.

    What must stay true: the file is always a sequence of whole frames, but for a kill in the middle
    of a write. A full disk loses rows, never the file: a half-written frame is cut off again, the
    loss is counted, and writing goes on when there is room.
    """

    def __init__(self, path: Path) -> None:
        self._fd = open_own(path, os.O_WRONLY | os.O_APPEND)
        self._size_bytes = os.fstat(self._fd).st_size
        self._rows: list[Row] = []
        self._lost = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Keep rows for the next frame."""
        self._rows.extend(rows)

    def flush(self) -> None:
        """Append what was gathered."""
        if self._lost and self._append([_lost_rows(self._lost)]):
            self._lost = 0
        rows, self._rows = self._rows, []
        for start in range(0, len(rows), MAX_FRAME_ROWS):
            batch = rows[start : start + MAX_FRAME_ROWS]
            if not self._append(batch):
                self._lost += len(batch)

    def close(self) -> None:
        """Append what was gathered and let go of the file."""
        self.flush()
        os.close(self._fd)

    def _append(self, rows: list[Row]) -> bool:
        frame = encode_frame(rows)
        try:
            if os.write(self._fd, frame) == len(frame):
                self._size_bytes += len(frame)
                return True
            os.ftruncate(self._fd, self._size_bytes)
        except OSError:
            return False
        return False


def _lost_rows(lost_rows: int) -> Blind:
    return Blind(
        f"{lost_rows} rows of the observer",
        "the disk was full or could not be written",
        "what threads and host did in those seconds",
    )


class Alarm:
    """Sleeps until it is time, a signal asks us to leave, or the job's first process ends."""

    def __init__(self, root_pid: int) -> None:
        self.must_leave = False
        self._parent_pid = os.getppid()
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._leave)
        for deaf in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(deaf, signal.SIG_IGN)  # they go to the whole group; we outlive the job
        # The launcher held these back for us, and py-spy, which SIGINT ends early, inherits that.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
        self._poll = select.poll()
        self._poll.register(reader, select.POLLIN)
        self._root_fd = _open_pid(root_pid)
        if self._root_fd is not None:
            self._poll.register(self._root_fd, select.POLLIN)

    def sleep(self, duration_ns: int) -> bool:
        """Wait; true if the job's first process has just ended."""
        events = self._poll.poll(duration_ns / MS)
        if os.getppid() != self._parent_pid:
            self.must_leave = True
        if self._root_fd is None or all(fd != self._root_fd for fd, _ in events):
            return False
        self._poll.unregister(self._root_fd)
        self._root_fd = None
        return True

    def _leave(self, _number: int, _frame: object) -> None:
        self.must_leave = True


def _open_pid(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def observe(run_dir: Path, root_pid: int) -> None:
    """Watch the job until it is over."""
    bell = Alarm(root_pid)
    observer = Observer(run_dir, root_pid)
    gc.freeze()  # what lives now lives to the end: no collection needs to walk it again
    observer.start()
    while observer.sees_the_job and not bell.must_leave and not observer.is_in_the_way:
        if bell.sleep(observer.take_turns()):
            observer.note_end_of()
    observer.finish()


def main(arguments: list[str]) -> int:
    """Entry of the process; argparse would cost a tenth of what we may spend in a minute."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=False))
    if options.keys() != {"--run-dir", "--root-pid"} or not options["--root-pid"].isdigit():
        sys.stderr.write("usage: python -m fuelline.record.observer --run-dir DIR --root-pid PID\n")
        return 2
    try:
        observe(Path(options["--run-dir"]), int(options["--root-pid"]))
    except OSError as error:
        sys.stderr.write(f"The observer cannot work here: {error}\n")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
