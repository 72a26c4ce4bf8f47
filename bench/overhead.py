"""What the hooks cost on the main thread: CPU per training step, and time inside our code.

`cpu` compares the CPU time of steps with the hooks and without them, in turns of a few steps: the
literal cost, with what the hooks displace from the caches of others. Between turns the hooks are
taken out and put back as if they had never been there. The speed of the machine changes faster than
one can measure, so that it takes many turns. `hooks` tells where it is: a clock stands around each
hook, and another around what the hook calls; the difference, without what the two clocks cost by
themselves (the same clocks around nothing of ours), is the hook. Hooks run where they belong, once
a step, after the training has emptied the caches: ten times dearer than in a loop of their own. Its
clock goes on while others have the core, so that it is an upper end. About 14 minutes.

The bar, 25 us of a step of 2.6 ms, is for `hooks`, in microseconds and as a share of the step,
because the machine is slower at one time than at another. `cpu` shows whether anything is missing
from it, as far as its error goes.

The step is about 2.6 ms of real forward, backward and optimizer on one thread of a machine at full
speed: compare `plain_us_per_step`. `workers` steps get their batches from a loader worker, `inline`
steps fetch them in the trainer, which adds the fetch hook.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, Dataset, dataloader
from torch.utils.data._utils import fetch

from fuelline.record.hooks.torch.install import Installation
from fuelline.record.spool import Spool

STEPS = 4000
TURNS = 2500
BLOCK, SETTLING = 8, 2
"""Steps of a turn that are measured, and those before them that are not."""
TRIMMED = 0.2
WARM_UP = 2500
"""Steps until the hooks are mostly on their quick path; later they are a little more often."""
WIDTH, LAYERS = 64, 30
"""About 2.6 ms of one core here, in many small operators, as on the main thread of a GPU job."""
INTERRUPTED = 1000
"""One in as many calls is left out, the longest: the clock runs on while others have the core."""

POINTS = (
    (dataloader._BaseDataLoaderIter, "__next__"),
    (fetch._MapDatasetFetcher, "fetch"),
    (torch.autograd, "backward"),
)


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), index % 7 / 7)


def make_step(workers: int) -> Callable[[], None]:
    model = torch.nn.Sequential(
        *(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)), torch.nn.Linear(WIDTH, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(Rows(), batch_size=16, num_workers=workers))

    def step() -> None:
        loss = model(next(batches)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class Clocks:
    """Clocks around the hooks and around what they call; `put_inside` first, then `put_around`."""

    def __init__(self) -> None:
        self.spent_ns: dict[str, list[int]] = {}
        self._inside = {name: [0, 0] for _, name in POINTS}
        self._originals: list[tuple[Any, str, Any]] = []

    def put_inside(self) -> None:
        for owner, name in POINTS:
            self._replace(owner, name, self._inside_of(getattr(owner, name), self._inside[name]))

    def put_around(self) -> None:
        for owner, name in POINTS:
            around = self._around(getattr(owner, name), self._inside[name], self._kept(name))
            self._replace(owner, name, around)
        after = optimizers._global_optimizer_post_hooks
        for key, hook in after.items():
            after[key] = self._around(hook, [0, 0], self._kept("optimizer"))

    def remove(self) -> None:
        for owner, name, original in reversed(self._originals):
            setattr(owner, name, original)

    def us_per_step(self, steps: int) -> float:
        total = 0
        for spent in self.spent_ns.values():
            total += sum(sorted(spent)[: -(len(spent) // INTERRUPTED + 1)])
        return total / steps / 1e3

    def _kept(self, name: str) -> list[int]:
        return self.spent_ns.setdefault(name, [])

    def _replace(self, owner: Any, name: str, function: Any) -> None:
        self._originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, function)

    @staticmethod
    def _inside_of(function: Callable[..., Any], inside: list[int]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            inside[0] = time.perf_counter_ns()
            result = function(*args, **kwargs)
            inside[1] = time.perf_counter_ns()
            return result

        return timed

    @staticmethod
    def _around(
        function: Callable[..., Any], inside: list[int], spent: list[int]
    ) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start_ns = time.perf_counter_ns()
            result = function(*args, **kwargs)
            end_ns = time.perf_counter_ns()
            spent.append(end_ns - start_ns - (inside[1] - inside[0]))
            return result

        return timed


def time_hooks(workers: int, *, with_hooks: bool) -> tuple[float, float]:
    """Microseconds a step within the clocks but not within the job's own calls, and of a step."""
    clocks = Clocks()
    clocks.put_inside()
    with tempfile.TemporaryDirectory() as folder:
        installation = install(folder) if with_hooks else None
        idle = None if with_hooks else optimizers.register_optimizer_step_post_hook(_do_nothing)
        clocks.put_around()
        step = make_step(workers)
        for _ in range(WARM_UP):
            step()
        for spent in clocks.spent_ns.values():
            spent.clear()
        start_ns = time.thread_time_ns()
        for _ in range(STEPS):
            step()
        step_us = (time.thread_time_ns() - start_ns) / STEPS / 1e3
        del step
        clocks.remove()
        if installation is not None:
            installation.uninstall()
        if idle is not None:
            idle.remove()
    return clocks.us_per_step(STEPS), step_us


