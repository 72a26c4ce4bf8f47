"""The shape of a transformer: what its FLOPs, bytes and cache follow from. Facts, not weights.

One `Model` describes dense, grouped-query, multi-query, latent-attention (MLA), mixture-of-experts
and sliding-window decoders. Parameter counts are derived from the shape; a table that states
another count keeps it in `stated_params_b` so that the two can be compared. Figures:
`catalogue/models.toml`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.schema.errors import InputError
from fuelline.schema.plan.catalogue import dotted, nearest, plain, read_own, read_shipped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decoder's shape."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    ffn: int = 0
    """Width of a dense feed-forward layer (of the first layers only in most MoE models)."""
    head_dim: int = 0
    """0: hidden / heads."""
    gated: bool = True
    """Three matrices in a feed-forward layer (SwiGLU and kin), not two."""
    tied: bool = False
    """The output projection shares the embedding's memory."""
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    """Experts that see every token, each `expert_ffn` wide."""
    dense_layers: int = 0
    """Layers of an MoE model that have a dense feed-forward layer instead."""
    kv_lora: int = 0
    """Above 0: latent attention; the cache holds `kv_lora + rope_dim` a token and layer."""
    q_lora: int = 0
    rope_dim: int = 0
    nope_dim: int = 0
    v_dim: int = 0
    window: int = 0
    """Sliding-window length; 0: every layer sees all."""
    global_every: int = 0
    """Every n-th layer sees all; 0 with a window: none does."""
    aliases: tuple[str, ...] = ()
    expert_bits: float = 0.0
    """Published weights: bits a weight of the experts, where the release is quantised (gpt-oss)."""
    stated_params_b: float = 0.0
    source: str = ""
    published: str = ""
    """Precision of the release's weights where it is below half, such as `fp8`."""

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden // max(self.heads, 1)

    @property
    def latent(self) -> bool:
        """Multi-head latent attention."""
        return self.kv_lora > 0

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def matrices(self) -> int:
        """Matrices of one feed-forward layer."""
        return 3 if self.gated else 2

    @property
    def global_layers(self) -> int:
        """Layers whose attention sees the whole context."""
        if not self.window:
            return self.layers
        return self.layers // self.global_every if self.global_every else 0

    @property
    def attention_params(self) -> int:
        """Weights of one layer's attention."""
        if self.latent:
            query = self.nope_dim + self.rope_dim
            from_hidden = self.q_lora if self.q_lora else self.heads * query
            up = self.q_lora * self.heads * query if self.q_lora else 0
            down = self.hidden * (self.kv_lora + self.rope_dim)
            value = self.kv_lora * self.heads * (self.nope_dim + self.v_dim)
            return (
                self.hidden * from_hidden
                + up
                + down
                + value
                + self.heads * self.v_dim * self.hidden
            )
        return self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)

    @property
    def expert_params(self) -> int:
        """Weights of one expert."""
        return self.matrices * self.hidden * self.expert_ffn

    @property
    def embedding_params(self) -> int:
        """Input embedding, and the output projection unless it is the same memory."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def params(self) -> int:
        """All weights that are matrices (norms and biases are below 0.1 %)."""
        dense = (self.layers - self.moe_layers) * self.matrices * self.hidden * self.ffn
        experts = self.moe_layers * (
            (self.experts + self.shared_experts) * self.expert_params + self.hidden * self.experts
        )
        return self.layers * self.attention_params + dense + experts + self.embedding_params

    @property
    def active_params(self) -> int:
        """Weights that one token multiplies with; neither idle experts nor the input embedding."""
        idle = self.moe_layers * (self.experts - self.experts_per_token) * self.expert_params
        return self.params - idle - (0 if self.tied else self.vocab * self.hidden)

    def kv_values(self, context: float) -> float:
        """Cached values of one sequence of this length, all layers."""
        width = self.kv_lora + self.rope_dim if self.latent else 2 * self.kv_heads * self.head_size
        if not self.window:
            return self.layers * width * context
        seen = min(context, self.window)
        local = self.layers - self.global_layers
        return width * (self.global_layers * context + local * seen)


class _Models(Struct, forbid_unknown_fields=False):
    model: tuple[Model, ...] = ()


@cache
def list_models() -> tuple[Model, ...]:
    """All named models that ship with the package."""
    return read_shipped("models.toml", _Models).model


def read_models(path: Path) -> tuple[Model, ...]:
    """The `[[model]]` entries of a user's file."""
    return read_own(path, _Models).model


@cache
def _by_spelling(own: tuple[Model, ...]) -> dict[str, Model]:
    """Every name as it is dotted, and without dots where no other is meant by that."""
    found: dict[str, Model] = {}
    for spell in (dotted, plain):
        for model in (*own, *list_models()):
            for name in (model.name, *model.aliases):
                found.setdefault(spell(name), model)
    return found


_TUNED = re.compile(
    r"[-_ ](?:instruct|chat|it|hf|base|preview|thinking|v\d(?:\.\d)?|\d{4})$", re.IGNORECASE
)
"""Ends of names that change the weights and not the shape: how it was tuned, when, by whom."""


def find_model(name: str, own: tuple[Model, ...] = ()) -> Model | None:
    """By name or alias, spelling, publisher and tuning aside; None if there is none."""
    known = _by_spelling(own)
    bare = re.sub(r"^meta-(?=(?:code)?llama)", "", name.rpartition("/")[2], flags=re.IGNORECASE)
    for candidate in (name, *_shortened(bare)):
        # Who leaves dots out means any place of them; who writes one means it there.
        found = known.get(dotted(candidate))
        if found is not None:
            return found
    return None


def _shortened(name: str) -> Iterator[str]:
    """The name, and again with one tuning word less at its end."""
    while name:
        yield name
        shorter = _TUNED.sub("", name)
        if shorter == name:
            return
        name = shorter


def name_model(name: str, own: tuple[Model, ...] = ()) -> Model:
    """Like `find_model`, but an unknown name is refused with its neighbours."""
    model = find_model(name, own)
    if model is not None:
        return model
    close = ", ".join(nearest(name, (each.name for each in (*own, *list_models()))))
    raise InputError(
        f"no model '{name}', and no such file or folder. Nearest names: {close or 'none'}. Give "
        "the "
        "config.json of a Hugging Face model, or your own shape as a [[model]] entry of a TOML "
        "file: --catalogue FILE."
    )
