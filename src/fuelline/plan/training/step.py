"""A training step as nouns: how it is cut in time, and its parts in seconds.

`training` fills a `Training` from a `Schedule`. Its parts sum to the step; FLOPs are those of the
model's own mathematics, so that an MFU is comparable with a published one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.schema.plan.estimates import Term, TermLimit

if TYPE_CHECKING:
    from fuelline.schema.plan.models import Model


class Schedule(Struct, frozen=True, kw_only=True):
    """How a step is cut in time."""

    batch: float
    """Sequences in a step, all replicas together."""
    length: float
    """Tokens of a sequence."""
    microbatch: float = 1.0
    recompute: str = "selective"
    """`none`, `selective` (attention only) or `full`."""
    interleave: int = 1
    """Chunks of layers a stage holds; more of them shrink the bubble."""
    zero: int = 1
    """ZeRO stage; 3 is FSDP: parameters are gathered for every micro-batch."""
    flat: bool = False
    """Gathers do not use the links inside a host first (DeepSpeed of 2021)."""
    flash: bool = True
    """Attention is one kernel; without, scores go through memory."""
    older_attention: bool = False
    """Attention kernels are not made for this chip."""
    eager: bool = False
    """Norms and activations are kernels of their own."""
    blocking: bool = False
    """Tensor-parallel exchanges are waited for, not cut into pieces that hide behind products."""


class Training(Struct, frozen=True, kw_only=True):
    """A step's parts in seconds."""

    math_s: float
    attention_s: float
    moved_s: float
    tensor_s: float
    """Exposed exchanges of tensor and context parallelism."""
    expert_s: float
    bubble_s: float
    data_s: float
    """Exposed exchanges of data parallelism."""
    optimizer_s: float
    tokens: float
    chips: int
    uneven_s: float = 0.0
    """Products of the fullest expert-parallel chip beyond those of the mean."""

    @property
    def seconds(self) -> float:
        """The step."""
        return (
            self.math_s
            + self.attention_s
            + self.moved_s
            + self.tensor_s
            + self.expert_s
            + self.bubble_s
            + self.data_s
            + self.optimizer_s
            + self.uneven_s
        )

    @property
    def tokens_per_s(self) -> float:
        """Of all chips."""
        return self.tokens / self.seconds

    def terms(self, doubt: float = 0.08) -> tuple[Term, ...]:
        """With names, limits and doubts; nothing that is zero."""
        rows: tuple[tuple[str, float, TermLimit, float], ...] = (
            ("matrix math", self.math_s, "math", doubt),
            ("attention math", self.attention_s, "math", 2 * doubt),
            ("move activations", self.moved_s, "memory bandwidth", 2 * doubt),
            ("tensor-parallel exchange", self.tensor_s, "interconnect", 0.35),
            ("all-to-all of experts", self.expert_s, "interconnect", 0.5),
            ("fullest expert chip", self.uneven_s, "imbalance", 0.5),
            ("pipeline bubble", self.bubble_s, "pipeline", 0.25),
            ("data-parallel exchange", self.data_s, "network", 0.35),
            ("optimizer", self.optimizer_s, "memory bandwidth", 0.3),
        )
        return tuple(
            Term(name=name, seconds=seconds, limit=limit, doubt_frac=each)
            for name, seconds, limit, each in rows
            if seconds > 0
        )


def model_flops(model: Model, length: float, *, causal: bool = False) -> float:
    """FLOPs a token of forward and backward: six a weight, twelve a pair and head value.

    The convention of PaLM and Megatron counts all pairs; `causal` counts the half that is needed.
    """
    pairs = length / 2 if causal else length
    width = model.heads * (
        model.head_size if not model.latent else (model.nope_dim + model.rope_dim + model.v_dim) / 2
    )
    seen = pairs
    if model.window:
        local = model.layers - model.global_layers
        seen = (model.global_layers * pairs + local * min(pairs, model.window)) / model.layers
    return 6 * model.active_params + 12 * model.layers * width * seen
