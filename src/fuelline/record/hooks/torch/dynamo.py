"""Keeps torch's compiler away from our frames when a compiled function calls them.

Otherwise dynamo would compile them after a graph break: at a price, with side effects lost, and
with warnings of too many recompilations that name our functions.
"""

import sys
from types import CodeType, FunctionType, ModuleType

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam

__all__ = ["install"]


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Let all our functions run as they are; there is nothing to take back, and no hook."""
    del guest, patches
    skip_code = seam.skip_code
    for name, module in list(sys.modules.items()):
        if name.startswith("fuelline."):
            for code in _codes_of(module):
                skip_code(code)
    return []


def _codes_of(module: ModuleType) -> list[CodeType]:
    found: list[CodeType] = []
    for value in vars(module).values():
        members = vars(value).values() if isinstance(value, type) else (value,)
        for member in members:
            if isinstance(member, FunctionType) and member.__module__ == module.__name__:
                _add_nested(member.__code__, found)
    return found


def _add_nested(code: CodeType, found: list[CodeType]) -> None:
    found.append(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_nested(constant, found)
