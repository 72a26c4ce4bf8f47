"""What scraped counters allow us to say: how busy a chip really was, never why.

GPU_UTIL is the share of time in which some kernel was resident. The other counters bound what it
hides: the chip cannot have been fuller than its engine or its multiprocessors were active, and it
was at least as busy as its tensor cores or its memory were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from fuelline.diagnose.engine import cannot_tell
from fuelline.schema.diagnosis.findings import Verdict
from fuelline.schema.readings import Signal, value_of
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.devices import DeviceFacts
    from fuelline.schema.diagnosis.findings import Diagnosis, RunSummary
    from fuelline.schema.run.trace import Quality

_IDLE = 0.05
"""Below it a device is called idle: monitoring alone shows as 1 or 2 %."""
_HALF = 0.5
"""A chip that is at most half as full as reported is not what it is taken for."""
_WORKS = 0.25
"""Of the tensor cores or of the memory bandwidth: in use. A practical MFU of 40 % needs the tensor
cores active for at least that long; a quarter leaves room for other work."""
_REASON = (
    "a scrape shows how busy a chip is, not what it waits for. `fuelline run train.py` records the "
    "job, `fuelline import` reads its profiler trace"
)


@dataclass(frozen=True)
class _Chip:
    """One device's shares; None is unknown."""

    label: str
    reported: float | None
    resident: float | None
    filled: float | None
    tensor: float | None
    memory: float | None

    def judge(self) -> tuple[int, str]:
        """How wrong the reported number is (the higher, the more to say), and the sentence."""
        if self.reported is None:
            return 0, f"{self.label}: utilisation was not exported."
        claim = f"{self.label} reports {percent(self.reported)} utilisation"
        bounds = [share for share in (self.resident, self.filled) if share is not None]
        works = [share for share in (self.tensor, self.memory, self.filled) if share is not None]
        if max(self.reported, *bounds, 0.0) < _IDLE:
            return 1, f"{self.label} is idle: {percent(self.reported)} utilisation."
        if bounds and min(bounds) <= _HALF * self.reported:
            return 4, f"Not a busy chip: {claim}, but {self._words()}."
        if works and max(works) < _WORKS:
            return 3, f"Not a busy chip: {claim}, but hardly any work is visible: {self._words()}."
        if not works:
            return 2, (
                f"{claim}: some kernel was running. No exported counter shows whether it filled "
                "the chip."
            )
        return 0, f"{claim}, and {self._words()}."

    def _words(self) -> str:
        known = (
            ("kernels were resident {} of the time", self.resident),
            ("multiprocessors active {}", self.filled),
            ("tensor cores active {}", self.tensor),
            ("memory busy {}", self.memory),
        )
        return ", ".join(form.format(percent(share)) for form, share in known if share is not None)


def judge_scrapes(
    run: RunSummary,
    devices: Sequence[DeviceFacts],
    quality: Sequence[Quality],
    price_usd_per_hour: float | None = None,
) -> Diagnosis:
    """A diagnosis without a cause: the most misleading device speaks, the others are shown."""
    chips = [_chip(device) for device in devices]
    spoken = max((chip.judge() for chip in chips), key=lambda said: said[0], default=(0, ""))
    rest = f" {len(chips)} devices are shown below." if len(chips) > 1 else ""
    diagnosis = cannot_tell(run, [], _REASON, price_usd_per_hour, devices)
    verdict = Verdict(
        code=None,
        stage=None,
        limit=None,
        share_of_wall=None,
        sentence=f"{spoken[1]}{rest} A scrape does not show why.",
        reason=_REASON,
    )
    return msgspec.structs.replace(diagnosis, verdict=verdict, quality=list(quality))


def _chip(device: DeviceFacts) -> _Chip:
    def share(signal: Signal | None) -> float | None:
        return None if signal is None else value_of(signal)

    return _Chip(
        label=f"{device.device} ({device.name})" if device.name else device.device,
        reported=share(device.utilisation),
        resident=device.ladder.get("kernels resident"),
        filled=device.ladder.get("SMs active"),
        tensor=device.ladder.get("tensor cores active"),
        memory=share(device.dram_share),
    )
