"""How numbers are stored and multiplied: bytes a weight, bytes a cached value, and the math unit.

A name as people write it (`bf16`, `int4-wo-g32`, `q4_0`, `nvfp4`, `w8a8`) becomes a `Precision`. A
weight-only format multiplies in half precision. Bits include the scales that are read with the
weights.
"""

from __future__ import annotations

import re

from msgspec import Struct

from fuelline.schema.errors import InputError


class Precision(Struct, frozen=True, kw_only=True):
    """One way to run a model."""

    name: str
    weight_bits: float
    """A weight of a large matrix, scales included."""
    math: str
    """The unit that multiplies: `bf16`, `fp8`, `fp4`, `int8`, `fp32`."""
    weight_only: bool = False
    """Weights are unpacked to half precision before they are multiplied."""
    kv_bits: float = 16.0
    """A cached key or value."""
    plain_bits: float = 16.0
    """Embedding, output projection and (in 4-bit releases) attention of MoE models."""

    @property
    def kv_bytes(self) -> float:
        """Bytes a cached value."""
        return self.kv_bits / 8


_KNOWN: tuple[tuple[str, float, str, bool], ...] = (
    # pattern, bits a weight with scales, math, weight only. GGML block sizes: ggml-common.h
    # (q4_0: 18 bytes for 32, q8_0: 34 bytes for 32, q4_K 144 for 256, q5_K 176, q6_K 210).
    (r"fp32|float32|f32|tf32", 32, "fp32", False),
    (r"bf16|fp16|f16|bfloat16|float16|half|16bit", 16, "bf16", False),
    (r"nvfp4.*|fp4.*|w4a4.*", 4.5, "fp4", False),
    (r"mxfp4.*", 4.25, "fp4", False),
    (r"mxfp8.*|w8a8fp8|fp8.*|e4m3.*|float8.*", 8, "fp8", False),
    (r"int8wo.*|w8a16.*|gptqint8", 8, "bf16", True),
    (r"q80", 8.5, "bf16", True),
    (r"q40|iq4.*", 4.5, "bf16", True),
    (r"q4k.*|q4km|q4ks|q41", 4.85, "bf16", True),
    (r"q5.*", 5.6, "bf16", True),
    (r"q6.*", 6.56, "bf16", True),
    (r"q3.*", 3.9, "bf16", True),
    (r"q2.*", 3.0, "bf16", True),
    # A scale and a zero of 16 bits for every group: 4 + 32/32 and 4 + 32/128 bits.
    (r"int4wog32.*", 5.0, "bf16", True),
    (r"int4.*|w4a16.*|awq.*|gptq.*|4bit|w4a8.*|nf4|bnb4bit", 4.25, "bf16", True),
    (r"int8.*|w8a8.*|smoothquant|8bit|llmint8", 8, "int8", False),
    (r"fp6.*", 6.0, "fp8", False),
)


_SPOKEN = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""As configurations have it, and as everybody says it."""


def parse_precision(name: str, kv_bits: float | None = None) -> Precision:
    """`int4-wo-g32` and its kin; an unknown name is refused with those that are known."""
    word = re.sub(r"[^a-z0-9]", "", name.lower())
    for pattern, bits, math, weight_only in _KNOWN:
        if re.fullmatch(pattern, word):
            return Precision(
                name=_SPOKEN.get(word, name),
                weight_bits=bits,
                math=math,
                weight_only=weight_only,
                kv_bits=16.0 if kv_bits is None else kv_bits,
                plain_bits=32.0 if math == "fp32" else 16.0,
            )
    raise InputError(
        f"no precision '{name}'. Known: fp32, bf16, fp16, fp8, mxfp8, fp4, nvfp4, mxfp4, int8, "
        "int8-wo, int4, awq, gptq, int4-wo-g32, q8_0, q6_k, q5_k, q4_k, q4_0."
    )
