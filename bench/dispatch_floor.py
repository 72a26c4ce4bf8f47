"""What one operator costs in eager PyTorch when there is nothing to compute: the launch floor.

Chains of tiny operators on one sample, forward and backward, CPU time over nodes of the autograd
graph, in turn with the observer's fixed piece of Python: both change with the speed of the machine,
their ratio hardly does. `signals/recorded/compute.py` takes its NODE_SPINS from here.

    python -m bench.dispatch_floor
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

from fuelline.record.hooks.torch.training import count_nodes
from fuelline.record.samplers.clocks import time_spin
from fuelline.signals.recorded.compute import NODE_SPINS

DEPTH = 200
REPEATS = 5
ROUNDS = 12


def chains() -> dict[str, Callable[[Tensor], Tensor]]:
    linear = nn.ModuleList(nn.Linear(8, 8) for _ in range(DEPTH))
    norm = nn.ModuleList(nn.LayerNorm(8) for _ in range(DEPTH))
    return {
        "linear": lambda x: _chain(x, [*linear]),
        "linear, tanh, residual": lambda x: _chain(x, [_residual(layer) for layer in linear]),
        "layer norm": lambda x: _chain(x, [*norm]),
        "relu": lambda x: _chain(x, [torch.relu] * DEPTH),
    }


def main() -> dict[str, Any]:
    torch.set_num_threads(1)
    runs = chains()
    spins_us: list[float] = []
    us: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            us[name].append(_per_node_us(run))
            time.sleep(0.05)  # the observer has slept, too
            spins_us.append(time_spin() / 1000)
    spin_us = statistics.median(spins_us)
    figures: dict[str, Any] = {"spin_us": round(spin_us, 1), "used": NODE_SPINS}
    for name, each in us.items():
        middle = statistics.median(each)
        figures[name] = {"us": round(middle, 1), "spins": round(middle / spin_us, 4)}
    return figures


def _chain(x: Tensor, layers: list[Callable[[Tensor], Tensor]]) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x.sum()


def _residual(layer: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: x + torch.tanh(layer(x)) * 0.1


def _per_node_us(run: Callable[[Tensor], Tensor]) -> float:
    x = torch.randn(1, 8, requires_grad=True)
    nodes = count_nodes(run(x))
    spent = []
    for _ in range(REPEATS):
        started = time.thread_time_ns()
        run(x).backward()
        spent.append(time.thread_time_ns() - started)
    return statistics.median(spent) / nodes / 1000


if __name__ == "__main__":
    print(main())