def _do_nothing(*_: Any) -> None:
    """What torch calls after an optimizer step where there are no hooks of ours."""


def install(folder: str) -> Installation:
    installation = Installation(Spool(f"{folder}/spool"))
    installation.add_all(lambda name, action: action() if name in sys.modules else None)
    return installation


def time_in_turn(workers: int, rounds: int = 3) -> dict[str, float]:
    plain, hooked = [], []
    for _ in range(rounds):
        plain.append(time_hooks(workers, with_hooks=False))
        hooked.append(time_hooks(workers, with_hooks=True))
    costs = [on[0] - off[0] for on, off in zip(hooked, plain, strict=True)]
    return {
        "plain_us_per_step": statistics.median(step_us for _, step_us in plain),
        "hooks_us_per_step": statistics.median(costs),
        "hooks_us_lowest": min(costs),
        "hooks_us_highest": max(costs),
        "hooks_frac_of_step": statistics.median(
            cost / step_us for cost, (_, step_us) in zip(costs, plain, strict=True)
        ),
    }


class Switch:
    """Puts the hooks of a step in place and takes them out, as if they had never been there."""

    def __init__(self, folder: str) -> None:
        self._plain = [vars(owner)[name] for owner, name in POINTS]
        self.installation = install(folder)
        self._hooked = [vars(owner)[name] for owner, name in POINTS]
        self._after = dict(optimizers._global_optimizer_post_hooks)

    def turn(self, *, is_on: bool) -> None:
        for (owner, name), value in zip(
            POINTS, self._hooked if is_on else self._plain, strict=True
        ):
            setattr(owner, name, value)
        optimizers._global_optimizer_post_hooks.clear()
        if is_on:
            optimizers._global_optimizer_post_hooks.update(self._after)


def measure_block(step: Callable[[], None]) -> float:
    """CPU time of a step in microseconds, once Python has found its attributes again."""
    for _ in range(SETTLING):
        step()
    start_ns = time.thread_time_ns()
    for _ in range(BLOCK):
        step()
    return (time.thread_time_ns() - start_ns) / BLOCK / 1e3


def compare(workers: int, switch: Switch) -> dict[str, float]:
    switch.turn(is_on=True)
    step = make_step(workers)
    for _ in range(WARM_UP):
        step()
    pairs = []
    for turn in range(TURNS):
        took_us = {}
        for is_on in (False, True) if turn % 2 else (True, False):
            switch.turn(is_on=is_on)
            took_us[is_on] = measure_block(step)
        pairs.append((took_us[False], took_us[True]))
    switch.turn(is_on=True)
    return summarise(pairs)


def summarise(pairs: list[tuple[float, float]]) -> dict[str, float]:
    """Mean of the middle of the differences, with its error: the outer ones are the machine's."""
    costs = sorted(hooked - plain for plain, hooked in pairs)
    cut = int(TRIMMED * len(costs))
    inner = costs[cut:-cut]
    winsorised = [inner[0]] * cut + inner + [inner[-1]] * cut
    error = 1.96 * statistics.stdev(winsorised) / (1 - 2 * TRIMMED) / len(costs) ** 0.5
    return {"cpu_us_per_step": statistics.mean(inner), "cpu_us_error": error}


def measure_append(spool: Spool, count: int = 200_000) -> float:
    """CPU nanoseconds for one record, growth of the file included."""
    start_ns = time.thread_time_ns()
    for number in range(count):
        spool.append(1, number, 5, 1, 2, 3, 4, 5, 1)
    return (time.thread_time_ns() - start_ns) / count


def rounds(spool: Spool, number: int = 5) -> Iterator[float]:
    for _ in range(number):
        yield measure_append(spool)


def main() -> dict[str, Any]:
    torch.set_num_threads(1)
    result: dict[str, Any] = {"workers": time_in_turn(1), "inline": time_in_turn(0)}
    with tempfile.TemporaryDirectory() as folder:
        result["append_ns"] = min(rounds(Spool(f"{folder}/appends")))
        switch = Switch(folder)
        result["workers"] |= compare(1, switch)
        result["inline"] |= compare(0, switch)
        switch.installation.uninstall()
    print(json.dumps(result, indent=2))
    return result


if __name__ == "__main__":
    main()
