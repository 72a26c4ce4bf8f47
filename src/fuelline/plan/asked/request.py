"""What every question to the planner says: model, chips, precision, and numbers by their flag.

The command line reads numbers from words, Python gives them as they are. Both come here as a tuple
of values for each flag, in the unit of the flag; more than one value is a range, which gives a
table. `spell` says a flag as its user wrote it: `--tp 3`, or `tp=3`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.plan.models.configs import load_model
from fuelline.plan.models.shapes import why_uneven
from fuelline.plan.physics.constants import BARE, shipped_constants
from fuelline.plan.roofline.measured import read_entries, with_entries
from fuelline.schema.errors import InputError, UsageError
from fuelline.schema.plan.chips import Chip, find_chip, list_chips, read_chips
from fuelline.schema.plan.models import read_models
from fuelline.schema.plan.precision import parse_precision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from fuelline.plan.models.configs import Loaded
    from fuelline.plan.physics.constants import Constants, Engine
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision

DEFAULT_ENGINE = "vllm"
Values = dict[str, tuple[float, ...]]
"""A flag without its dashes to what it holds; flags that were not given are absent."""

LIMITS: Mapping[str, tuple[float, float]] = {
    # Lowest and highest value that makes sense, by flag.
    "batch": (1, 1e6),
    "in": (1, 1e8),
    "out": (1, 1e7),
    "rate": (1e-6, 1e6),
    "tp": (1, 1024),
    "pp": (1, 1024),
    "ep": (1, 1024),
    "cp": (1, 1024),
    "chips": (1, 1e7),
    "tokens": (1e3, 1e18),
    "seq": (1, 1e8),
    "batch-tokens": (1, 1e12),
    "microbatch": (1, 1e6),
    "measured": (1e-6, 1e9),
    "price": (1e-6, 1e6),
    "headroom": (0, 90),
    "vary": (0, 300),
    "attain": (50, 99.9),
    "interleave": (1, 64),
    "jitter": (0.01, 100),
    "checkpoint": (1e-6, 1e9),
    "mtbf": (1, 1e12),
    "sample-bytes": (1, 1e12),
    "sites": (1, 1000),
    "link": (1e-6, 1e5),
    "ttft": (1e-5, 1e5),
    "tpot": (1e-5, 1e5),
}
CHOICES = {"kv": (8, 16), "zero": (0, 1, 2, 3)}
"""Flags that know a few whole numbers only."""
COUNTS = (
    "batch", "in", "out", "tp", "pp", "ep", "cp", "chips", "seq", "microbatch", "interleave",
    "sites",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """A question, before anything was looked up."""

    model: str
    """`config.json`, its folder, or a public name."""
    values: Values
    spell: Callable[[str, str], str]
    """Flag and value as the user would write them; without a value, the flag alone."""
    chips: Sequence[str] = ()
    """Names; none means all of the catalogue."""
    precision: str | None = None
    catalogues: Sequence[Path] = ()
    """The user's own chips and models."""
    devices: Sequence[Path] = field(default=())
    """Devices that were measured here."""

    def first(self, flag: str, default: float = 0.0) -> float:
        """Of a swept flag the first value: the others are walked."""
        values = self.values.get(flag)
        return values[0] if values else default

    def load(self) -> Loaded:
        """The model."""
        return load_model(self.model, self.own_models())

    def own_models(self) -> tuple[Model, ...]:
        """Of the user's catalogues."""
        return tuple(model for path in self.catalogues for model in read_models(path))

    def own_chips(self) -> tuple[Chip, ...]:
        """Of the user's catalogues, and those that were measured here."""
        paths = (*self.catalogues, *self.devices)
        return tuple(chip for path in paths for chip in read_chips(path))

    def find_chips(self) -> tuple[Chip, ...]:
        """Those that were named; all of the catalogue without a name."""
        own = self.own_chips()
        if not self.chips:
            return (*own, *list_chips())
        found = [find_known(name, own, self.spell) for name in self.chips]
        return tuple({chip.name: chip for chip in found}.values())

    def find_constants(self) -> Constants:
        """Ours, and what was measured on the user's own devices."""
        paths = (*self.catalogues, *self.devices)
        entries = tuple(entry for path in paths for entry in read_entries(path))
        return with_entries(shipped_constants(), entries)

    def find_precision(self, loaded: Loaded, kv_bits: float | None = None) -> Precision:
        """As asked for, as published, or half."""
        if self.precision:
            found = parse_precision(self.precision)
        elif loaded.unclear:
            raise InputError(
                f"the weights of {loaded.model.name} are quantised by '{loaded.unclear}', and how "
                "many bits that leaves is not known here. Say it: "
                f"{self.spell('precision', 'int4')}, or fp8, int8-wo."
            )
        else:
            found = loaded.precision or parse_precision("bf16")
        return replace(found, kv_bits=found.kv_bits if kv_bits is None else kv_bits)

    def is_native(self, loaded: Loaded) -> bool:
        """The precision is not the user's choice but the release's: a chip may lack its unit."""
        return not self.precision and loaded.quantised

    def find_swept(self, flags: Sequence[str]) -> str:
        """The flag that holds several values; empty if none does."""
        ranges = [flag for flag in flags if len(self.values.get(flag, ())) > 1]
        if len(ranges) > 1:
            first, second = (self.spell(flag, "") for flag in ranges[:2])
            raise UsageError(
                f"{first} and {second} are both ranges, and a table has one. Give one of them one "
                "value."
            )
        return ranges[0] if ranges else ""

    def check_degrees(self, model: Model) -> None:
        """Degrees that contradict the model are refused with the nearest that do not.

        Of a range that has others, the table says it in their lines.
        """
        if any(
            len(values) > 1 and not all(why_uneven(model, flag, value) for value in values)
            for flag in ("tp", "pp", "ep")
            if (values := self.values.get(flag, ()))
        ):
            return
        for tp in self.values.get("tp", ()):
            self._check_divides("tp", int(tp), model.heads, "attention heads")
        for pp in self.values.get("pp", ()):
            if pp > model.layers:
                raise UsageError(
                    f"{self.spell('pp', f'{pp:g}')} is more than the {model.layers} layers that "
                    "there are."
                )
        for ep in self.values.get("ep", ()):
            if ep > 1 and not model.experts:
                raise UsageError(
                    f"{self.spell('ep', f'{ep:g}')}: {model.name} has no experts to spread. Leave "
                    "it out."
                )
            if ep > 1:
                self._check_divides("ep", int(ep), model.experts, "experts")
        self._check_together()

    def _check_divides(self, flag: str, size: int, whole: int, what: str) -> None:
        if whole % size:
            raise UsageError(
                f"{self.spell(flag, str(size))} does not divide {whole} {what}. "
                f"{self._say_nearest(flag, size, whole)}."
            )

    def _check_together(self) -> None:
        """Experts are spread over whole attention groups, or groups over whole sets of experts."""
        for tp in self.values.get("tp", ()):
            for ep in self.values.get("ep", ()):
                small, large = sorted((int(tp), int(ep)))
                if large % small:
                    flag = "tp" if tp < ep else "ep"
                    raise UsageError(
                        f"{self.spell('tp', f'{tp:g}')} and {self.spell('ep', f'{ep:g}')} do not "
                        "go together: one must divide the other. "
                        f"{self._say_nearest(flag, small, large)}; or leave one of them out."
                    )

    def _say_nearest(self, flag: str, size: int, whole: int) -> str:
        """The divisors on both sides; above the whole there is none."""
        fit = [each for each in range(1, whole + 1) if whole % each == 0]
        below = self.spell(flag, str(max(each for each in fit if each < size)))
        above = [each for each in fit if each > size]
        if not above:
            return f"The nearest that does is {below}"
        return f"The nearest that do are {below} and {self.spell(flag, str(above[0]))}"


def find_known(name: str, own: tuple[Chip, ...], spell: Callable[[str, str], str]) -> Chip:
    """A chip whose bandwidth and math rate are known: nothing can be said without."""
    chip = find_chip(name.strip(), own)
    for figure, value in (
        ("memory size", chip.mem_bytes),
        ("memory bandwidth", chip.mem_bytes_per_s),
        ("math rate", chip.peak_flops("bf16")),
    ):
        if value is None:
            raise InputError(
                f"the {figure} of {chip.name} is not known, and no other chip's is taken for it. "
                f"Give a [[chip]] entry that has it: {spell('catalogue', 'FILE')}."
            )
        if not 1e6 <= value <= 1e22:
            raise InputError(
                f"the {figure} of {chip.name} is {value:g}, which no chip has. Correct its entry."
            )
    return chip


def find_engine(name: str, constants: Constants) -> Engine:
    """Software whose overhead counts, by name."""
    known = {"none": BARE, **{engine.name: engine for engine in constants.engine}}
    if name not in known:
        raise UsageError(f"no engine '{name}'. Known: {', '.join(known)}.")
    return known[name]
