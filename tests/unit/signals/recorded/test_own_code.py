"""Own code in a step: told from the model by stack samples, and felt unless the device hides it."""

import pytest

from fuelline.schema.diagnosis.facts import Facts
from fuelline.schema.readings import Missing, Reading
from fuelline.signals.recorded.fetching.stack_samples import Frame, comes_before
from tests.unit.builders import START_NS, TRAINER, Lane, facts_of, make_timeline

SITE = "/usr/lib/python3.11/site-packages"
NEXT = ("main (/job/train.py:20)", f"__next__ ({SITE}/torch/utils/data/dataloader.py:700)")
TOKENS = ("main (/job/train.py:21)", "tokenise (/job/train.py:5)")
MODEL = ("main (/job/train.py:22)", f"_call_impl ({SITE}/torch/nn/modules/module.py:1700)")
METRICS = ("main (/job/train.py:23)", "accuracy (/job/train.py:9)")
BACKWARD = ("main (/job/train.py:24)", f"backward ({SITE}/torch/autograd/__init__.py:350)")
LOGGING = ("main (/job/train.py:26)", "log (/job/train.py:12)")

Stacks = dict[tuple[str, ...], int]


def judged(
    stacks: Stacks,
    sources: dict[str, str] | None = None,
    *,
    forward: float = 60,
    loop: float = 0,
    host_frac: float = 1.0,
) -> Facts:
    """Steps of 10 ms input, `forward` in one gap, 20 ms backward, 10 ms optimizer, `loop`."""
    lane = Lane()
    for _ in range(100):
        lane.batch(10).gap(forward)
        lane.backward(20, cpu_ns=int(20e6 * host_frac)).optimizer(10).gap(loop)
    rows = [
        (START_NS, lane.now_ns, TRAINER, TRAINER, list(frames), count)
        for frames, count in stacks.items()
    ]
    return facts_of(make_timeline(lane, stacks=rows, facts={"source_lines": sources or {}}))


def test_code_before_the_model_is_a_transform_and_leaves_the_forward_pass() -> None:
    facts = judged({NEXT: 10, TOKENS: 50, MODEL: 10, BACKWARD: 30})
    assert facts.share_of("own code") == pytest.approx(0.5, abs=0.01)
    assert facts.share_of("forward") == pytest.approx(0.1, abs=0.01)
    assert [(line.function, line.stage) for line in facts.step_lines] == [("tokenise", "transform")]


def test_a_line_of_the_function_that_trains_is_told_from_a_function_that_it_calls() -> None:
    inline = ("main (/job/train.py:21)",)
    facts = judged({NEXT: 10, TOKENS: 20, inline: 30, MODEL: 10, BACKWARD: 30})
    assert [(line.function, line.in_loop) for line in facts.step_lines] == [
        ("main", True),
        ("tokenise", False),
    ]


def test_code_after_the_model_is_the_loops_own() -> None:
    facts = judged({NEXT: 10, METRICS: 30, MODEL: 30, BACKWARD: 30})
    assert facts.share_of("own code") == pytest.approx(0.3, abs=0.01)
    assert [(line.function, line.stage) for line in facts.step_lines] == [("accuracy", "loop")]


def test_a_model_that_no_sample_shows_leaves_the_place_open() -> None:
    facts = judged({NEXT: 10, TOKENS: 60, BACKWARD: 30})
    assert [line.stage for line in facts.step_lines] == ["loop"]


def test_code_between_steps_is_known_by_the_hooks_clock_and_not_counted_again() -> None:
    facts = judged({NEXT: 10, MODEL: 60, BACKWARD: 30, LOGGING: 100}, loop=100)
    assert facts.share_of("own code") == 0
    assert not facts.step_lines


def test_code_within_and_between_steps_is_told_apart() -> None:
    facts = judged({NEXT: 10, TOKENS: 50, MODEL: 10, BACKWARD: 30, LOGGING: 100}, loop=100)
    assert facts.share_of("own code") == pytest.approx(0.25, abs=0.02)
    assert [line.function for line in facts.step_lines] == ["tokenise"]


def test_a_few_samples_may_be_chance() -> None:
    facts = judged({NEXT: 10, TOKENS: 2, MODEL: 58, BACKWARD: 30, LOGGING: 10}, loop=11)
    assert facts.share_of("own code") == 0


@pytest.mark.parametrize(
    "source",
    [
        "time.sleep(step_s)",
        "while time.perf_counter() < until: pass",
        "hidden = torch.tanh(x @ weights)",
        "h = x.mm(w1).clamp(min=0)",
        "loss = (out - y) ** 2",
    ],
)
def test_stand_ins_for_a_device_and_tensor_math_are_the_models(source: str) -> None:
    facts = judged({NEXT: 10, TOKENS: 60, BACKWARD: 30}, {"/job/train.py:5": source})
    assert facts.share_of("own code") == 0


