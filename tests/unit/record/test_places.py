"""Places and mounts: which mount a path is on, and how crowded directories fold."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fuelline.record.samplers.mounts import Mount, MountTable, parse_mountinfo
from fuelline.record.samplers.places import CROWD, MAX_PLACES, Places

DATA = Mount(5, "0:9", "/", "/data", "nfs4", "")

MOUNTINFO = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:44 / /my\040data rw shared:7 master:2 - nfs4 server:/export rw,vers=4.2
31 27 0:45 /sub /mnt/a rw - fuse.sshfs host: rw
33 27 0:46 / /mnt/a rw - tmpfs tmpfs rw
40 27 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
nonsense
""".strip()


def make_table(tmp_path: Path, text: str = MOUNTINFO) -> MountTable:
    source = tmp_path / "mountinfo"
    source.write_text(text)
    return MountTable(str(source))


def test_mountinfo_with_spaces_and_optional_fields_is_parsed() -> None:
    mounts = {mount.id: mount for mount in parse_mountinfo(MOUNTINFO)}
    assert mounts[30] == Mount(30, "0:44", "/", "/my data", "nfs4", "rw,vers=4.2")
    assert mounts[31].root == "/sub"
    assert len(mounts) == 6


def test_the_longest_prefix_names_the_mount(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    assert table.find_by_path("/my data/train/1.jpg").fstype == "nfs4"
    assert table.find_by_path("/my databases/x").fstype == "ext4"
    assert table.find_by_path("/").fstype == "ext4"


def test_a_later_mount_hides_an_earlier_one_on_the_same_point(tmp_path: Path) -> None:
    assert make_table(tmp_path).find_by_path("/mnt/a/x").fstype == "tmpfs"


def test_links_on_local_filesystems_are_followed_to_the_mount_behind(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to("far")
    (tmp_path / "nearer").symlink_to(tmp_path / "near")
    table = make_table(
        tmp_path, f"1 0 8:1 / / rw - ext4 a rw\n2 1 0:9 / {tmp_path}/far rw - nfs a rw"
    )
    resolved = table.resolve_links(f"{tmp_path}/nearer/a/b")
    assert resolved == f"{tmp_path}/far/a/b"
    assert table.find_by_path(resolved).fstype == "nfs"


def test_links_on_remote_filesystems_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/elsewhere")
    table = make_table(tmp_path, f"1 0 8:1 / / rw - ext4 a rw\n2 1 0:9 / {tmp_path} rw - nfs a rw")
    assert table.resolve_links(f"{tmp_path}/link/a") == f"{tmp_path}/link/a"


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    table = make_table(tmp_path, "1 0 8:1 / / rw - ext4 a rw")
    assert table.resolve_links(f"{tmp_path}/a/x").endswith("/x")


def test_a_file_keeps_its_number() -> None:
    places = Places()
    first = places.add_file("/data/a", DATA)
    assert places.add_file("/data/a", DATA) == first == places.find("/data/a")
    assert [(place.path, place.fstype, place.device) for place in places.drain()] == [
        ("/data/a", "nfs4", "0:9")
    ]
    assert places.drain() == []


def test_a_crowded_directory_is_folded_and_earlier_files_keep_their_numbers() -> None:
    places = Places()
    first = places.add_file("/data/train/0", DATA)
    numbers = {places.add_file(f"/data/train/{index}", DATA) for index in range(1000)}
    assert len(numbers) == CROWD + 1
    assert "/data/train/" in {place.path for place in places.drain()}
    assert places.add_file("/data/train/0", DATA) == first


def test_many_directories_with_few_files_fold_to_their_parent() -> None:
    places = Places()
    for label in range(1000):
        for index in range(3):
            places.add_file(f"/data/{label}/{index}", DATA)
    paths = [place.path for place in places.drain()]
    assert "/data/" in paths
    assert len(paths) <= 3 * CROWD + 1


def test_folding_does_not_climb_above_the_mount() -> None:
    places = Places()
    for index in range(1000):
        places.add_file(f"/data/{index}", DATA)
    assert all(place.path.startswith("/data") for place in places.drain())


@given(st.lists(st.text("abcdefgh/", min_size=1, max_size=12), max_size=300))
def test_every_path_gets_a_number_and_every_number_is_drained_once(names: list[str]) -> None:
    places = Places()
    numbers = {places.add_file(f"/data/{name}", DATA) for name in names}
    drained = [place.id for place in places.drain()]
    assert sorted(drained) == sorted(numbers)


def test_the_number_of_places_is_bounded() -> None:
    places = Places()
    for index in range(MAX_PLACES):
        places.add_peer(f"tcp 10.0.{index // 256}.{index % 256}:80")
    for index in range(500):
        places.add_peer(f"tcp 11.0.0.{index}:80")
        places.add_file(f"/data/{index}/x", DATA)
    paths = {place.path for place in places.drain()}
    assert len(paths) == MAX_PLACES + 2
    assert {"tcp", "/data/"} <= paths
