"""Are the planner's FLOPs and bytes those of torch? Operator by operator, at full size.

A plain decoder of each model's shape runs on the meta device (nothing is computed, all is
counted): FLOPs by torch's FlopCounterMode, bytes by the sizes of the tensors that each part reads
and writes. The same for `fuelline roofline`, on a small model with real tensors. About a minute.

    python -m bench.plan_counts
"""

from __future__ import annotations

from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch.utils.flop_counter import FlopCounterMode

from bench import results
from bench.counted_decoder import Bytes, Decoder
from fuelline.plan.physics.operators import list_operators
from fuelline.plan.physics.work import make_work
from fuelline.plan.roofline.torch_operators import OperatorWatch
from fuelline.schema.plan.estimates import Parallelism, Slice
from fuelline.schema.plan.models import Model, name_model
from fuelline.schema.plan.precision import parse_precision

BAR = 0.001
LAYERS = 4
"""Of each model: operators of a layer are alike, so more would add nothing but time."""
CASES = (
    # Model, sequences, new tokens of each, tokens in the cache.
    ("Llama-3.1-8B", 4, 1024, 0),
    ("Llama-3.1-8B", 64, 1, 2048),
    ("Llama-3.1-405B", 2, 2048, 0),
    ("OPT-6.7B", 4, 512, 0),
    ("OPT-6.7B", 32, 1, 512),
    ("Mixtral-8x7B", 4, 128, 0),
    ("Mixtral-8x7B", 64, 1, 1024),
    ("DeepSeek-V3", 2, 256, 0),
    ("DeepSeek-V3", 256, 1, 2048),
)
SHOWN = "DeepSeek-V3"
FUSED = ("route and combine",)
"""Kernels of an engine that a plain decoder does not have: nothing to compare with."""


class Compared(Struct, frozen=True, kw_only=True):
    """One operator of one case, all layers."""

    name: str
    flops: float
    torch_flops: float
    weight_bytes: float
    tensor_weight_bytes: float
    moved_bytes: float
    tensor_moved_bytes: float

    def differences(self) -> tuple[float, float]:
        """Of FLOPs and of bytes, as shares."""
        ours, theirs = (
            self.weight_bytes + self.moved_bytes,
            self.tensor_weight_bytes + self.tensor_moved_bytes,
        )
        return _off(self.flops, self.torch_flops), _off(ours, theirs)


def _off(ours: float, theirs: float) -> float:
    return abs(ours - theirs) / theirs if theirs else float(ours != 0)


def shortened(model: Model) -> Model:
    """The same layers, fewer of them; one dense one where the model has some."""
    dense = min(model.dense_layers, 1)
    return replace(model, layers=LAYERS, dense_layers=dense if model.experts else 0)


def compare(model: Model, sequences: int, new: int, past: int) -> list[Compared]:
    """Every operator of one step."""
    seen = Bytes()
    with torch.device("meta"):
        decoder = Decoder(model, seen).to(torch.bfloat16).requires_grad_(requires_grad=False)
        tokens = torch.zeros(sequences, new, dtype=torch.long)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            decoder(tokens, past, last=True)
    counted = _by_part(decoder, counter)
    work = make_work([Slice(sequences, new, past)])
    spread, precision = Parallelism(), parse_precision("bf16")
    found = []
    for op in list_operators(model, precision, work, spread, causal=False):
        if op.name in FUSED or (model.latent and op.name == "rotary and cache"):
            continue
        found.append(
            Compared(
                name=op.name,
                flops=op.count * op.flops,
                torch_flops=counted.get(op.name, 0.0),
                weight_bytes=op.count * op.weight_bytes,
                tensor_weight_bytes=seen.weights.get(op.name, 0.0),
                moved_bytes=op.count * op.moved_bytes,
                tensor_moved_bytes=seen.moved.get(op.name, 0.0),
            )
        )
    return found


