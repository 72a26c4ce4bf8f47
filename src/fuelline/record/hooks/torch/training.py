"""The training step: backward passes and optimizer steps.

`Tensor.backward` calls `torch.autograd.backward`, so that one is watched for both. A backward
inside a running one (reentrant checkpointing) belongs to it. Optimizers are watched by torch's own
global hook after each step.

Also here: how many operations an autograd graph has: what tells a launch-bound model from a large
one.
"""

import functools
import os
from _thread import get_ident
from collections.abc import Callable, Iterable
from time import monotonic_ns, thread_time_ns
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from fuelline.record.buffer import BackwardTicket
from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook, QuickHook
from fuelline.record.hooks.identities import Identities
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.seam import is_tracing
from fuelline.schema.wire import Flag, Kind, StepKind, tail

__all__ = ["HOSTS", "find_device", "install"]

FIRST_COUNT = 5
"""The graph is counted at the first thorough call after as many, then after ten times as many."""

_BACKWARD_KIND, _STEP_KIND = int(Kind.BACKWARD), int(Kind.STEP)
_BACKWARD_TAIL, _STEP_TAIL = tail(_BACKWARD_KIND), tail(_STEP_KIND)
_ERROR, _SKIPPED = int(Flag.ERROR), int(Flag.SKIPPED)
_REPLAY = int(StepKind.REPLAY)
HOSTS = frozenset(("cpu", "meta"))
_ENGINE_NAME = "pt_autograd_"

_running_backward = seam.running_backward
_DisableTorchFunction = seam.DisableTorchFunction


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch all backward passes, and the steps of all optimizers."""
    backward, step = Backward(guest), OptimizerStep(guest)
    patches.replace(torch.autograd, "backward", backward.wrap(torch.autograd.backward))
    after = optimizers.register_optimizer_step_post_hook(step.make_after())
    patches.on_undo(after.remove)
    hooks: list[Hook] = [backward, step]
    for owner, name, hook in (
        (getattr(torch.amp, "GradScaler", None), "step", SkippedStep(guest, step)),
        (getattr(torch.cuda, "CUDAGraph", None), "replay", Replay(guest)),
        (getattr(getattr(torch, "accelerator", None), "Graph", None), "replay", Replay(guest)),
    ):
        original = getattr(owner, name, None)
        if original is not None:
            patches.replace(owner, name, hook.wrap(original))
            hooks.append(hook)
    return hooks


class Backward(QuickHook):
    """One backward pass."""

    name = "backward"
    code = "step-hook"
    forbids = "telling the backward pass from the rest of a step"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self._next_count = FIRST_COUNT
        self._engine = EngineThreads()
        guest.on_fork(self._engine.forget)

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The callable to put in the original's place."""
        thorough = super().wrap(original)
        quick = self.quicken(original, thorough, _BACKWARD_TAIL)
        if quick is None:
            return thorough
        run = quick.run

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return run(*args, **kwargs)

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
            if self._next_count == FIRST_COUNT and ident == guest.trainer:
                guest.tell_step_place()
            self._next_count *= 10
            nodes = count_nodes(args[0] if args else kwargs.get("tensors"))
        guest.backward.add(ident)
        if ident == guest.trainer:
            self.state.is_inside = True
            if guest.device_clock is not None and self.calls >= FIRST_COUNT:
                self._engine.start()
        return BackwardTicket(nodes, thread_time_ns(), monotonic_ns())

    def _is_inner(self, ident: int) -> bool:
        """Whether a pass runs already: in this thread, or one for which the engine calls us."""
        guest = self.guest
        if ident in guest.backward or _running_backward() != -1:
            return True
        return self.state.is_inside and ident == guest.trainer

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it."""
        now_ns = monotonic_ns()
        nodes, cpu_ns, start_ns = ticket
        used_ns = thread_time_ns() - cpu_ns if cpu_ns else -1
        engine_ns = self._engine.stop() if cpu_ns else -1
        self.withdraw()
        flags = 0 if error is None else _ERROR
        self.guest.append(
            _BACKWARD_KIND, start_ns, now_ns - start_ns, nodes, used_ns, engine_ns, flags=flags
        )

    def withdraw(self) -> None:
        """This thread is in no backward pass."""
        ident = get_ident()
        self.guest.backward.discard(ident)
        self.leave(ident)


class EngineThreads:
    """CPU time of the threads in which autograd runs backward passes of an accelerator.

    They are torch's own and live as long as the process; it names them.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a forked child there are none."""
        self._files: list[str] | None = None
        self._start_ns = -1

    def start(self) -> None:
        """A backward pass begins."""
        if self._files is None:
            self._files = [f"{thread}/schedstat" for thread in _list_engine_threads()]
        self._start_ns = self._read()

    def stop(self) -> int:
        """Time on a core since `start`; -1 if not known."""
        start_ns, self._start_ns = self._start_ns, -1
        now_ns = self._read() if start_ns >= 0 else -1
        return now_ns - start_ns if now_ns >= 0 else -1

    def _read(self) -> int:
        total_ns = 0
        try:
            for name in self._files or ():
                with open(name, "rb") as file:  # noqa: PTH123 - no pathlib in guests
                    total_ns += int(file.read().split()[0])
        except (OSError, IndexError):
            return -1
        return total_ns


