"""Which line, and which stage: by the frames of the stack."""

import ast
from pathlib import Path

import pytest

from fuelline.record.hooks import torch as hooks
from fuelline.schema.diagnosis.facts import HotLine
from fuelline.signals.recorded.fetching.hotspots import (
    find_fetch_lines,
    find_loop_lines,
    measure_moving,
)
from tests.unit.builders import START_NS, TRAINER, Lane, judge, make_timeline

WORKER = 200
SITE = "/usr/lib/python3.11/site-packages"
FETCH = f"fetch ({SITE}/torch/utils/data/_utils/fetch.py:54)"
OUTER = f"_worker_loop ({SITE}/torch/utils/data/_utils/worker.py:349)"
ITEM = "__getitem__ (/job/train.py:31)"
HOOK = "fetch (/src/fuelline/record/hooks/torch/worker.py:88)"

Stacks = dict[tuple[str, ...], int]


def lines_of(
    stacks: Stacks, sources: dict[str, str] | None = None, *, pid: int = WORKER, loop: bool = False
) -> list[HotLine]:
    trainer = Lane().worker(WORKER)
    for _ in range(5):
        trainer.step()
    rows = [
        (START_NS, START_NS + 10**12, pid, pid, list(frames), count)
        for frames, count in stacks.items()
    ]
    timeline = make_timeline(trainer, stacks=rows, facts={"source_lines": sources or {}})
    find = find_loop_lines if loop else find_fetch_lines
    return find(timeline, *judge(timeline))


def only_line(*frames: str, source: str = "") -> HotLine:
    (line,) = lines_of(
        {(OUTER, FETCH, *frames): 10}, {"/job/train.py:31": source} if source else {}
    )
    return line


@pytest.mark.parametrize(
    ("inner", "stage"),
    [
        (f"load ({SITE}/PIL/ImageFile.py:390)", "decode"),
        (f"_open ({SITE}/PIL/JpegImagePlugin.py:12)", "decode"),
        ("read (/usr/lib/python3.11/gzip.py:301)", "decode"),
        ("read (/usr/lib/python3.11/_compression.py:68)", "decode"),
        (f"read ({SITE}/zstandard/backend_cffi.py:3)", "decode"),
        ("raw_decode (/usr/lib/python3.11/json/decoder.py:353)", "decode"),
        (f"resize ({SITE}/PIL/Image.py:2000)", "transform"),
        (f"resize ({SITE}/cv2/__init__.py:2)", "transform"),
        ("readinto (/usr/lib/python3.11/socket.py:706)", "service"),
    ],
)
def test_the_stage_is_told_by_the_library_below_the_users_line(inner: str, stage: str) -> None:
    line = only_line(ITEM, inner)
    assert (line.line, line.function, line.stage) == ("/job/train.py:31", "__getitem__", stage)
    assert not line.own


def test_the_innermost_decoder_says_what_is_decoded() -> None:
    in_zip = "read (/usr/lib/python3.11/zipfile.py:927)"
    picture = f"load ({SITE}/PIL/ImageFile.py:390)"
    assert only_line(ITEM, picture).encoding == "picture"
    assert only_line(ITEM, picture, in_zip).encoding == "compressed"
    assert only_line(ITEM, source="record = json.loads(line)").encoding == "json"
    assert only_line(ITEM, source="total += 1").encoding is None


@pytest.mark.parametrize(
    ("source", "stage"),
    [
        ("time.sleep(0.05)", "sleep"),
        ("raw = open(path, 'rb').read()", "read"),
        ("rows = np.load(path)", "read"),
        ("image = cv2.imdecode(raw, 1)", "decode"),
        ("record = json.loads(line)", "decode"),
        ("data = zlib.decompress(raw)", "decode"),
        ("answer = connection.recv()", "service"),
        ("total += math.sin(x)", "transform"),
        ("", "transform"),
    ],
)
def test_the_stage_of_the_users_own_line_is_told_by_its_text(source: str, stage: str) -> None:
    line = only_line(ITEM, source=source)
    assert (line.stage, line.own) == (stage, True)


