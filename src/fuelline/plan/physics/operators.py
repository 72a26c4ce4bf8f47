"""All operators of one forward step of a transformer on one chip, with their FLOPs and bytes.

Matrices are cut by `tp`, experts by `ep` (or by `tp`, if experts are not spread), layers are not
cut: a pipeline divides the sum, not the rows.

Also here: operators of attention on one chip: grouped-query (and its special cases) and latent.

Latent attention prefills with expanded heads and decodes in the latent space, as all engines do.
Fewer cache heads than chips are repeated, and a latent cache is never cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.plan.physics.expert_operators import experts, feed_forward
from fuelline.plan.physics.kernels import ACT_BYTES, Operator, attention_format, half, matmul
from fuelline.plan.physics.work import make_work

if TYPE_CHECKING:
    from fuelline.plan.physics.kernels import Format
    from fuelline.plan.physics.work import StepWork
    from fuelline.schema.plan.estimates import Parallelism
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision


REPEATED_UP_TO = 8
"""Larger tensor-parallel groups cut activations as well (arXiv 2211.05102); smaller ones repeat
norms."""


def list_operators(
    model: Model,
    precision: Precision,
    work: StepWork,
    spread: Parallelism,
    route_launches: float = 10.0,
    *,
    causal: bool = True,
) -> list[Operator]:
    """All operators of one forward step on one chip."""
    tp = spread.tp
    operators = [
        *attention(model, precision, work, tp, causal=causal),
        *_small(model, work, spread),
    ]
    dense = model.layers - model.moe_layers
    if dense:
        operators += feed_forward("ffn", model, precision, work.rows, (dense, model.ffn / tp))
    if model.moe_layers:
        operators += experts(model, precision, work, spread, route_launches)
    vocab = model.vocab / tp
    head = work.logit_rows
    operators.append(
        Operator(
            name="output projection",
            kind="matmul",
            count=1,
            math=half(precision),
            flops=2 * head * model.hidden * vocab,
            weight_bytes=model.hidden * vocab * precision.plain_bits / 8,
            moved_bytes=ACT_BYTES * head * (model.hidden + vocab),
            inner=model.hidden,
            rows=head,
        )
    )
    return operators


def _small(model: Model, work: StepWork, spread: Parallelism) -> list[Operator]:
    """Norms with their residual sums (two per layer), rotary embedding with the cache write."""
    cut = spread.tp if spread.shared_norms or spread.tp > REPEATED_UP_TO else 1
    wide = ACT_BYTES * work.rows * model.hidden / cut
    heads = ACT_BYTES * work.rows * model.head_size * (model.heads + 2 * model.kv_heads)
    heads /= min(spread.tp, model.heads)
    return [
        Operator(name=name, kind="elementwise", count=count, math="bf16", moved_bytes=moved_bytes)
        for name, count, moved_bytes in (
            ("norm and residual", 2 * model.layers, 4 * wide),
            ("rotary and cache", model.layers, 2 * heads),
            ("embedding", 1, 2 * wide),
        )
    ]


def attention(
    model: Model, precision: Precision, work: StepWork, tp: int, *, causal: bool
) -> list[Operator]:
    """Projections and attention itself, all layers."""
    if model.latent:
        return _latent_attention(model, precision, work, tp, causal=causal)
    form = attention_format(model, precision)
    size, hidden, rows = model.head_size, model.hidden, work.rows
    heads = model.heads / tp
    kv_heads = max(model.kv_heads / tp, 1.0)
    operators = [
        matmul("qkv", model.layers, rows, (hidden, (heads + 2 * kv_heads) * size), form),
        matmul("attention out", model.layers, rows, (heads * size, hidden), form),
    ]
    for name, layers, window in (
        ("attention", model.global_layers, 0),
        ("window attention", model.layers - model.global_layers, model.window),
    ):
        if layers:
            operators.append(
                Operator(
                    name=name,
                    kind="attention",
                    count=layers,
                    math=half(precision),
                    flops=4 * work.pairs(window, causal=causal) * heads * size,
                    moved_bytes=2
                    * kv_heads
                    * size
                    * precision.kv_bytes
                    * (work.cached(window) + rows)
                    + 2 * ACT_BYTES * rows * heads * size,
                )
            )
    return operators


def _latent_attention(
    model: Model, precision: Precision, work: StepWork, tp: int, *, causal: bool
) -> list[Operator]:
    form = attention_format(model, precision)
    layers, rows, hidden = model.layers, work.rows, model.hidden
    heads = model.heads / tp
    query = model.nope_dim + model.rope_dim
    latent = model.kv_lora + model.rope_dim
    operators = []
    if model.q_lora:
        operators.append(
            matmul("q and kv down", layers, rows, (hidden, model.q_lora + latent), form)
        )
        operators.append(matmul("q up", layers, rows, (model.q_lora, heads * query), form))
    else:
        operators.append(
            matmul("q and kv down", layers, rows, (hidden, heads * query + latent), form)
        )
    prompts = [part for part in work.slices if part.new > 1]
    prefilling = sum(part.count * part.new for part in prompts)
    decoding = rows - prefilling
    both = model.nope_dim + model.v_dim
    if prefilling:
        operators.append(matmul("kv up", layers, prefilling, (model.kv_lora, heads * both), form))
    if decoding:
        operators.append(_absorbed(model, decoding, heads, form))
    operators.append(matmul("attention out", layers, rows, (heads * model.v_dim, hidden), form))
    steps = [part for part in work.slices if part.new <= 1]
    for name, slices, tokens, width in (
        ("attention", prompts, prefilling, query + model.v_dim),
        ("latent attention", steps, decoding, latent + model.kv_lora),
    ):
        if not slices:
            continue
        part = make_work(slices)
        operators.append(
            Operator(
                name=name,
                kind="attention",
                count=layers,
                math=half(precision),
                flops=2 * part.pairs(causal=causal) * heads * width,
                moved_bytes=latent * precision.kv_bytes * (part.cached() + tokens)
                + ACT_BYTES * tokens * heads * width,
            )
        )
    return operators


def _absorbed(model: Model, rows: float, heads: float, form: Format) -> Operator:
    """`kv up` of a decoding step: into the query and out of the result, head by head.

    The weights are those of `kv up`, but every head's row is as wide as the latent space.
    """
    both = model.nope_dim + model.v_dim
    plain = matmul("absorbed kv up", model.layers, rows, (model.kv_lora, heads * both), form)
    return replace(plain, moved_bytes=ACT_BYTES * rows * heads * (both + 2 * model.kv_lora))
