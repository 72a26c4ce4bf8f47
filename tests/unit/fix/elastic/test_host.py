"""One budget a host: who is late has what the others leave, and nobody less than an equal share."""

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.fix.elastic import host as hosts
from fuelline.fix.elastic.host import LONGEST_NS, Claim, HostBudget, open_host, share_out
from fuelline.fix.elastic.observation import Observation

SECOND_NS = 10**9
NEIGHBOUR = f"{os.getppid()}-{hosts._find_start(os.getppid())}"
DEAD = "4194304-1"
"""No process has a number so high."""


class Clock:
    now = 100 * SECOND_NS

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def look(*, starved: float = 0.5, cpu_s: float = 0.5, fetches: int = 10) -> Observation:
    """Half a second, with one worker: 50 ms of a core a batch, if all of its time is work."""
    return Observation(seconds=0.5, batches=10, wait_s=0.5 * starved, busy_s=0.5, cpu_s=cpu_s,
                       fetches=fetches, queued=0.0)  # fmt: skip


def claim(clock: Clock, *, wanted: float, used: float | None = None, held: float = 1.0,
          late: float = 0.0, rate: float = 20.0, age_ns: int = 0) -> Claim:  # fmt: skip
    used = wanted if used is None else used
    return Claim(clock.now - age_ns, wanted, used, held, late, rate)


def put(tmp_path: Path, name: str, told: Claim) -> None:
    (tmp_path / name).write_bytes(told.pack())


def hear(budget: HostBudget, seen: Observation | None = None, active: int = 1) -> Observation:
    return budget.weigh(1, seen or look(), active, is_asking=True)


@given(st.floats(0.1, 64), st.lists(st.floats(0, 64), min_size=1, max_size=12))
def test_shares_are_whole_and_nobody_has_less_than_its_part_or_more_than_it_wants(
    cores: float, wanted: list[float]
) -> None:
    shares = share_out(cores, wanted)
    assert sum(shares) == pytest.approx(min(cores, sum(wanted)))
    for share, each in zip(shares, wanted, strict=True):
        assert share <= each
        assert share >= min(each, cores / len(wanted)) - 1e-9


def test_a_rank_by_itself_is_told_nothing(folder: int, tmp_path: Path) -> None:
    budget = HostBudget(8.0, 1, folder, Clock())
    seen = look()
    assert hear(budget, seen) is seen
    assert len(list(tmp_path.iterdir())) == 1


def test_a_late_rank_has_what_a_fed_one_does_not_use(folder: int, tmp_path: Path) -> None:
    clock = Clock()
    put(tmp_path, NEIGHBOUR, claim(clock, wanted=0.5))
    assert hear(HostBudget(8.0, 2, folder, clock)).cores == pytest.approx(7.5)


def test_a_rank_that_needs_much_leaves_an_equal_share(folder: int, tmp_path: Path) -> None:
    clock = Clock()
    put(tmp_path, NEIGHBOUR, claim(clock, wanted=20.0, late=0.6))
    heard = hear(HostBudget(8.0, 2, folder, clock))
    assert heard.cores == pytest.approx(4.0)
    assert heard.late == 2


def test_a_fed_rank_is_not_asked_to_read_the_others(folder: int, tmp_path: Path) -> None:
    clock = Clock()
    put(tmp_path, NEIGHBOUR, claim(clock, wanted=1.0))
    seen = look(starved=0.0)
    assert HostBudget(8.0, 2, folder, clock).weigh(1, seen, 1, is_asking=False) is seen


def test_what_is_told_can_be_read_by_another(folder: int, tmp_path: Path) -> None:
    hear(HostBudget(8.0, 2, folder, Clock()), look(starved=0.5, cpu_s=0.5), active=3)
    (file,) = tmp_path.iterdir()
    told = hosts._unpack(file.read_bytes())
    assert told is not None
    # Half of 0.5 s is left for 10 steps: 25 ms each, in which a fetch of 50 ms needs 2.3 workers.
    assert (told.wanted, told.used, told.held) == (3.0, 1.0, 3.0)
    assert (told.late, told.rate) == (0.5, 20.0)


def test_a_rank_that_was_killed_has_no_part_and_its_file_goes(folder: int, tmp_path: Path) -> None:
    clock = Clock()
    put(tmp_path, DEAD, claim(clock, wanted=8.0, age_ns=3 * SECOND_NS))
    clock.now += 2 * LONGEST_NS
    budget = HostBudget(8.0, 1, folder, clock)
    assert hear(budget).cores is None
    assert not (tmp_path / DEAD).exists()


def test_what_killed_ranks_have_left_goes_with_the_next_job(folder: int, tmp_path: Path) -> None:
    clock = Clock()
    for name in (DEAD, NEIGHBOUR):
        put(tmp_path, name, claim(clock, wanted=1.0))
    HostBudget(8.0, 1, folder, clock).sweep()
    assert [file.name for file in tmp_path.iterdir()] == [NEIGHBOUR]


