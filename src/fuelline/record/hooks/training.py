"""The training step: backward passes and optimizer steps.

`Tensor.backward` calls `torch.autograd.backward`, so that one is watched for both. A backward
inside a running one (reentrant checkpointing) belongs to it. Optimizers are watched by torch's own
global hooks.
"""

import functools
from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns, thread_time_ns
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from fuelline.record.hooks.graph import count_nodes
from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook, QuickHook, is_tracing
from fuelline.record.hooks.identities import Identities
from fuelline.record.hooks.patches import Patches
from fuelline.record.spool import PHASE, STEPS
from fuelline.schema.wire import Flag, Kind, Phase

__all__ = ["install"]

FIRST_COUNT = 5
"""The graph is counted at the first thorough call after as many, then after ten times as many."""

_BACKWARD_KIND, _OPTIMIZER_KIND = int(Kind.BACKWARD), int(Kind.OPTIMIZER)
_BACKWARD, _OPTIMIZER, _LOOP = int(Phase.BACKWARD), int(Phase.OPTIMIZER), int(Phase.LOOP)
_ERROR = int(Flag.ERROR)
_BACKWARD_WORD, _OPTIMIZER_WORD = _BACKWARD_KIND << 48, _OPTIMIZER_KIND << 48
"""The kind where it stands in the last word of a record."""

_running_backward: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch all backward passes, and the steps of all optimizers."""
    backward, step = Backward(guest), Step(guest)
    patches.replace(torch.autograd, "backward", backward.wrap(torch.autograd.backward))
    before = optimizers.register_optimizer_step_pre_hook(step.before)
    after = optimizers.register_optimizer_step_post_hook(step.after)
    patches.on_undo(before.remove)
    patches.on_undo(after.remove)
    return [backward, step]


class Backward(QuickHook):
    """One backward pass."""

    name = "backward"
    forbids = "telling the backward pass from the rest of a step"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self._next_count = FIRST_COUNT

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The callable to put in the original's place."""
        thorough = super().wrap(original)
        guest, spool = self.guest, self.guest.spool

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self.quick_calls <= 0 or get_ident() != guest.trainer:
                return thorough(*args, **kwargs)
            live = spool.live
            before = live[PHASE]
            if before == _BACKWARD:
                return original(*args, **kwargs)
            self.quick_calls -= 1
            live[PHASE] = _BACKWARD
            start_ns = monotonic_ns()
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                self.close((0, before, 0, start_ns), None, error)
                raise
            dur_ns = monotonic_ns() - start_ns
            try:
                live[PHASE] = before
                at = spool.reserve()
                base, end, _, words = spool.segment
                if base <= at < end:
                    at = at - base >> 3
                    words[at] = start_ns
                    words[at + 1] = dur_ns
                    words[at + 3] = -1
                    words[at + 7] = guest.trainer_tid | _BACKWARD_WORD
                else:
                    guest.append(_BACKWARD_KIND, start_ns, dur_ns, 0, -1)
            except Exception as fault:  # noqa: BLE001 - the guard
                self.answer_for(fault)
            return result

        return watched

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start of an outermost pass."""
        guest = self.guest
        ident = get_ident()
        if self._is_inner(ident):
            return None
        if not guest.is_proven:
            guest.prove()
        if ident == guest.trainer:
            self.start_run()
        nodes = 0
        if self.calls >= self._next_count:
            self._next_count *= 10
            nodes = count_nodes(args[0] if args else kwargs.get("tensors"))
        before = guest.enter(_BACKWARD)
        guest.backward.add(ident)
        return nodes, before, thread_time_ns(), monotonic_ns()

    def _is_inner(self, ident: int) -> bool:
        """Whether a pass runs already: in this thread, or one for which the engine calls us."""
        guest = self.guest
        if ident in guest.backward or _running_backward() != -1:
            return True
        return ident == guest.trainer and guest.spool.live[PHASE] == _BACKWARD

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it and return to the phase before: what follows may still be part of the step."""
        now_ns = monotonic_ns()
        nodes, before, cpu_ns, start_ns = ticket
        used_ns = thread_time_ns() - cpu_ns if cpu_ns else -1
        guest = self.guest
        guest.backward.discard(get_ident())
        if before is not None:
            guest.enter(before)
        flags = 0 if error is None else _ERROR
        guest.append(_BACKWARD_KIND, start_ns, now_ns - start_ns, nodes, used_ns, flags=flags)


class Step(QuickHook):
    """One optimizer step. An optimizer that steps inside another one is part of it."""

    name = "optimizer step"
    forbids = "counting steps by the optimizer"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self._optimizers = Identities()
        self._number = 0
        """The trainer's quick step under way: which optimizer, and since when."""
        self._start_ns = 0

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Torch calls this before each step. The same optimizer twice means that a step raised."""
        if is_tracing() or not self.is_on:
            return
        try:
            guest = self.guest
            number = self._optimizers.numbers.get(id(optimizer))
            if self.quick_calls <= 0 or number is None or get_ident() != guest.trainer:
                self._start_thoroughly(number or self._optimizers.add(optimizer))
                return
            live = guest.spool.live
            if live[PHASE] == _OPTIMIZER:
                if number == self._number:
                    self._start_ns = monotonic_ns()
                return
            self.quick_calls -= 1
            live[PHASE] = _OPTIMIZER
            self._number = number
            self._start_ns = monotonic_ns()
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)

    def after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Torch calls this after each step that did not raise."""
        if is_tracing() or not self.is_on:
            return
        now_ns = monotonic_ns()
        try:
            guest = self.guest
            number = self._optimizers.numbers.get(id(optimizer))
            if number != self._number or get_ident() != guest.trainer:
                self._end_thoroughly(number, now_ns)
                return
            self._number = 0
            spool = guest.spool
            live = spool.live
            live[PHASE] = _LOOP
            live[STEPS] += 1
            at = spool.reserve()
            base, end, _, words = spool.segment
            if base <= at < end:
                at = at - base >> 3
                words[at] = self._start_ns
                words[at + 1] = now_ns - self._start_ns
                words[at + 2] = number
                words[at + 3] = -1
                words[at + 7] = guest.trainer_tid | _OPTIMIZER_WORD
            else:
                dur_ns = now_ns - self._start_ns
                guest.append(_OPTIMIZER_KIND, self._start_ns, dur_ns, number, -1)
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)

    def _start_thoroughly(self, number: int) -> None:
        guest, ident = self.guest, get_ident()
        under_way = guest.stepping.get(ident)
        if under_way is not None and under_way[0] != number:
            return
        if ident == guest.trainer:
            if guest.spool.live[PHASE] == _OPTIMIZER and self._number not in {0, number}:
                return
            self._number = 0
            self.start_run()
        guest.enter(_OPTIMIZER)
        guest.stepping[ident] = number, thread_time_ns(), monotonic_ns()

    def _end_thoroughly(self, number: int | None, now_ns: int) -> None:
        guest, ident = self.guest, get_ident()
        under_way = guest.stepping.get(ident)
        if under_way is None or under_way[0] != number:
            return
        del guest.stepping[ident]
        _, cpu_ns, start_ns = under_way
        used_ns = thread_time_ns() - cpu_ns
        guest.enter(_LOOP)
        guest.spool.live[STEPS] += 1
        guest.append(_OPTIMIZER_KIND, start_ns, now_ns - start_ns, number, used_ns)
