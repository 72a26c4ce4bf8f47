"""`fuelline.watch()`: names the source of a loop's batches, where that is not a known loader's."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fuelline.record.hooks.sources import Watched

if TYPE_CHECKING:
    from collections.abc import Iterable

Batch = TypeVar("Batch")


def watch(source: Iterable[Batch], name: str | None = None) -> Watched[Batch]:
    """Iterate over `source`, and have `fuelline run` know that what it takes is waiting for input.

        for batch in fuelline.watch(batches()):
            train(batch)

    Never needed: what a loop waits on is found without it, by a clock where that is a queue, a
    future or a pool of Python's library, else by samples. With it every batch is timed, and a loop
    without an optimizer, such as one that embeds or transcribes, is counted in batches. The
    elements are the source's own, and so are its length and its other attributes. Without a
    recorder it costs a call for each batch. `name` is what the report calls it.
    """
    return Watched(source, name)
