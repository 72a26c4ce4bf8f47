"""FLOPs and bytes by operator equal what torch counts on real modules of tiny sizes."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fuelline.predict.planner.physics.operators import list_operators
from fuelline.predict.planner.physics.work import make_work
from fuelline.predict.planner.train.training import model_flops
from fuelline.schema.models import Model
from fuelline.schema.plans import Parallelism, Slice
from fuelline.schema.precision import parse_precision

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


class Attention(nn.Module):
    """Grouped-query attention by plain products, so that every FLOP is one that torch counts."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        size, self.model = model.head_size, model
        self.qkv = nn.Linear(model.hidden, (model.heads + 2 * model.kv_heads) * size, bias=False)
        self.out = nn.Linear(model.heads * size, model.hidden, bias=False)

    def forward(self, x: torch.Tensor, past: int) -> torch.Tensor:
        batch, new, _ = x.shape
        heads, kv, size = self.model.heads, self.model.kv_heads, self.model.head_size
        q, k, v = self.qkv(x).split([heads * size, kv * size, kv * size], -1)
        q = q.view(batch, new, heads, size).transpose(1, 2)
        k, v = (each.view(batch, new, kv, size).transpose(1, 2) for each in (k, v))
        if past:
            k, v = (torch.cat([torch.zeros(batch, kv, past, size), each], 2) for each in (k, v))
        k, v = (each.repeat_interleave(heads // kv, 1) for each in (k, v))
        mixed = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, new, heads * size))


class LatentAttention(nn.Module):
    """Prefill with expanded heads."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        query = model.nope_dim + model.rope_dim
        self.down = nn.Linear(
            model.hidden, model.q_lora + model.kv_lora + model.rope_dim, bias=False
        )
        self.q_up = nn.Linear(model.q_lora, model.heads * query, bias=False)
        self.kv_up = nn.Linear(
            model.kv_lora, model.heads * (model.nope_dim + model.v_dim), bias=False
        )
        self.out = nn.Linear(model.heads * model.v_dim, model.hidden, bias=False)

    def forward(self, x: torch.Tensor, _: int) -> torch.Tensor:
        m = self.model
        batch, new, _hidden = x.shape
        q, latent, rope = self.down(x).split([m.q_lora, m.kv_lora, m.rope_dim], -1)
        q = self.q_up(q).view(batch, new, m.heads, -1).transpose(1, 2)
        k, v = self.kv_up(latent).view(batch, new, m.heads, -1).split([m.nope_dim, m.v_dim], -1)
        rope = rope.unsqueeze(2).expand(-1, -1, m.heads, -1)
        k = torch.cat([k, rope], -1).transpose(1, 2)
        mixed = torch.softmax(q @ k.transpose(-1, -2), -1) @ v.transpose(1, 2)
        return self.out(mixed.transpose(1, 2).reshape(batch, new, -1))


class FeedForward(nn.Module):
    def __init__(self, model: Model, width: int) -> None:
        super().__init__()
        self.gated = model.gated
        self.up = nn.Linear(model.hidden, width * (model.matrices - 1), bias=False)
        self.down = nn.Linear(width, model.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = self.up(x)
        if self.gated:
            gate, up = up.chunk(2, -1)
            up = torch.sigmoid(gate) * up
        return self.down(up)


class Experts(nn.Module):
    """Every token goes to its two experts."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.router = nn.Linear(model.hidden, model.experts, bias=False)
        self.experts = nn.ModuleList(
            FeedForward(model, model.expert_ffn) for _ in range(model.experts)
        )
        self.shared = FeedForward(model, model.expert_ffn)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        chosen = self.router(flat).topk(self.model.experts_per_token, -1).indices
        out = self.shared(flat)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).any(-1).nonzero().squeeze(-1)
            if len(rows):
                out = out.index_add(0, rows, expert(flat[rows]))
        return out.view_as(x)


class Decoder(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.embed = nn.Embedding(model.vocab, model.hidden)
        attention = LatentAttention if model.latent else Attention
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                [
                    attention(model),
                    Experts(model) if model.experts else FeedForward(model, model.ffn),
                ]
            )
            for _ in range(model.layers)
        )
        self.head = nn.Linear(model.hidden, model.vocab, bias=False)

    def forward(self, tokens: torch.Tensor, past: int = 0, last: bool = False) -> torch.Tensor:
        x = self.embed(tokens)
        for attention, feed in self.blocks:
            x = x + attention(x, past)
            x = x + feed(x)
        return self.head(x[:, -1:] if last else x)


def counted(model: Model, slices: list[Slice], *, all_logits: bool = False) -> float:
    work = make_work(slices, all_logits=all_logits)
    operators = list_operators(model, parse_precision("bf16"), work, Parallelism(), causal=False)
    return sum(op.count * op.flops for op in operators)


def measured(model: Model, tokens: torch.Tensor, past: int = 0) -> float:
    decoder = Decoder(model)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        decoder(tokens, past, last=True)
    return float(counter.get_total_flops())


@pytest.mark.parametrize("model", [DENSE, PLAIN, SPARSE, LATENT], ids=lambda model: model.name)
def test_prefill_flops_equal_what_torch_counts(model: Model) -> None:
    torch.manual_seed(0)
    tokens = torch.randint(0, model.vocab, (3, 17))
    assert counted(model, [Slice(3, 17)]) == pytest.approx(measured(model, tokens), rel=1e-3)


@pytest.mark.parametrize("model", [DENSE, PLAIN, SPARSE], ids=lambda model: model.name)
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
