"""Operators of one step of a transformer on one chip, with their FLOPs and bytes.

Slices of sequences in (some prefilling, some decoding), operators out. A multiply-add is two FLOPs,
as torch's FlopCounterMode counts. Everything is per chip: matrices are cut by `tp`, experts by `ep`
(or by `tp`, if experts are not spread), layers are not cut (a pipeline divides the sum, not the rows).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.models import Model
    from fuelline.schema.plans import Parallelism, Slice
    from fuelline.schema.precision import Precision

ACT_BYTES = 2.0
"""Activations between operators are kept in half precision by every engine that we know."""


REPEATED_UP_TO = 8
"""Larger tensor-parallel groups cut activations as well (arXiv 2211.05102); smaller ones repeat norms."""


class Operator(Struct, frozen=True):
    """One kernel or a few, `count` times a step."""

    name: str
    kind: str
    """`matmul`, `grouped` (many small products in one), `attention`, `elementwise`."""
    count: float
    """How often it runs in a step: mostly once a layer."""
    flops: float
    """Of one run."""
    weight_bytes: float
    moved_bytes: float
    """Activations and cache that one run reads and writes."""
    math: str
    launches: float = 1.0
    packed_bits: float = 0.0
    """Above 0: weights of so many bits are unpacked to half precision before they are multiplied."""
    inner: float = 0.0
    """Length of the sums of a product: short sums do not fill the pipeline of a math unit."""
    rows: float = 0.0
    """Tokens that a product of one matrix takes; 0 for what is no such product."""


class Format(Struct, frozen=True):
    """How the weights of one operator are kept and multiplied."""

    bits: float
    math: str
    packed: bool = False


class Work(Struct, frozen=True):
    """What a step sends through the model, per attention replica."""

    rows: float
    """Tokens."""
    logit_rows: float
    """Tokens whose next token is wanted."""
    slices: tuple[Slice, ...]

    def pairs(self, window: int = 0, *, causal: bool = True) -> float:
        """Query-key pairs of one head in one layer."""
        return sum(
            part.count * _pairs(part.new, part.past, window, causal=causal) for part in self.slices
        )

    def cached(self, window: int = 0) -> float:
        """Keys that have to be read once in one layer."""
        return sum(
            part.count
            * (min(part.past + part.new, window + part.new - 1) if window else part.past + part.new)
            for part in self.slices
        )


def _pairs(new: float, past: float, window: int, *, causal: bool) -> float:
    if not causal:
        return new * (past + new)
    every = new * past + new * (new + 1) / 2
    if not window or past + new <= window:
        return every
    climbing = max(window - past, 0.0)
    return climbing * past + climbing * (climbing + 1) / 2 + (new - climbing) * window


def make_work(slices: Sequence[Slice], *, all_logits: bool = False) -> Work:
    """Sum up slices; training wants every token's logits, serving the last one's."""
    rows = sum(part.count * part.new for part in slices)
    last = sum(part.count for part in slices)
    return Work(rows, rows if all_logits else last, tuple(slices))


def list_operators(
    model: Model,
    precision: Precision,
    work: Work,
    spread: Parallelism,
    route_launches: float = 10.0,
    *,
    causal: bool = True,
) -> list[Operator]:
    """All operators of one forward step on one chip."""
    tp = spread.tp
    operators = [
        *_attention(model, precision, work, tp, causal=causal),
        *_small(model, work, spread),
    ]
    dense = model.layers - model.moe_layers
    if dense:
        operators += _feed_forward("ffn", model, precision, work.rows, dense, model.ffn, tp)
    if model.moe_layers:
        operators += _experts(model, precision, work, spread, route_launches)
    vocab = model.vocab / tp
    head = work.logit_rows
    operators.append(
        Operator(
            "output projection",
            "matmul",
            1,
            2 * head * model.hidden * vocab,
            model.hidden * vocab * precision.plain_bits / 8,
            ACT_BYTES * head * (model.hidden + vocab),
            _half(precision),
            inner=model.hidden,
            rows=head,
        )
    )
    return operators


def _matmul(
    name: str,
    count: float,
    rows: float,
    inner: float,
    outer: float,
    form: Format,
) -> Operator:
    return Operator(
        name,
        "matmul",
        count,
        2 * rows * inner * outer,
        inner * outer * form.bits / 8,
        ACT_BYTES * rows * (inner + outer),
        form.math,
        1.0,
        form.bits if form.packed else 0.0,
        inner,
        rows,
    )


def _half(precision: Precision) -> str:
    return "fp32" if precision.math == "fp32" else "bf16"


def plain_format(precision: Precision) -> Format:
    """What is never quantised: router, and attention of some releases."""
    return Format(precision.plain_bits, _half(precision))


def dense_format(precision: Precision) -> Format:
    """Large matrices."""
    return Format(precision.weight_bits, precision.math, precision.weight_only)


def attention_format(model: Model, precision: Precision) -> Format:
    """4-bit releases of MoE models keep the attention matrices in half precision."""
    if model.expert_bits or (model.experts and precision.math == "fp4"):
        return plain_format(precision)
    return dense_format(precision)


def expert_format(model: Model, precision: Precision) -> Format:
    """A release with 4-bit experts has them at every precision below half."""
    if model.expert_bits and precision.weight_bits < 16:
        return Format(model.expert_bits, "mxfp4")
    return dense_format(precision)


def _attention(
    model: Model, precision: Precision, work: Work, tp: int, *, causal: bool
) -> list[Operator]:
    if model.latent:
        return _latent_attention(model, precision, work, tp, causal=causal)
    form = attention_format(model, precision)
    size, hidden, rows = model.head_size, model.hidden, work.rows
    heads = model.heads / tp
    kv_heads = max(model.kv_heads / tp, 1.0)
    operators = [
        _matmul("qkv", model.layers, rows, hidden, (heads + 2 * kv_heads) * size, form),
        _matmul("attention out", model.layers, rows, heads * size, hidden, form),
    ]
    for name, layers, window in (
        ("attention", model.global_layers, 0),
        ("window attention", model.layers - model.global_layers, model.window),
    ):
        if layers:
            operators.append(
                Operator(
                    name,
                    "attention",
                    layers,
                    4 * work.pairs(window, causal=causal) * heads * size,
                    0.0,
                    2 * kv_heads * size * precision.kv_bytes * (work.cached(window) + rows)
                    + 2 * ACT_BYTES * rows * heads * size,
                    _half(precision),
                )
            )
    return operators


def _latent_attention(
    model: Model, precision: Precision, work: Work, tp: int, *, causal: bool
) -> list[Operator]:
    form = attention_format(model, precision)
    layers, rows, hidden = model.layers, work.rows, model.hidden
    heads = model.heads / tp
    query = model.nope_dim + model.rope_dim
    latent = model.kv_lora + model.rope_dim
    down = hidden * 1.0
    operators = []
    if model.q_lora:
        operators.append(_matmul("q and kv down", layers, rows, down, model.q_lora + latent, form))
        operators.append(_matmul("q up", layers, rows, model.q_lora, heads * query, form))
    else:
        operators.append(_matmul("q and kv down", layers, rows, down, heads * query + latent, form))
    prefilling = sum(part.count * part.new for part in work.slices if part.new > 1)
    decoding = rows - prefilling
    both = model.nope_dim + model.v_dim
    operators.append(_matmul("kv up", layers, rows, model.kv_lora, heads * both, form))
    operators.append(_matmul("attention out", layers, rows, heads * model.v_dim, hidden, form))
    for name, slices, per_pair in (
        ("attention", [part for part in work.slices if part.new > 1], query + model.v_dim),
        (
            "latent attention",
            [part for part in work.slices if part.new <= 1],
            latent + model.kv_lora,
        ),
    ):
        if not slices:
            continue
        part = make_work(slices)
        tokens = prefilling if name == "attention" else decoding
        operators.append(
            Operator(
                name,
                "attention",
                layers,
                2 * part.pairs(causal=causal) * heads * per_pair,
                0.0,
                latent * precision.kv_bytes * (part.cached() + tokens)
                + ACT_BYTES * tokens * heads * (query + model.v_dim),
                _half(precision),
            )
        )
    return operators


def _feed_forward(
    name: str,
    model: Model,
    precision: Precision,
    rows: float,
    layers: float,
    width: float,
    tp: float,
) -> list[Operator]:
    form = dense_format(precision)
    up = (model.matrices - 1) * width / tp
    return [
        _matmul(f"{name} up", layers, rows, model.hidden, up, form),
        _matmul(f"{name} down", layers, rows, width / tp, model.hidden, form),
        Operator(
            f"{name} activation",
            "elementwise",
            layers,
            0.0,
            0.0,
            ACT_BYTES * rows * (up + width / tp),
            "bf16",
        ),
    ]


def expert_share(model: Model, spread: Parallelism) -> tuple[float, float, float]:
    """Experts on this chip, attention replicas that send tokens to it, and the cut of a width."""
    if spread.ep > 1:
        return model.experts / spread.ep, max(spread.ep / spread.tp, 1.0), 1.0
    return float(model.experts), 1.0, float(spread.tp)


def touched_share(experts: float, chosen: float, tokens: float) -> float:
    """Share of the experts that at least one of these tokens goes to, choices being even."""
    return 1 - (1 - chosen / experts) ** tokens if tokens > 0 else 0.0


def _experts(
    model: Model, precision: Precision, work: Work, spread: Parallelism, route_launches: float
) -> list[Operator]:
    form = expert_format(model, precision)
    here, replicas, cut = expert_share(model, spread)
    layers, hidden, width = model.moe_layers, model.hidden, model.expert_ffn / cut
    tokens = work.rows * replicas
    touched = here * touched_share(model.experts, model.experts_per_token, tokens)
    rows = tokens * model.experts_per_token * here / model.experts
    up = (model.matrices - 1) * width
    weights = model.hidden * form.bits / 8 * touched
    half = _half(precision)
    operators = [
        _matmul("router", layers, work.rows, hidden, model.experts, plain_format(precision)),
        Operator(
            "experts up",
            "grouped",
            layers,
            2 * rows * hidden * up,
            weights * up,
            ACT_BYTES * rows * (hidden + up),
            form.math,
            1.0,
            form.bits if form.packed else 0.0,
            hidden,
        ),
        Operator(
            "experts down",
            "grouped",
            layers,
            2 * rows * width * hidden,
            weights * width,
            ACT_BYTES * rows * (width + hidden),
            form.math,
            1.0,
            form.bits if form.packed else 0.0,
            width,
        ),
        Operator(
            "route and combine",
            "elementwise",
            layers,
            0.0,
            0.0,
            ACT_BYTES * rows * (2 * hidden + up + width),
            half,
            route_launches,
        ),
    ]
    if model.shared_experts:
        shared = model.shared_experts * model.expert_ffn
        operators += _feed_forward(
            "shared expert", model, precision, work.rows, layers, shared, spread.tp
        )
    return operators


def _small(model: Model, work: Work, spread: Parallelism) -> list[Operator]:
    """Norms with their residual sums (two a layer), rotary embedding with the cache write."""
    cut = spread.tp if spread.shared_norms or spread.tp > REPEATED_UP_TO else 1
    wide = ACT_BYTES * work.rows * model.hidden / cut
    heads = ACT_BYTES * work.rows * model.head_size * (model.heads + 2 * model.kv_heads)
    heads /= min(spread.tp, model.heads)
    return [
        Operator("norm and residual", "elementwise", 2 * model.layers, 0.0, 0.0, 4 * wide, "bf16"),
        Operator("rotary and cache", "elementwise", model.layers, 0.0, 0.0, 2 * heads, "bf16"),
        Operator("embedding", "elementwise", 1, 0.0, 0.0, 2 * wide, "bf16"),
    ]
