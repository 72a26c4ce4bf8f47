"""A source that has no hooks: how long the loop waits for it, and who feeds it."""

import pytest

from fuelline.schema.diagnosis.facts import Facts
from fuelline.schema.readings import Reading, value_of
from fuelline.schema.run.recording import PYTHON_SOURCE, LoaderFacts, ProcessFacts
from fuelline.schema.wire import Phase
from tests.unit.builders import MS, START_NS, TRAINER, Lane, facts_of, make_timeline

SITE = "/usr/lib/python3.11/site-packages"
LIB = "/usr/lib/python3.11"
FOR = "main (/job/train.py:20)"
GENERATOR = (FOR, "batches (/job/data.py:4)", "parse (/job/data.py:9)")
READING = (FOR, "batches (/job/data.py:4)", "load (/job/data.py:8)")
GET_BATCH = ("main (/job/train.py:21)", "get_batch (/job/data.py:8)")
MODEL = ("main (/job/train.py:22)", f"_call_impl ({SITE}/torch/nn/modules/module.py:1700)")
BACKWARD = ("main (/job/train.py:24)", f"backward ({SITE}/torch/autograd/__init__.py:350)")
GET = (FOR, f"get ({LIB}/queue.py:170)", f"wait ({LIB}/threading.py:327)")
FEEDER = (f"run ({LIB}/threading.py:982)", "fill (/job/data.py:20)", "parse (/job/data.py:9)")
LOGGER = (f"run ({LIB}/threading.py:982)", f"wait ({LIB}/threading.py:327)")
TEXTS = {
    "/job/train.py:20": "for batch in batches():",
    "/job/train.py:21": "batch = get_batch()",
    "/job/data.py:4": "yield parse(path)",
    "/job/data.py:8": "return path.read_bytes()",
    "/job/data.py:9": "total = (total * 31 + byte) % 65_521",
}
SECOND = 10**9
THREAD, SERVICE = 101, 102

Stacks = dict[tuple[int, tuple[str, ...]], int]


def judged(
    stacks: Stacks,
    *,
    gap: float = 80,
    waited: float = 0,
    states: dict[tuple[int, str], int],
    told: tuple[str, ...] = (),
    framework: str = "torch",
    others: Stacks | None = None,
    elsewhere: dict[tuple[int, int, str], int] | None = None,
) -> Facts:
    """Steps of a hundred milliseconds; `gap` passes before the backward pass, unrecorded."""
    lane = Lane()
    for _ in range(100):
        if waited:
            lane.batch(waited, samples=-1)
        lane.gap(gap).backward(15, cpu_ns=15 * MS).optimizer(100 - 15 - gap - waited)
    rows = [
        (START_NS, lane.now_ns, TRAINER, tid, list(frames), count)
        for (tid, frames), count in stacks.items()
    ]
    phase = int(Phase.WAIT if waited else Phase.OUTSIDE)
    looks = [
        (START_NS + at * SECOND, TRAINER, tid, phase, state, "", 0, count)
        for at in range(1, 9)
        for (tid, state), count in states.items()
    ]
    rows += [
        (START_NS, lane.now_ns, pid, 0, list(frames), count)
        for (pid, frames), count in (others or {}).items()
    ]
    looks += [
        (START_NS + at * SECOND, pid, tid, phase, state, "", 0, count)
        for at in range(1, 9)
        for (pid, tid, state), count in (elsewhere or {}).items()
    ]
    process = ProcessFacts(
        pid=TRAINER,
        ppid=1,
        created_ns=0,
        records=9,
        dropped=0,
        faults=0,
        framework=framework,
        step_frames=list(told),
    )
    loader = LoaderFacts(pid=TRAINER, loader_id=1, loader="queue.Queue", framework=PYTHON_SOURCE)
    return facts_of(
        make_timeline(
            lane,
            stacks=rows,
            states=looks,
            facts={
                "source_lines": TEXTS,
                "loaders": (loader,) if waited else (),
                "processes": (process,),
            },
        )
    )


def test_a_generator_takes_its_share_of_the_gap_and_not_of_all_samples() -> None:
    stacks = {(TRAINER, GENERATOR): 60, (TRAINER, MODEL): 20, (TRAINER, BACKWARD): 120}
    facts = judged(stacks, states={(TRAINER, "running"): 20})
    assert value_of(facts.input.exposed_share) == pytest.approx(0.8 * 0.75, abs=0.02)
    assert facts.share_of("input") == pytest.approx(0.6, abs=0.02)
    assert facts.share_of("own code") == 0
    assert facts.loader is not None
    assert (facts.loader.framework, facts.loader.num_workers) == (PYTHON_SOURCE, 0)
    assert [line.function for line in facts.fetch_lines] == ["parse"]
    assert value_of(facts.input.cpu_share) == pytest.approx(1.0)


def test_a_generator_that_reads_is_blocked_in_reads() -> None:
    stacks = {(TRAINER, READING): 80, (TRAINER, MODEL): 5, (TRAINER, BACKWARD): 15}
    facts = judged(stacks, states={(TRAINER, "read"): 14, (TRAINER, "running"): 6})
    assert value_of(facts.input.read_share) == pytest.approx(0.93, abs=0.05)


def test_a_read_that_sleeps_is_a_read() -> None:
    stacks = {(TRAINER, READING): 80, (TRAINER, MODEL): 5, (TRAINER, BACKWARD): 15}
    facts = judged(stacks, states={(TRAINER, "sleep"): 14, (TRAINER, "running"): 6})
    assert (value_of(facts.input.read_share) or 0) > 0.5


