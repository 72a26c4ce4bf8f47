"""A Llama-shaped decoder of 347 million random weights in plain torch: what `roofline_cpu` times.

Nothing of Fuelline is in it. Attention is torch's own kernel; the cache has its full length from
the start, and a decode step writes its last place. It holds numbers: pages of untouched zeros
would be one page of memory, which no cache ever misses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

HIDDEN, LAYERS, HEADS, FFN, VOCAB = 1024, 22, 16, 2816, 32000
HEAD = HIDDEN // HEADS


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (HIDDEN,), self.weight)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = Norm(), Norm()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.up = nn.Linear(HIDDEN, 2 * FFN, bias=False)
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Tensor, at: int) -> Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.before(x)).view(batch, length, 3, HEADS, HEAD).transpose(1, 3)
        query, key, value = parts.unbind(2)
        query, key = rotate(query, *turn), rotate(key, *turn)
        cache[0, :, :, at : at + length] = key
        cache[1, :, :, at : at + length] = value
        keys, values = cache[:, :, :, : at + length].unbind(0)
        seen = functional.scaled_dot_product_attention(query, keys, values, is_causal=length > 1)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, HIDDEN))
        gate, wide = self.up(self.after(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * wide)


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens: Tensor, caches: list[Tensor], at: int) -> Tensor:
        x = self.embedding(tokens)
        angles = torch.arange(at, at + tokens.shape[1]).outer(torch.logspace(0, -4, HEAD // 2))
        both = torch.cat((angles, angles), dim=-1)
        turn = both.cos().to(x.dtype), both.sin().to(x.dtype)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, turn, cache, at)
        return self.head(self.norm(x[:, -1]))


def make_caches(batch: int, length: int, dtype: Any) -> list[Tensor]:
    page = torch.randn(2, 1, HEADS, length, HEAD).to(dtype)
    return [page.repeat(1, batch, 1, 1, 1) for _ in range(LAYERS)]
