"""How many JPEGs one core decodes in a second, with the Pillow that is installed here, if any."""

from __future__ import annotations

import io
from importlib import import_module

from fuelline.probe.pace import time_rate
from fuelline.schema.diagnosis.ceilings import Ceiling
from fuelline.schema.readings import Missing, Signal

WIDTH, HEIGHT = 500, 375
"""The usual size of a picture of ImageNet."""
QUALITY = 90


def probe_decode(seconds: float) -> list[Ceiling]:
    """JPEG to RGB in memory: no disk, no resizing, one core."""
    what = f"JPEGs of {WIDTH}x{HEIGHT} decoded, one core"
    return [Ceiling(group="decode", name="jpeg_1", what=what, signal=_decode_rate(seconds))]


def _decode_rate(seconds: float) -> Signal:
    try:
        image = import_module("PIL.Image")
    except ImportError:
        return Missing(reason="Pillow is not installed in this environment (pip install pillow)")
    noise = image.effect_noise((WIDTH // 4, HEIGHT // 4), 60).resize((WIDTH, HEIGHT))
    held = io.BytesIO()
    image.merge("RGB", (noise, noise.transpose(0), noise.transpose(1))).save(
        held, "JPEG", quality=QUALITY
    )
    content = held.getvalue()

    def act() -> float:
        with image.open(io.BytesIO(content)) as picture:
            picture.convert("RGB").load()
        return 1.0

    return time_rate(act, seconds, "count/s", "probe decode")