def _by_part(decoder: Decoder, counter: FlopCounterMode) -> dict[str, float]:
    """Torch's counts of the modules that belong to a part, without those of their children."""
    counts = {name: sum(by.values()) for name, by in counter.get_flop_counts().items()}
    parts: dict[str, float] = {}
    for path, module in decoder.named_modules():
        name = getattr(module, "part", None)
        if name is None:
            continue
        inner = [child for child, _ in module.named_children()]
        own = counts.get(f"Decoder.{path}", 0)
        own -= sum(counts.get(f"Decoder.{path}.{child}", 0) for child in inner)
        parts[name] = parts.get(name, 0.0) + own
    return parts


def compare_roofline() -> tuple[float, float]:
    """Differences of `fuelline roofline`'s sums on a small model with real tensors."""
    model = Model(name="small", hidden=64, layers=2, heads=8, kv_heads=2, ffn=160, vocab=320)
    tokens = torch.zeros(3, 17, dtype=torch.long)
    decoder = Decoder(model)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        decoder(tokens)
    products = decoder.seen.weights.keys() - {"embedding"}
    expected = sum(decoder.seen.moved[part] + decoder.seen.weights[part] for part in products)
    with torch.no_grad():
        calls = OperatorWatch(decoder, lambda: None).watch(lambda: decoder(tokens))
    flops = sum(call.flops for call in calls)
    moved = sum(
        call.weight_bytes + call.moved_bytes for call in calls if call.name in ("mm", "addmm")
    )
    return _off(flops, float(counter.get_total_flops())), _off(moved, expected)


def main() -> dict[str, Any]:
    """Count, compare, write; the figures."""
    cases = [
        (name, sequences, new, past, compare(shortened(name_model(name)), sequences, new, past))
        for name, sequences, new, past in CASES
    ]
    worst = [each.differences() for *_, found in cases for each in found]
    roofline = compare_roofline()
    figures = {
        "operators": len(worst),
        "worst_flops": max(each[0] for each in worst),
        "worst_bytes": max(each[1] for each in worst),
        "roofline_flops": roofline[0],
        "roofline_bytes": roofline[1],
    }
    figures["passed"] = all(figures[key] <= BAR for key in figures if key != "operators")
    results.write_section("plan_counts", section(cases, figures))
    return figures


def section(cases: list[Any], figures: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [
        "## FLOP and byte counts by operator",
        "",
        (
            f"`python -m bench.plan_counts`, {results.machine()}, torch {torch.__version__}. "
            f"{LAYERS} layers of each model at full width on the meta device; FLOPs against "
            "torch's FlopCounterMode (all pairs of attention, as it counts), bytes against the "
            "sizes of the tensors that each part reads and writes. Bar: 0.1 %."
        ),
        "",
        "| model | step | operators | GFLOP | worst difference | GB | worst difference |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, sequences, new, past, found in cases:
        flops, size = (max(each.differences()[kind] for each in found) for kind in (0, 1))
        total = sum(each.weight_bytes + each.moved_bytes for each in found) / 1e9
        step = f"{sequences} x {new} new" + (f" after {past}" if past else "")
        lines.append(
            f"| {name} | {step} | {len(found)} | {sum(e.flops for e in found) / 1e9:,.1f} | "
            f"{flops:.4%} | {total:,.2f} | {size:.4%} |"
        )
    lines += [
        "",
        (
            f"`fuelline roofline` on a small model with real tensors: FLOPs "
            f"{figures['roofline_flops']:.4%}, bytes of its products "
            f"{figures['roofline_bytes']:.4%} off."
        ),
        "",
        f"{SHOWN}, the last step above, operator by operator:",
        "",
        "| operator | GFLOP, ours | torch | GB, ours | tensors |",
        "| --- | --- | --- | --- | --- |",
        *(_line(each) for each in cases[-1][-1]),
    ]
    return "\n".join(lines).replace("%", " %").replace("  %", " %")


def _line(each: Compared) -> str:
    ours = each.weight_bytes + each.moved_bytes
    theirs = each.tensor_weight_bytes + each.tensor_moved_bytes
    return (
        f"| {each.name} | {each.flops / 1e9:,.3f} | {each.torch_flops / 1e9:,.3f} "
        f"| {ours / 1e9:,.4f} | {theirs / 1e9:,.4f} |"
    )


if __name__ == "__main__":
    print(main())