def _list_engine_threads() -> list[str]:
    found = []
    for entry in os.scandir("/proc/self/task"):
        try:
            with open(f"{entry.path}/comm") as file:  # noqa: PTH123 - no pathlib in guests
                if file.read().startswith(_ENGINE_NAME):
                    found.append(entry.path)
        except OSError:  # noqa: PERF203 - it has ended
            continue
    return found


class OptimizerStep(Hook):
    """One optimizer step: a mark at its end.

    Its beginning is not watched. Whatever lies between a backward pass and this mark is the
    optimizer's, which costs the training nothing to know.
    """

    name = "optimizer step"
    code = "step-hook"
    forbids = "counting steps by the optimizer"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self.optimizers = Identities()

    def make_after(self) -> Callable[[Any, Any, Any], None]:
        """What torch is to call after each step that did not raise."""
        guest, mark, entries = self.guest, self.guest.spool.buffer.mark, self.optimizers.entries

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_tracing() or not self.is_on:
                return
            try:
                guest.steps += 1
                is_time = mark(entries, optimizer, _STEP_TAIL)
                if is_time:
                    guest.spool.write_buffered()
                elif is_time is None:
                    guest.append(_STEP_KIND, monotonic_ns(), 0, self.number_of(optimizer), 0, -1)
                if guest.device_clock is not None:
                    guest.device_clock.notice_step(optimizer)
            except BaseException as fault:  # noqa: BLE001 - the guard
                self.answer_for(fault)

        return after

    def number_of(self, optimizer: Any) -> int:
        """The number of an optimizer; the first time, also what its weights are on."""
        number = self.optimizers.find(optimizer)
        if number:
            return number
        meet_device, device = self.guest.meet_device, find_device(optimizer)
        if meet_device is not None and device is not None:
            meet_device()
        return self.optimizers.add(optimizer)


class SkippedStep(Hook):
    """`GradScaler.step`, which leaves the optimizer out where gradients have overflowed.

    The pass was made all the same, and the device was at work: it counts as a step.
    """

    name = "steps left out"
    forbids = "counting steps whose gradients had overflowed"

    def __init__(self, guest: Guest, step: OptimizerStep) -> None:
        super().__init__(guest)
        self._step = step

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note how many steps there were; the scaler reads whether gradients have overflowed."""
        self.guest.lane.scaling = True
        return args[1] if len(args) > 1 else kwargs.get("optimizer"), self.guest.steps

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record a step if there was none."""
        self.guest.lane.scaling = False
        optimizer, count = ticket
        if error is not None or self.guest.steps != count or optimizer is None:
            return
        number = self._step.number_of(optimizer)
        self.guest.append(_STEP_KIND, monotonic_ns(), 0, number, 0, -1, flags=_SKIPPED)

    def withdraw(self) -> None:
        """This thread is in no scaler."""
        self.guest.lane.scaling = False


class Replay(Hook):
    """A captured graph is replayed: a step, where it holds a whole one."""

    name = "graph replay"
    forbids = "counting steps that are graphs"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self._graphs = Identities()

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take note of the graph."""
        return args[0] if get_ident() == self.guest.trainer else None

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it."""
        if error is None:
            number = self._graphs.find(ticket) or self._graphs.add(ticket)
            self.guest.append(_STEP_KIND, monotonic_ns(), 0, number, _REPLAY, -1)
            if self.guest.device_clock is not None:
                self.guest.device_clock.notice_replay()


def find_device(optimizer: Any) -> torch.device | None:
    """Where an optimizer's first weight is; None if that is no accelerator."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            device: torch.device = weight.device
            return None if device.type in HOSTS else device
    return None


NODES = 20_000
"""Counting stops here, after about 20 ms; a graph of this size is a large one anyway."""


def count_nodes(roots: Any) -> int:
    """Nodes reachable from a tensor, a gradient edge or a sequence of them. Keeps no reference."""
    with _DisableTorchFunction():  # tensor subclasses must not notice
        waiting = [node for node in map(_node_of, _listed(roots)) if node is not None]
    seen = set(waiting)
    while waiting and len(seen) < NODES:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return len(seen)


def _listed(roots: Any) -> Iterable[Any]:
    # A gradient edge is a named tuple of a node and a number: one root, not two.
    is_many = isinstance(roots, list | tuple) and not hasattr(roots, "node")
    return roots if is_many else (roots,)


def _node_of(root: Any) -> Any:
    return getattr(root, "node", None) or getattr(root, "grad_fn", None)
