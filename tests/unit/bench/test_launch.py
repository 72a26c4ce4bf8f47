"""Jobs of several ranks are started so that a fault hits the ranks it is meant for and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from bench.zoo.case import Case
from bench.zoo.fault import NOTHING, Namespaces, OneRank, Planted, enter
from bench.zoo.faults.links import Link
from bench.zoo.launch import launcher

if TYPE_CHECKING:
    from pathlib import Path


def case(ranks: int) -> Case:
    return Case(name="c", sentence="", job="ranks", args="", truth=(("a", "b"),), ranks=ranks)


def test_one_process_is_started_by_the_interpreter_and_ranks_by_torchrun(tmp_path: Path) -> None:
    assert launcher(case(0), Planted(tmp_path)) == (sys.executable,)
    assert launcher(case(4), Planted(tmp_path))[-2:] == ("--nproc-per-node", "4")


def test_ranks_in_namespaces_get_their_names_and_the_address_of_the_first(tmp_path: Path) -> None:
    where = Namespaces(("a", "b"), "10.0.0.1", "eth7")
    started = launcher(case(2), Planted(tmp_path, namespaces=where))
    assert started[1].endswith("in_namespaces.py")
    assert started[2:] == ("a,b", "10.0.0.1", "eth7")


@pytest.mark.parametrize("rank", [0, 1])
def test_only_the_chosen_rank_enters_the_groups(rank: int, tmp_path: Path) -> None:
    command = [*enter((tmp_path,), '[ "$RANK" = 1 ]'), "true"]
    # torchrun puts its own variables into arguments, in which "$$" would become "$".
    assert not any("$$" in word for word in command)
    subprocess.run(command, env={**os.environ, "RANK": str(rank)}, check=True)
    assert (tmp_path / "cgroup.procs").exists() == (rank == 1)


def test_a_fault_of_one_rank_gives_each_rank_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "sample").write_text("x")
    with OneRank(NOTHING, rank=1).plant(tmp_path) as planted:
        assert [path.name for path in sorted(planted.data.iterdir())] == ["rank0", "rank1"]
        assert (planted.data / "rank0" / "sample").read_text() == "x"
    assert not planted.data.exists()
    assert (tmp_path / "sample").exists()


def test_a_link_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name == "tc" else f"/bin/{name}")
    assert Link().missing() is None
    assert "tc" in str(Link(rate_mbit=100).missing())
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert Link().missing() == "root"
