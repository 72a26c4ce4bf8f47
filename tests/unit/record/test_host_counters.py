"""Parsers of the machine's and the cgroups' counters, on samples of what kernels print."""

import socket
from pathlib import Path

import pytest

from fuelline.record.samplers.cgroup import (
    V2,
    ControlGroup,
    GroupCounters,
    find_groups,
    keep_leaves,
)
from fuelline.record.samplers.descriptors import parse_address
from fuelline.record.samplers.host import (
    HostCounters,
    parse_cpu,
    parse_disks,
    parse_mountstats,
    parse_network,
    parse_psi,
)
from fuelline.record.samplers.limits import parse_io_max, read_limits
from fuelline.record.samplers.mounts import Mount
from fuelline.record.samplers.procfs import find_field, parse_fields, parse_stat

TICK_NS = 10_000_000


def test_a_process_name_may_hold_parentheses_and_spaces() -> None:
    tail = "S 7 1 1 0 -1 4194560 1 2 3 4 50 6 70 8 20 0 9 0 1234 4096 10 18446744073709551615"
    stat = parse_stat(f"42 (a) b (c) {tail}".encode())
    assert (stat.name, stat.state, stat.ppid, stat.threads) == ("a) b (c", "S", 7, 9)
    assert stat.cpu_ns == 56 * TICK_NS
    assert stat.reaped_cpu_ns == 78 * TICK_NS
    assert stat.major_faults == 3


def test_a_zombie_with_live_threads_has_not_ended() -> None:
    tail = "1 1 1 0 -1 4194560 1 2 3 4 50 6 70 8 20 0 {} 0 1234 4096 10 1"
    assert parse_stat(f"42 (a) Z {tail.format(1)}".encode()).has_ended
    assert not parse_stat(f"42 (a) Z {tail.format(3)}".encode()).has_ended
    assert not parse_stat(f"42 (a) S {tail.format(1)}".encode()).has_ended


def test_fields_that_are_not_numbers_are_left_out() -> None:
    assert parse_fields(b"rchar: 12\nsome text\nmax max\nhigh 3 kB\n") == {"rchar": 12, "high": 3}


def test_a_field_is_found_at_the_beginning_of_a_line_only() -> None:
    content = b"first 1\nnr_pgmajfault 5\npgmajfault 7\n"
    assert find_field(content, "pgmajfault") == 7
    assert find_field(content, "pgscan") is None


def test_pressure_gives_its_totals() -> None:
    content = b"some avg10=0.86 avg60=0.52 avg300=0.55 total=815\nfull avg10=0 total=9\n"
    assert dict(parse_psi(content, "psi.io")) == {"psi.io.some_us": 815, "psi.io.full_us": 9}


def test_cpu_time_is_told_for_all_cores_and_for_the_allowed_ones() -> None:
    lines = (
        b"cpu 3 1 2 40 5 1 1 6 9 9\ncpu0 2 0 1 20 5 1 0 6 0 0\ncpu1 1 1 1 20 0 0 1 0 0 0\nintr 1"
    )
    values = dict(parse_cpu(lines, frozenset({1})))
    assert values["cpu.busy_ns"] == 8 * TICK_NS
    assert values["cpu.steal_ns"] == 6 * TICK_NS
    assert values["cpu_allowed.busy_ns"] == 4 * TICK_NS
    assert values["cpu_allowed.iowait_ns"] == 0


def test_disks_count_bytes_and_leave_out_loops_and_unused_devices() -> None:
    content = (
        b"   7 0 loop0 5 0 5 0 0 0 0 0 0 0 0 0 0 0 0\n"
        b" 999 0 vda 10 1 24 13 2 3 40 10 1 60 236 3 4\n"
        b" 999 16 vdb 0 0 0 0 0 0 0 0 0 0 0\n"
    )
    values = dict(parse_disks(content))
    assert values["disk.999:0.read_bytes"] == 24 * 512
    assert values["disk.999:0.busy_ms"] == 60
    assert not any("7:0" in name or "999:16" in name for name in values)


