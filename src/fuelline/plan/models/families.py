"""What a model type has by default and its `config.json` need not say.

Facts of the model types' configuration classes in Transformers; a field that the file has always
counts more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuelline.plan.models.config_fields import Fields

TIED = ("gemma", "cohere")
"""Types whose output projection is the embedding unless the file says otherwise."""
GLOBAL_EVERY = {"gemma2": 2, "gemma3": 6, "cohere2": 4, "gpt_oss": 2}
"""Every n-th layer sees all, of types that have windows between; by how the type begins."""
LLAMA4_GLOBAL_EVERY = 4
"""Llama 4: three layers in four attend within chunks."""


def kind_of(fields: Fields) -> str:
    """The model type, in small letters."""
    return fields.word("model_type").lower()


def is_llama4(fields: Fields) -> bool:
    """Its dense layers and its experts have widths of their own, and one expert sees all tokens."""
    return kind_of(fields).startswith("llama4")


def is_tied(fields: Fields, *, gated: bool) -> bool:
    """Whether the output projection is the embedding; older decoders have it so."""
    default = not gated or kind_of(fields).startswith(TIED)
    return fields.flag("tie_word_embeddings", default=default)


def global_every(fields: Fields) -> int:
    """0: no layer sees more than its window."""
    stated = fields.number("sliding_window_pattern")
    if stated is not None:
        return stated
    kind = kind_of(fields)
    return next((every for name, every in GLOBAL_EVERY.items() if kind.startswith(name)), 0)


def count_shared(fields: Fields, expert_ffn: int) -> int:
    """Experts that see every token, counted in widths of the others."""
    stated = fields.number("n_shared_experts", "num_shared_experts")
    if stated is not None:
        return stated
    wide = fields.number("shared_expert_intermediate_size")
    if wide is not None:
        return max(round(wide / max(expert_ffn, 1)), 1) if wide else 0
    return 1 if is_llama4(fields) else 0
