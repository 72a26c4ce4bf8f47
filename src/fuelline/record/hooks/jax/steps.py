"""Steps: calls of the compiled function that carries the training state.

JAX calls a function of ours after each call of a compiled one (`post_hook`, which it has for its
search for NaNs), so that what `jax.jit` returns stays what it is. Of the job's functions the one
that takes and gives most bytes is the step: parameters and the optimizer's state go through it. An
evaluation takes as much, and gives little.

The call returns before the device is done. Whether it is, is asked of the smallest array that the
step has given, when the loop asks for the next batch and when it has it: `is_ready()` waits for
nothing. Only that array is held, until the next step.
"""

import sys
from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

import jax

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.identities import Identities
from fuelline.record.hooks.jax import seam
from fuelline.record.hooks.patches import Patches
from fuelline.schema.wire import Kind

__all__ = ["install"]

MOST_HELD_BYTES = 4096
"""Of an array that is held; a loss has four."""
DEEP = 3
"""How far into tuples and dictionaries of a step's results it is looked for."""
_STEP_KIND = int(Kind.STEP)
_LIBRARIES = ("jax", "jaxlib", "numpy")


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Be told of each call."""
    real = seam.find_part(seam.API, seam.POST_HOOK)
    calls = CompiledCalls(guest)
    stand_in = _PostHook(real, calls.make_after())
    patches.replace(sys.modules[seam.API], seam.POST_HOOK, stand_in)
    stand_in.set_global(real.get_global())
    patches.on_undo(stand_in.leave)
    guest.is_device_busy = calls.is_device_busy
    hooks: list[Hook] = [calls]
    fresh = FreshCall(guest, calls)
    slow = sys.modules[seam.PJIT]
    patches.replace(slow, seam.RUN, fresh.wrap(getattr(slow, seam.RUN)))
    hooks.append(fresh)
    compiled = getattr(sys.modules.get(seam.STAGES), "Compiled", None)
    if compiled is not None:
        calls.ahead = (compiled,)
        ahead = CompiledAhead(guest, calls)
        patches.replace(compiled, "__call__", ahead.wrap(compiled.__call__))
        hooks.append(ahead)
    return hooks


class _PostHook:
    """In place of the setting with what JAX calls after a call: that, and ours before it.

    JAX sets it where somebody looks for NaNs, and sets it to nothing when that ends, also for one
    thread only: for a moment in many a function of its own.
    """

    def __init__(self, real: Any, after: Callable[..., None]) -> None:
        self._real, self._after = real, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def set_global(self, value: Callable[..., Any] | None) -> None:
        """For all threads."""
        self._real.set_global(self._with_ours(value))

    def set_local(self, value: Callable[..., Any] | None) -> None:
        """For this thread."""
        self._real.set_local(self._with_ours(value))

    def _with_ours(self, value: Callable[..., Any] | None) -> Callable[..., Any]:
        after = self._after
        if value is None or value is after:
            return after

        def both(*call: Any) -> Any:
            after(*call)
            return value(*call)

        return both

    def leave(self) -> None:
        """Nothing of ours is called any more, but where somebody else has set it since."""
        if self._real.get_global() is self._after:
            self._real.set_global(None)
        if self._real.get_local() is self._after:
            self._real.set_local(None)


class CompiledCalls(Hook):
    """Calls of what `jax.jit` has compiled."""

    name = "compiled functions"
    code = "step-hook"
    forbids = "counting steps"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self._functions = Identities()
        self._weights: dict[int, int] = {}
        self.ahead: tuple[type, ...] = ()
        """Classes of what is compiled ahead, which are JAX's own, unlike what they hold."""
        self._leader: Any = None
        self._inner: Any = None
        self._number = 0
        self._path: tuple[Any, ...] | None = None
        self._held: Any = None
        guest.on_fork(self._forget)

    def _forget(self) -> None:
        self._held = None

    def make_after(self) -> Callable[..., None]:
        """What JAX is to call after each call."""
        entries = self._functions.entries

        def after(function: Any, args: Any, kwargs: Any, results: Any) -> None:
            if not self.is_on:
                return
            try:
                if function is self._leader:
                    self._count(results)
                    return
                entry = entries.get(id(function))
                if entry is None or entry[0]() is not function:
                    self._meet(function, args, kwargs, results)
            except BaseException as fault:  # noqa: BLE001 - the guard
                self.answer_for(fault)

        return after

    def add_call(self, function: Any, args: Any, kwargs: Any, results: Any) -> None:
        """Take note of a call that JAX does not tell us of."""
        if function is self._inner:
            self._count(results)
        elif self._functions.find(function) is None:
            self._meet(function, args, kwargs, results, is_job=isinstance(function, self.ahead))

    def _meet(
        self, function: Any, args: Any, kwargs: Any, results: Any, *, is_job: bool = False
    ) -> None:
        module = str(getattr(function, "__module__", "") or "")
        if seam.JAX.is_tracing():
            return
        inner = getattr(function, "__wrapped__", function)
        if inner is self._inner:  # compiled by now, so that JAX tells of it itself
            self._leader = function
            self._count(results)
            return
        number = self._functions.add(function)
        if module.partition(".")[0] in _LIBRARIES and not is_job:
            return
        given = jax.tree_util.tree_leaves((args, kwargs))
        taken = jax.tree_util.tree_leaves(results)
        weight = sum(_bytes_of(leaf) for leaf in (*given, *taken))
        if weight > self._weights.get(self._number, 0):
            self._weights = {number: weight}
            self._leader, self._inner, self._number = function, inner, number
            self._path = _find_small(results, DEEP)
            self._count(results)
            self.guest.tell_step_place(below=seam.JAX.folder)

    def _count(self, results: Any) -> None:
        guest = self.guest
        ident = get_ident()
        if seam.JAX.is_tracing():
            return
        if ident != guest.trainer:
            guest.prove()
        self._held = _follow(results, self._path)
        guest.steps += 1
        guest.append(_STEP_KIND, monotonic_ns(), 0, self._number, 0, -1)

    def is_device_busy(self) -> bool | None:
        """Whether the last step is still under way; None where that is not known."""
        held = self._held
        if held is None:
            return None
        try:
            return not held.is_ready()
        except RuntimeError:  # its memory was given to another array
            self._held = None
            return None


