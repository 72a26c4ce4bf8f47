"""The table of `bench.on_gpu`, from rows that were measured elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import on_gpu

if TYPE_CHECKING:
    import pytest


class Scripted(on_gpu.Runner):
    """Gives answers by whether the job is recorded."""

    def __init__(self, answers: dict[bool, dict[str, Any]]) -> None:
        super().__init__("emu", Path("nowhere"))
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []

    def run(self, *options: str, is_recorded: bool) -> tuple[dict[str, Any], Path]:
        self.asked.append(options)
        return self.answers[is_recorded], Path("nowhere")


def test_the_cost_of_a_step_and_of_a_microbatch_are_told_apart() -> None:
    class Growing(Scripted):
        def run(self, *options: str, is_recorded: bool) -> tuple[dict[str, Any], Path]:
            batches = int(options[-1])
            added = 12.0 + 5.0 * (batches - 1) if is_recorded else 0.0
            return {"step_us": 100.0 * batches + added}, Path("nowhere")

    step, each = on_gpu.measure_cost(Growing({}), turns=3)
    assert (step.measured, step.is_good) == ("12.0 us", True)
    assert (each.measured, each.is_good) == ("5.0 us", True)


def test_a_job_that_differs_under_the_recorder_is_shown_with_both_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = {"losses": "a", "graph_breaks": 0, "contexts": [0]}
    runner = Scripted({False: plain, True: {**plain, "contexts": [0, 3]}})
    monkeypatch.setattr(on_gpu, "Runner", lambda *_: runner)
    rows = on_gpu.try_harm(runner)
    assert [row.is_good for row in rows if "losses" in row.figure] == [True] * 4
    broken = [row for row in rows if "contexts" in row.figure]
    assert {row.measured for row in broken} == {"[0, 3] with, [0] without"}
    assert not any(row.is_good for row in broken)


def test_the_table_can_be_pasted() -> None:
    table = on_gpu._table([on_gpu.Row("hooks", "9 us", "at most 25 us", is_good=True)])
    assert table.splitlines() == [
        "| figure | measured | bar | |",
        "| --- | --- | --- | --- |",
        "| hooks | 9 us | at most 25 us | ok |",
    ]


def test_what_the_clock_leaves_open_is_an_interval_and_the_truth_must_be_in_it() -> None:
    assert on_gpu._clock_row("idle", (0.10, 0.10), 0.11).is_good
    assert not on_gpu._clock_row("idle", (0.10, 0.10), 0.15).is_good
    row = on_gpu._clock_row("idle", (0.17, 0.95), 0.87)
    assert (row.measured, row.is_good) == ("17.0 to 95.0 %, true 87.0 %", True)
    assert on_gpu._clock_row("idle", None, 0.5).is_good is False
