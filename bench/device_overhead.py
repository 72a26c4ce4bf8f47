"""What the device hooks add to a step on the main thread: CPU time, hooks off against hooks on.

There is no device: events, stream and copies are stand-ins that cost next to nothing, so that what
is stated is ours, without what the driver takes for an event. One process takes both measurements,
in turns of some steps, so that a noisy machine disturbs both alike; stated is the mean of the
differences without the outermost fiftieth. A step takes one batch, copies it, runs backward and an
optimizer, and reads one value. The bars: 25 us a step, 8 us for each further microbatch.

    python -m bench.device_overhead
"""

from __future__ import annotations

import operator
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo  # before there is another class of events
from torch.utils.data import DataLoader

from fuelline.record.hooks.torch import device_clock, training, transfer
from fuelline.record.hooks.torch.install import Installation
from fuelline.record.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fuelline.record.hooks.hook import Hook

TURNS = 1500
STEPS = 5
"""In a row, so that reading the clock does not count."""
MICROBATCHES = 5


class Event:
    """One that the device has passed at once; its methods are C, as torch's own are."""

    def __init__(self, **settings: object) -> None:
        del settings
        self.record: Callable[[object], int] = list[object]().count
        self.query = (1).__bool__
        self.elapsed_time = operator.truth  # 1 ms


class Job:
    """A loop whose batches, copies and values cost hardly anything themselves."""

    def __init__(self, installation: Installation) -> None:
        weight = torch.zeros(1, requires_grad=True)
        self.optimizer = torch.optim.SGD([weight], lr=0.1)
        self.loss = weight.sum()
        self.far = torch.zeros(1, device="meta")
        read = transfer.Read(installation.guest)
        self.read = read.wrap(lambda tensor: 0.0)
        self.hooks: list[Hook] = [
            read,
            *(hook for hook in installation.hooks if type(hook).__module__ in _DEVICE_FILES),
        ]
        self.batches = self._batches()

    def _batches(self) -> Iterator[torch.Tensor]:
        while True:
            yield from DataLoader(torch.zeros(4096, 1), batch_size=1)

    def step(self, microbatches: int) -> None:
        """One optimizer step."""
        for _ in range(microbatches):
            next(self.batches).to("meta")
            torch.autograd.backward(self.loss, retain_graph=True)
        self.optimizer.step()
        self.read(self.far)


_DEVICE_FILES = (transfer.__name__, device_clock.__name__)


def main() -> dict[str, Any]:
    """Microseconds a step, and for each further microbatch."""
    torch.set_num_threads(1)
    vars(torch)["Event"] = Event
    torch.accelerator.current_stream = lambda device: "stream"
    for module in (training, device_clock):
        vars(module)["find_device"] = lambda optimizer: torch.device("privateuseone", 0)
    with tempfile.TemporaryDirectory() as folder:
        installation = Installation(Spool(f"{folder}/spool"))
        for file, function in (
            *(("training", "install"), ("loader", "install"), ("device_clock", "install")),
            ("transfer", "install_copies"),
        ):
            installation.add(file, function)
        job = Job(installation)
        for _ in range(200):
            job.step(1)
        one, several = (compare(job, count) for count in (1, MICROBATCHES))
        faults = installation.guest.spool._faults
        installation.uninstall()
    more = (several - one) / (MICROBATCHES - 1)
    return {
        "step_us": one,
        "microbatch_us": more,
        "faults": faults,
        "passed": one <= 25 and more <= 8 and not faults,
    }


def compare(job: Job, microbatches: int) -> float:
    """Microseconds that the hooks add to a step."""
    differences = sorted(
        took(job, microbatches, is_on=True) - took(job, microbatches, is_on=False)
        for _ in range(TURNS)
    )
    cut = TURNS // 50
    return statistics.mean(differences[cut:-cut]) / 1e3


def took(job: Job, microbatches: int, *, is_on: bool) -> float:
    """Nanoseconds of CPU a step."""
    for hook in job.hooks:
        hook.is_on = is_on
    start_ns = time.thread_time_ns()
    for _ in range(STEPS):
        job.step(microbatches)
    return (time.thread_time_ns() - start_ns) / STEPS


if __name__ == "__main__":
    for name, figure in main().items():
        print(f"{name:16} {figure}")
