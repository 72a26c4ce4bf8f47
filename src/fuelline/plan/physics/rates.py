"""Which constants hold for a chip, an engine or a source: look-ups in the table of `constants`.

A chip that nobody measured gets the middle of what its kind reaches, with a doubt as wide as the
spread over that kind; where the catalogue knows its best measured product, the math rate follows
from that.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from fuelline.plan.physics.constants import (
    BARE,
    EQUAL_LENGTHS,
    Constants,
    Convention,
    Engine,
    Exchange,
    Loop,
    Matmul,
)
from fuelline.schema.plan.chips import TERA, Chip

BEST_TO_USUAL = 0.93
"""What products of a model reach against the best product found by a search (A100 0.89, H100 1.0,
B200 0.90 of the achieved rates in the catalogue)."""
_UNITS = {"fp4": ("fp4", "fp8"), "fp8": ("fp8",), "int8": ("int8", "fp8"), "fp32": ("fp32",)}


@lru_cache(maxsize=4096)
def find_matmul(chip: Chip, math: str, constants: Constants) -> Matmul:
    """This chip's own entry, or that of its kind with what this chip's large products reached."""
    own = [each for each in constants.matmul if chip.name in each.chips]
    kind = [each for each in constants.matmul if each.kind == chip.kind]
    for entries, wanted in ((own, math), (kind, math), (own, "bf16"), (kind, "bf16")):
        for entry in entries:
            if entry.math == wanted:
                return entry if entry.chips else _with_measured_peak(entry, chip, math)
    return replace(next(each for each in constants.matmul if each.kind == "gpu"), kind=chip.kind)


def _with_measured_peak(entry: Matmul, chip: Chip, math: str) -> Matmul:
    """The catalogue knows the best product that somebody measured on some of the chips."""
    best = {"bf16": chip.achieved_bf16_tflops, "fp8": chip.achieved_fp8_tflops}.get(math)
    peak = chip.peak_flops(math)
    if best is None or peak is None:
        return entry
    return replace(entry, math_share=min(BEST_TO_USUAL * best * TERA / peak, 1.0))


@lru_cache(maxsize=4096)
def find_exchange(chip: Chip, constants: Constants) -> Exchange:
    """This chip's own entry, or that of its kind."""
    for entry in constants.exchange:
        if chip.name in entry.chips:
            return entry
    for entry in constants.exchange:
        if entry.kind == chip.kind:
            return entry
    return Exchange()


@lru_cache(maxsize=4096)
def usable_math(chip: Chip, math: str) -> str:
    """The unit that multiplies: a chip without 8- or 4-bit math unpacks to what it has."""
    if math == "mxfp4":  # 4-bit weights times 8-bit activations where a chip can, else unpacked
        return "fp8" if chip.peak_flops("fp4") is not None else "bf16"
    for candidate in _UNITS.get(math, ()):
        if chip.peak_flops(candidate) is not None:
            return candidate
    return "bf16"


def find_engine(text: str, constants: Constants) -> Engine:
    """The engine that a description names, or none's overhead at all."""
    words = text.lower()
    for engine in constants.engine:
        if any(word in words for word in engine.words) and (
            not engine.also or any(word in words for word in engine.also)
        ):
            return engine
    return BARE


def find_convention(text: str, constants: Constants) -> Convention:
    """What the source of these words is known to do; nothing special for an unknown one."""
    words = text.lower()
    for convention in constants.convention:
        if any(word in words for word in convention.words):
            return convention
    return Convention(words=())


def find_loop(text: str, constants: Constants) -> Loop:
    """How the source of these words keeps its load up; equal lengths for an unknown one."""
    words = text.lower()
    for loop in constants.loop:
        if any(word in words for word in loop.words):
            return loop
    return EQUAL_LENGTHS
