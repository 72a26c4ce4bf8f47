"""A shape for a model that is known by its size only: as public models of that size are built.

Used for rows of a table that name a model which nobody published a shape of. The result is a guess
and says so in the estimate's assumptions.
"""

from __future__ import annotations

import re

from fuelline.schema.plan.models import Model, find_model, list_models

_HEAD = 128
_FAMILY_TOLERANCE = 0.12
_DENSE_SHARE = 0.8
"""Of its parameters that a token multiplies with: a model below has experts."""


def find_shape(
    name: str,
    params_b: float | None,
    active_b: float | None,
    notes: str = "",
    own: tuple[Model, ...] = (),
) -> tuple[Model, str] | None:
    """By name, by family and size, by the notes, or by size alone; with what was assumed."""
    model = find_model(_without_precision(name), own)
    if model is not None:
        return model, ""
    stated = _from_notes(name, notes)
    if stated is not None:
        return stated, "shape from the notes"
    size, active_b = params_b or _size_in_name(name), active_b or _active_in_name(name)
    if not size or size <= 0 or size > 1e5:
        return None
    relative = _same_family(name, size, active_b or size)
    if relative is not None:
        return relative, f"shape of {relative.name}"
    return guess_shape(name, size, active_b), f"a typical shape for {size:g}B parameters"


_PRECISIONS = re.compile(
    r"[-_ ](?:(?:nv|mx)?fp(?:4|8|16)|bf16|w\d+a\d+|int[48]|[48]-?bit|awq|gptq|gguf|dynamic"
    r"|quantized|block)",
    re.IGNORECASE,
)


def _without_precision(name: str) -> str:
    """A release's name says how its weights are kept; a row has a cell for that."""
    return _PRECISIONS.sub("", name)


def _active_in_name(name: str) -> float | None:
    """`Qwen3-30B-A3B` multiplies with 3B of its parameters."""
    found = re.search(r"[-_ ]A(\d+(?:\.\d+)?)B\b", name)
    return float(found[1]) if found else None


def _size_in_name(name: str) -> float | None:
    found = re.search(r"(\d+(?:\.\d+)?)\s*([bBmMtT])\b", name)
    if not found:
        return None
    return float(found[1]) * {"m": 1e-3, "b": 1.0, "t": 1e3}[found[2].lower()]


def _from_notes(name: str, notes: str) -> Model | None:
    hidden = re.search(r"hidden\s*(?:size)?\s*[:=]?\s*(\d+)", notes)
    layers = re.search(r"layers\s*[:=]?\s*(\d+)", notes)
    if not hidden or not layers:
        return None
    heads = re.search(r"heads\s*[:=]?\s*(\d+)", notes)
    vocab = re.search(r"vocab\w*\s*[:=]?\s*(\d+)", notes)
    return _plain(
        name,
        int(hidden[1]),
        int(layers[1]),
        int(heads[1]) if heads else 0,
        int(vocab[1]) if vocab else 51200,
    )


def _plain(name: str, hidden: int, layers: int, heads: int, vocab: int) -> Model:
    """GPT-style: two feed-forward matrices, four times as wide."""
    heads = heads or max(hidden // _HEAD, 1)
    return Model(
        name=name,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        ffn=4 * hidden,
        vocab=vocab,
        gated=False,
        tied=True,
    )


def _same_family(name: str, size_b: float, active_b: float) -> Model | None:
    """A relative of nearly this size: `MPT-13.01B` is built as `MPT-12.85B`."""
    family = re.split(r"[-_ ]?\d", name, maxsplit=1)[0].lower()
    if not family:
        return None
    dense = active_b > _DENSE_SHARE * size_b
    kin = [
        model
        for model in list_models()
        if model.name.lower().startswith(family) and dense == (not model.experts)
    ]
    near = min(kin, key=lambda model: abs(model.params / 1e9 - size_b), default=None)
    if near is None or abs(near.params / 1e9 / size_b - 1) > _FAMILY_TOLERANCE:
        return None
    return near


def guess_shape(name: str, size_b: float, active_b: float | None = None) -> Model:
    """Width and depth that public dense models of this size have; experts if fewer are active."""
    dense_b = active_b if active_b and active_b < _DENSE_SHARE * size_b else size_b
    # Public models from 0.1 to 500B: width grows as the 0.36th power of the size (4096 at 7B,
    # 16384 at 405B).
    hidden = max(round(4096 * (dense_b / 7) ** 0.36 / _HEAD) * _HEAD, _HEAD)
    vocab = 128_000 if dense_b > 1 else 50_000
    rest = max(dense_b * 1e9 - 2 * vocab * hidden, 0.4e9 * dense_b)
    layers = max(round(rest / (12.2 * hidden**2)), 1)
    heads = hidden // _HEAD
    kv_heads = heads if heads < 8 else 8
    ffn = int(rest / layers - hidden * _HEAD * (2 * heads + 2 * kv_heads)) // (3 * hidden)
    ffn = max(ffn, hidden)
    shape = Model(
        name=name,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        vocab=vocab,
    )
    if dense_b is size_b or dense_b == size_b:
        return shape
    width = max(ffn // 8, 64)
    more = (size_b - dense_b) * 1e9
    experts = 8 + max(round(more / (layers * 3 * hidden * width)), 1)
    return Model(
        name=name,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        vocab=vocab,
        experts=experts,
        experts_per_token=8,
        expert_ffn=width,
    )
