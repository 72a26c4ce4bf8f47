"""How much is recorded under limits, on an invented host."""

import os
import resource
from pathlib import Path

import pytest

from fuelline.record import headroom
from fuelline.record.headroom import MemoryRoom, ends_all_together, find_extent

LIMITS = {resource.RLIMIT_NOFILE: 1024, resource.RLIMIT_NPROC: resource.RLIM_INFINITY}


class Host:
    """A root folder with what is read of /proc and /sys."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/loadavg", "0.10 0.15 0.09 2/345 6789")
        self.write("proc/self/cgroup", "4:memory:/jobs/a\n8:pids:/jobs/a\n0::/jobs/a\n")

    def write(self, path: str, content: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")

    @property
    def extent(self) -> headroom.Extent:
        return find_extent(f"{self.root}/")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    allow(monkeypatch, {})
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid or 4711)
    return Host(tmp_path)


def allow(monkeypatch: pytest.MonkeyPatch, limits: dict[int, int]) -> None:
    both = LIMITS | limits
    monkeypatch.setattr(resource, "getrlimit", lambda which: (both[which], both[which]))


def test_without_limits_everything_is_recorded(host: Host) -> None:
    assert host.extent == ("whole", "", True)


@pytest.mark.parametrize("limit", [24, 64, 255])
def test_few_descriptors_leave_none_for_a_recording(
    host: Host, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    allow(monkeypatch, {resource.RLIMIT_NOFILE: limit})
    assert host.extent.kind == "nothing"
    assert f"{limit} files" in host.extent.why


def test_few_processes_of_the_user_leave_none_for_an_observer(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host.root / "proc/4711/task/4711").mkdir(parents=True)
    (host.root / "proc/4711/task/4712").mkdir()
    for name in ("", "/task"):
        os.chown(host.root / f"proc/4711{name}", os.getuid(), -1)
    allow(monkeypatch, {resource.RLIMIT_NPROC: 12})
    assert host.extent.kind == "inside"
    assert "only 10 more processes and threads may be started (ulimit -u 12)" in host.extent.why


def test_processes_are_counted_only_where_the_limit_is_near(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, {resource.RLIMIT_NPROC: 345 + headroom.LEAST_PROCESSES})
    monkeypatch.setattr(headroom, "_count_threads", lambda _: pytest.fail("all were looked at"))
    assert host.extent.kind == "whole"


def test_root_is_not_bound_by_the_number_of_processes(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, {resource.RLIMIT_NPROC: 12})
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert host.extent.kind == "whole"


@pytest.mark.parametrize("group", ["pids/jobs/a", "pids/jobs", "jobs/a", "jobs"])
def test_a_control_group_may_allow_few_processes(host: Host, group: str) -> None:
    host.write(f"sys/fs/cgroup/{group}/pids.max", 100)
    host.write(f"sys/fs/cgroup/{group}/pids.current", 3)
    assert host.extent.kind == "inside"
    assert "only 97 more" in host.extent.why
    assert "pids.max 100" in host.extent.why


@pytest.mark.parametrize(
    ("file", "mib", "kind", "is_roomy"),
    [
        ("jobs/memory.max", 128, "inside", False),
        ("memory/jobs/a/memory.limit_in_bytes", 128, "inside", False),
        ("memory/jobs/memory.limit_in_bytes", 512, "whole", False),
        ("jobs/a/memory.high", 4096, "whole", True),
    ],
)
def test_a_control_group_may_allow_little_memory(
    host: Host, file: str, mib: int, kind: str, is_roomy: bool
) -> None:
    host.write(f"sys/fs/cgroup/{file}", mib << 20)
    assert (host.extent.kind, host.extent.is_roomy) == (kind, is_roomy)
    assert (f"only {mib} MiB" in host.extent.why) == (kind == "inside")


def test_words_and_huge_numbers_are_no_limits(host: Host) -> None:
    host.write("sys/fs/cgroup/jobs/a/memory.max", "max")
    host.write("sys/fs/cgroup/jobs/a/pids.max", "max")
    host.write("sys/fs/cgroup/memory/jobs/a/memory.limit_in_bytes", 9223372036854771712)
    assert host.extent == ("whole", "", True)


def test_a_host_that_tells_nothing_is_no_reason_to_record_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, {})
    assert find_extent(f"{tmp_path}/").kind == "whole"


def test_where_a_whole_group_is_killed_at_once_our_own_memory_counts(host: Host) -> None:
    host.write("sys/fs/cgroup/jobs/a/memory.max", 600 << 20)
    assert host.extent.kind == "whole"
    host.write("sys/fs/cgroup/jobs/a/memory.oom.group", 1)
    assert host.extent.kind == "inside"
    assert "600 MiB" in host.extent.why
    host.write("sys/fs/cgroup/jobs/a/memory.max", 2 << 30)
    assert (host.extent.kind, host.extent.is_roomy) == ("whole", False)


def test_what_others_of_such_a_group_hold_counts_but_not_cached_files(host: Host) -> None:
    host.write("sys/fs/cgroup/jobs/a/memory.oom.group", 1)
    host.write("sys/fs/cgroup/jobs/a/memory.max", 1000 << 20)
    host.write("sys/fs/cgroup/jobs/a/memory.current", 900 << 20)
    assert host.extent.kind == "inside"
    assert "only 116 MiB of memory are left" in host.extent.why
    cached = f"anon 7\nactive_file {400 << 20}\ninactive_file {450 << 20}"
    host.write("sys/fs/cgroup/jobs/a/memory.stat", cached)
    assert (host.extent.kind, host.extent.is_roomy) == ("whole", False)


def test_a_mark_further_out_than_the_limit_ends_nobody_else(host: Host) -> None:
    host.write("sys/fs/cgroup/jobs/a/memory.max", 300 << 20)
    host.write("sys/fs/cgroup/jobs/memory.oom.group", 1)
    assert host.extent.kind == "whole"
    assert MemoryRoom.find(f"{host.root}/") is None
    host.write("sys/fs/cgroup/jobs/memory.max", 700 << 20)
    assert "only 700 MiB" in host.extent.why


def test_a_mark_further_in_than_the_limit_ends_all(host: Host) -> None:
    host.write("sys/fs/cgroup/jobs/memory.max", 300 << 20)
    host.write("sys/fs/cgroup/jobs/a/memory.oom.group", 1)
    assert host.extent.kind == "inside"


def test_where_memory_is_only_throttled_nobody_is_ended(host: Host) -> None:
    host.write("sys/fs/cgroup/jobs/a/memory.high", 300 << 20)
    host.write("sys/fs/cgroup/jobs/a/memory.oom.group", 1)
    assert host.extent.kind == "whole"


@pytest.mark.parametrize("group", ["jobs/a", "jobs", "."])
def test_a_mark_counts_though_the_limit_is_in_a_hidden_group(host: Host, group: str) -> None:
    host.write("sys/fs/cgroup/jobs/a/memory.max", "max")
    host.write(f"sys/fs/cgroup/{group}/memory.oom.group", 0)
    assert not ends_all_together(f"{host.root}/")
    assert host.extent == ("whole", "", True)
    host.write(f"sys/fs/cgroup/{group}/memory.oom.group", 1)
    assert ends_all_together(f"{host.root}/")
    assert host.extent == ("whole", "", False)


def test_a_limit_is_found_though_a_namespace_hides_the_groups_name(host: Host) -> None:
    host.write("proc/self/cgroup", "0::/")
    host.write("sys/fs/cgroup/cgroup.controllers", "memory")
    host.write("sys/fs/cgroup/cgroup.procs", "1\n2")
    host.write("sys/fs/cgroup/jobs/a/cgroup.procs", os.getpid())
    host.write("sys/fs/cgroup/jobs/memory.max", 150 << 20)
    assert "only 150 MiB" in host.extent.why
    host.write("sys/fs/cgroup/cgroup.type", "domain")  # a container's mount: its top is its own
    assert host.extent.kind == "whole"


def test_our_group_is_not_looked_for_without_end(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write("proc/self/cgroup", "0::/")
    host.write("sys/fs/cgroup/cgroup.controllers", "memory")
    host.write("sys/fs/cgroup/jobs/a/cgroup.procs", os.getpid())
    host.write("sys/fs/cgroup/jobs/a/memory.max", 150 << 20)
    monkeypatch.setattr(headroom, "_MOST_GROUPS", 0)
    assert host.extent.kind == "whole"


@pytest.mark.parametrize(
    ("most_mib", "used_mib", "is_short"),
    [(1000, 900, False), (1000, 950, True), (32000, 30000, False), (32000, 31100, True)],
)
def test_room_is_short_before_the_group_is_full(
    host: Host, most_mib: int, used_mib: int, is_short: bool
) -> None:
    host.write("sys/fs/cgroup/jobs/a/memory.oom.group", 1)
    host.write("sys/fs/cgroup/jobs/a/memory.max", most_mib << 20)
    host.write("sys/fs/cgroup/jobs/a/memory.current", used_mib << 20)
    room = MemoryRoom.find(f"{host.root}/")
    assert room is not None
    assert room.is_short() == is_short
    host.write("sys/fs/cgroup/jobs/a/memory.stat", f"inactive_file {used_mib << 20}")
    assert not room.is_short()


@pytest.mark.parametrize(("free_mib", "is_short"), [(1200, True), (1300, False)])
def test_what_is_wanted_comes_on_top_of_the_reserve(
    host: Host, free_mib: int, is_short: bool
) -> None:
    host.write("sys/fs/cgroup/jobs/a/memory.oom.group", 1)
    host.write("sys/fs/cgroup/jobs/a/memory.max", 32 << 30)
    host.write("sys/fs/cgroup/jobs/a/memory.current", (32 << 30) - (free_mib << 20))
    room = MemoryRoom.find(f"{host.root}/")
    assert room is not None
    assert not room.is_short()
    assert room.is_short(256 << 20) == is_short


def test_processes_that_are_hidden_are_no_limit(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> list[str]:
        raise PermissionError(13, "hidden")

    allow(monkeypatch, {resource.RLIMIT_NPROC: 700})
    monkeypatch.setattr(os, "listdir", refuse)
    assert host.extent.kind == "whole"
