"""A pool of threads inside the trainer's process, as tf.data has one, measured like workers."""

from typing import Any

import pytest

from fuelline.diagnose import diagnose
from fuelline.schema.diagnosis.facts import Facts
from fuelline.schema.diagnosis.findings import Diagnosis, RunSummary
from fuelline.schema.readings import value_of
from fuelline.schema.run.recording import LoaderFacts, NodeFacts
from fuelline.schema.run.samples import Limits
from fuelline.schema.wire import Kind, Phase
from tests.unit.builders import MS, START_NS, TRAINER, Lane, facts_of, make_timeline

POOL = (101, 102)
SECONDS = 10
RUN_SUMMARY = RunSummary(run_id="story", command=[], host="here", exit_code=0, seconds=10.0)
S = 1000 * MS
PIPELINE = LoaderFacts(
    pid=TRAINER,
    loader_id=1,
    framework="tf.data",
    loader="tf.data",
    batch_size=8,
    nodes=[
        NodeFacts(id=0, name="Root", inputs=[1]),
        NodeFacts(id=1, name="Prefetch", inputs=[2]),
        NodeFacts(id=2, name="ParallelMapV2", inputs=[3], tunable=True),
        NodeFacts(id=3, name="TensorSlice"),
    ],
)


def measured(
    looks: dict[str, int],
    *,
    cpu: float,
    queued: float = 0.0,
    busy: float,
    parallel: int = 2,
    more: list[tuple[Any, ...]] | None = None,
) -> Facts:
    """A job that waits for 80 of 100 ms, with a pool of two threads.

    `looks` are those at each thread in a second, `cpu` and `queued` the cores that the pool used
    and waited for, `busy` the calls in progress by tf.data's own count.
    """
    loop = Lane()
    for tid in POOL:
        loop.add(Kind.CREW, 0, 1, tid)
    for step in range(SECONDS * 10):
        loop.batch(80, samples=8).gap(20).add(Kind.STEP, 0, 1)
        if step % 10 == 0:
            second = step // 10
            for place, (spent, done) in enumerate(((0, 10), (0, 10), (busy, 80))):
                fields = (1, 1 << 32 | place, int(second * spent * S), second * done, 0)
                loop.put(Kind.NODE, loop.now_ns, 0, *fields, flags=parallel if place == 2 else 0)
    states = [
        (START_NS + second * S, TRAINER, tid, int(Phase.COMPUTE), state, "pread64", 0, count)
        for second in range(SECONDS)
        for tid in POOL
        for state, count in looks.items()
    ]
    clocks = [
        (
            START_NS + second * S,
            TRAINER,
            tid,
            int(second * S * cpu / 2),
            int(second * S * queued / 2),
        )
        for second in range(SECONDS)
        for tid in POOL
    ]
    host = [
        (START_NS + second * S, name, float(value * second))
        for second in range(SECONDS)
        for name, value in (("cpu.busy_ns", 1.2 * S), ("cpu.idle_ns", 0.8 * S))
    ]
    ran = [
        (START_NS + second * S, TRAINER, int(second * 1.2 * S), *([0] * 7))
        for second in range(SECONDS)
    ]
    limits = Limits(START_NS, 2, 2, None, None, {})
    return facts_of(
        make_timeline(
            loop,
            facts={"loaders": (PIPELINE,), "limits": (limits,)},
            states=[*states, *(more or [])],
            clocks=clocks,
            host=host,
            processes=ran,
        )
    )


def shares(facts: Facts, *names: str) -> list[float | None]:
    return [value_of(getattr(facts.input, f"{name}_share")) for name in names]


def verdict_of(facts: Facts) -> Diagnosis:
    return diagnose(facts, RUN_SUMMARY, [], None)


def test_the_wait_is_taken_from_the_records() -> None:
    facts = measured({"running": 20}, cpu=1.8, busy=1.8)
    assert value_of(facts.input.wait_share) == pytest.approx(0.8, abs=0.01)
    assert facts.loader is not None
    assert facts.loader.num_workers == 2


def test_threads_in_reads_are_fetches_in_reads() -> None:
    facts = measured({"read": 19, "running": 1}, cpu=0.1, busy=2.0)
    assert shares(facts, "read", "cpu") == pytest.approx([0.95, 0.05], abs=0.01)
    found = verdict_of(facts).findings[0]
    assert (found.stage, found.limit) == ("read", "latency")
    (pool,) = [each for each in found.remedies if "private_threadpool_size" in each.setting]
    assert pool.applicability == "safe"
    assert pool.at_most_speedup == pytest.approx(1 / (1 - 0.8), rel=0.05)


