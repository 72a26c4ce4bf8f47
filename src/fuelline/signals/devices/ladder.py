"""The utilisation ladder of one device: seven rungs, each a share of its allocated time.

A device that was lost does nothing for the rest of the run, so its means count for the time that
it could be read. What cannot be measured here is Missing, with the way to see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.devices import RUNGS, Rung
from fuelline.schema.plan.chips import TERA, find_peak_flops
from fuelline.schema.readings import Missing, Signal
from fuelline.signals.devices.readings import over
from fuelline.signals.statistics import total

if TYPE_CHECKING:
    from fuelline.schema.run.samples import DeviceSeen
    from fuelline.signals.devices.readings import Readings

_BY_COUNTERS = ("kernels resident", "SMs active", "tensor cores active")
_DCGM_FIELDS = "1001,1002,1004"
"""The same in this order (dcgm_fields.h: GR_ENGINE_ACTIVE, SM_ACTIVE, PIPE_TENSOR_ACTIVE)."""


def climb(seen: DeviceSeen, run: Readings, flops_per_s: Signal) -> list[Rung]:
    """All rungs from the readings of the whole run; `flops_per_s` is what the model asked for."""
    lived = _lived_frac(run)

    def rung(name: str, kind: str) -> Signal:
        signal = run.mean(name, "frac", kind)
        return signal if lived == 1 else over(signal, 1 / lived if lived else None)

    shares = (
        total(1.0, "frac", "run"),
        rung("job.frac", "processes"),
        rung("util.gpu_frac", "utilisation"),
        rung("gpm.graphics_frac", "gpm"),
        rung("gpm.sm_frac", "gpm"),
        rung("gpm.tensor_frac", "gpm"),
        _mfu(seen, flops_per_s),
    )
    return [
        Rung(rung=name, share=_with_a_way(seen, name, share))
        for name, share in zip(RUNGS, shares, strict=True)
    ]


def _lived_frac(run: Readings) -> float:
    """Share of the run before the driver lost the device."""
    return 1.0 if run.lost_ns is None else run.elapsed_frac(run.lost_ns)


def _mfu(seen: DeviceSeen, flops_per_s: Signal) -> Signal:
    peak = find_peak_flops(seen.name)
    if peak is None:
        return Missing(reason=f"no peak is known for '{seen.name}', and a guess would mislead")
    if isinstance(flops_per_s, Missing):
        rate = f"{peak / TERA:.0f} TFLOP/s"
        return Missing(reason=f"{flops_per_s.reason} (peak of this chip: {rate})")
    return total(
        flops_per_s.value / peak, "frac", "model FLOPs over the chip's half-precision peak"
    )


def _with_a_way(seen: DeviceSeen, name: str, share: Signal) -> Signal:
    """A Missing rung also says how it can be seen."""
    if not isinstance(share, Missing) or name not in _BY_COUNTERS:
        return share
    if seen.vendor == "NVIDIA":
        way = f"`dcgmi dmon -e {_DCGM_FIELDS}` shows it on Volta and later"
    else:
        way = "the vendor's profiler shows it"
    return Missing(reason=f"{share.reason}; {way}")
