"""The hardware catalogue: what a named chip or link can do at most. No name, no number.

A chip that is not listed has no peak here; borrowing another chip's would make every share of it
wrong in silence. Driver names are matched whole and unchanged: a MIG slice or an export variant
has its own name and is not its big sister. The figures are in `catalogue/chips.toml`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from fuelline.schema.errors import InputError
from fuelline.schema.plan.catalogue import nearest, plain, read_own, read_shipped

if TYPE_CHECKING:
    from pathlib import Path

TERA = 1e12
GIGA = 1e9
GIBI = 2**30

_LOWEST, _HIGHEST = 1e-6, 1e9
"""Of a user's figures: far outside what is built, and inside what can be computed with."""
_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""One lane, one direction, after line coding (PCI-SIG base specifications 1.0 to 6.0)."""


_ORIGINS: dict[str, Literal["measured", "catalogue"]] = {
    "yours": "catalogue",
    "measured": "measured",
}


class Chip(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, eq=False):
    """One accelerator. None is not known, which is not zero. Compared by identity, for caches."""

    name: str
    vendor: str = ""
    kind: str = "gpu"
    """`gpu`, `tpu` (a systolic array with a torus), `apple` (unified memory), `sram` (no DRAM)."""
    aliases: tuple[str, ...] = ()
    driver_names: tuple[str, ...] = ()
    """What the driver calls it, whole; how a recording finds its peak."""
    bf16_tflops: float | None = None
    """Dense, without sparsity, like all rates here."""
    fp16_tflops: float | None = None
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    int8_tops: float | None = None
    fp32_tflops: float | None = None
    mem_gb: float | None = None
    mem_gbps: float | None = None
    """Memory bandwidth, 1e9 bytes/s. High: decoding is fast. It is the floor of every token."""
    scaleup_link: str = ""
    scaleup_gbps: float | None = None
    """Per chip and direction inside the scale-up domain."""
    scaleup_domain: int = 1
    """Chips that reach one another by the scale-up link. 1: only by the host's bus."""
    scaleout_gbps: float | None = None
    """Per chip and direction between domains."""
    tdp_w: float | None = None
    sm_count: int | None = None
    achieved_bf16_tflops: float | None = None
    """Best large matmul measured by others; below the sheet by 3 to 49 per cent."""
    achieved_fp8_tflops: float | None = None
    usd_per_hour: float | None = None
    price_source: str = ""
    source: str = ""
    confidence: str = "yours"
    """`found`, `mixed`, `recalled`: of our figures; `yours` for a user's entry, `measured`
    for a device that `fuelline roofline` measured."""
    notes: str = ""
    host_gbps: float | None = None
    """To the host's memory, per direction, by its bus' specification. None: not known."""

    @property
    def origin(self) -> Literal["data sheet", "measured", "catalogue"]:
        """Where its rates are from: a maker's sheet, `fuelline roofline`, or a user's own entry."""
        return _ORIGINS.get(self.confidence, "data sheet")

    def peak_flops(self, math: str) -> float | None:
        """Dense operations per second in `bf16`, `fp16`, `fp8`, `fp4`, `int8` or `fp32`."""
        half = self.bf16_tflops or self.fp16_tflops
        rates = {
            "bf16": half,
            "fp16": self.fp16_tflops or half,
            "fp8": self.fp8_tflops,
            "fp4": self.fp4_tflops,
            "int8": self.int8_tops,
            "fp32": self.fp32_tflops,
        }
        rate = rates.get(math)
        return None if rate is None else rate * TERA

    @property
    def linked(self) -> bool:
        """Whether any link to other chips is known; without one it is counted alone."""
        return self.scaleup_gbps is not None or self.scaleout_gbps is not None

    @property
    def mem_bytes(self) -> float | None:
        """Capacity: sheets say GB and mean 2**30 bytes (an 80 GB card reports 81,559 MiB)."""
        return None if self.mem_gb is None else self.mem_gb * GIBI

    @property
    def mem_bytes_per_s(self) -> float | None:
        """Bandwidth of the memory that holds the weights."""
        return None if self.mem_gbps is None else self.mem_gbps * GIGA


class _Chips(Struct, forbid_unknown_fields=False):
    chip: tuple[Chip, ...] = ()


@cache
def list_chips() -> tuple[Chip, ...]:
    """All chips that ship with the package, in the order of the table."""
    return read_shipped("chips.toml", _Chips).chip


def read_chips(path: Path) -> tuple[Chip, ...]:
    """The `[[chip]]` entries of a user's file."""
    chips = read_own(path, _Chips).chip
    for chip in chips:
        for field in chip.__struct_fields__:
            value = getattr(chip, field)
            lowest = 0 if field == "usd_per_hour" else _LOWEST
            if isinstance(value, int | float) and not lowest <= value <= _HIGHEST:
                raise InputError(
                    f"{path}: `{field}` of the chip '{chip.name}' is {value:g}, which no chip has. "
                    "Nothing was computed. Correct it, or leave the line out: what is not said is "
                    "not known."
                )
    return chips


def find_chip(name: str, own: tuple[Chip, ...] = ()) -> Chip:
    """By name or alias, spelling aside; an unknown name is refused with its neighbours."""
    chips = (*own, *list_chips())
    wanted = plain(name)
    for chip in chips:
        if wanted in {plain(known) for known in (chip.name, *chip.aliases, *chip.driver_names)}:
            return chip
    close = ", ".join(nearest(name, (known for chip in chips for known in _names(chip))))
    raise InputError(
        f"no chip '{name}' in the catalogue, and no other chip's figures are taken for it. "
        f"Nearest: {close or 'none'}. `fuelline plan chips llama-3.1-8b` lists all; to plan "
        "with your own, put it into a TOML file as a [[chip]] entry: --catalogue FILE."
    )


def _names(chip: Chip) -> tuple[str, ...]:
    return (chip.name, *chip.aliases)


@cache
def _peaks_by_driver_name() -> dict[str, float]:
    return {
        name: peak
        for chip in list_chips()
        for name in chip.driver_names
        if (peak := chip.peak_flops("bf16")) is not None
    }


@cache
def _bandwidths_by_driver_name() -> dict[str, float]:
    return {
        name: rate
        for chip in list_chips()
        for name in chip.driver_names
        if (rate := chip.mem_bytes_per_s) is not None
    }


def find_peak_flops(name: str) -> float | None:
    """Dense half-precision rate of exactly this chip; None if it is not in the catalogue."""
    return _peaks_by_driver_name().get(name)


def find_peak_bytes(name: str) -> float | None:
    """Memory bandwidth of exactly this chip, in bytes/s; None if it is not in the catalogue."""
    return _bandwidths_by_driver_name().get(name)


def link_bytes_per_s(generation: float, width: float) -> float | None:
    """What a PCIe link carries in one direction; None for a generation that is not known yet."""
    lane = _LANE_BYTES_PER_S.get(round(generation))
    return None if lane is None else lane * width
