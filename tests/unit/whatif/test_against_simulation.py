"""The model against a simulation that knows nothing of it: workers, cores, a queue, a device.

Time goes in small ticks; every runnable thread gets an equal share of the cores in each of them.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest

from fuelline.whatif.model import Pipeline, run

TICK_S = 5e-4
SAMPLES = 4
"""Each fetch goes that often from storage to a core and back."""


@dataclass
class Worker:
    batches: list[int] = field(default_factory=list)
    batch: int | None = None
    phases: list[list] = field(default_factory=list)

    def begin(self, pipe: Pipeline, sizes: list[float]) -> None:
        if self.batch is not None or not self.batches:
            return
        self.batch = self.batches.pop(0)
        size = sizes[self.batch % len(sizes)] / SAMPLES
        self.phases = [["core", pipe.handoff_s]]
        for _ in range(SAMPLES):
            self.phases += [["core", size * pipe.cpu_s], ["disk", size * pipe.read_s]]

    def spend(self, kind: str, seconds: float) -> None:
        """Whatever is left over goes to the next phase of the same kind only."""
        if self.phases and self.phases[-1][0] == kind:
            self.phases[-1][1] -= seconds
        while self.phases and self.phases[-1][1] <= TICK_S / 2:
            self.phases.pop()

    def wants(self, kind: str) -> bool:
        return bool(self.phases) and self.phases[-1][0] == kind


def draw_sizes(spread: float, count: int) -> list[float]:
    """Log-normal sizes with a mean of exactly 1 from the start to the end."""
    chance = random.Random(3)
    sigma = math.sqrt(math.log(1 + spread**2))
    sizes = [math.exp(sigma * chance.gauss(0, 1)) for _ in range(count)]
    return [size * count / sum(sizes) for size in sizes]


def simulate(  # noqa: C901 - one loop over time is easier to read than five halves of it
    pipe: Pipeline, batches: int = 180, sync_every: int = 25, ahead: int = 2
) -> float:
    """Seconds from batch to batch."""
    sizes = draw_sizes(pipe.fetch_spread, batches)
    workers = [Worker() for _ in range(pipe.workers)]
    sent = pipe.workers * pipe.prefetch
    for number in range(sent):
        workers[number % pipe.workers].batches.append(number)
    ready: set[int] = set()
    now, taken, state, left, ends, times = 0.0, 0, "wait", 0.0, [0.0], []
    while taken < batches:
        for worker in workers:
            worker.begin(pipe, sizes)
        running = [worker for worker in workers if worker.wants("core")]
        reading = [worker for worker in workers if worker.wants("disk")]
        wanting = len(running) + (state in ("take", "host")) + pipe.rivals
        share = min(1.0, pipe.cores / wanting) if wanting else 1.0
        for worker in reading:
            worker.spend("disk", TICK_S * len(reading) ** -pipe.elasticity)
        for worker in running:
            worker.spend("core", TICK_S * share)
        for worker in workers:
            if worker.batch is not None and not worker.phases:
                ready.add(worker.batch)
                worker.batch = None
        if state == "wait" and taken in ready:
            state, left = "take", pipe.take_s
            workers[sent % pipe.workers].batches.append(sent)
            sent += 1
        elif state in ("take", "host"):
            left -= TICK_S * share
            if left <= 0 and state == "take":
                times.append(now)
                taken += 1
                ends.append(max(now, ends[-1]) + pipe.device_s)
                state, left = "host", pipe.host_s
            elif left <= 0:
                state = "launched"
        if state == "launched":
            due = ends[-1] if taken % sync_every == 0 else ends[max(0, len(ends) - 1 - ahead)]
            state = "wait" if now >= due else state
        now += TICK_S
    return (times[-1] - times[10]) / (len(times) - 11)


def pipeline(**numbers) -> Pipeline:
    times = {name: value / 1e3 for name, value in numbers.items() if name.endswith("_s")}
    rest = {name: value for name, value in numbers.items() if not name.endswith("_s")}
    plain = {
        "prefetch": 2, "batch_samples": 16, "read_s": 0.0, "metadata_s": 0.0, "idle_s": 0.0,
        "handoff_s": 1e-3, "take_s": 1.5e-3, "host_s": 3e-3, "loop_s": 0.0, "beside": True,
        "sync_frac": 0.04, "fetch_spread": 0.2, "cores": 2.0, "rivals": 0.0,
        "elasticity": 0.0, "host_cpu_s": 3e-3,
    }  # fmt: skip
    return Pipeline(**(plain | rest | times))


@pytest.mark.parametrize(
    "numbers",
    [
        {"workers": 1, "cpu_s": 24, "device_s": 12},
        {"workers": 2, "cpu_s": 24, "device_s": 12},
        {"workers": 4, "cpu_s": 24, "device_s": 6, "rivals": 2.0},
        {"workers": 2, "cpu_s": 6, "read_s": 90, "device_s": 20},
        {"workers": 8, "cpu_s": 6, "read_s": 90, "device_s": 9},
        {"workers": 8, "cpu_s": 6, "read_s": 60, "device_s": 9, "elasticity": 1.0},
        {"workers": 4, "cpu_s": 10, "read_s": 40, "device_s": 9, "elasticity": 0.5, "cores": 4.0},
        {"workers": 4, "cpu_s": 40, "device_s": 8, "fetch_spread": 0.6, "cores": 8.0},
        {"workers": 4, "cpu_s": 30, "device_s": 9, "fetch_spread": 0.4, "prefetch": 1},
        {"workers": 2, "cpu_s": 10, "device_s": 30},
    ],
    ids=str,
)
def test_the_model_agrees_with_a_simulation(numbers: dict) -> None:
    pipe = pipeline(**numbers)
    assert run(pipe).batch_s == pytest.approx(simulate(pipe), rel=0.08)
