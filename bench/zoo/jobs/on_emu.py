"""The little net of examples/emulated.py on the device of bench/emu: as long, on its stream."""

import time

import torch
from bench import emu
from examples.emulated import Device, Net
from torch import Tensor


class EmuDevice(Device):
    """Kernels of set length on the current stream; who reads a value waits as on any device."""

    def __init__(self, fixed_ms: float, sample_ms: float) -> None:
        super().__init__(fixed_ms, sample_ms)
        self._started_ns = 0

    def launch(self, duration_ns: int) -> None:
        """Queue a kernel."""
        self._started_ns = self._started_ns or time.monotonic_ns()
        emu.kernel(duration_ns / 1e6)

    def synchronize(self) -> None:
        """Wait for all that was queued."""
        torch.accelerator.synchronize()

    def busy_frac(self) -> float:
        """By the device's own log."""
        self.synchronize()
        ended_ns = time.monotonic_ns()
        return emu.busy_ns(0, self._started_ns, ended_ns) / (ended_ns - self._started_ns)


class EmuNet(Net):
    """The net with its weights on the device; what it gets from the host is copied there."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.to("emu")

    def forward(self, x: Tensor) -> Tensor:
        """Class scores, as a plain tensor."""
        return super().forward(x.flatten(1).to("emu")).as_subclass(Tensor)
