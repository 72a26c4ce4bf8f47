"""Floating-point operations and least bytes of operators, from the shapes that were recorded.

Only products of matrices, convolutions and attention: the rest is noise beside them. An operator
whose shapes were not recorded or do not fit has null rather than a guess, so that nobody takes the
sum of the others for the whole. As in the usual definition of MFU, a multiplication and an addition
are two operations, and a causal mask saves nothing.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec

from fuelline.ingest.kineto.events import decode_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.ingest.kineto.events import Args, OpArgs

Shape = list[int]
Words = list[Any]
"""Arguments that are not tensors, as text."""
Work = tuple[float | None, float | None, str | None]
"""Operations, least bytes, type of the first operand."""
NO_WORK: Work = (None, None, None)

_ABSURD_FLOPS = 1e21
"""No single operator needs more: a fast chip would be at it for a week."""
_DIMS = msgspec.json.Decoder(list[int])

_TYPE_BYTES = {"float": 4, "c10::BFloat16": 2, "c10::Half": 2, "double": 8, "signed char": 1}
_TYPE_BYTES |= {"c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1, "unsigned char": 1}


def count_work(name: str, args: OpArgs | Args) -> Work:
    """Of an operator that is in COUNTERS."""
    return _count(name, bytes(args.dims), bytes(args.types), bytes(args.concrete))


@lru_cache(1024)  # a model has few shapes, and repeats them every step
def _count(name: str, dims: bytes, types: bytes, concrete: bytes) -> Work:
    kinds = [kind for kind in decode_list(types) if isinstance(kind, str)]
    dtype = next((kind for kind in kinds if kind in _TYPE_BYTES), "")
    try:
        counted = COUNTERS[name](decode_list(dims), decode_list(concrete))
    except (IndexError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None, None, dtype
    if counted is None or not 0 < counted[0] < _ABSURD_FLOPS:
        return None, None, dtype
    size = _TYPE_BYTES.get(dtype)
    return counted[0], None if size is None else counted[1] * size, dtype


def _matrices(left: Shape, right: Shape) -> tuple[float, float] | None:
    """[m, k] x [k, n], with any batch in front."""
    (m, k), (k_too, n) = left[-2:], right[-2:]
    batch = prod(left[:-2])
    if k != k_too or left[:-2] != right[:-2]:
        return None
    return 2.0 * batch * m * k * n, float(batch * (m * k + k * n + m * n))


def _product(shapes: list[Any], _: Words) -> tuple[float, float] | None:
    return _matrices(shapes[0], shapes[1])


def _product_with_bias(shapes: list[Any], _: Words) -> tuple[float, float] | None:
    return _matrices(shapes[1], shapes[2])


def _attention(shapes: list[Any], _: Words) -> tuple[float, float] | None:
    """Query [b, h, s, d] and key [b, h, t, d]: scores and their product with the values."""
    query, key, value = shapes[0], shapes[1], shapes[2]
    batch, heads, rows, depth = query
    columns = key[2]
    flops = 2.0 * batch * heads * rows * columns * (depth + value[3])
    return flops, float(sum(prod(shape) for shape in (query, key, value, query)))


def _convolution_work(output: Shape, weight: Shape, source: Shape) -> tuple[float, float]:
    flops = 2.0 * prod(output) * prod(weight[1:])
    return flops, float(prod(output) + prod(weight) + prod(source))


def _convolution(shapes: list[Any], words: Words) -> tuple[float, float] | None:
    """Input, weight, bias, stride, padding, dilation, transposed, ...: the last ones as text."""
    source, weight = shapes[0], shapes[1]
    stride, padding, dilation = (_DIMS.decode(words[place].encode()) for place in (3, 4, 5))
    if words[6] not in ("False", "0", "false"):
        return None
    spatial = [
        (size + 2 * pad - gap * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, gap in zip(
            source[2:], weight[2:], stride, padding, dilation, strict=True
        )
    ]
    return _convolution_work([source[0], weight[0], *spatial], weight, source)


def _convolution_backward(shapes: list[Any], _: Words) -> tuple[float, float] | None:
    """Gradient of the output, input, weight: two products of the forward's size."""
    flops, elements = _convolution_work(shapes[0], shapes[2], shapes[1])
    return 2 * flops, 2 * elements


COUNTERS: dict[str, Callable[[list[Any], Words], tuple[float, float] | None]] = {
    "aten::_scaled_dot_product_efficient_attention": _attention,
    "aten::_scaled_dot_product_flash_attention": _attention,
    "aten::addmm": _product_with_bias,
    "aten::baddbmm": _product_with_bias,
    "aten::bmm": _product,
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::mm": _product,
}