class FreshCall(Hook):
    """A call with arguments of new shapes, which is compiled first: JAX tells its hook of none."""

    name = "calls that compile"
    code = "step-hook"
    forbids = "counting steps that are compiled anew"

    def __init__(self, guest: Guest, calls: CompiledCalls) -> None:
        super().__init__(guest)
        self._calls = calls

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take note of the function and its arguments."""
        _, _, function, given, named = args
        return function, given, named

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it."""
        function, given, named = ticket
        if error is None:
            self._calls.add_call(function, given, named, result[0])


class CompiledAhead(Hook):
    """Calls of a function that was compiled ahead: `jax.jit(f).lower(...).compile()`."""

    name = "functions compiled ahead"
    code = "step-hook"
    forbids = "counting steps"

    def __init__(self, guest: Guest, calls: CompiledCalls) -> None:
        super().__init__(guest)
        self._calls = calls

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take note of the function."""
        return args[0], args[1:], kwargs

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it."""
        function, args, kwargs = ticket
        if error is None:
            self._calls.add_call(function, args, kwargs, result)


def _bytes_of(leaf: Any) -> int:
    size = getattr(leaf, "nbytes", 0)
    return size if isinstance(size, int) else 0


def _find_small(results: Any, deep: int) -> tuple[Any, ...] | None:
    """The way to an array of a few bytes; None if there is none near the top."""
    if hasattr(results, "is_ready"):
        return () if _bytes_of(results) <= MOST_HELD_BYTES else None
    if not deep:
        return None
    items: Any = ()
    if isinstance(results, dict):
        items = results.items()
    elif isinstance(results, tuple | list):
        items = enumerate(results)
    for key, each in items:
        path = _find_small(each, deep - 1)
        if path is not None:
            return key, *path
    return None


def _follow(results: Any, path: tuple[Any, ...] | None) -> Any:
    if path is None:
        return None
    try:
        for key in path:
            results = results[key]
    except (KeyError, IndexError, TypeError):  # this call has given something else
        return None
    return results if hasattr(results, "is_ready") else None
