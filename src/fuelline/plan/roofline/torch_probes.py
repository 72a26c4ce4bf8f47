"""What `torch_device` times: products, attention, and all that a layer does besides.

Everything runs as it would in a model, caches included: weights come from a pool that is larger
than them, and what follows a product finds them as the product left them.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from fuelline.plan.roofline.timing import TimedProbe

if TYPE_CHECKING:
    from collections.abc import Callable

ARRAY_BYTES = 256 * 2**20
"""Of the bandwidth's array: several times the last cache of a socket's share."""
POOL_BYTES = 160 * 2**20
"""Of the weights that go round, for the same reason."""
OUTSIDE_BYTES = 2**30
"""Of either on an accelerator: the MI300X has 256 MB of cache behind its memory."""
FULL = 8192
"""Rows, columns and depth of a product that fills an accelerator: 2,048 tiles of 128 x 256, for
132 multiprocessors of an H100 or 304 of an MI300X. The model's own products have a few dozen."""
WIDE, NARROW = (5632, 1024), (1024, 2816)
"""Outputs and inputs of the products of a small model's feed-forward layer, gate and up in one."""
SHAPES = ("wide", "narrow")
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
HEADS, HEAD, CONTEXT = 8, 64, 512
"""Of the attention that is timed."""
WIDTH = 1024
"""Of the layer that is timed without its products."""
TOKENS = 256
"""Rows of that layer: enough that bytes, not dispatch, take the time."""
SMALL_OPERATORS = 4
"""Of a layer in the step model: two norms with residuals, rotation with cache write, gate."""


def array_bytes(device: str) -> int:
    """Size of the bandwidth's array."""
    return ARRAY_BYTES if device == "cpu" else OUTSIDE_BYTES


def _pool_bytes(device: str) -> int:
    return POOL_BYTES if device == "cpu" else OUTSIDE_BYTES


