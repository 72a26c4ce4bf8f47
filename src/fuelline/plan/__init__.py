"""What limits a language model on a chip before money is spent; `serve` and `train` ask it."""

from typing import TYPE_CHECKING

from fuelline.schema.lazily import load_lazily

if TYPE_CHECKING:
    from fuelline.plan.asked.serving import serve
    from fuelline.plan.asked.training import train

__all__ = ["serve", "train"]

__getattr__ = load_lazily(__name__, {"serve": "asked.serving", "train": "asked.training"})
