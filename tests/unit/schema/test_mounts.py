"""Which folders lie on a network's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuelline.schema.mounts import find_slow_mounts, is_slow, is_slow_here

if TYPE_CHECKING:
    from pathlib import Path


def test_slow_mounts_are_those_over_a_network() -> None:
    text = (
        "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "30 27 0:40 / /mnt/my\\040data rw - nfs4 server:/d rw\n"
        "31 27 0:41 / /fuse/caf\u00e9\udce9 rw - fuse.sshfs x rw\n"
        "32 27 0:42 / /sys/fs/fuse/connections rw - fusectl fusectl rw\n"
        "33 27 0:43 / - nfs4 a line that is cut\n"
    )
    assert find_slow_mounts(text) == ["/mnt/my data", "/fuse/caf\u00e9\udce9"]


@pytest.mark.parametrize(
    ("path", "slow"),
    [
        ("/mnt/shared", True),
        ("/mnt/shared/runs/not/there/yet", True),
        ("/mnt/sharedly", False),
        ("/mnt/shared/scratch/run", False),
        ("/home", False),
        ("/twice/run", True),
    ],
)
def test_a_folder_is_as_slow_as_the_mount_next_above_it(path: str, slow: bool) -> None:
    text = (
        "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "30 27 0:40 / /mnt/shared rw - nfs4 server:/d rw\n"
        "31 30 0:41 / /mnt/shared/scratch rw - xfs /dev/vdb rw\n"
        "32 27 0:42 / /twice rw - ext4 /dev/vdc rw\n"
        "33 32 0:43 / /twice rw - lustre mds:/d rw\n"
    )
    assert is_slow(path, text) == slow


def test_a_link_is_where_it_leads_to(tmp_path: Path) -> None:
    text = f"27 1 254:0 / / rw - ext4 x rw\n30 27 0:40 / {tmp_path}/far rw - nfs s:/d rw\n"
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    assert is_slow(str(tmp_path / "near" / "run"), text)


def test_where_no_mount_is_known_nothing_is_slow() -> None:
    assert not is_slow("/data", "")


def test_this_machines_own_mounts_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_slow_here("/proc")

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("builtins.open", refuse)
    assert not is_slow_here("/proc")
