"""A model from what the user has: a Hugging Face `config.json`, a TOML entry, or a name.

Many releases spell the same number differently (`n_embd`, `d_model`, `hidden_size`); all spellings
are tried in order. A number that is needed and not there is named; nothing is invented for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from fuelline.plan.models.architectures import (
    LLAMA4_GLOBAL_EVERY,
    check_architecture,
    count_shared,
    global_every,
    is_llama4,
    is_tied,
)
from fuelline.plan.models.config_fields import Fields
from fuelline.plan.models.quantisation import read_published
from fuelline.schema.errors import InputError
from fuelline.schema.files import read_given
from fuelline.schema.plan.models import Model, name_model, read_models
from fuelline.schema.plan.precision import Precision, parse_precision

_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_kv_heads",
    "n_head_kv",
    "multi_query_group_num",
)
_FFN = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff")
_DENSE_FFN = ("intermediate_size_mlp",)
_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k_experts")
_EXPERT_FFN = ("moe_intermediate_size", "expert_intermediate_size", "ffn_hidden_size")
_TWO_MATRICES = (
    "gpt2",
    "gptj",
    "gpt_neox",
    "gpt_neo",
    "opt",
    "bloom",
    "falcon",
    "mpt",
    "starcoder2",
    "phi",
    "codegen",
)
"""Model types without a gate in the feed-forward layer."""
_NESTED = ("text_config", "llm_config", "language_config")
MOST_CONFIG_BYTES = 4 << 20
"""Of a config.json: a hundred times the largest public ones, which list labels."""
_MOST = 1_000_000
_PLAUSIBLE = {"hidden": 1_000_000, "layers": 10_000, "heads": 100_000, "vocab": 10_000_000}


class Loaded(Struct, frozen=True, kw_only=True):
    """A model and the precision that its weights are published in, if the file says so."""

    model: Model
    precision: Precision | None = None
    unclear: str = ""
    """How its weights are quantised, where that is not understood."""

    @property
    def quantised(self) -> bool:
        """Published in less than half precision."""
        known = self.precision is not None and self.precision.weight_bits < 16
        return known or bool(self.unclear)


def load_model(word: str, own: tuple[Model, ...] = ()) -> Loaded:
    """By file, folder or name."""
    path = Path(word)
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            raise InputError(
                f"the folder {word} holds no config.json, so the model's shape is not known. Give "
                "the file "
                "itself, or a public name such as llama-3.1-8b."
            )
    if path.is_file():
        return _from_toml(path) if path.suffix == ".toml" else read_config(path)
    if path.suffix in (".json", ".toml") or len(path.parts) > 2:
        raise InputError(f"no such file: {word}. Give a config.json, its folder, or a public name.")
    return _named(name_model(word, own))


def _named(model: Model) -> Loaded:
    _check(model, f"model '{model.name}'")
    published = parse_precision(model.published) if model.published else None
    return Loaded(model=model, precision=published)


def _from_toml(path: Path) -> Loaded:
    models = read_models(path)
    if len(models) != 1:
        raise InputError(
            f"{path} holds {len(models)} [[model]] entries where one is needed. Name one of "
            "several by "
            f"--catalogue {path} and its name."
        )
    return _named(models[0])


def read_config(path: Path) -> Loaded:
    """A `config.json`."""
    try:
        config = json.loads(read_given(path, MOST_CONFIG_BYTES))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. Check the path.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}. Give the model's config.json.") from error
    if not isinstance(config, dict):
        raise InputError(
            f"{path} is a {type(config).__name__}, not a configuration. Give the model's "
            "config.json."
        )
    fields = Fields(config, path)
    check_architecture(fields)
    for key in _NESTED:
        inner = fields.table(key).config
        if inner:
            fields = Fields({**config, **inner}, path)
            check_architecture(fields)
    model = _shape(fields)
    _check(model, str(path))
    precision, unclear = read_published(fields)
    return Loaded(model=model, precision=precision, unclear=unclear)


def _shape(fields: Fields) -> Model:
    hidden, heads, layers = (fields.needed(*names) for names in (_HIDDEN, _HEADS, _LAYERS))
    gated = fields.word("model_type").lower() not in _TWO_MATRICES
    ffn = fields.number(*(_DENSE_FFN if is_llama4(fields) else ()), *_FFN)
    if ffn is None:
        ffn = 4 * hidden if not gated else fields.needed(*_FFN)
    folder = fields.path.resolve().parent.name
    return Model(
        name=fields.word("_name_or_path") or folder or fields.path.name,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=_kv_heads(fields, heads),
        vocab=fields.needed("vocab_size", "n_vocab"),
        ffn=ffn,
        head_dim=fields.number("head_dim", "kv_channels", "attention_head_dim") or 0,
        gated=gated,
        tied=is_tied(fields, gated=gated),
        **_expert_fields(fields, ffn, layers),
        **_latent_fields(fields, hidden // max(heads, 1)),
        **_window_fields(fields, layers),
    )


def _kv_heads(fields: Fields, heads: int) -> int:
    grouped = fields.flag("new_decoder_architecture", default=False)
    if fields.flag("multi_query", default=False) and not grouped:
        return 1
    return fields.number(*_KV_HEADS) or heads


def _expert_fields(fields: Fields, ffn: int, layers: int) -> dict[str, Any]:
    experts = fields.number(*_EXPERTS) or 0
    if experts <= 1:
        return {}
    quantised = fields.table("quantization_config").word("quant_method").lower()
    width = fields.number(*_EXPERT_FFN, *(_FFN if is_llama4(fields) else ())) or ffn
    return {
        "experts": experts,
        "experts_per_token": fields.needed(*_CHOSEN),
        "expert_ffn": width,
        "shared_experts": count_shared(fields, width),
        "dense_layers": layers - _count_sparse(fields, layers),
        "expert_bits": 4.25 if "mxfp4" in quantised else 0.0,
    }


def _count_sparse(fields: Fields, layers: int) -> int:
    """Layers with experts: all but the first few, every n-th, or as a list says."""
    marked = fields.per_layer("moe_layer_freq")
    if marked is not None:
        return sum(each > 0 for each in marked)
    first = fields.number("first_k_dense_replace", "moe_layer_start_index") or 0
    every = fields.number("moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step")
    return -(-(layers - first) // max(every or 1, 1))


def _latent_fields(fields: Fields, size: int) -> dict[str, Any]:
    rank = fields.number("kv_lora_rank")
    if not rank:
        return {}
    return {
        "kv_lora": rank,
        "q_lora": fields.number("q_lora_rank") or 0,
        "rope_dim": fields.number("qk_rope_head_dim") or 64,
        "nope_dim": fields.number("qk_nope_head_dim") or size,
        "v_dim": fields.number("v_head_dim") or size,
    }


def _window_fields(fields: Fields, layers: int) -> dict[str, Any]:
    chunk = fields.number("attention_chunk_size") if is_llama4(fields) else None
    if chunk:
        return {"window": chunk, "global_every": LLAMA4_GLOBAL_EVERY}
    window = fields.number("sliding_window", "attention_window", "window_size")
    if not window or not fields.flag("use_sliding_window", default=True):
        return {}
    kinds = fields.kinds("layer_types")
    if kinds:
        seen = sum("full" in kind or "global" in kind for kind in kinds)
        return {"window": window, "global_every": round(layers / seen) if seen else 0}
    return {"window": window, "global_every": global_every(fields)}


def _check(model: Model, where: str) -> None:
    """Refuse what no model has; a typing error must not become a plan."""
    for name in model.__struct_fields__:
        value = getattr(model, name)
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        least, most = (1 if name in _PLAUSIBLE else 0), _PLAUSIBLE.get(name, _MOST)
        if not least <= value <= most:
            raise InputError(
                f"{where}: {name} is {value:,}; a model has between {least} and {most:,}."
            )
    _check_heads(model, where)
    _check_widths(model, where)
    if model.experts and not 1 <= model.experts_per_token <= model.experts:
        raise InputError(
            f"{where}: {model.experts_per_token} of {model.experts} experts a token is not "
            "possible."
        )
    if model.experts and not 0 <= model.dense_layers < model.layers:
        raise InputError(
            f"{where}: {model.dense_layers} of {model.layers} layers are dense, which leaves none "
            "for the experts."
        )


def _check_widths(model: Model, where: str) -> None:
    dense = model.layers - model.moe_layers
    for name, value, used in (
        ("feed-forward layer", model.ffn, dense > 0),
        ("expert", model.expert_ffn, model.experts > 0),
        ("value of a head", model.v_dim, model.latent),
        ("key of a head", model.nope_dim + model.rope_dim, model.latent),
    ):
        if used and value < 1:
            raise InputError(f"{where}: the {name} is {value} wide; a model has at least 1.")


def _check_heads(model: Model, where: str) -> None:
    if model.kv_heads < 1 or model.heads % model.kv_heads:
        raise InputError(
            f"{where}: {model.heads} attention heads cannot share {model.kv_heads} key-value heads "
            "evenly."
        )
    if not model.head_dim and not model.latent and model.hidden % model.heads:
        raise InputError(
            f"{where}: a hidden size of {model.hidden} does not divide into {model.heads} heads, "
            "and no head_dim is given."
        )
