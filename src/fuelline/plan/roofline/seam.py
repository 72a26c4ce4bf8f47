"""All that the points of a model use of torch without a promise that it stays.

`seam.NAME` is the part of that name, or what an attribute is called. They are looked up before
anything is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuelline.schema.errors import RefusedError
from fuelline.schema.seams import find_missing, find_part

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PARTS", "check_parts"]

PARTS: Mapping[str, str] = {
    "DispatchMode": "torch.utils._python_dispatch:TorchDispatchMode",
    "PACKET": "torch._ops:OpOverload#_overloadpacket",
    "SCHEMA": "torch._ops:OpOverload#_schema",
    "flop_registry": "torch.utils.flop_counter:flop_registry",
    "sdpa_flop_count": "torch.utils.flop_counter:sdpa_flop_count",
    "tree_leaves": "torch.utils._pytree:tree_leaves",
}


def __getattr__(name: str) -> Any:
    if name in PARTS:
        return find_part(PARTS[name])
    raise AttributeError(name)


def check_parts() -> None:
    """Raise if operators cannot be watched with the torch that is installed."""
    missing = find_missing(PARTS.values())
    if missing:
        raise RefusedError(
            f"The operators of a model cannot be timed: {missing}. Nothing was measured. "
            "`fuelline roofline` without a model needs none of it."
        )
