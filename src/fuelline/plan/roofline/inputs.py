"""What a user writes for a model's inputs: `1x3x224x224`, `1x128:int64`, `mask=1x128:bool`."""

from __future__ import annotations

import re

from msgspec import Struct

from fuelline.schema.errors import UsageError

DTYPES = ("float32", "bfloat16", "float16", "float64", "int64", "int32", "int8", "uint8", "bool")
_SHORT = {
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp64": "float64",
    "double": "float64",
    "long": "int64",
    "int": "int64",
}
MOST_ELEMENTS = 2**34


class InputShape(Struct, frozen=True):
    """One tensor."""

    dims: tuple[int, ...]
    dtype: str = ""
    """Empty: a float of the model's own precision."""
    name: str = ""
    """Keyword; empty: by place."""

    def __str__(self) -> str:
        size = "x".join(str(each) for each in self.dims) or "scalar"
        return (
            (f"{self.name}=" if self.name else "") + size + (f":{self.dtype}" if self.dtype else "")
        )


def parse_input(text: str) -> InputShape:
    """`[name=]DIMxDIM[:dtype]`; `scalar` has no dimensions."""
    name, _, rest = text.rpartition("=")
    size, _, dtype = rest.partition(":")
    dtype = _SHORT.get(dtype.strip().lower(), dtype.strip().lower().removeprefix("torch."))
    if dtype and dtype not in DTYPES:
        raise UsageError(f"--input {text}: no dtype '{dtype}'. Known: {', '.join(DTYPES)}.")
    if name and not name.isidentifier():
        raise UsageError(f"--input {text}: '{name}' cannot be a keyword of a function.")
    dims = _dims(text, size.strip())
    return InputShape(dims, dtype, name)


def _dims(text: str, size: str) -> tuple[int, ...]:
    if size == "scalar":
        return ()
    if not re.fullmatch(r"\d+(x\d+)*", size):
        raise UsageError(
            f"--input {text} is not a shape. Write 1x3x224x224, 1x128:int64 or mask=1x128:bool."
        )
    dims = tuple(int(each) for each in size.split("x"))
    elements = 1
    for each in dims:
        elements *= each
    if not 1 <= elements <= MOST_ELEMENTS:
        raise UsageError(
            f"--input {text} has {elements:,} elements; 1 to {MOST_ELEMENTS:,} are possible."
        )
    return dims