def test_a_rank_that_has_not_loaded_for_long_needs_nothing(folder: int, tmp_path: Path) -> None:
    clock = Clock()
    put(tmp_path, NEIGHBOUR, claim(clock, wanted=8.0, age_ns=LONGEST_NS + 1))
    assert hear(HostBudget(8.0, 2, folder, clock)).cores == pytest.approx(8.0)
    assert (tmp_path / NEIGHBOUR).exists()


def test_a_file_in_the_middle_of_a_write_counts_as_it_was(folder: int, tmp_path: Path) -> None:
    clock = Clock()
    budget = HostBudget(8.0, 2, folder, clock)
    put(tmp_path, NEIGHBOUR, claim(clock, wanted=3.0))
    assert hear(budget).cores == pytest.approx(5.0)
    whole = claim(clock, wanted=1.0).pack()
    (tmp_path / NEIGHBOUR).write_bytes(whole[:20] + b"\0" * (len(whole) - 20))
    assert hear(budget).cores == pytest.approx(5.0)


@pytest.mark.parametrize("name", ["notes.txt", "12", "1-2-3", "-5"])
def test_other_files_are_left_alone(folder: int, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    assert hear(HostBudget(8.0, 1, folder, Clock())).cores is None
    assert (tmp_path / name).read_text() == "mine"


def test_a_link_is_not_followed(folder: int, tmp_path: Path) -> None:
    clock = Clock()
    put(tmp_path, "target", claim(clock, wanted=8.0))
    (tmp_path / NEIGHBOUR).symlink_to("target")
    assert hear(HostBudget(8.0, 1, folder, clock)).cores is None


def test_cores_are_kept_for_ranks_that_have_not_begun_but_not_for_ever(folder: int) -> None:
    clock = Clock()
    budget = HostBudget(8.0, 4, folder, clock)
    assert hear(budget).cores == pytest.approx(2.0)
    clock.now += LONGEST_NS + 1
    assert hear(budget).cores == pytest.approx(8.0)


def test_without_a_folder_ranks_have_equal_shares() -> None:
    clock = Clock()
    budget = HostBudget(8.0, 4, None, clock)
    clock.now += 2 * LONGEST_NS
    assert hear(budget).cores == pytest.approx(2.0)


def test_cores_are_claimed_by_a_rank_whose_workers_do_not_get_them(
    folder: int, tmp_path: Path
) -> None:
    clock = Clock()
    budget = HostBudget(4.0, 2, folder, clock)
    short = claim(clock, wanted=3.0, used=1.0, held=3.0, late=0.5)
    put(tmp_path, NEIGHBOUR, short)
    busy = Observation(seconds=0.5, batches=10, wait_s=0.25, busy_s=1.5, cpu_s=1.5, fetches=10,
                       queued=0.0)  # fmt: skip
    assert hear(budget, busy, active=6).is_claimed
    put(tmp_path, NEIGHBOUR, short._replace(held=1.0))  # it has not started enough of them
    assert not hear(budget, busy, active=6).is_claimed
    put(tmp_path, NEIGHBOUR, short._replace(late=0.0))
    assert not hear(budget, busy, active=6).is_claimed


def test_a_loader_that_is_left_alone_keeps_an_equal_share_for_its_workers(
    folder: int, tmp_path: Path
) -> None:
    clock = Clock()
    HostBudget(8.0, 2, folder, clock).reserve(32)
    (file,) = tmp_path.iterdir()
    file.rename(tmp_path / NEIGHBOUR)
    clock.now += 10 * LONGEST_NS
    assert hear(HostBudget(8.0, 2, folder, clock)).cores == pytest.approx(4.0)


def test_a_loader_that_is_done_with_gives_back_and_an_end_leaves_no_file(
    folder: int, tmp_path: Path
) -> None:
    budget = HostBudget(8.0, 2, os.dup(folder), Clock())
    hear(budget)
    (file,) = tmp_path.iterdir()
    budget.leave(1)
    told = hosts._unpack(file.read_bytes())
    assert told is not None
    assert told.wanted == told.held == 0.0
    budget.close()
    assert list(tmp_path.iterdir()) == []
    hear(budget)  # a loader that outlives the registry


def test_a_rank_that_is_forked_has_a_file_of_its_own(folder: int, tmp_path: Path) -> None:
    budget = HostBudget(8.0, 2, folder, Clock())
    hear(budget)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: hear(budget) and None)
    child.start()
    child.join()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_others_can_enter_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "SHELF", str(tmp_path))
    monkeypatch.setattr(hosts, "count_local_ranks", lambda: 3)
    shelf = tmp_path / f"fuelline-{os.geteuid()}"
    shelf.mkdir()
    shelf.chmod(0o755)
    budget = open_host()
    assert hear(budget).cores == pytest.approx(budget.cores / 3)
    assert list(shelf.iterdir()) == []
    shelf.chmod(0o700)
    hear(open_host())
    (pool,) = shelf.iterdir()
    assert len(list(pool.iterdir())) == 1


def test_a_host_without_shared_memory_has_equal_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "SHELF", "/nonexistent")
    monkeypatch.setattr(hosts, "count_local_ranks", lambda: 2)
    budget = open_host()
    assert hear(budget).cores == pytest.approx(budget.cores / 2)
