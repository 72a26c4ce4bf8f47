"""What the machine has left, read from files as the kernel writes them."""

import os
from pathlib import Path

import pytest

from fuelline.fix.elastic.resources import (
    count_cores,
    count_local_ranks,
    find_free_memory,
    find_free_shared,
    find_queued,
)


def machine(root: Path, group: str, files: dict[str, str]) -> Path:
    files = {"proc/self/cgroup": group, "proc/meminfo": "MemAvailable:   4096 kB\n", **files}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_quota_above_the_own_group_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/a/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
    }
    assert count_cores(machine(tmp_path, "0::/a/b\n", files)) == 0.5


def test_a_quota_of_the_first_version_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "25000",
        "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
    }
    assert count_cores(machine(tmp_path, "4:cpu,cpuacct:/a\n", files)) == 0.25


def test_without_a_quota_affinity_counts(tmp_path: Path) -> None:
    assert count_cores(tmp_path) == len(os.sched_getaffinity(0))


def test_memory_is_the_tighter_of_host_and_group(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/a/memory.max": "1000000",
        "sys/fs/cgroup/a/memory.current": "900000",
        "sys/fs/cgroup/a/memory.stat": "anon 5\ninactive_file 50000\n",
    }
    assert find_free_memory(machine(tmp_path, "0::/a\n", files)) == 150000


def test_a_group_without_a_limit_leaves_the_host(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/a/memory.max": "max", "sys/fs/cgroup/a/memory.current": "900000"}
    assert find_free_memory(machine(tmp_path, "0::/a\n", files)) == 4096 * 1024


def test_what_cannot_be_read_is_not_zero(tmp_path: Path) -> None:
    assert find_free_memory(tmp_path) is None
    assert find_free_shared(str(tmp_path / "missing")) is None
    assert find_queued([1], tmp_path) is None


def test_waits_for_a_core_add_up(tmp_path: Path) -> None:
    for pid in ("1", "2"):
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "schedstat").write_text("9 1500000000 3\n")
    assert find_queued([1, 2], tmp_path) == 3.0


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "4", "SLURM_STEP_TASKS_PER_NODE": "1"}, 4),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
        ({"SLURM_STEP_TASKS_PER_NODE": "8(x2),4"}, 8),
        ({"LOCAL_WORLD_SIZE": "many"}, 1),
    ],
)
def test_launchers_tell_how_many_ranks_share_a_host(
    environment: dict[str, str], ranks: int
) -> None:
    assert count_local_ranks(environment) == ranks


def test_ranks_share_the_cores_unless_each_was_given_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, parents = set(range(4)), set(range(4))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: parents if pid else own)
    assert count_cores(tmp_path, ranks=2) == 2.0
    parents |= {4, 5, 6, 7}
    assert count_cores(tmp_path, ranks=2) == 4.0
