"""Every private part of JAX that the hooks stand on; nothing else names one.

Looked up when hooks are put in: what a release lacks is a blindspot with its name, not an error.
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax

from fuelline.record.hooks.guest import Framework

__all__ = [
    "API",
    "ARRAY",
    "CORE",
    "JAX",
    "LISTEN",
    "PJIT",
    "POST_HOOK",
    "RUN",
    "STAGES",
    "find_part",
    "find_unmet",
]

API, ARRAY, CORE, STAGES = "jax._src.api", "jax._src.array", "jax._src.core", "jax._src.stages"
PJIT, RUN = "jax._src.pjit", "_run_python_pjit"
POST_HOOK = "_post_hook_state"
LISTEN = "register_event_duration_secs_listener"
_NEEDED = {
    "steps": (
        (API, f"{POST_HOOK}.set_global"),
        (API, f"{POST_HOOK}.set_local"),
        (PJIT, RUN),
        (CORE, "trace_state_clean"),
        (CORE, "Tracer"),
    ),
    "reads": ((ARRAY, "ArrayImpl.block_until_ready"), (ARRAY, "ArrayImpl._value")),
    "compiling": (("jax.monitoring", LISTEN),),
}
"""By the file of ours that needs them: what JAX calls after each call of a compiled function, where
reading an array waits for the device, and what it tells about compiling."""


def find_unmet(file: str) -> str:
    """What this JAX lacks of what one of our files needs; empty if nothing."""
    needed = _NEEDED.get(file, ())
    missing = [f"{module}.{name}" for module, name in needed if find_part(module, name) is None]
    return f"jax {jax.__version__} has no {', '.join(missing)}" if missing else ""


def find_part(module: str, name: str) -> Any:
    """A part of a module of JAX; None if it has none of that name."""
    try:
        owner: Any = import_module(module)  # of a package that the job has imported whole
    except ImportError:
        return None
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner


_is_clean: Callable[[], bool] = find_part(CORE, "trace_state_clean") or (lambda: True)


def _is_tracing() -> bool:
    """Whether JAX traces the caller: what it calls then runs only once."""
    return not _is_clean()


JAX = Framework(
    package="jax",
    folder=os.path.dirname(str(jax.__file__)) + os.sep,  # noqa: PTH120 - no pathlib here
    handlers=(),
    is_tracing=_is_tracing,
)