def test_a_pool_that_sleeps_without_any_python_is_in_a_delayed_read() -> None:
    facts = measured({"sleep": 19, "running": 1}, cpu=0.1, busy=2.0)
    assert shares(facts, "read", "sleep") == pytest.approx([0.95, 0.0], abs=0.01)


def test_a_thread_that_only_keeps_time_takes_no_part() -> None:
    clock = [
        (START_NS + second * S, TRAINER, 150, int(Phase.COMPUTE), "sleep", "clock_nanosleep", 0, 20)
        for second in range(SECONDS)
    ]
    facts = measured({"running": 20}, cpu=1.9, busy=1.9, more=clock)
    assert shares(facts, "cpu", "read") == pytest.approx([1.0, 0.0], abs=0.02)


def test_a_thread_outside_the_pool_that_sleeps_is_none_of_it() -> None:
    pause = [
        (START_NS + second * S, TRAINER, 150, int(Phase.COMPUTE), state, "", 0, 10)
        for second in range(SECONDS)
        for state in ("sleep", "running")
    ]
    facts = measured({"running": 20}, cpu=1.9, busy=1.9, more=pause)
    assert shares(facts, "cpu", "read") == pytest.approx([1.0, 0.0], abs=0.02)


def test_a_thread_that_a_stage_has_started_itself_counts_while_it_reads() -> None:
    reader = [
        (START_NS + second * S, TRAINER, 150, int(Phase.COMPUTE), "read", "pread64", 0, 20)
        for second in range(SECONDS)
    ]
    facts = measured({"lock": 20}, cpu=0.0, busy=1.0, parallel=1, more=reader)
    assert shares(facts, "read") == pytest.approx([1.0], abs=0.02)


def test_idle_threads_of_the_pool_are_no_fetches_where_one_call_runs_at_a_time() -> None:
    facts = measured({"running": 10, "lock": 10}, cpu=1.0, busy=1.0, parallel=1)
    assert shares(facts, "cpu", "lock", "idle") == pytest.approx([1.0, 0.0, 0.0], abs=0.01)
    assert facts.loader is not None
    assert facts.loader.num_workers == 1
    found = verdict_of(facts).findings[0]
    assert (found.code, found.limit) == ("PR201", "parallelism")
    assert "one thread of tf.data" in found.sentence
    assert "num_parallel_calls" in found.remedies[0].setting


def test_calls_in_progress_that_neither_run_nor_read_wait_for_the_interpreter() -> None:
    facts = measured({"running": 10, "lock": 10}, cpu=0.9, queued=0.1, busy=1.9)
    assert shares(facts, "lock") == pytest.approx([0.47], abs=0.03)
    found = verdict_of(facts).findings[0]
    assert (found.code, found.stage, found.limit) == ("PR205", "transform", "code")
    assert "GIL" in found.sentence


def test_a_pool_that_comes_and_goes_between_two_looks_is_known_by_what_its_process_computed() -> (
    None
):
    facts = measured({}, cpu=0.0, busy=1.2, parallel=2)
    assert shares(facts, "cpu", "core_wait") == pytest.approx([1.0, 0.0], abs=0.02)
    facts = measured({}, cpu=0.0, busy=2.0, parallel=2)
    assert shares(facts, "cpu") == [None]


def test_no_remedy_speaks_of_a_dataloader() -> None:
    for facts in (
        measured({"read": 19, "running": 1}, cpu=0.1, busy=2.0),
        measured({"metadata": 19, "running": 1}, cpu=0.1, busy=2.0),
        measured({"running": 10, "lock": 10}, cpu=1.0, busy=1.0, parallel=1),
        measured({"running": 10, "lock": 10}, cpu=0.9, queued=0.1, busy=1.9),
        measured({"running": 20}, cpu=1.0, queued=0.9, busy=1.9),
    ):
        told = verdict_of(facts)
        assert told.findings
        for remedy in told.findings[0].remedies:
            assert "DataLoader" not in remedy.setting + remedy.why
            assert "--fix" not in remedy.setting
            assert "num_workers" not in remedy.setting
