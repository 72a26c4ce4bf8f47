"""The smallest number that is enough, where asking is dear and a guess is cheap.

Walks from the guess in growing strides until the answer changes, then halves. Found to two per
cent: a simulation of some hundred requests knows no better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FINE = 50
"""A number is found to this part of it."""
COARSE = 12
"""The first stride is this part of the guess."""


def find_first(enough: Callable[[int], bool], guess: int, fewest: int, most: int) -> int:
    """The smallest from `fewest` to `most` that is enough; 0 if none is."""
    guess = min(guess, most)
    walk = _walk_down if enough(guess) else _walk_up
    low, high = walk(enough, guess, max(1, guess // COARSE), (fewest, most))
    if high > most:
        return 0
    while high - low > max(1, high // FINE):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _walk_down(
    enough: Callable[[int], bool], high: int, stride: int, ends: tuple[int, int]
) -> tuple[int, int]:
    """One that is not enough, or that nobody asks for, and one that is."""
    fewest, _ = ends
    low = max(high - stride, fewest - 1)
    while low >= fewest and enough(low):
        stride *= 2
        low, high = max(low - stride, fewest - 1), low
    return low, high


def _walk_up(
    enough: Callable[[int], bool], low: int, stride: int, ends: tuple[int, int]
) -> tuple[int, int]:
    """The same upwards; beyond the most there is nothing."""
    _, most = ends
    while low < most:
        high = min(low + stride, most)
        if enough(high):
            return low, high
        stride *= 2
        low = high
    return low, most + 1
