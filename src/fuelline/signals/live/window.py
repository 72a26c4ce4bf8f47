"""Sums over the last seconds, kept in short buckets, so that forgetting costs nothing."""

from __future__ import annotations

from collections import Counter

WINDOW_NS = 10 * 10**9
"""What "the last seconds" are."""
_BUCKET_NS = 250_000_000


class Buckets:
    """Amounts by name and time."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[str, int]] = {}
        self._total: Counter[str] = Counter()
        """Of all buckets."""

    def add(self, at_ns: int, name: str, amount: int) -> None:
        """Add an amount at a moment."""
        number = at_ns // _BUCKET_NS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
        bucket[name] = bucket.get(name, 0) + amount
        self._total[name] += amount

    def add_span(self, start_ns: int, end_ns: int, name: str) -> None:
        """Add the nanoseconds of a stretch, each to its bucket; of a long one only the end."""
        start_ns = max(start_ns, end_ns - 2 * WINDOW_NS)
        while start_ns < end_ns:
            until_ns = min(end_ns, (start_ns // _BUCKET_NS + 1) * _BUCKET_NS)
            self.add(start_ns, name, until_ns - start_ns)
            start_ns = until_ns

    def total(self, now_ns: int) -> Counter[str]:
        """What the last seconds add up to; forgets what was before them."""
        first = (now_ns - WINDOW_NS) // _BUCKET_NS + 1
        for at in [at for at in self._buckets if at < first]:
            for name, amount in self._buckets.pop(at).items():
                self._total[name] -= amount
        return self._total.copy()
