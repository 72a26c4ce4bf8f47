"""Answers that must agree with one another: terms with sums, floors with times, two commands."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from fuelline.plan.physics.constants import shipped_constants
from fuelline.plan.physics.deployment import Deployment
from fuelline.plan.physics.memory import cache_room
from fuelline.plan.physics.rates import find_engine
from fuelline.plan.physics.setup import Setup
from fuelline.plan.serving.answer import Question, answer_serving
from fuelline.plan.serving.chips import line_for_serving, smallest_spread
from fuelline.plan.serving.describing import describe
from fuelline.plan.serving.floor import critical_batch, find_floor, products_limit
from fuelline.plan.serving.search import Wish, find_load
from fuelline.plan.simulation import Arrivals, Lengths, ServiceLimits, Slo, plan_fleet
from fuelline.plan.training.answer import plan_training
from fuelline.plan.training.layouts import TrainWish
from fuelline.plan.training.replicas import held_params, sharded_params
from fuelline.schema.errors import InputError
from fuelline.schema.plan.chips import Chip, find_chip, list_chips
from fuelline.schema.plan.estimates import Parallelism
from fuelline.schema.plan.models import Model, list_models, name_model
from fuelline.schema.plan.precision import parse_precision

CONSTANTS = shipped_constants()
ENGINE = find_engine("vllm", CONSTANTS)
BF16 = parse_precision("bf16")
CHIPS = ("h100", "h200", "mi300x", "tpu-v5p", "groq", "cerebras", "l40s")
WISH = Wish(prompt=1024, output=256)


def deploy(model: Model, chip: Chip, spread: Parallelism) -> Deployment:
    return Deployment(
        model=model, chip=chip, precision=BF16, spread=spread, constants=CONSTANTS, engine=ENGINE
    )


def layouts(model: Model, chip: Chip) -> Iterator[Parallelism]:
    """The smallest that fits, and several ways of cutting it further."""
    few = smallest_spread(model, chip, BF16)
    if few is not None:
        yield few
    if chip.kind == "sram":
        return
    ways = [Parallelism(tp=tp, pp=pp) for tp in (1, 8) for pp in (1, 4)]
    if model.experts:
        ways += [
            Parallelism(tp=tp, dp=max(ep // tp, 1), ep=ep)
            for tp, ep in ((1, 8), (8, 8), (2, 8), (8, 4), (1, 16), (4, 16))
        ]
    for way in ways:
        fits = model.heads % way.tp == 0 and not model.experts % way.ep
        if fits and way != few and cache_room(model, chip, BF16, way) > 0:
            yield way


@pytest.mark.parametrize("name", CHIPS)
def test_the_terms_of_serving_sum_to_what_is_stated(name: str) -> None:
    chip = find_chip(name)
    told = 0
    for model in list_models():
        for spread in list(layouts(model, chip))[:3]:
            for sequences in (None, 1.0):
                found = find_load(deploy(model, chip, spread), replace(WISH, sequences=sequences))
                if found is None:
                    continue
                option = describe(found, WISH)
                for value in (option.tpot_s, option.ttft_s, option.rate_tokens_per_s):
                    value.check()
                    value.check_explained()
                    assert all(term.seconds > 0 for term in value.terms)
                told += 1
    assert told > 20


@pytest.mark.parametrize("name", ["h100", "mi300x", "tpu-v5p"])
def test_the_terms_of_training_sum_to_what_is_stated(name: str) -> None:
    told = 0
    for model in list_models():
        setup = Setup(model=model, chip=find_chip(name), precision=BF16, constants=CONSTANTS)
        wish = TrainWish(
            chips=512, tokens=1e12, recompute="full", microbatch=1.0, jitter_frac=0.02, pp=8
        )
        try:
            found = plan_training(setup, wish)
        except InputError:
            continue
        for value in (found.step_s, found.mfu_frac):
            value.check()
            value.check_explained()
        told += 1
    assert told > 20


def test_host_memory_is_a_term_that_sums_up_as_well() -> None:
    wish = replace(WISH, offload=True)
    for spread in (Parallelism(), Parallelism(tp=2), Parallelism(tp=2, pp=2)):
        found = find_load(deploy(name_model("llama-3.1-405b"), find_chip("h100"), spread), wish)
        assert found is not None
        option = describe(found, wish)
        assert option.tpot_s.limit == "host bus"
        assert 0 < option.host_share < 1
        for value in (option.tpot_s, option.ttft_s, option.rate_tokens_per_s):
            value.check_explained()


@pytest.mark.parametrize("name", CHIPS)
def test_no_layout_is_faster_than_its_floor(name: str) -> None:
    chip = find_chip(name)
    context = WISH.prompt + WISH.output / 2
    for model in list_models():
        for spread in layouts(model, chip):
            replica = deploy(model, chip, spread)
            floor = find_floor(replica, context).seconds
            for sequences in (1.0, 7.0, 300.0):
                found = find_load(replica, replace(WISH, sequences=sequences))
                if found is not None:
                    assert found.load.tpot_s >= floor, (model.name, spread.words, sequences)


def test_experts_on_several_chips_are_read_at_the_same_time() -> None:
    model, chip = name_model("deepseek-v3"), find_chip("h200")
    alone, wide, cut = (
        find_floor(deploy(model, chip, spread), 100)
        for spread in (
            Parallelism(),
            Parallelism(dp=16, ep=16),
            Parallelism(tp=8, dp=2, ep=16),
        )
    )
    assert (alone.expert_chips, wide.expert_chips, cut.expert_chips) == (1, 8, 8)
    assert alone.seconds == pytest.approx(
        (alone.weight_bytes + alone.cache_bytes) / (chip.mem_bytes_per_s or 0)
    )
    saved = alone.expert_bytes * (1 - 1 / 8) / (chip.mem_bytes_per_s or 0)
    assert wide.seconds == pytest.approx(alone.seconds - saved)
    assert cut.seconds == pytest.approx(alone.seconds / 8)


def ask(model: Model, chip: Chip, **values: float) -> Question:
    given = {"in": WISH.prompt, "out": WISH.output, **values}
    return Question(
        model=model,
        precision=BF16,
        chips=(chip,),
        engine=ENGINE,
        limits={},
        values={name: (value,) for name, value in given.items()},
    )


@pytest.mark.parametrize("name", ["llama-3.1-70b", "mixtral-8x7b", "llama-3.1-8b"])
def test_two_commands_say_the_same_of_every_chip(name: str) -> None:
    model, told = name_model(name), 0
    for chip in list_chips():
        line = line_for_serving(model, chip, BF16, WISH, (ENGINE, CONSTANTS))
        if line.spread is None or line.why_not:
            continue
        layout = {"tp": float(line.spread.tp), "pp": float(line.spread.pp)}
        full = answer_serving(ask(model, chip, **layout, ep=1.0), CONSTANTS)
        alone = answer_serving(ask(model, chip, **layout, ep=1.0, batch=1.0), CONSTANTS)
        best = full.options[0]
        assert best.spread == line.spread
        assert full.floor.seconds == pytest.approx(line.floor_s)
        assert best.sequences == line.sequences
        rate, user = line.tokens_per_s_per_chip, line.user_tokens_per_s
        assert rate is not None
        assert user is not None
        rate.check_explained()
        user.check_explained()
        assert best.rate_tokens_per_s.value == pytest.approx(rate.value * best.spread.chips)
        assert 1 / alone.options[0].tpot_s.value == pytest.approx(user.value)
        assert best.joule_per_token == pytest.approx(line.joule_per_token)
        told += 1
    assert told > 20


def test_a_pipeline_delivers_what_its_sequences_make_and_no_more() -> None:
    model, chip = name_model("llama-3.1-70b"), find_chip("groq")
    spread = smallest_spread(model, chip, parse_precision("int8"))
    assert spread is not None
    assert spread.pp > 20
    replica = replace(deploy(model, chip, spread), precision=parse_precision("int8"))
    for sequences in (1.0, 4.0, 16.0):
        found = find_load(replica, replace(WISH, sequences=sequences))
        assert found is not None
        assert found.sequences == sequences
        assert found.per_second <= sequences / found.load.step.seconds
        assert found.load.tpot_s >= found.load.step.seconds
    alone = find_load(replica, replace(WISH, sequences=1.0))
    assert alone is not None
    assert alone.load.tpot_s == pytest.approx(replica.decode(1, 1152).seconds)


@pytest.mark.parametrize(
    ("model", "spread"),
    [
        ("llama-3.1-8b", Parallelism()),
        ("llama-3.1-70b", Parallelism(tp=8, pp=2)),
        ("deepseek-v3", Parallelism(dp=16, ep=16)),
        ("mixtral-8x7b", Parallelism(tp=2)),
    ],
)
def test_the_critical_batch_is_where_the_steps_themselves_turn(
    model: str, spread: Parallelism
) -> None:
    replica = deploy(name_model(model), find_chip("h200"), spread)
    turn = critical_batch(replica)
    assert turn is not None
    per_step = turn / (spread.pp * spread.dp)
    assert products_limit(replica, 1.01 * per_step + 1) == "math"
    assert products_limit(replica, 0.98 * per_step - 1) == "memory bandwidth"


def test_a_step_of_training_is_made_of_whole_micro_batches() -> None:
    for chips in (48, 56, 96, 1000):
        setup = Setup(
            model=name_model("llama-3.1-8b"),
            chip=find_chip("h100"),
            precision=BF16,
            constants=CONSTANTS,
        )
        found = plan_training(setup, TrainWish(chips=chips, tokens=1e12))
        each = found.spread.dp * found.microbatch
        assert found.batch_sequences == found.microbatches * each
        assert found.batch_sequences * found.length == pytest.approx(4e6, rel=0.1)


def test_sharding_holds_every_parameter_somewhere() -> None:
    for name in ("llama-3.1-70b", "deepseek-v3"):
        model = name_model(name)
        for spread in (
            Parallelism(dp=64),
            Parallelism(tp=2, dp=1024, ep=32),
            Parallelism(tp=8, pp=4, dp=16, ep=64),
            Parallelism(tp=4, dp=8, cp=2, ep=8),
        ):
            assert sharded_params(model, spread) * spread.chips >= 0.999 * model.params
            assert held_params(model, spread) >= sharded_params(model, spread)


@pytest.mark.parametrize(
    ("model", "chip", "spread"),
    [
        ("llama-3.1-8b", "h100", Parallelism()),
        ("llama-3.1-70b", "h100", Parallelism(tp=8)),
        ("llama-3.1-70b", "h100", Parallelism(tp=2, pp=2)),
        ("deepseek-v3", "h200", Parallelism(dp=16, ep=16)),
        ("mixtral-8x7b", "h200", Parallelism(tp=2, dp=4, ep=8)),
    ],
)
def test_a_simulation_carries_about_what_the_steady_state_does(
    model: str, chip: str, spread: Parallelism
) -> None:
    replica = deploy(name_model(model), find_chip(chip), spread)
    wish = replace(WISH, tpot_s=0.1)
    found = find_load(replica, wish)
    assert found is not None
    steady = found.per_second / WISH.output
    limits = ServiceLimits(
        arrivals=Arrivals(rate_per_s=0.8 * steady),
        prompt=Lengths(mean=WISH.prompt),
        output=Lengths(mean=WISH.output),
        slo=Slo(tpot_s=0.1),
    )
    option = plan_fleet([replica], limits, pools=True).options[0]
    assert option.carries_per_s is not None
    assert 0.7 < option.carries_per_s / option.bought / steady < 1.5
