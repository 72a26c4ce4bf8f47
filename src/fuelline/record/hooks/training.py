"""The training step: backward passes and optimizer steps.

`Tensor.backward` calls `torch.autograd.backward`, so that one is watched for both. A backward
inside a running one (reentrant checkpointing) belongs to it. Optimizers are watched by torch's own
global hooks.
"""

from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns, thread_time_ns
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from fuelline.record.hooks.graph import count_nodes
from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import CPU_BELOW, GOLDEN, Hook, is_tracing
from fuelline.record.hooks.identities import Identities
from fuelline.record.hooks.patches import Patches
from fuelline.record.spool import PHASE
from fuelline.schema.wire import Flag, Kind, Phase

__all__ = ["install"]

FIRST_COUNT = 5
"""The graph is counted at this backward, and then each time that ten times as many have passed."""

_BACKWARD_KIND, _OPTIMIZER_KIND = int(Kind.BACKWARD), int(Kind.OPTIMIZER)
_BACKWARD, _OPTIMIZER, _LOOP = int(Phase.BACKWARD), int(Phase.OPTIMIZER), int(Phase.LOOP)
_ERROR = int(Flag.ERROR)

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


class Backward(Hook):
    """One backward pass."""

    name = "backward"
    forbids = "telling the backward pass from the rest of a step"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self._calls = 0
        self._next_count = FIRST_COUNT

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start of an outermost pass."""
        guest = self.guest
        ident = get_ident()
        if guest.backward and (guest.backward == ident or _running_backward() != -1):
            return None
        self._calls += 1
        nodes = 0
        if self._calls == self._next_count:
            self._next_count *= 10
            nodes = count_nodes(args[0] if args else kwargs.get("tensors"))
        if not guest.is_proven:
            guest.prove()
        before = -1
        if ident == guest.trainer:
            live = guest.spool.live
            before = live[PHASE]
            live[PHASE] = _BACKWARD
        guest.backward = ident
        cpu_ns = thread_time_ns() if self._calls * GOLDEN & 0xFFFFFFFF < CPU_BELOW else 0
        return nodes, before, cpu_ns, monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it and return to the phase before: what follows may still be part of the step."""
        now_ns = monotonic_ns()
        nodes, before, cpu_ns, start_ns = ticket
        used_ns = thread_time_ns() - cpu_ns if cpu_ns else -1
        guest = self.guest
        guest.backward = 0
        if before >= 0:
            guest.spool.live[PHASE] = before
        flags = 0 if error is None else _ERROR
        guest.append(_BACKWARD_KIND, start_ns, now_ns - start_ns, nodes, used_ns, flags=flags)


class Step(Hook):
    """One optimizer step. An optimizer that steps inside another one is part of it."""

    name = "optimizer step"
    forbids = "counting steps by the optimizer"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self._optimizers = Identities()
        self._calls = 0

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Torch calls this before each step. The same optimizer twice means that a step raised."""
        if is_tracing() or not self.is_on:
            return
        try:
            guest = self.guest
            ident = get_ident()
            number = self._optimizers.find(optimizer) or self._optimizers.add(optimizer)
            if ident in guest.stepping and guest.stepping[ident][0] != number:
                return
            if ident == guest.trainer:
                guest.spool.live[PHASE] = _OPTIMIZER
            self._calls += 1
            cpu_ns = thread_time_ns() if self._calls * GOLDEN & 0xFFFFFFFF < CPU_BELOW else 0
            guest.stepping[ident] = number, cpu_ns, monotonic_ns()
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)

    def after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Torch calls this after each step that did not raise."""
        if is_tracing() or not self.is_on:
            return
        now_ns = monotonic_ns()
        try:
            guest = self.guest
            ident = get_ident()
            step = guest.stepping.get(ident)
            if step is None or step[0] != self._optimizers.find(optimizer):
                return
            del guest.stepping[ident]
            number, cpu_ns, start_ns = step
            used_ns = thread_time_ns() - cpu_ns if cpu_ns else -1
            if ident == guest.trainer:
                guest.spool.live[PHASE] = _LOOP
            guest.spool.count_step()
            guest.append(_OPTIMIZER_KIND, start_ns, now_ns - start_ns, number, used_ns)
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)