def device_probes(device: str) -> list[TimedProbe]:
    """Bandwidth and dispatch."""
    size = array_bytes(device)
    array = torch.ones(size // 4, device=device)
    other = torch.empty_like(array)
    one = torch.ones(1, device=device)
    return [
        TimedProbe("read", array.sum, size),
        TimedProbe("copy", lambda: other.copy_(array), 2 * size),
        TimedProbe("launch", lambda: one + one),
    ]


def math_probes(kind: str, device: str) -> list[TimedProbe]:
    """All of one precision; running them raises RuntimeError if torch has no kernel for it."""
    dtype = PRECISIONS[kind]
    weights = _make_weights(dtype, device)
    return [
        *_product_probes(kind, weights),
        *(_full_probes(kind, dtype, device) if device != "cpu" else ()),
        *_attention_probes(kind, dtype, device),
        *_layer_probes(kind, weights),
    ]


def _random(*shape: int, dtype: torch.dtype, device: str) -> Any:
    return torch.randn(*shape, device=device).to(dtype)


def _make_weights(dtype: torch.dtype, device: str) -> list[Any]:
    pair = (math.prod(WIDE) + math.prod(NARROW)) * dtype.itemsize
    shapes = (WIDE, NARROW) * max(2, _pool_bytes(device) // pair)
    return [_random(*shape, dtype=dtype, device=device) for shape in shapes]


def _product_probes(kind: str, weights: list[Any]) -> list[TimedProbe]:
    tiny, tiny_weight = weights[0][:1, :16].clone(), weights[0][:16, :16].clone()
    pools = dict(zip(SHAPES, (weights[::2], weights[1::2]), strict=True))
    return [
        TimedProbe(f"{kind} launch", lambda: functional.linear(tiny, tiny_weight)),
        *(
            TimedProbe(
                f"{kind} {shape} {rows}", _goes_round(pool, rows), 2.0 * rows * pool[0].numel()
            )
            for rows in ROWS
            for shape, pool in pools.items()
        ),
    ]


def _full_probes(kind: str, dtype: torch.dtype, device: str) -> list[TimedProbe]:
    """The product that no small one of a model reaches on a large chip."""
    one, other = (_random(FULL, FULL, dtype=dtype, device=device) for _ in range(2))
    return [TimedProbe(f"{kind} full", lambda: functional.linear(one, other), 2.0 * FULL**3)]


def _goes_round(weights: list[Any], rows: int) -> Callable[[], None]:
    """A product a run, with the weights that were used longest ago."""
    turn = itertools.cycle(weights)
    widths = {weight.shape[1] for weight in weights}
    first = weights[0]
    inputs = {
        width: torch.randn(rows, width, device=first.device).to(first.dtype) for width in widths
    }

    def run() -> None:
        weight = next(turn)
        functional.linear(inputs[weight.shape[1]], weight)

    return run


def _attention_probes(kind: str, dtype: torch.dtype, device: str) -> list[TimedProbe]:
    attend = functional.scaled_dot_product_attention
    whole = _random(1, HEADS, CONTEXT, HEAD, dtype=dtype, device=device)
    pairs = CONTEXT * (CONTEXT + 1) / 2
    size = 2 * HEADS * CONTEXT * HEAD * dtype.itemsize
    caches = [
        _random(2, 1, HEADS, CONTEXT, HEAD, dtype=dtype, device=device)
        for _ in range(max(2, _pool_bytes(device) // size // 2))
    ]
    turn = itertools.cycle(caches)
    one = whole[:, :, :1]

    def decode() -> None:
        keys, values = next(turn)
        attend(one, keys, values)

    def prefill() -> None:
        attend(whole, whole, whole, is_causal=True)

    return [
        TimedProbe(f"{kind} prefill", prefill, 4 * pairs * HEADS * HEAD),
        TimedProbe(f"{kind} decode", decode, size),
    ]


def _layer_probes(kind: str, weights: list[Any]) -> list[TimedProbe]:
    """A layer's rest on one token, piece by piece behind products, and alone on many."""
    single, many = (
        OtherOperators(rows, weights[0].dtype, weights[0].device) for rows in (1, TOKENS)
    )
    # As the step model counts: norm and residual 4 widths, twice; gate 3 of 4; rotation, cache 6.
    values = TOKENS * WIDTH * (8 + 12 + 6)
    return [_small_probe(kind, single, weights), TimedProbe(f"{kind} moves", many, values)]


def _small_probe(kind: str, rest: OtherOperators, weights: list[Any]) -> TimedProbe:
    key = f"{kind} small"
    if weights[0].is_cuda:
        # Caches are no matter there, and kernels wait in a queue that a clock between would drain.
        return TimedProbe(key, rest, SMALL_OPERATORS)
    return TimedProbe(key, _goes_round(weights, 1), SMALL_OPERATORS, rest.pieces)


class Norm(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Root mean square, with a gain."""

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH, dtype=dtype, device=device))

    def forward(self, x: Any) -> Any:
        """Over the last dimension."""
        return functional.rms_norm(x, (WIDTH,), self.weight)


class OtherOperators(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """What a decoder layer does besides products and attention, as people write it."""

    def __init__(self, rows: int, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        heads = WIDTH // HEAD
        self.before, self.after = Norm(dtype, device), Norm(dtype, device)
        self.x = _random(1, rows, WIDTH, dtype=dtype, device=device)
        self.projected = _random(1, rows, 3 * WIDTH, dtype=dtype, device=device)
        self.gates = _random(1, rows, 8 * WIDTH, dtype=dtype, device=device)
        self.angles = _random(rows, HEAD, dtype=dtype, device=device)
        self.cache = torch.zeros(2, 1, heads, rows, HEAD, dtype=dtype, device=device)
        self.shape = (1, rows, 3, heads, HEAD)

    @property
    def pieces(self) -> tuple[Callable[[], Any], ...]:
        """What lies between one product and the next."""
        return (self._norm, self._attend, self._add, self._gate)

    def forward(self) -> None:
        """All of them."""
        for piece in self.pieces:
            piece()

    def _norm(self) -> Any:
        return self.before(self.x)

    def _attend(self) -> Any:
        """Without attention itself."""
        query, key, value = self.projected.view(self.shape).transpose(1, 3).unbind(2)
        query, key = self._rotate(query), self._rotate(key)
        self.cache[0, :, :, : key.shape[2]] = key
        self.cache[1, :, :, : key.shape[2]] = value
        return query.transpose(1, 2).reshape(self.x.shape)

    def _add(self) -> Any:
        return self.after(self.x + self.x)

    def _gate(self) -> Any:
        gate, up = self.gates.chunk(2, dim=-1)
        return self.x + (functional.silu(gate) * up)[..., :WIDTH]

    def _rotate(self, part: Any) -> Any:
        left, right = part.chunk(2, dim=-1)
        return part * self.angles + torch.cat((-right, left), dim=-1) * self.angles
