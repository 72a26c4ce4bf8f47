"""What the doctor says: honest on this machine, and helpful where something is missing."""

import os
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from fuelline.record import capabilities
from fuelline.record.capabilities import find_capabilities
from fuelline.schema.run.capabilities import Capability


def test_every_source_is_asked_once_and_missing_ones_say_what_to_do(tmp_path: Path) -> None:
    found = find_capabilities(tmp_path)
    assert len({each.name for each in found}) == len(found)
    for each in found:
        assert each.detail
        assert each.enables
        assert each.ok or each.how_to_enable


def test_the_probe_leaves_no_process_behind(tmp_path: Path) -> None:
    before = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    find_capabilities(tmp_path)
    assert Path(f"/proc/self/task/{os.getpid()}/children").read_text().split() == before


def refused(find: str, *arguments: object) -> Capability:
    capability: Capability = getattr(capabilities, find)(*arguments)
    assert not capability.ok
    assert capability.how_to_enable
    return capability


def test_a_refused_system_call_file_names_the_kernel_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capabilities, "_find_refusal", lambda *_, **__: "Operation not permitted")
    monkeypatch.setattr(capabilities, "find_text", lambda _: "2\n")
    told = refused("find_system_calls", 1)
    assert "ptrace_scope is 2" in told.detail
    assert "sysctl" in told.how_to_enable
    monkeypatch.setattr(capabilities, "find_text", lambda _: None)
    monkeypatch.setattr(capabilities, "_is_container", lambda: True)
    assert "SYS_PTRACE" in refused("find_system_calls", 1).how_to_enable


def test_hidden_processes_and_pressure_that_is_off_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capabilities, "_find_refusal", lambda *_, **__: "Operation not supported")
    assert "psi=1" in refused("find_pressure").how_to_enable
    assert "hidepid" in refused("find_other_processes").how_to_enable
    assert "not supported" in refused("find_process_io", 1).detail


def test_a_process_that_does_not_exist_has_no_clocks() -> None:
    assert "CONFIG_SCHED_INFO" in refused("find_schedstat", 2**22 + 1).how_to_enable


def test_a_missing_py_spy_comes_with_the_line_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capabilities, "find_py_spy", lambda: None)
    assert "pip install py-spy" in refused("find_stacks", 1).how_to_enable


def test_a_py_spy_that_fails_tells_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "find_py_spy", lambda: shutil.which("false"))
    assert "exit code 1" in refused("find_stacks", 1).detail
    monkeypatch.setattr(capabilities, "find_py_spy", lambda: "/nowhere/py-spy")
    assert "does not run" in refused("find_stacks", 1).detail


def test_torch_is_looked_up_without_being_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert "a job may bring its own" in refused("find_torch").detail


def test_a_runs_folder_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    assert capabilities.find_disk_space(tmp_path / "a" / "b").ok


def test_a_runs_folder_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "FUELLINE_HOME" in refused("find_disk_space", tmp_path).how_to_enable


def test_limits_are_told_in_plain_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"cpu.max": "150000 100000", "memory.max": str(2**30)}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "io.max").write_text("254:0 rbps=5 wbps=max")
    group = capabilities.ControlGroup("", str(tmp_path), str(tmp_path))
    monkeypatch.setattr(capabilities, "_list_own_groups", lambda: [group])
    detail = capabilities.find_cgroups().detail
    assert detail == "v2; limits: quota of 1.5 cores, 1024 MiB of memory, I/O limits on 254:0"
    assert "1024 of" in capabilities.find_cores_and_memory().detail
