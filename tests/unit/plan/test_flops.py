"""FLOPs and bytes by operator equal what torch counts on real modules of tiny sizes."""

import pytest
import torch
from bench.counted_decoder import Decoder
from bench.plan_counts import BAR, compare
from torch.utils.flop_counter import FlopCounterMode

from fuelline.plan.physics.operators import list_operators
from fuelline.plan.physics.work import make_work
from fuelline.plan.training.step import model_flops
from fuelline.schema.plan.estimates import Parallelism, Slice
from fuelline.schema.plan.models import Model
from fuelline.schema.plan.precision import parse_precision

DENSE = Model(name="d", hidden=64, layers=3, heads=8, kv_heads=2, ffn=160, vocab=320)
PLAIN = Model(name="p", hidden=48, layers=2, heads=4, kv_heads=4, ffn=192, vocab=100, gated=False)
SPARSE = Model(
    name="s",
    hidden=32,
    layers=2,
    heads=4,
    kv_heads=4,
    vocab=64,
    experts=8,
    experts_per_token=2,
    expert_ffn=48,
    shared_experts=1,
)
LATENT = Model(
    name="l",
    hidden=64,
    layers=2,
    heads=4,
    kv_heads=4,
    ffn=96,
    vocab=80,
    q_lora=24,
    kv_lora=16,
    rope_dim=8,
    nope_dim=16,
    v_dim=12,
)


def counted(model: Model, slices: list[Slice], *, all_logits: bool = False) -> float:
    work = make_work(slices, all_logits=all_logits)
    operators = list_operators(model, parse_precision("bf16"), work, Parallelism(), causal=False)
    return sum(op.count * op.flops for op in operators)


def measured(model: Model, tokens: torch.Tensor, past: int = 0) -> float:
    decoder = Decoder(model).requires_grad_(requires_grad=False)
    with FlopCounterMode(display=False) as counter:
        decoder(tokens, past, last=True)
    return float(counter.get_total_flops())


@pytest.mark.parametrize("model", [DENSE, PLAIN, SPARSE, LATENT], ids=lambda model: model.name)
def test_prefill_flops_equal_what_torch_counts(model: Model) -> None:
    torch.manual_seed(0)
    tokens = torch.randint(0, model.vocab, (3, 17))
    assert counted(model, [Slice(3, 17)]) == pytest.approx(measured(model, tokens), rel=1e-3)


@pytest.mark.parametrize("model", [DENSE, PLAIN, SPARSE, LATENT], ids=lambda model: model.name)
def test_decode_flops_equal_what_torch_counts(model: Model) -> None:
    torch.manual_seed(0)
    tokens = torch.randint(0, model.vocab, (5, 1))
    assert counted(model, [Slice(5, 1, 40)]) == pytest.approx(measured(model, tokens, 40), rel=1e-3)


@pytest.mark.parametrize("model", [DENSE, PLAIN, LATENT], ids=lambda model: model.name)
def test_training_flops_equal_what_torch_counts(model: Model) -> None:
    torch.manual_seed(0)
    decoder, tokens = Decoder(model), torch.randint(0, model.vocab, (2, 24))
    with FlopCounterMode(display=False) as counter:
        decoder(tokens).sum().backward()
    torch_counts = float(counter.get_total_flops())
    assert 3 * counted(model, [Slice(2, 24)], all_logits=True) == pytest.approx(
        torch_counts, rel=1e-3
    )
    assert model_flops(model, 24) * 48 == pytest.approx(torch_counts, rel=1e-3)


@pytest.mark.parametrize("model", [DENSE, PLAIN, SPARSE, LATENT], ids=lambda model: model.name)
def test_weight_bytes_are_those_of_the_modules_parameters(model: Model) -> None:
    decoder = Decoder(model)
    parameters = sum(each.numel() for each in decoder.parameters())
    assert parameters == model.params
    # Many tokens touch every expert; the input embedding is looked up, not multiplied.
    work = make_work([Slice(4096, 1, 0)])
    operators = list_operators(model, parse_precision("bf16"), work, Parallelism())
    read = sum(op.count * op.weight_bytes for op in operators)
    assert read == pytest.approx(2 * (parameters - model.vocab * model.hidden), rel=1e-3)


@pytest.mark.parametrize(("new", "past"), [(16, 0), (1, 40)], ids=["prefill", "decode"])
@pytest.mark.parametrize("model", [DENSE, PLAIN, SPARSE, LATENT], ids=lambda model: model.name)
def test_every_operator_moves_the_bytes_of_its_tensors(model: Model, new: int, past: int) -> None:
    found = compare(model, 64, new, past)
    assert {each.name for each in found} >= {"attention out", "output projection"}
    for each in found:
        assert max(each.differences()) <= BAR, each


def test_tensor_parallelism_cuts_flops_and_weights_evenly() -> None:
    work = make_work([Slice(4, 16)])
    whole, half = (
        list_operators(DENSE, parse_precision("bf16"), work, Parallelism(tp=tp)) for tp in (1, 2)
    )
    for key in ("flops", "weight_bytes"):
        total = sum(op.count * getattr(op, key) for op in whole)
        assert 2 * sum(op.count * getattr(op, key) for op in half) == pytest.approx(total)


def test_a_window_limits_pairs_and_keys() -> None:
    work = make_work([Slice(1, 10, 0)])
    by_hand = sum(min(position, 4) for position in range(1, 11))
    assert work.pairs(4) == by_hand
    assert work.pairs() == 55
    assert make_work([Slice(2, 1, 100)]).cached(8) == 16
