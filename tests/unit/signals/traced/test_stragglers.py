"""Planted unevenness in a made pipeline, and ByteDance's labelled traces."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import polars as pl
import pytest

from fuelline.ingest.straggler import StragglerTraces
from fuelline.signals.traced.stragglers import measure_stragglers
from fuelline.timeline.replay import Operation
from tests.unit.ingest.foreign.reading import read, real

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fuelline.schema.diagnosis.stragglers import StragglerEffect, StragglerFacts

    Work = Callable[[int, int, int, int], float]
    Row = tuple[int, int, int, int, str, float, float, int]

STAGES, REPLICAS, MICROBATCHES, STEPS = 3, 4, 6, 4
FORWARD_S, BACKWARD_S, HOP_S = 0.1, 0.2, 0.001


def pipeline(path: Path, work: Work) -> Path:
    """All forwards, then all backwards (GPipe); `work` of stage, replica, step, microbatch."""
    rows: list[Row] = []
    for step in range(STEPS):
        ends = [_run_replica(rows, step, replica, work) for replica in range(REPLICAS)]
        for stage in range(STAGES):
            last = max(end[stage] for end in ends)
            for replica in range(REPLICAS):
                start = ends[replica][stage]
                rows.append(
                    _row(replica, stage, step, "grads-reduce-scatter", start, last + 0.01, 0)
                )
    return write(path, rows)


def write(path: Path, rows: list[Row]) -> Path:
    columns = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")
    pl.DataFrame(rows, schema=columns, orient="row").write_parquet(path)
    return path


def _row(  # noqa: PLR0917 - a row
    replica: int, stage: int, step: int, kind: str, start: float, end: float, number: int
) -> Row:
    rank = stage * REPLICAS + replica
    return replica, stage, rank, step, kind, start, end - start, number


def _run_replica(rows: list[Row], step: int, replica: int, work: Work) -> list[float]:
    now = [0.0] * STAGES
    order = range(STAGES)
    for kind, base, stages, number in (
        *(("forward", FORWARD_S, order, each) for each in range(MICROBATCHES)),
        *(("backward", BACKWARD_S, order[::-1], each) for each in range(MICROBATCHES)),
    ):
        before: int | None = None
        for stage in stages:
            if before is not None:
                met = max(now[before], now[stage])
                for at, side in ((before, "send"), (stage, "recv")):
                    end = met + HOP_S
                    rows.append(_row(replica, at, step, f"{kind}-{side}", now[at], end, number))
                    now[at] = end
            took = base * work(stage, replica, step, number)
            rows.append(
                _row(replica, stage, step, f"{kind}-compute", now[stage], now[stage] + took, number)
            )
            now[stage] += took
            before = stage
    return now


def facts(tmp_path: Path, work: Work) -> StragglerFacts:
    found = measure_stragglers(read(StragglerTraces(), pipeline(tmp_path / "ops", work)).trace)
    assert found is not None
    return found


def top(found: StragglerFacts) -> StragglerEffect:
    return found.effects[0]


def test_an_even_pipeline_loses_nothing(tmp_path: Path) -> None:
    found = facts(tmp_path, lambda *_: 1.0)
    assert found.slowdown == pytest.approx(1, abs=0.01)
    assert (found.workers, found.stages, found.replicas) == (12, 3, 4)


def test_a_slow_worker_is_named_by_its_rank_and_by_how_much(tmp_path: Path) -> None:
    found = facts(tmp_path, lambda stage, replica, *_: 2.0 if (stage, replica) == (1, 2) else 1.0)
    assert top(found).cause == "slow worker"
    assert top(found).ranks == [1 * REPLICAS + 2]
    assert top(found).ratio == pytest.approx(2, abs=0.01)
    assert top(found).share == pytest.approx(1, abs=0.15)
    assert found.slowdown > 1.3


def test_a_long_stage_is_a_stage_and_no_worker(tmp_path: Path) -> None:
    found = facts(tmp_path, lambda stage, *_: 1.8 if stage == 2 else 1.0)
    assert (top(found).cause, top(found).stage) == ("uneven stages", 2)
    assert top(found).ratio == pytest.approx(1.8, abs=0.01)
    assert found.effects[1].share < 0.2


def test_microbatches_of_different_work_are_told_by_their_correlation(tmp_path: Path) -> None:
    random.seed(4)
    lengths = {
        (replica, step, each): random.choice([0.5, 1.0, 2.5])
        for replica in range(REPLICAS)
        for step in range(STEPS)
        for each in range(MICROBATCHES)
    }
    found = facts(tmp_path, lambda _, replica, step, each: lengths[replica, step, each])
    assert top(found).cause == "uneven microbatches"
    assert top(found).correlation is not None
    assert top(found).correlation > 0.9


def test_without_a_pipeline_no_stage_is_called_long(tmp_path: Path) -> None:
    rows = [
        _row(replica, 0, step, kind, step + start, step + end, 0)
        for step in range(STEPS)
        for replica in range(REPLICAS)
        for kind, start, end in (
            ("forward-compute", 0.0, 0.2 if replica == 1 else 0.1),
            ("grads-reduce-scatter", 0.2 if replica == 1 else 0.1, 0.21),
        )
    ]
    found = measure_stragglers(read(StragglerTraces(), write(tmp_path / "ops", rows)).trace)
    assert found is not None
    (stages,) = (effect for effect in found.effects if effect.cause == "uneven stages")
    assert (stages.stage, stages.ratio) == (None, None)
    assert (top(found).cause, top(found).ranks) == ("slow worker", [1])


def test_an_order_that_can_never_have_happened_is_not_replayed(tmp_path: Path) -> None:
    rows = [
        _row(0, 0, 0, "backward-recv", 0.0, 1.0, 0),
        _row(0, 0, 0, "forward-send", 2.0, 3.0, 0),
        _row(0, 1, 0, "forward-recv", 0.0, 1.0, 0),
        _row(0, 1, 0, "backward-send", 2.0, 3.0, 0),
    ]
    assert measure_stragglers(read(StragglerTraces(), write(tmp_path / "ops", rows)).trace) is None


@pytest.mark.parametrize(("name", "cause"), [("AR", "slow worker"), ("ST", "uneven stages")])
@pytest.mark.integration
def test_labelled_traces_get_their_cause_and_their_slowdown(name: str, cause: str) -> None:
    found = measure_stragglers(
        read(StragglerTraces(), real(f"straggler/trace-{name}.parquet")).trace
    )
    expected = json.loads(real(f"straggler/result-{name}.json").read_text())
    assert found is not None
    assert top(found).cause == cause
    assert top(found).share > 0.8
    assert all(effect.share < 0.2 for effect in found.effects[1:])
    assert found.slowdown == pytest.approx(expected["blocking_slowdown"], rel=0.01)
    if cause == "slow worker":
        assert top(found).ranks == [0]
    else:
        assert top(found).stage == 3


def test_an_operation_has_a_collective_only_with_group_and_number() -> None:
    assert Operation(0, 0, 1).collective is None
    assert Operation(0, 0, 1, 5, 6).collective == (5, 6)
