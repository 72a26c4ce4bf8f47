"""How many operations an autograd graph has: what tells a launch-bound model from a large one."""

from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["count_nodes"]

NODES = 20_000
"""Counting stops here, after about 20 ms; a graph of this size is a large one anyway."""


def count_nodes(roots: Any) -> int:
    """Nodes reachable from a tensor, a gradient edge or a sequence of them. Keeps no reference."""
    with torch._C.DisableTorchFunction():  # tensor subclasses must not notice
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
