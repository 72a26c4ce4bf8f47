"""What one operator costs in eager PyTorch when there is nothing to compute: the launch floor.

Chains of tiny operators on one sample, forward and backward, CPU time over nodes of the autograd
graph. `signals/compute.py` takes its NODE_FLOOR_NS from here: the smallest of the chains, so that a
job is called launch-bound too rarely rather than too often.

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

from fuelline.record.hooks.graph import count_nodes
from fuelline.signals.compute import NODE_FLOOR_NS

DEPTH = 200
REPEATS = 30


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
    figures: dict[str, Any] = {name: round(_per_node_us(run), 1) for name, run in chains().items()}
    figures["used_us"] = NODE_FLOOR_NS / 1000
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
