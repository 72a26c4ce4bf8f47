"""Pictures that another decoder, or decoding at a smaller size, would give sooner.

Not applied: pixels may differ. `fuelline probe DATA_DIR` measures by how much, and how much faster
it is, on the user's own pictures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import value_of

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts

MUCH = 0.3
"""Of the samples of fetches, in a decoder: half the time for it saves a seventh of a fetch."""
WAITS = 0.05
"""Of the window: below it there is little to win."""
_FAST = ("simplejpeg", "turbojpeg", "cv2", "decode_jpeg", "draft(")
"""In the user's line: something faster than plain Pillow is in use already."""


def propose(facts: Facts) -> Remedy | None:
    """Fires where training waits and its workers decode most of the time."""
    waits = value_of(facts.input.exposed_share)
    lines = [line for line in facts.fetch_lines if line.stage == "decode"]
    share = sum(line.share for line in lines)
    if waits is None or waits < WAITS or share < MUCH:
        return None
    if any(word in (line.source or "") for line in lines for word in _FAST):
        return None
    return Remedy(
        setting="simplejpeg.decode_jpeg(...) (libjpeg-turbo) instead of Pillow, or "
        "image.draft('RGB', size) before resizing",
        why=f"decoding takes {round(100 * share)} % of the time to prepare samples; `fuelline "
        "probe DATA_DIR` measures what each gains on your own JPEGs, and how far its pixels are "
        "from Pillow's",
        applicability="unsafe",
        risk="pixels may differ by a few levels out of 255",
    )