def test_default_collate_is_collate() -> None:
    collate = f"default_collate ({SITE}/torch/utils/data/_utils/collate.py:398)"
    assert only_line(collate).stage == "collate"


def test_the_users_own_collate_function_is_collate() -> None:
    timed = "__call__ (/src/fuelline/record/hooks/torch/worker.py:49)"
    line = only_line(timed, "pad_batch (/job/train.py:31)")
    assert (line.stage, line.function) == ("collate", "pad_batch")


def test_the_frame_that_marks_a_collate_is_the_one_the_hook_makes() -> None:
    path = Path(hooks.__file__).with_name("worker.py")
    tree = ast.parse(path.read_text())
    (stand_in,) = (node for node in tree.body if getattr(node, "name", "") == "TimedCollate")
    (call,) = (node for node in stand_in.body if getattr(node, "name", "") == "__call__")
    frame = f"{call.name} ({path}:{call.lineno})"
    assert only_line(frame, "pad_batch (/job/train.py:31)").stage == "collate"


def test_the_deepest_line_of_user_code_is_named() -> None:
    line = only_line(ITEM, "augment (/job/noise.py:4)", "wobble (/job/noise.py:9)")
    assert (line.line, line.function, line.own) == ("/job/noise.py:9", "wobble", True)


def test_array_operations_are_the_calling_lines_own_time() -> None:
    assert only_line(ITEM, f"mean ({SITE}/numpy/core/fromnumeric.py:3)").own
    assert only_line(ITEM, f"stack ({SITE}/torch/functional.py:3)").own


def test_a_library_is_never_reported_as_the_users_line() -> None:
    stacks = {
        (OUTER, FETCH, HOOK, ITEM, f"load ({SITE}/PIL/ImageFile.py:390)"): 5,
        (
            OUTER,
            FETCH,
            HOOK,
            "<listcomp> (/job/train.py:40)",
            "read (/usr/lib/python3.11/gzip.py:1)",
        ): 4,
        (OUTER, FETCH, HOOK, ITEM, "<frozen> (<frozen importlib._bootstrap>:241)"): 3,
    }
    assert {line.line for line in lines_of(stacks)} == {"/job/train.py:31", "/job/train.py:40"}


def test_a_fetch_without_any_user_code_names_the_fetch_itself() -> None:
    line = only_line(f"__getitem__ ({SITE}/torchvision/datasets/folder.py:245)")
    assert line.line.endswith("fetch.py:54")
    assert not line.own


def test_lines_are_ranked_and_their_shares_sum_to_one() -> None:
    stacks = {
        (OUTER, FETCH, ITEM): 10,
        (OUTER, FETCH, "__getitem__ (/job/train.py:33)"): 25,
        (OUTER, FETCH, "blur (/job/train.py:50)"): 15,
    }
    lines = lines_of(stacks)
    assert [line.line for line in lines] == [
        "/job/train.py:33",
        "/job/train.py:50",
        "/job/train.py:31",
    ]
    assert [line.share for line in lines] == pytest.approx([0.5, 0.3, 0.2])
    assert sum(line.samples for line in lines) == 50


def test_a_worker_outside_a_fetch_is_not_counted() -> None:
    idle = (OUTER, "get (/usr/lib/python3.11/multiprocessing/queues.py:113)")
    assert lines_of({idle: 50}) == []


def test_frames_that_cannot_be_read_are_left_out() -> None:
    stacks = {(OUTER, FETCH, "garbage", ITEM): 5, ("nothing to see",): 9}
    (line,) = lines_of(stacks)
    assert line.line == "/job/train.py:31"


def test_a_path_with_spaces_and_brackets_is_read_whole() -> None:
    line = only_line("blur (/job/my (old) code/train.py:7)")
    assert (line.function, line.line) == ("blur", "/job/my (old) code/train.py:7")


