"""Jobs of several ranks: each computes what it computes without us, and says when it arrived."""

import subprocess
import sys
from pathlib import Path

import pytest

from fuelline import pipeline
from fuelline.record.launch import launch
from fuelline.schema.wire import Collective, Kind
from tests.integration.harness import JOBS, Left, environment, read_spools
from tests.integration.jobs.ranks import STEPS

pytestmark = pytest.mark.torch

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run_ranks(kind: str, run_dir: Path | None = None) -> list[str]:
    done = subprocess.run(
        [*TORCHRUN, str(JOBS / "ranks.py"), kind],
        env=environment(run_dir),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def ranks_of(run_dir: Path) -> list[Left]:
    found = [left for left in read_spools(run_dir) if left.of(Kind.RANK)]
    return sorted(found, key=lambda left: left.of(Kind.RANK)[0][2])


def count(left: Left, kind: Collective) -> int:
    return sum(record[2] == kind for record in left.of(Kind.COLLECTIVE))


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_each_rank_computes_what_it_computes_without_us(kind: str, tmp_path: Path) -> None:
    assert run_ranks(kind, tmp_path) == run_ranks(kind)
    first, second = ranks_of(tmp_path)
    assert [left.of(Kind.RANK)[0][2:5] for left in (first, second)] == [(0, 2, 0), (1, 2, 1)]
    assert (first.faults, second.faults) == (0, 0)
    assert first.blindspots() == second.blindspots() == []
    for left in (first, second):
        assert left.steps == STEPS
        assert count(left, Collective.BARRIER) == 1
        assert count(left, Collective.ALL_REDUCE) == len(left.of(Kind.COLLECTIVE_WAIT)) == 1


def test_ddp_meets_once_in_each_backward_and_for_buffers(tmp_path: Path) -> None:
    run_ranks("ddp", tmp_path)
    for left in ranks_of(tmp_path):
        assert count(left, Collective.GRADIENTS) == STEPS
        assert count(left, Collective.BUFFERS) >= STEPS - 1
        backward = [(start, start + dur) for start, dur, *_ in left.of(Kind.BACKWARD)]
        matched = [each for each in left.of(Kind.COLLECTIVE) if each[2] == Collective.GRADIENTS]
        for (start, end), collective in zip(backward, matched, strict=True):
            assert start < collective[0] <= collective[0] + collective[1] <= end


def test_fsdp_gathers_and_scatters_in_each_step(tmp_path: Path) -> None:
    run_ranks("fsdp", tmp_path)
    for left in ranks_of(tmp_path):
        assert count(left, Collective.ALL_GATHER) >= STEPS
        assert count(left, Collective.REDUCE_SCATTER) == STEPS


def test_a_killed_rank_leaves_a_run_that_can_be_diagnosed(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    launch([*TORCHRUN, str(JOBS / "ranks.py"), "ddp", "killed"], run_dir)
    diagnosis = pipeline.diagnose_run(run_dir)
    assert diagnosis.run.exit_code != 0
    assert diagnosis.collectives.ranks == 2
    assert diagnosis.steps.count == STEPS - 1


def exchange(kind: str, run_dir: Path | None = None) -> list[str]:
    done = subprocess.run(
        [*TORCHRUN, str(JOBS / "exchange.py"), kind],
        env=environment(run_dir),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("kind", "met", "calls", "waits"),
    [
        # Forward of the second layer; and in backward, of the first one's input: none needs one.
        ("parallel", Collective.ALL_REDUCE, 3, 3),
        # One sent and one received singly, and two at once; each handle is waited for.
        ("stages", Collective.SENDS, 9, 12),
        # Three at once, by a handle in one of three steps.
        ("together", Collective.ALL_REDUCE, 3, 1),
    ],
)
def test_exchanges_that_go_past_the_usual_calls_are_seen(
    tmp_path: Path, kind: str, met: Collective, calls: int, waits: int
) -> None:
    assert exchange(kind, tmp_path) == exchange(kind)
    for left in ranks_of(tmp_path):
        assert not left.faults
        assert not left.blindspots()
        assert count(left, met) == calls
        assert len(left.of(Kind.COLLECTIVE_WAIT)) == waits
        sizes = {record[3] for record in left.of(Kind.COLLECTIVE) if record[2] == met}
        assert min(sizes) >= 16
