"""The precision of published weights: what a `config.json` says of how they are kept.

Every tool that quantises has words of its own (Transformers, compressed-tensors, ModelOpt, GPTQ,
AWQ, bitsandbytes). What none of these understands is unknown and said so: taken for half
precision, all numbers would be wrong in silence.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fuelline.schema.errors import InputError
from fuelline.schema.plan.precision import Precision, parse_precision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.plan.models.config_fields import Fields

_INSIDE = re.compile(r"nvfp4|mxfp4|mxfp8|fp8|fp4|int8|int4|w\d+a\d+")
_BY_BITS = {8: "int8-wo", 4: "int4"}


def read_published(fields: Fields) -> tuple[Precision | None, str]:
    """Of a quantisation, else of the data type; and the method that is not understood, if any."""
    quantised = fields.table("quantization_config", "compression_config")
    for word in _words(quantised):
        found = _parse(word)
        if found is not None:
            return found, ""
    if quantised.config:
        return None, quantised.word("quant_method", "quant_algo") or "a method without a name"
    return _parse(fields.word("torch_dtype", "dtype")), ""


def _words(quantised: Fields) -> Iterator[str]:
    """What may be the name of a precision, the surest first."""
    if quantised.flag("load_in_4bit", default=False):
        yield "int4"
    if quantised.flag("load_in_8bit", default=False):
        yield "int8"
    yield from _of_groups(quantised)
    method, algorithm = (quantised.word(name).lower() for name in ("quant_method", "quant_algo"))
    bits = quantised.number("bits", "w_bit", "weight_bits")
    if bits is not None and bits != 4:
        yield _BY_BITS.get(bits, f"{bits} bits")
        return
    for word in (algorithm, method):
        yield word
        yield from _INSIDE.findall(word)
    yield _BY_BITS.get(bits or 0, "")


def _of_groups(quantised: Fields) -> Iterator[str]:
    """Groups of layers (compressed-tensors), each with the bits of weights and activations."""
    groups = quantised.table("config_groups")
    for name in groups.config:
        group = groups.table(name)
        weights, inputs = group.table("weights"), group.table("input_activations")
        bits = weights.number("num_bits")
        if weights.word("type").lower().startswith("float"):
            small = "mxfp4" if "mxfp4" in quantised.word("format").lower() else "nvfp4"
            yield {8: "fp8" if inputs.config else "int8-wo", 4: small}.get(bits or 0, "")
        else:
            yield "int8" if bits == 8 and inputs.config else _BY_BITS.get(bits or 0, "")


def _parse(word: str) -> Precision | None:
    if not word:
        return None
    try:
        return parse_precision(word)
    except InputError:
        return None