def test_network_counters_are_told_per_interface() -> None:
    content = (
        b"a\nb\n  eth0:136 37 1 2 0 0 0 0 170 15 3 4 0 0 0 0\n  ifb0: 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
    assert dict(parse_network(content)) == {
        "net.eth0.rx_bytes": 136,
        "net.eth0.rx_errors": 1,
        "net.eth0.rx_dropped": 2,
        "net.eth0.tx_bytes": 170,
        "net.eth0.tx_errors": 3,
        "net.eth0.tx_dropped": 4,
    }


def test_nfs_operations_are_told_per_mount() -> None:
    content = (
        b"device proc mounted on /proc with fstype proc\n\tREAD: 9 9 9 9 9 9 9 9 9\n"
        b"device s:/e mounted on /data with fstype nfs4 statvers=1.1\n"
        b"\tper-op statistics\n\t        READ: 1201 1201 0 249808 157447040 12 5120 5190 0\n"
        b"\t       FSYNC: 1 1 1 1 1 1 1 1 1\n"
    )
    assert dict(parse_mountstats(content)) == {
        "nfs./data.READ.ops": 1201,
        "nfs./data.READ.received_bytes": 157447040,
        "nfs./data.READ.rtt_ms": 5120,
        "nfs./data.READ.exe_ms": 5190,
    }


def test_a_host_sample_holds_only_what_changed() -> None:
    host = HostCounters({0}, has_nfs=False)
    first = host.sample(1, [("job.cpu_ns", 5.0), ("x", 1.0)])
    second = host.sample(2, [("job.cpu_ns", 7.0), ("x", 1.0)])
    assert first.values["x"] == 1.0
    assert "cpu.busy_ns" in first.values
    assert second.values["job.cpu_ns"] == 7.0
    assert "x" not in second.values


def test_peer_addresses_are_written_for_people() -> None:
    assert parse_address(socket.AF_INET, "0100007F:0801") == "127.0.0.1:2049"
    loopback = "00000000000000000000000001000000:01BB"
    assert parse_address(socket.AF_INET6, loopback) == "[::1]:443"


def test_groups_of_both_versions_are_found_below_their_mounts() -> None:
    mounts = [
        Mount(1, "", "/", "/cg/cpu", "cgroup", "rw,cpu,cpuacct"),
        Mount(2, "", "/docker/a", "/cg/memory", "cgroup", "rw,memory"),
        Mount(3, "", "/", "/cg/unified", "cgroup2", "rw"),
    ]
    membership = "4:memory:/docker/a/job\n2:cpu,cpuacct:/x\n1:name=systemd:/\n0::/y/z\n"
    groups = {(group.controller, group.path) for group in find_groups(membership, mounts)}
    assert groups == {
        ("memory", "/cg/memory/job"),
        ("cpu", "/cg/cpu/x"),
        ("cpuacct", "/cg/cpu/x"),
        (V2, "/cg/unified/y/z"),
    }
    assert ControlGroup(V2, "/cg/unified", "/cg/unified/y/z").lineage == [
        "/cg/unified/y/z",
        "/cg/unified/y",
        "/cg/unified",
    ]


def test_a_group_that_holds_another_one_is_not_counted_twice() -> None:
    inner, outer = ControlGroup("cpu", "/c", "/c/a/b"), ControlGroup("cpu", "/c", "/c/a")
    assert keep_leaves([inner, outer, ControlGroup("memory", "/m", "/m/a")]) == {
        inner,
        ControlGroup("memory", "/m", "/m/a"),
    }


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_counters_go_on_when_the_job_moves_to_another_group(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "a/cpu.stat": "nr_periods 100\nnr_throttled 50\nthrottled_time 9000000\n",
            "b/cpu.stat": "nr_periods 1\nnr_throttled 1\nthrottled_time 4000\n",
        },
    )
    groups = {name: ControlGroup("cpu", str(tmp_path), str(tmp_path / name)) for name in "ab"}
    counters = GroupCounters()
    before = dict(counters.read([groups["a"]]))
    moved = dict(counters.read([groups["b"]]))
    (tmp_path / "b/cpu.stat").write_text("nr_periods 11\nnr_throttled 9\nthrottled_time 6000\n")
    after = dict(counters.read([groups["b"]]))
    assert before["cgroup.cpu.throttled_us"] == 9000
    assert moved == before
    assert after["cgroup.cpu.throttled_us"] == 9002
    assert after["cgroup.cpu.periods"] == 110


