"""An accelerator that is not there: a queue of timed kernels that occupies no core.

It behaves towards the host as CUDA does. A launch returns at once; the host blocks only when the
launch queue is full, at `synchronize()`, or when a value is read (`loss.item()`). The time of a
training step is a fixed cost plus a cost per sample, one third forward and two thirds backward.
`busy_frac()` is the truth that a diagnosis can be checked against.
"""

import time
from collections import deque
from typing import Any

import torch
from torch import Tensor, nn

QUEUE_LAUNCHES = 16
"""About two steps of run-ahead: CUDA holds 1024 launches, and a step often has some hundreds."""


class Device:
    """Kernels run one after the other, each for its set time, while the host goes on."""

    def __init__(
        self, fixed_ms: float = 2.0, sample_ms: float = 1.0, queue_launches: int = QUEUE_LAUNCHES
    ) -> None:
        self.fixed_ms = fixed_ms
        self.sample_ms = sample_ms
        self._queue_launches = queue_launches
        self._ends_ns: deque[int] = deque()
        self._first_launch_ns = 0
        self._free_at_ns = 0
        self._busy_ns = 0

    def step_ns(self, samples: int) -> int:
        """Device time of one training step with so many samples."""
        return int((self.fixed_ms + self.sample_ms * samples) * 1e6)

    def launch(self, duration_ns: int) -> None:
        """Queue a kernel; blocks only while the queue is full."""
        self._retire()
        if len(self._ends_ns) >= self._queue_launches:
            _sleep_until(self._ends_ns.popleft())
        now_ns = time.monotonic_ns()
        self._first_launch_ns = self._first_launch_ns or now_ns
        self._free_at_ns = max(now_ns, self._free_at_ns) + duration_ns
        self._ends_ns.append(self._free_at_ns)
        self._busy_ns += duration_ns

    def synchronize(self) -> None:
        """Block until every queued kernel has run."""
        _sleep_until(self._free_at_ns)
        self._ends_ns.clear()

    def busy_frac(self) -> float:
        """Share of the time since the first launch in which a kernel ran. Synchronises."""
        self.synchronize()
        return self._busy_ns / max(1, time.monotonic_ns() - self._first_launch_ns)

    def _retire(self) -> None:
        now_ns = time.monotonic_ns()
        while self._ends_ns and self._ends_ns[0] <= now_ns:
            self._ends_ns.popleft()


class DeviceTensor(Tensor):
    """A result that lives on the device: reading its value waits for the device."""

    device_queue: Device
    _READS = (
        Tensor.item,
        Tensor.tolist,
        Tensor.numpy,
        Tensor.cpu,
        Tensor.__float__,
        Tensor.__bool__,
        Tensor.__format__,
    )

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in cls._READS:
            cls.device_queue.synchronize()
        return super().__torch_function__(func, types, args, kwargs or {})


class Net(nn.Module):
    """A real little network whose layers each take their share of the device's time."""

    def __init__(
        self, device: Device, classes: int = 10, features: int = 64, depth: int = 4
    ) -> None:
        super().__init__()
        self.device = device
        self._result = type("Result", (DeviceTensor,), {"device_queue": device})
        self._features = features
        self.layers = nn.ModuleList(nn.Linear(features, features) for _ in range(depth))
        self.head = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores; one kernel a layer forward, one backward."""
        step_ns = self.device.step_ns(len(x))
        x = x.flatten(1)[:, : self._features].float()
        for layer in self.layers:
            x = _Kernel.apply(layer(x).relu(), self.device, step_ns // (3 * len(self.layers)))
        return self.head(x).as_subclass(self._result)


class _Kernel(torch.autograd.Function):
    """The identity, which takes `forward_ns` of device time forward and twice that backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Device, forward_ns: int) -> Tensor:
        ctx.device, ctx.backward_ns = device, 2 * forward_ns
        device.launch(forward_ns)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        ctx.device.launch(ctx.backward_ns)
        return grads[0], None, None


def _sleep_until(moment_ns: int) -> None:
    left_ns = moment_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)
