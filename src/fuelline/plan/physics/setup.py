"""What a prediction is about: a model on a chip, at a precision, spread and run somehow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.plan.physics.constants import BARE, Constants, Engine, Matmul
from fuelline.plan.physics.rates import find_matmul, usable_math
from fuelline.schema.plan.estimates import Parallelism

if TYPE_CHECKING:
    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision

NAN = float("nan")


class Setup(Struct, frozen=True, kw_only=True):
    """One way to run one model; nothing about the work that it gets."""

    model: Model
    chip: Chip
    precision: Precision
    constants: Constants
    spread: Parallelism = Parallelism()
    engine: Engine = BARE
    host_share: float = 0.0
    """Of the weights that are in host memory and come over the bus in every step."""

    @property
    def bandwidth(self) -> float:
        """Of one chip's memory, bytes/s; nan if it is not known, so that no answer follows."""
        return self.chip.mem_bytes_per_s or NAN

    @property
    def doubt_frac(self) -> float:
        """Of what reads and multiplies on this chip."""
        return find_matmul(self.chip, "bf16", self.constants).doubt_frac

    def unit(self, math: str) -> str:
        """What multiplies in this chip."""
        return usable_math(self.chip, math)

    def peak(self, unit: str) -> float:
        """Operations per second of the sheet; nan if not known."""
        return self.chip.peak_flops(unit) or NAN

    def rates(self, unit: str) -> Matmul:
        """Shares of the sheet that products reach."""
        return find_matmul(self.chip, unit, self.constants)