def test_both_versions_tell_memory_and_io(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "v1/memory.usage_in_bytes": "4096\n",
            "v1/memory.failcnt": "3\n",
            "v1/memory.stat": "cache 1\nworkingset_refault_file 8\npgmajfault 2\n",
            "v1/blkio.throttle.io_service_bytes_recursive": "254:0 Read 512\nTotal 9\n",
            "v2/memory.current": "8192\n",
            "v2/memory.events": "low 0\nhigh 1\nmax 6\noom 0\n",
            "v2/io.stat": "254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n",
            "v2/io.pressure": "some avg10=0 total=5\n",
        },
    )
    root = str(tmp_path)
    v1 = [ControlGroup(name, root, f"{root}/v1") for name in ("memory", "blkio")]
    assert dict(GroupCounters().read(v1)) == {
        "cgroup.memory.usage_bytes": 4096,
        "cgroup.memory.limit_hits": 3,
        "cgroup.memory.refault_file_pages": 8,
        "cgroup.memory.major_faults": 2,
        "cgroup.io.254:0.read_bytes": 512,
    }
    v2 = dict(GroupCounters().read([ControlGroup(V2, root, f"{root}/v2")]))
    assert v2["cgroup.memory.limit_hits"] == 7
    assert v2["cgroup.io.254:0.read_operations"] == 3
    assert v2["cgroup.psi.io.some_us"] == 5


def test_the_tightest_limit_of_all_ancestors_counts(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "cpu/cpu.cfs_quota_us": "-1\n",
            "cpu/job/cpu.cfs_quota_us": "150000\n",
            "cpu/job/cpu.cfs_period_us": "100000\n",
            "cpu/job/in/cpu.cfs_quota_us": "400000\n",
            "cpu/job/in/cpu.cfs_period_us": "100000\n",
            "u/job/cpu.max": "max 100000\n",
            "u/job/memory.max": "max\n",
            "u/job/memory.high": "1000\n",
            "u/job/io.max": "254:0 rbps=10485760 wbps=max riops=50 wiops=max\n",
            "b/job/blkio.throttle.read_iops_device": "254:0 40\n",
            "m/memory.limit_in_bytes": "9223372036854771712\n",
            "m/job/memory.limit_in_bytes": "5000\n",
        },
    )
    root = str(tmp_path)
    groups = [
        ControlGroup("cpu", f"{root}/cpu", f"{root}/cpu/job/in"),
        ControlGroup(V2, f"{root}/u", f"{root}/u/job"),
        ControlGroup("blkio", f"{root}/b", f"{root}/b/job"),
        ControlGroup("memory", f"{root}/m", f"{root}/m/job"),
    ]
    limits = read_limits(1, [], groups)
    assert limits.quota_cores == pytest.approx(1.5)
    assert limits.memory_limit_bytes == 1000
    assert limits.io_limits == {"254:0": {"read_bps": 10485760, "read_iops": 40}}


def test_no_limit_is_none_and_not_a_large_number(tmp_path: Path) -> None:
    write_files(tmp_path, {"cpu.max": "max 100000", "memory.max": "max", "io.max": ""})
    limits = read_limits(1, [], [ControlGroup(V2, str(tmp_path), str(tmp_path))])
    assert (limits.quota_cores, limits.memory_limit_bytes, limits.io_limits) == (None, None, {})


def test_io_max_without_numbers_sets_no_limit() -> None:
    assert list(parse_io_max("254:0 rbps=max wbps=max riops=max wiops=max")) == []