def test_a_loop_that_never_asks_for_long_waits_for_nothing() -> None:
    stacks = {(TRAINER, MODEL): 80, (TRAINER, BACKWARD): 20}
    facts = judged(stacks, states={(TRAINER, "running"): 20})
    waited = facts.input.exposed_share
    assert isinstance(waited, Reading)
    assert waited.value == 0
    assert (waited.high or 0) < 0.05


def test_a_function_of_the_loop_that_reads_is_the_source_and_one_that_computes_is_not() -> None:
    reads = {(TRAINER, GET_BATCH): 60, (TRAINER, MODEL): 20, (TRAINER, BACKWARD): 20}
    assert judged(reads, states={(TRAINER, "read"): 12}).share_of("input") > 0.5
    computes = ("main (/job/train.py:21)", "get_batch (/job/data.py:9)")
    stacks = {(TRAINER, computes): 60, (TRAINER, MODEL): 20, (TRAINER, BACKWARD): 20}
    facts = judged(stacks, states={(TRAINER, "running"): 20})
    assert facts.share_of("input") == 0
    assert facts.share_of("own code") > 0.5


def test_a_thread_behind_a_queue_is_the_crew_and_one_that_idles_is_not() -> None:
    stacks = {
        (TRAINER, GET): 70,
        (TRAINER, BACKWARD): 30,
        (THREAD, FEEDER): 95,
        (THREAD, LOGGER): 5,
        (SERVICE, LOGGER): 100,
    }
    states = {(TRAINER, "lock"): 15, (THREAD, "running"): 19, (SERVICE, "lock"): 5}
    facts = judged(stacks, gap=10, waited=70, states=states)
    assert facts.loader is not None
    assert (facts.loader.num_workers, facts.loader.context) == (1, "threads")
    assert [line.function for line in facts.fetch_lines] == ["parse"]
    assert value_of(facts.input.exposed_share) == pytest.approx(0.7, abs=0.02)
    assert value_of(facts.input.cpu_share) == pytest.approx(1.0, abs=0.02)
    assert value_of(facts.input.fetch_seconds) == pytest.approx(0.095, abs=0.01)


def test_without_stacks_thread_states_name_the_crew() -> None:
    states = {(TRAINER, "lock"): 15, (THREAD, "running"): 19, (SERVICE, "lock"): 5}
    facts = judged({}, gap=10, waited=70, states=states)
    assert facts.loader is not None
    assert facts.loader.num_workers == 1


def test_a_backward_pass_too_short_to_be_seen_is_where_hooks_told_it() -> None:
    stacks = {(TRAINER, READING): 200}
    states = {(TRAINER, "read"): 19, (TRAINER, "running"): 1}
    unseen = judged(stacks, gap=84, states=states)
    assert unseen.share_of("input") == 0
    facts = judged(stacks, gap=84, states=states, told=BACKWARD)
    assert facts.share_of("input") == pytest.approx(0.84, abs=0.02)
    assert facts.share_of("own code") == 0


MONITOR = (f"run_monitor ({SITE}/ray/_private/log_monitor.py:500)",)
TASK = (
    f"main_loop ({SITE}/ray/_private/worker.py:900)",
    f"_map_task ({SITE}/ray/data/map_operator.py:800)",
    "load (/job/data.py:8)",
)
WORKER, MONITORING, WORKING = 300, 310, 301


def test_of_processes_the_thread_that_works_counts_and_a_service_is_no_crew() -> None:
    waits = {(TRAINER, GET): 190, (TRAINER, BACKWARD): 10}
    facts = judged(
        waits,
        waited=80,
        gap=2,
        states={(TRAINER, "lock"): 15},
        others={(WORKER, TASK): 90, (MONITORING, MONITOR): 90},
        elsewhere={
            (WORKER, WORKER, "pipe"): 20,
            (WORKER, WORKING, "read"): 19,
            (WORKER, WORKING, "running"): 1,
            (MONITORING, MONITORING, "sleep"): 20,
        },
    )
    assert facts.loader is not None
    assert (facts.loader.num_workers, facts.loader.context) == (1, "processes")
    assert value_of(facts.input.read_share) == pytest.approx(0.95, abs=0.02)


def test_a_process_that_only_sleeps_and_was_not_looked_into_prepares_nothing() -> None:
    waits = {(TRAINER, GET): 190, (TRAINER, BACKWARD): 10}
    facts = judged(
        waits,
        waited=80,
        gap=2,
        states={(TRAINER, "lock"): 15},
        elsewhere={(MONITORING, MONITORING, "sleep"): 20},
    )
    assert facts.loader is not None
    assert facts.loader.num_workers == 0


@pytest.mark.parametrize(("framework", "own"), [("torch", 0.8), (PYTHON_SOURCE, 0.0)])
def test_without_a_framework_the_work_of_a_step_is_not_called_other_code(
    framework: str, own: float
) -> None:
    """As in a loop that `fuelline.watch` feeds and that calls a model of any library."""
    work = ("main (/job/train.py:22)", "embed (/job/model.py:9)")
    stacks = {(TRAINER, work): 190, (TRAINER, BACKWARD): 10}
    facts = judged(stacks, waited=5, gap=80, states={(TRAINER, "running"): 20}, framework=framework)
    assert facts.share_of("own code") == pytest.approx(own, abs=0.05)
