"""Which architectures the planner knows: decoders that attend to all or to a window of tokens.

What works otherwise (encoders, encoder-decoders, state-space and linear-attention layers) is
refused by name; taken for a decoder its numbers would be wrong in silence.

Also here: what a model type has by default and its `config.json` need not say.

Facts of the model types' configuration classes in Transformers; a field that the file has always
counts more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from fuelline.plan.models.config_fields import Fields


_ENCODERS = """
albert bert camembert clip deberta deberta-v2 distilbert electra ernie esm eurobert flaubert hubert
layoutlm layoutlmv3 longformer luke mobilebert modernbert mpnet nomic_bert roberta roformer siglip
squeezebert vit wav2vec2 xlm xlm-roberta xlm-roberta-xl xlnet
"""
_BOTH = """
bart blenderbot fsmt led m2m_100 marian mbart mt5 pegasus prophetnet switch_transformers t5 umt5
whisper
"""
_OTHERWISE = """
bamba falcon_h1 falcon_mamba granitemoehybrid jamba kimi_linear lfm2 mamba mamba2 minimax
minimax_text_01 nemotron_h qwen3_next recurrent_gemma rwkv rwkv5 rwkv6 rwkv7 xlstm zamba zamba2
"""
_TOLD_LAYERS = ("full", "global", "sliding", "local", "chunked", "attention", "moe", "dense")
"""Words of layers that attend, whatever their feed-forward part is."""


def check_architecture(fields: Fields) -> None:
    """Refuse what is not a decoder of attention layers."""
    kind = fields.word("model_type").lower()
    if fields.flag("is_encoder_decoder", default=False) or kind in _BOTH.split():
        raise _refused(fields, kind, "has an encoder before its decoder")
    if kind in _ENCODERS.split() and not fields.flag("is_decoder", default=False):
        raise _refused(fields, kind, "is an encoder: it reads whole texts and writes no tokens")
    if kind in _OTHERWISE.split():
        raise _refused(fields, kind, "has layers that keep a state instead of a cache")
    for name in ("layer_types", "layers_block_type"):
        for word in fields.kinds(name):
            if not any(told in word for told in _TOLD_LAYERS) or "linear" in word:
                raise _refused(fields, kind, f"has layers of the kind '{word}'")


def _refused(fields: Fields, kind: str, what: str) -> InputError:
    named = f"`{kind}` " if kind else "this model "
    return InputError(
        f"{fields.path}: {named}{what}, and only decoders of attention layers are planned for. "
        "`fuelline roofline model.py:build` places the operators of any torch model."
    )


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
