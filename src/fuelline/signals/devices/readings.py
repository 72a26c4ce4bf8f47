"""The readings of one device inside one stretch of time, by name: means, growth, last values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.signals.statistics import ratio, total

if TYPE_CHECKING:
    from fuelline.schema.run.samples import DeviceSeen
    from fuelline.timeline import Timeline

_NEAR_NS = 2_000_000_000
"""A link was read while busy if the utilisation was seen so shortly before or after."""


class Readings:
    """One device between two moments."""

    def __init__(self, timeline: Timeline, seen: DeviceSeen, window: tuple[int, int]) -> None:
        self._seen = seen
        self._window = window
        self._kept_frac = timeline.kept_frac
        self.frame = timeline.table("devices").filter(pl.col("device") == seen.device)

    @property
    def seconds(self) -> float:
        """Length of the stretch of the run in which counters grew."""
        return (self._window[1] - self._window[0]) / self._kept_frac / 1e9

    @property
    def lost_ns(self) -> int | None:
        """When the driver lost the device, if it did."""
        lost_ns = self.frame.filter(pl.col("name") == "lost")["at_ns"].min()
        return lost_ns if isinstance(lost_ns, int) else None

    def elapsed_frac(self, at_ns: int) -> float:
        """Share of the stretch that lies before a moment."""
        start_ns, end_ns = self._window
        return min(1.0, max(0.0, (at_ns - start_ns) / max(end_ns - start_ns, 1)))

    def why(self, kind: str) -> str:
        """Why a kind of reading is not there."""
        return self._seen.refusals.get(kind, "it was not read in this stretch")

    def mean(self, name: str, unit: str, kind: str) -> Signal:
        """Mean of a value over its rows, each of which stands for about a second."""
        values = self._inside(name)["value"]
        if not values.len():
            return Missing(reason=self.why(kind))
        ones = pl.repeat(1.0, values.len(), eager=True)
        return ratio(values, ones, unit, f"devices.{name}")

    def highest(self, name: str, unit: str, kind: str) -> Signal:
        """The largest value."""
        values = self._inside(name)["value"]
        if not values.len():
            return Missing(reason=self.why(kind))
        return total(float(values.max()), unit, f"devices.{name}", values.len())  # type: ignore[arg-type]

    def last(self, name: str, kind: str) -> Signal:
        """The last value of a counter or state until the end of the stretch."""
        rows = self.frame.filter((pl.col("name") == name) & (pl.col("at_ns") <= self._window[1]))
        if not rows.height:
            return Missing(reason=self.why(kind))
        return total(float(rows.sort("at_ns")["value"][-1]), "count", f"devices.{name}")

    def growth(self, name: str, kind: str) -> Signal:
        """How much a counter grew, from the last reading before the stretch if there is one."""
        rows = self.frame.filter(
            (pl.col("name") == name) & (pl.col("at_ns") <= self._window[1])
        ).sort("at_ns")
        before = rows.filter(pl.col("at_ns") < self._window[0]).tail(1)
        rows = pl.concat([before, rows.filter(pl.col("at_ns") >= self._window[0])])
        if rows.height < 2:
            return Missing(reason="it was not read twice" if rows.height else self.why(kind))
        grown = max(0.0, float(rows["value"][-1] - rows["value"][0]))
        return total(grown, "count", f"devices.{name}", rows.height)

    def busiest_link(self, busy_frac: float) -> tuple[float | None, float | None, int]:
        """Best generation and width that were read while the device was busy, and how often.

        Without a utilisation (under MIG) all readings count: the best of them is the link's.
        """
        link = (
            self.frame.filter(pl.col("name").is_in(["pcie.generation", "pcie.width"]))
            .pivot("name", index="at_ns", values="value")
            .sort("at_ns")
        )
        if not {"pcie.generation", "pcie.width"} <= set(link.columns):
            return None, None, 0
        busy = self.frame.filter(pl.col("name") == "util.gpu_frac").sort("at_ns")
        if busy.height:
            near = link.join_asof(
                busy.select("at_ns", pl.col("value").alias("busy")),
                on="at_ns",
                strategy="nearest",
                tolerance=_NEAR_NS,
            )
            link = near.filter(pl.col("busy") >= busy_frac)
        if not link.height:
            return None, None, 0
        # Of the widest link the fastest: a link at rest may be narrow or slow, never too good.
        best = link.sort("pcie.width", "pcie.generation").row(-1, named=True)
        return best["pcie.generation"], best["pcie.width"], link.height

    def _inside(self, name: str) -> pl.DataFrame:
        start_ns, end_ns = self._window
        return self.frame.filter(
            (pl.col("name") == name) & pl.col("at_ns").is_between(start_ns, end_ns)
        )


def over(signal: Signal, whole: float | None) -> Signal:
    """A reading as a share of a known whole."""
    if isinstance(signal, Missing):
        return signal
    if not whole:
        return Missing(reason=f"the most that {signal.origin} can be is not known")
    return Reading(
        value=signal.value / whole,
        unit="frac",
        low=None if signal.low is None else signal.low / whole,
        high=None if signal.high is None else signal.high / whole,
        level=signal.level,
        count=signal.count,
        origin=f"{signal.origin} over {whole:g}",
    )
