"""The start-up ledger: parts that are the whole of it, named by hooks, stacks and parents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from fuelline.diagnose.start_up import shorten_start_up
from fuelline.schema.run.recording import ProcessFacts
from fuelline.schema.wire import Kind
from fuelline.signals.recorded.fetching.stack_samples import parse_frames
from fuelline.signals.recorded.start_stages import name_stack
from fuelline.signals.recorded.start_up import measure_start_up
from tests.unit.builders import MS, START_NS, TRAINER, Lane, judge, make_timeline

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.start_up import StartLedger

SITE = "/usr/lib/python3.11/site-packages"
IMPORTING = (
    "<module> (/job/train.py:1)",
    "_find_and_load (<frozen importlib._bootstrap>:1176)",
    f"<module> ({SITE}/torch/__init__.py:8)",
    "_find_and_load (<frozen importlib._bootstrap>:1176)",
    f"<module> ({SITE}/numpy/__init__.py:3)",
)
WALKING = ("<module> (/job/train.py:9)", "index (/job/data.py:4)", "_walk (<frozen os>:368)")
OWN = ("<module> (/job/train.py:11)", "prepare (/job/data.py:30)")
LOADING = (
    "<module> (/job/train.py:12)",
    f"load ({SITE}/torch/serialization.py:1200)",
    "read (/usr/lib/python3.11/zipfile.py:900)",
)
COMPILING = (
    "<module> (/job/train.py:20)",
    f"_call_impl ({SITE}/torch/nn/modules/module.py:1700)",
    f"compile_fx ({SITE}/torch/_inductor/compile_fx.py:900)",
)
Stack = tuple[str, ...]


def stay(from_ms: float, until_ms: float, frames: Stack, pid: int = TRAINER) -> tuple[object, ...]:
    from_ns, until_ns = (START_NS + int(each * MS) for each in (from_ms, until_ms))
    return from_ns, until_ns, pid, pid, list(frames), 1


def lane(first_ms: float = 10_000) -> Lane:
    """20 steps of 100 ms; the first one ends 1.3 s later than it should."""
    told = Lane(start_ms=first_ms)
    told.iterator(500).batch(300).gap(700).backward(50).optimizer(50)
    for _ in range(20):
        told.batch(20).gap(40).backward(20).optimizer(20)
    return told


def ledger(
    *stays: tuple[object, ...], told: Lane | None = None, **tables: list[tuple[object, ...]]
) -> StartLedger:
    seen = [(START_NS + 200 * MS, TRAINER, 1, "python3", START_NS)]
    timeline = make_timeline(told or lane(), **{"stacks": list(stays), "seen": seen, **tables})
    trainer, segments = judge(timeline)
    found = measure_start_up(timeline, trainer, segments)
    assert found is not None
    found.check()
    return found


def test_parts_are_the_whole_and_come_from_hooks_and_stacks() -> None:
    found = ledger(
        stay(300, 4000, IMPORTING), stay(4000, 6000, WALKING), stay(6000, 10_000, LOADING)
    )
    assert {each.part: round(each.seconds, 2) for each in found.parts} == {
        "interpreter": 0.3,
        "imports": 3.7,
        "data set index": 2.0,
        "model load": 4.0,
        "worker start": 0.5,
        "first batch": 0.3,
        "first step": 0.8,
    }
    assert found.named_frac == 1
    imports = next(each for each in found.parts if each.part == "imports")
    assert [each.name for each in imports.details] == ["torch"]
    index = next(each for each in found.parts if each.part == "data set index")
    assert [(each.name, each.line) for each in index.details] == [("index", "/job/data.py:4")]


def test_a_long_stretch_that_nobody_saw_has_no_name() -> None:
    found = ledger(stay(300, 1000, IMPORTING), stay(9000, 10_000, OWN))
    assert found.named_frac == pytest.approx(1 - 8.0 / 11.6, abs=0.01)


def test_a_long_stretch_between_two_looks_at_the_same_thing_is_that() -> None:
    found = ledger(stay(300, 1000, OWN), stay(9000, 10_000, OWN))
    assert found.named_frac == 1


def test_a_long_stretch_between_two_lines_of_the_jobs_own_code_has_no_name() -> None:
    elsewhere = (*OWN[:-1], OWN[-1].replace(":", ":9"))
    found = ledger(stay(300, 1000, OWN), stay(9000, 10_000, elsewhere))
    assert found.named_frac < 0.5


def test_a_backward_pass_that_nobody_looked_into_is_part_of_the_first_step() -> None:
    """With it training begins, and what it compiles may take longer than stacks are taken for."""
    told = Lane(start_ms=1000).backward(8000).optimizer(50)
    for _ in range(20):
        told.batch(20).gap(40).backward(20).optimizer(20)
    found = ledger(stay(200, 1000, IMPORTING), told=told)
    spent = {each.part: round(each.seconds, 1) for each in found.parts}
    assert spent["first step"] == 8.0
    assert found.named_frac > 0.95


def test_a_short_gap_is_divided_between_its_neighbours() -> None:
    found = ledger(stay(300, 1000, IMPORTING), stay(3000, 10_000, OWN))
    assert round(sum(p.seconds for p in found.parts if p.part == "imports"), 1) == 1.7


def test_what_a_first_step_compiles_is_told_from_the_step() -> None:
    told = Lane(start_ms=1000).batch(100).gap(8000).backward(50).optimizer(50)
    for _ in range(20):
        told.batch(20).gap(40).backward(20).optimizer(20)
    found = ledger(stay(200, 1000, OWN), stay(1500, 8500, COMPILING), told=told)
    spent = {each.part: round(each.seconds, 1) for each in found.parts}
    assert spent["compile"] == 7.0
    assert spent["first step"] == 1.1


def test_steps_that_are_longer_at_first_are_warm_up() -> None:
    told = Lane(start_ms=1000).batch(100).gap(80).backward(50).optimizer(50)
    for length in (900, 500, *[40] * 40):
        told.batch(20).gap(length).backward(20).optimizer(20)
    spent = {each.part: round(each.seconds, 2) for each in ledger(told=told).parts}
    assert spent["warm-up"] == 1.52


def test_time_before_the_process_is_its_parents() -> None:
    launcher = 50
    seen = [
        (START_NS + 300 * MS, launcher, 1, "torchrun", START_NS),
        (START_NS + 4200 * MS, TRAINER, launcher, "python3", START_NS + 4000 * MS),
    ]
    found = ledger(stay(4100, 10_000, OWN), seen=seen)
    spent = {each.part: round(each.seconds, 1) for each in found.parts}
    assert spent["launch"] == 4.0
    assert spent["code"] == 5.9


def test_python_says_itself_when_it_was_ready() -> None:
    told = lane()
    seen = [(START_NS, TRAINER, 1, "python3", START_NS)]
    timeline = make_timeline(
        told,
        stacks=[stay(2000, 10_000, IMPORTING)],
        seen=seen,
        facts={
            "processes": (
                ProcessFacts(
                    pid=TRAINER,
                    ppid=1,
                    created_ns=START_NS,
                    records=1,
                    dropped=0,
                    faults=0,
                    begun=[(START_NS + 40 * MS, "")],
                ),
            )
        },
    )
    found = measure_start_up(timeline, *judge(timeline))
    assert found is not None
    assert round(found.parts[0].seconds, 2) == 0.04
    assert round(found.parts[1].seconds, 2) == 9.96


def test_blocked_time_goes_to_what_was_done_meanwhile_with_its_mount() -> None:
    states = [
        (START_NS + second * 1000 * MS, TRAINER, TRAINER, -1, "read", "pread64", 3, 16)
        for second in range(6, 10)
    ]
    places = [(3, "/mnt/nfs/model.pt", "/mnt/nfs", "nfs4", "0:40")]
    found = ledger(stay(300, 6000, OWN), stay(6000, 10_000, LOADING), states=states, places=places)
    load = next(each for each in found.parts if each.part == "model load")
    assert load.blocked_seconds == pytest.approx(4.0, abs=0.1)
    assert (load.path, load.mount, load.fstype) == ("/mnt/nfs/model.pt", "/mnt/nfs", "nfs4")
    advised = {each.part: each.shorten for each in shorten_start_up(found).parts}
    assert "/mnt/nfs" in advised["model load"][0].setting
    assert not advised["interpreter"]


def test_old_recordings_without_start_times_have_no_ledger() -> None:
    timeline = make_timeline(lane(), seen=[(START_NS, TRAINER, 1, "python3", 0)])
    assert measure_start_up(timeline, *judge(timeline)) is None


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        (IMPORTING, "imports"),
        (WALKING, "data set index"),
        (OWN, "code"),
        (LOADING, "model load"),
        (COMPILING, "compile"),
        (
            (
                "<module> (/job/train.py:3)",
                f"from_pretrained ({SITE}/transformers/modeling_utils.py:9)",
                f"http_get ({SITE}/huggingface_hub/file_download.py:9)",
                f"send ({SITE}/requests/sessions.py:9)",
            ),
            "download",
        ),
        (
            (
                "<module> (/job/train.py:3)",
                f"init ({SITE}/wandb/sdk/wandb_init.py:9)",
                f"send ({SITE}/requests/sessions.py:9)",
            ),
            "tracking",
        ),
        (
            (
                "<module> (/job/train.py:3)",
                f"from_pretrained ({SITE}/transformers/modeling_utils.py:9)",
                f"reset_parameters ({SITE}/torch/nn/modules/linear.py:9)",
            ),
            "model load",
        ),
        (
            (
                "<module> (/job/train.py:3)",
                f"__init__ ({SITE}/torch/nn/modules/linear.py:9)",
            ),
            "model build",
        ),
        (
            (
                "<module> (/job/train.py:3)",
                f"to ({SITE}/torch/nn/modules/module.py:1300)",
                f"_apply ({SITE}/torch/nn/modules/module.py:900)",
            ),
            "to device",
        ),
        (
            (
                "<module> (/job/train.py:3)",
                f"init_process_group ({SITE}/torch/distributed/distributed_c10d.py:900)",
            ),
            "process group",
        ),
        # A project may be called as this one is.
        (("<module> (/home/me/fuelline/train.py:3)", "build (/home/me/fuelline/net.py:5)"), "code"),
        # An optimizer imports the compiler; what that registers for itself compiles nothing.
        (
            (
                "<module> (/job/train.py:3)",
                f"__init__ ({SITE}/torch/optim/adam.py:9)",
                "_find_and_load (<frozen importlib._bootstrap>:1176)",
                f"<module> ({SITE}/torch/_inductor/lowering.py:9)",
                f"register_lowering ({SITE}/torch/_inductor/lowering.py:90)",
            ),
            "imports",
        ),
        # A library's main program has no line of the user's.
        ((f"main ({SITE}/docling/cli/main.py:3)",), "code"),
    ],
)
def test_a_stack_is_named_by_its_innermost_telling_frame(stack: Stack, part: str) -> None:
    assert name_stack(parse_frames(stack), {}).part == part


def test_who_does_it_is_the_users_function_in_a_project_of_our_name_too() -> None:
    frames = parse_frames(
        ("<module> (/home/me/fuelline/train.py:3)", "build (/home/me/fuelline/net.py:5)")
    )
    assert name_stack(frames, {})[1:] == ("build", "/home/me/fuelline/net.py:5")


def test_a_compiled_call_is_known_by_the_text_of_its_line() -> None:
    frames = parse_frames(("<module> (/job/train.py:5)",))
    for text, part in (
        ("names = sorted(os.listdir(root))", "data set index"),
        ("state = load_file(path)", "model load"),
        ("model.to('cuda')", "to device"),
        ("x = x @ y", "code"),
    ):
        assert name_stack(frames, {"/job/train.py:5": text}).part == part


def test_parts_that_do_not_sum_up_are_refused() -> None:
    found = ledger(stay(300, 10_000, OWN))
    with pytest.raises(ValueError, match="parts"):
        msgspec.structs.replace(found, seconds=99.0).check()


def test_validation_before_training_is_not_its_first_batch() -> None:
    told = Lane(start_ms=1000)
    told.batch(2000, loader=2, grad=False).gap(10)
    told.batch(300).gap(70).backward(50).optimizer(50)
    for _ in range(20):
        told.batch(20).gap(40).backward(20).optimizer(20)
    told.put(Kind.GC, told.now_ns, 1)
    spent = {each.part: round(each.seconds, 1) for each in ledger(told=told).parts}
    assert spent["validation"] == 2.0
    assert spent["first batch"] == 0.3
