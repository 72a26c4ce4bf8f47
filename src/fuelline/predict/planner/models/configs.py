"""A model from what the user has: a Hugging Face `config.json`, a TOML entry, or a name.

Many releases spell the same number differently (`n_embd`, `d_model`, `hidden_size`); all spellings
are tried in order. A number that is needed and not there is named; nothing is invented for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from fuelline.schema.errors import InputError
from fuelline.schema.models import Model, name_model, read_models
from fuelline.schema.precision import Precision, parse_precision

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
_MOST = 1_000_000
_PLAUSIBLE = {"hidden": 1_000_000, "layers": 10_000, "heads": 100_000, "vocab": 10_000_000}


class Loaded(Struct, frozen=True, kw_only=True):
    """A model and the precision that its weights are published in, if the file says so."""

    model: Model
    precision: Precision | None = None

    @property
    def quantised(self) -> bool:
        """Published in less than half precision."""
        return self.precision is not None and self.precision.weight_bits < 16


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
    _check(models[0], path)
    return _named(models[0])


def read_config(path: Path) -> Loaded:
    """A `config.json`."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. Check the path.") from error
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is no JSON: {error}. Give the model's config.json.") from error
    if not isinstance(config, dict):
        raise InputError(
            f"{path} is a {type(config).__name__}, not a configuration. Give the model's "
            "config.json."
        )
    for key in _NESTED:
        if isinstance(config.get(key), dict):
            config = {**config, **config[key]}
    model = _shape(config, path)
    _check(model, path)
    return Loaded(model=model, precision=_precision(config))


def _number(config: dict[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, list) and value and isinstance(value[0], int):
            value = value[0]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return int(value)
    return None


def _needed(config: dict[str, Any], names: tuple[str, ...], path: Path) -> int:
    value = _number(config, names)
    if value is None:
        raise InputError(
            f"{path} does not say `{names[0]}` (nor {', '.join(names[1:])}), so FLOPs and bytes "
            "cannot be "
            "counted. Add it, or give the shape as a [[model]] entry: see docs/plan.md."
        )
    return value


def _shape(config: dict[str, Any], path: Path) -> Model:
    hidden = _needed(config, _HIDDEN, path)
    heads = _needed(config, _HEADS, path)
    kind = str(config.get("model_type", "")).lower()
    experts = _number(config, _EXPERTS) or 0
    ffn = _number(config, _FFN)
    gated = kind not in _TWO_MATRICES
    if ffn is None:
        ffn = 4 * hidden if not gated else _needed(config, _FFN, path)
    kv_heads = _kv_heads(config, heads)
    layers = _needed(config, _LAYERS, path)
    return Model(
        name=str(config.get("_name_or_path") or path.resolve().parent.name or path.name),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        vocab=_needed(config, ("vocab_size", "n_vocab"), path),
        ffn=ffn,
        head_dim=_number(config, ("head_dim", "kv_channels", "attention_head_dim")) or 0,
        gated=gated,
        tied=bool(config.get("tie_word_embeddings", not gated)),
        **_expert_fields(config, experts, ffn, layers, path),
        **_latent_fields(config, heads),
        **_window_fields(config, layers),
    )


def _kv_heads(config: dict[str, Any], heads: int) -> int:
    if config.get("multi_query") is True and not config.get("new_decoder_architecture"):
        return 1
    return _number(config, _KV_HEADS) or heads


def _expert_fields(
    config: dict[str, Any], experts: int, ffn: int, layers: int, path: Path
) -> dict[str, Any]:
    if experts <= 1:
        return {}
    chosen = _needed(config, _CHOSEN, path)
    first = _number(config, ("first_k_dense_replace", "moe_layer_start_index")) or 0
    every = (
        _number(config, ("moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step")) or 1
    )
    sparse = -(-(layers - first) // max(every, 1))
    quantised = config.get("quantization_config") or {}
    return {
        "experts": experts,
        "experts_per_token": chosen,
        "expert_ffn": _number(config, _EXPERT_FFN) or ffn,
        "shared_experts": _number(config, ("n_shared_experts", "num_shared_experts")) or 0,
        "dense_layers": layers - sparse,
        "expert_bits": 4.25 if "mxfp4" in str(quantised.get("quant_method", "")).lower() else 0.0,
    }


def _latent_fields(config: dict[str, Any], heads: int) -> dict[str, Any]:
    rank = _number(config, ("kv_lora_rank",))
    if not rank:
        return {}
    size = (_number(config, ("hidden_size",)) or 0) // max(heads, 1)
    return {
        "kv_lora": rank,
        "q_lora": _number(config, ("q_lora_rank",)) or 0,
        "rope_dim": _number(config, ("qk_rope_head_dim",)) or 64,
        "nope_dim": _number(config, ("qk_nope_head_dim",)) or size,
        "v_dim": _number(config, ("v_head_dim",)) or size,
    }


def _window_fields(config: dict[str, Any], layers: int) -> dict[str, Any]:
    window = _number(config, ("sliding_window", "attention_window", "window_size"))
    if not window or config.get("use_sliding_window") is False:
        return {}
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        seen = sum("full" in str(kind) or "global" in str(kind) for kind in kinds)
        return {"window": window, "global_every": round(layers / seen) if seen else 0}
    return {"window": window, "global_every": _number(config, ("sliding_window_pattern",)) or 0}


def _precision(config: dict[str, Any]) -> Precision | None:
    """Of the published weights: a quantisation, else the data type."""
    quantised = config.get("quantization_config") or config.get("compression_config")
    words: list[str] = []
    if isinstance(quantised, dict):
        method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "")
        bits = _number(quantised, ("bits", "w_bit", "weight_bits"))
        words = [
            method,
            f"int{bits}-wo" if bits == 8 else f"int{bits}" if bits else "",
            method.split("-", maxsplit=1)[0],
        ]
        if quantised.get("load_in_8bit"):
            words.insert(0, "int8")
        if quantised.get("load_in_4bit"):
            words.insert(0, "int4")
    words.append(str(config.get("torch_dtype") or config.get("dtype") or ""))
    for word in words:
        if not word:
            continue
        try:
            return parse_precision(word)
        except InputError:
            continue
    return None


def _check(model: Model, path: Path) -> None:
    """Refuse what no model has; a typing error must not become a plan."""
    for name, most in _PLAUSIBLE.items():
        value = getattr(model, name)
        if not 1 <= value <= most:
            raise InputError(f"{path}: {name} is {value:,}; a model has between 1 and {most:,}.")
    if model.kv_heads < 1 or model.heads % model.kv_heads:
        raise InputError(
            f"{path}: {model.heads} attention heads cannot share {model.kv_heads} key-value heads "
            "evenly."
        )
    if model.experts and not 1 <= model.experts_per_token <= model.experts:
        raise InputError(
            f"{path}: {model.experts_per_token} of {model.experts} experts a token is not possible."
        )
    if not 0 <= model.ffn <= _MOST or not 0 <= model.expert_ffn <= _MOST:
        raise InputError(
            f"{path}: a feed-forward width of {model.ffn or model.expert_ffn:,} is not plausible."
        )