@pytest.mark.parametrize(
    ("frames", "source", "stage"),
    [
        (("main (/job/train.py:80)",), "log(loss)", "loop"),
        (("main (/job/train.py:80)",), "total += loss.item()", "sync"),
        (("main (/job/train.py:80)", f"synchronize ({SITE}/torch/cuda/__init__.py:9)"), "", "sync"),
        (
            (
                "main (/job/train.py:80)",
                f"_call_impl ({SITE}/torch/nn/modules/module.py:1)",
                "forward (/job/net.py:3)",
            ),
            "",
            "forward",
        ),
    ],
)
def test_the_trainers_own_lines_are_loop_sync_or_forward(
    frames: tuple[str, ...], source: str, stage: str
) -> None:
    (line,) = lines_of({frames: 10}, {"/job/train.py:80": source}, pid=TRAINER, loop=True)
    assert line.stage == stage


@pytest.mark.parametrize(
    "hooked",
    [
        f"backward ({SITE}/torch/autograd/__init__.py:1)",
        f"step ({SITE}/torch/optim/adam.py:1)",
        f"save ({SITE}/torch/serialization.py:1)",
        f"__next__ ({SITE}/torch/utils/data/dataloader.py:1)",
    ],
)
def test_what_a_hook_times_already_is_not_a_line_of_the_loop(hooked: str) -> None:
    stacks = {("main (/job/train.py:80)", hooked): 10}
    assert lines_of(stacks, pid=TRAINER, loop=True) == []


def test_the_forward_of_a_users_own_autograd_function_is_a_line_of_the_loop() -> None:
    applied = f"apply ({SITE}/torch/autograd/function.py:596)"
    stacks = {("main (/job/train.py:80)", applied, "forward (/job/ops.py:7)"): 10}
    (line,) = lines_of(stacks, pid=TRAINER, loop=True)
    assert line.line == "/job/ops.py:7"


def test_a_callers_line_that_reads_a_value_does_not_make_its_callee_a_wait() -> None:
    main, work = "main (/job/train.py:60)", "auc (/job/train.py:9)"
    sources = {"/job/train.py:60": "scores += z.tolist(); a = auc(scores)"}
    (line,) = lines_of({(main, work): 10}, sources, pid=TRAINER, loop=True)
    assert (line.function, line.stage) == ("auc", "loop")


def test_a_method_that_synchronises_is_a_wait_by_its_name() -> None:
    frames = (
        "main (/job/train.py:60)",
        "Device.synchronize (/job/dev.py:5)",
        "_nap (/job/dev.py:9)",
    )
    (line,) = lines_of({frames: 10}, pid=TRAINER, loop=True)
    assert line.stage == "sync"


def test_a_model_that_is_called_after_backward_is_evaluated_by_the_loop() -> None:
    backward = ("main (/job/train.py:24)", f"backward ({SITE}/torch/autograd/__init__.py:350)")
    module = f"Module._call_impl ({SITE}/torch/nn/modules/module.py:1700)"
    stacks = {
        backward: 5,
        ("main (/job/train.py:22)", module): 5,
        ("main (/job/train.py:30)", "evaluate (/job/train.py:7)", module): 10,
    }
    stages = {line.function: line.stage for line in lines_of(stacks, pid=TRAINER, loop=True)}
    assert stages == {"main": "forward", "evaluate": "loop"}


@pytest.mark.parametrize(
    ("source", "share"),
    [
        ("np.copyto(self.back, self.front)", 1.0),
        ("image = image.astype(np.float32) / 255", 1.0),
        ("return torch.stack([x.clone() for x in crops])", 1.0),
        ("power = np.abs(np.fft.rfft(frames))", 0.0),
        ("return np.stack([resize(x) for x in crops])", 0.0),
        ("total += value", 0.0),
    ],
)
def test_lines_whose_calls_only_move_bytes(source: str, share: float) -> None:
    assert measure_moving([only_line(ITEM, source=source)]).value == pytest.approx(share)


def test_a_hook_around_a_read_does_not_hide_that_it_is_one() -> None:
    """`.item()` is C: without us the loop's line is the innermost frame."""
    hooked = "watched (/src/fuelline/record/hooks/hook.py:90)"
    stacks = {("main (/job/train.py:80)", hooked): 10}
    (line,) = lines_of(stacks, {"/job/train.py:80": "total += loss.item()"}, pid=TRAINER, loop=True)
    assert (line.line, line.stage) == ("/job/train.py:80", "sync")
