"""A decoder written plainly in torch, so that torch can count it: products and tensors.

Each part has the name of the planner's operator that stands for it (`part` of a module, or the
word given to `Bytes.add`). Attention is plain products over all pairs. Tokens go to experts in
turn, so that nothing depends on data and full sizes can be counted on the meta device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from fuelline.schema.plan.models import Model


class Bytes:
    """Sizes of the tensors that each part read and wrote, added up."""

    def __init__(self) -> None:
        self.moved: dict[str, float] = {}
        self.weights: dict[str, float] = {}

    def add(self, part: str, *tensors: torch.Tensor) -> None:
        """These were read or written once."""
        size = sum(each.numel() * each.element_size() for each in tensors)
        self.moved[part] = self.moved.get(part, 0.0) + size


class Product(nn.Linear):
    """A matrix product that belongs to a part."""

    def __init__(self, part: str, inner: int, outer: int, seen: Bytes) -> None:
        super().__init__(inner, outer, bias=False)
        self.part, self.seen = part, seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Once through."""
        out = super().forward(x)
        self.seen.add(self.part, x, out)
        size = self.weight.numel() * self.weight.element_size()
        self.seen.weights[self.part] = self.seen.weights.get(self.part, 0.0) + size
        return out


class Attention(nn.Module):
    """Grouped-query attention."""

    part = "attention"

    def __init__(self, model: Model, seen: Bytes) -> None:
        super().__init__()
        size, self.model, self.seen = model.head_size, model, seen
        width = (model.heads + 2 * model.kv_heads) * size
        self.qkv = Product("qkv", model.hidden, width, seen)
        self.out = Product("attention out", model.heads * size, model.hidden, seen)

    def forward(self, x: torch.Tensor, past: int) -> torch.Tensor:
        """Keys of `past` tokens are in the cache; those of the new ones are written into it."""
        batch, new, _ = x.shape
        heads, kv, size = self.model.heads, self.model.kv_heads, self.model.head_size
        q, k, v = self.qkv(x).split([heads * size, kv * size, kv * size], -1)
        self.seen.add("rotary and cache", q, k, v, q, k, v)
        q = q.view(batch, new, heads, size).transpose(1, 2)
        k, v = (each.view(batch, new, kv, size).transpose(1, 2) for each in (k, v))
        self.seen.add(self.part, q, k, v)
        if past:
            before = torch.zeros(batch, kv, past, size, dtype=x.dtype, device=x.device)
            k, v = (torch.cat([before, each], 2) for each in (k, v))
        self.seen.add(self.part, k, v)
        k, v = (each.repeat_interleave(heads // kv, 1) for each in (k, v))
        mixed = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
        self.seen.add(self.part, mixed)
        return self.out(mixed.transpose(1, 2).reshape(batch, new, heads * size))


class LatentAttention(nn.Module):
    """Heads expanded where prompts are read; in the latent space where tokens are written."""

    def __init__(self, model: Model, seen: Bytes) -> None:
        super().__init__()
        self.model, self.seen = model, seen
        self.part = "attention"
        query = model.nope_dim + model.rope_dim
        latent = model.kv_lora + model.rope_dim
        both = model.nope_dim + model.v_dim
        self.down = Product("q and kv down", model.hidden, model.q_lora + latent, seen)
        self.q_up = Product("q up", model.q_lora, model.heads * query, seen)
        self.kv_up = Product("kv up", model.kv_lora, model.heads * both, seen)
        self.into, self.out_of, self.attend = Absorb(seen), Absorb(seen), Attend(seen)
        self.out = Product("attention out", model.heads * model.v_dim, model.hidden, seen)

    def forward(self, x: torch.Tensor, past: int) -> torch.Tensor:
        """One new token decodes, several prefill."""
        m = self.model
        batch, new, _ = x.shape
        q, latent, rope = self.down(x).split([m.q_lora, m.kv_lora, m.rope_dim], -1)
        q = self.q_up(q).view(batch, new, m.heads, -1).transpose(1, 2)
        mixed = (
            self._expanded(q, latent, rope)
            if new > 1
            else self._absorbed(q, torch.cat([latent, rope], -1), past)
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, new, -1))

    def _expanded(self, q: torch.Tensor, latent: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
        m = self.model
        batch, new, _ = latent.shape
        k, v = self.kv_up(latent).view(batch, new, m.heads, -1).split([m.nope_dim, m.v_dim], -1)
        # The kernel reads and writes the cache as it is kept: latent and rotary part.
        self.seen.add("attention", q, latent, rope, latent, rope)
        rope = rope.unsqueeze(2).expand(-1, -1, m.heads, -1)
        k = torch.cat([k, rope], -1).transpose(1, 2)
        mixed = torch.softmax(q @ k.transpose(-1, -2), -1) @ v.transpose(1, 2)
        self.seen.add("attention", mixed)
        return mixed

    def _absorbed(self, q: torch.Tensor, fresh: torch.Tensor, past: int) -> torch.Tensor:
        """`kv up` is multiplied into the query and out of the result, head by head."""
        m = self.model
        up = self.kv_up.weight.view(m.heads, m.nope_dim + m.v_dim, m.kv_lora)
        keys, values = up.split([m.nope_dim, m.v_dim], 1)
        nope, rope = q.split([m.nope_dim, m.rope_dim], -1)
        before = torch.zeros(len(fresh), past, fresh.shape[-1], dtype=q.dtype, device=q.device)
        cache = torch.cat([before, fresh], 1)
        near = torch.cat([self.into(nope, keys), rope], -1)  # batch, heads, 1, latent
        mixed = self.attend(near, cache, m.kv_lora)
        self.seen.add("latent attention", fresh)  # written into the cache
        return self.out_of(mixed, values.transpose(-1, -2))


class Absorb(nn.Module):
    """Every head's row times this head's matrix: batch, heads, 1, inner."""

    part = "absorbed kv up"

    def __init__(self, seen: Bytes) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, x: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
        """One of the two products."""
        out = (x.squeeze(2).transpose(0, 1) @ matrices).transpose(0, 1).unsqueeze(2)
        self.seen.add(self.part, x, out)
        size = matrices.numel() * matrices.element_size()
        self.seen.weights[self.part] = self.seen.weights.get(self.part, 0.0) + size
        return out


class Attend(nn.Module):
    """All heads look at the same latent cache."""

    part = "latent attention"

    def __init__(self, seen: Bytes) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, near: torch.Tensor, cache: torch.Tensor, width: int) -> torch.Tensor:
        """Scores over all of the cache, values from its first `width` columns."""
        scores = torch.softmax(near.squeeze(2) @ cache.transpose(-1, -2), -1)
        mixed = (scores @ cache[..., :width]).unsqueeze(2)
        self.seen.add(self.part, near, cache, mixed)
        return mixed


class FeedForward(nn.Module):
    """With or without a gate."""

    def __init__(self, part: str, model: Model, width: int, seen: Bytes) -> None:
        super().__init__()
        self.gated, self.part, self.seen = model.gated, part, seen
        self.up = Product(f"{part} up", model.hidden, width * (model.matrices - 1), seen)
        self.down = Product(f"{part} down", width, model.hidden, seen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Once through."""
        up = self.up(x)
        self.seen.add(f"{self.part} activation", up)
        if self.gated:
            gate, up = up.chunk(2, -1)
            up = torch.sigmoid(gate) * up
        self.seen.add(f"{self.part} activation", up)
        return self.down(up)


class Experts(nn.Module):
    """Token after token takes the next experts in turn."""

    def __init__(self, model: Model, seen: Bytes) -> None:
        super().__init__()
        self.model, width = model, model.expert_ffn
        self.router = Product("router", model.hidden, model.experts, seen)
        self.experts = nn.ModuleList(
            FeedForward("experts", model, width, seen) for _ in range(model.experts)
        )
        shared = width * model.shared_experts
        self.shared = FeedForward("shared expert", model, shared, seen) if shared else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Every expert its rows."""
        flat = x.reshape(-1, x.shape[-1])
        self.router(flat)
        out = self.shared(flat) if self.shared is not None else torch.zeros_like(flat)
        chosen, many = self.model.experts_per_token, self.model.experts
        for number, expert in enumerate(self.experts):
            rows = [row for row in range(len(flat)) if (number - row * chosen) % many < chosen]
            if rows:
                places = torch.tensor(rows, device=x.device)
                out = out.index_add(0, places, expert(flat.index_select(0, places)))
        return out.view_as(x)


class Decoder(nn.Module):
    """All layers; `seen` holds what they moved."""

    def __init__(self, model: Model, seen: Bytes | None = None) -> None:
        super().__init__()
        self.seen = seen or Bytes()
        self.embed = nn.Embedding(model.vocab, model.hidden)
        attention = LatentAttention if model.latent else Attention
        self.blocks = nn.ModuleList(
            nn.ModuleList([attention(model, self.seen), self._feed(model, number)])
            for number in range(model.layers)
        )
        self.head = Product("output projection", model.hidden, model.vocab, self.seen)

    def _feed(self, model: Model, number: int) -> nn.Module:
        if model.experts and number >= model.dense_layers:
            return Experts(model, self.seen)
        return FeedForward("ffn", model, model.ffn, self.seen)

    def forward(self, tokens: torch.Tensor, past: int = 0, *, last: bool = False) -> Any:
        """Logits of the last token, or of all."""
        x = self.embed(tokens)
        self.seen.add("embedding", x, x)
        for attention, feed in self.blocks:
            for part, more in ((attention, (past,)), (feed, ())):
                y = part(x, *more)
                self.seen.add("norm and residual", x, y, x, y)  # read both, write sum and norm
                x = x + y
        return self.head(x[:, -1:] if last else x)