def test_waiting_for_the_device_is_not_own_code() -> None:
    facts = judged({NEXT: 10, TOKENS: 60, BACKWARD: 30}, {"/job/train.py:5": "value = x.item()"})
    assert facts.share_of("own code") == 0


def test_a_function_of_torch_is_the_models() -> None:
    loss = ("main (/job/train.py:23)", f"cross_entropy ({SITE}/torch/nn/functional.py:3000)")
    assert judged({NEXT: 10, loss: 60, BACKWARD: 30}).share_of("own code") == 0


def test_a_device_that_holds_the_host_up_in_backward_hides_it() -> None:
    stacks = {NEXT: 10, TOKENS: 50, MODEL: 10, BACKWARD: 30}
    assert judged(stacks).exposed_share_of("own code") == pytest.approx(0.5, abs=0.01)
    assert judged(stacks, host_frac=0.3).exposed_share_of("own code") == 0


def test_without_stacks_nothing_is_claimed() -> None:
    facts = judged({})
    assert facts.share_of("own code") == 0
    assert facts.share_of("forward") == pytest.approx(0.6, abs=0.01)


def test_stacks_that_part_in_different_functions_have_no_order() -> None:
    main, other = Frame("main", "/job/train.py", "20"), Frame("fit", "/job/fit.py", "3")
    assert comes_before([main], [other]) is None
    assert comes_before([main], None) is None
    assert comes_before([main], [main]) is None
    assert comes_before([main], [main._replace(line="30")]) is True
    assert comes_before([main], [main._replace(line="3")]) is False


def test_waiting_for_another_thread_is_not_own_code() -> None:
    queue = ("main (/job/train.py:21)", "get (/usr/lib/python3.11/queue.py:171)")
    wait = (*queue, "wait (/usr/lib/python3.11/threading.py:327)")
    facts = judged({queue: 10, wait: 50, BACKWARD: 30})
    assert facts.share_of("own code") == 0


def fed_by_a_thread(stacks: Stacks) -> Facts:
    """Steps of 60 ms without a batch of their own: another thread takes them."""
    lane, reader = Lane(), Lane(tid=TRAINER + 1)
    for _ in range(100):
        lane.gap(60).backward(20).optimizer(20)
        reader.batch(90).gap(10)
    rows = [
        (START_NS, lane.now_ns, TRAINER, TRAINER, list(frames), count)
        for frames, count in stacks.items()
    ]
    return facts_of(make_timeline(lane, reader, stacks=rows))


def test_waiting_for_the_thread_that_takes_the_batches_is_waiting_for_input() -> None:
    wait = ("main (/job/train.py:21)", "wait (/usr/lib/python3.11/threading.py:327)")
    facts = fed_by_a_thread({wait: 50, MODEL: 10, BACKWARD: 40})
    assert isinstance(facts.input.exposed_share, Reading)
    assert facts.input.exposed_share.value == pytest.approx(0.5, abs=0.01)
    assert facts.share_of("input") == pytest.approx(0.5, abs=0.01)
    assert facts.share_of("forward") == pytest.approx(0.1, abs=0.01)


def test_without_stacks_nobody_knows_how_long_a_thread_is_waited_for() -> None:
    assert isinstance(fed_by_a_thread({}).input.exposed_share, Missing)


def test_loading_weights_within_a_step_is_own_code_though_torch_does_it() -> None:
    load = f"Module.load_state_dict ({SITE}/torch/nn/modules/module.py:2500)"
    facts = judged({NEXT: 10, ("main (/job/train.py:21)", load): 50, MODEL: 10, BACKWARD: 30})
    assert facts.share_of("own code") == pytest.approx(0.5, abs=0.01)


def test_code_of_libraries_alone_is_nobodys_own() -> None:
    library = (f"run ({SITE}/launcher/main.py:3)", f"tokenise ({SITE}/tokens/fast.py:5)")
    facts = judged({NEXT: 10, library: 50, MODEL: 10, BACKWARD: 30})
    assert facts.share_of("own code") == 0


def test_weights_that_a_library_loads_are_own_code_without_a_line_of_the_jobs() -> None:
    load = f"Module.load_state_dict ({SITE}/torch/nn/modules/module.py:2500)"
    library = (f"run ({SITE}/launcher/main.py:3)", load)
    facts = judged({NEXT: 10, library: 50, MODEL: 10, BACKWARD: 30})
    assert facts.share_of("own code") == pytest.approx(0.5, abs=0.01)
    assert facts.step_lines == []
