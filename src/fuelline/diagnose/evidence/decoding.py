"""A quicker way to decode what the data set holds: pictures, compressed files, JSON.

For pictures with the figures of `fuelline probe`, where it was asked.
"""

from __future__ import annotations

from collections import defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import value_of
from fuelline.schema.units import number, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.ceilings import Ceiling, Probe
    from fuelline.schema.diagnosis.facts import Encoding, Facts

MUCH = 0.3
"""Of the samples of fetches, in a decoder: half the time for it saves a seventh of a fetch."""
_QUICK = ("simplejpeg", "turbojpeg", "cv2", "decode_jpeg", "draft(")
"""In the user's line: something faster than plain Pillow is in use already."""
_WAYS = {
    "own_draft_1": ("own_pillow_half_1", "image.draft('RGB', size) before resizing"),
    "own_simplejpeg_1": ("own_pillow_1", "simplejpeg.decode_jpeg(...) instead of Pillow"),
    "own_opencv_1": ("own_pillow_1", "cv2.imdecode(...) instead of Pillow"),
}
"""Ceiling of `probe` to the one that it is compared with, and what to write."""
_STORED: dict[Encoding, tuple[str, str, str]] = {
    "compressed": (
        "store the samples uncompressed, or compressed with zstd or LZ4",
        "decompressing",
        "writing the data set once more, and more space for it",
    ),
    "json": (
        "parse the records once and store them in a binary format (Arrow, .npy), or use orjson",
        "parsing JSON",
        "writing the data set once more",
    ),
}
"""What to do about it, what it is that takes the time, and what it costs."""


def decode_quicker(facts: Facts) -> list[Remedy]:
    """Where fetches decode one kind of thing much of the time, and not in a quick way."""
    shares: dict[Encoding, float] = defaultdict(float)
    for line in facts.fetch_lines:
        if line.stage == "decode" and line.encoding is not None:
            shares[line.encoding] += line.share
    if not shares:
        return []
    encoding, share = max(shares.items(), key=itemgetter(1))
    if share < MUCH:
        return []
    if encoding == "picture":
        return _decode_pictures(facts, share)
    way = _STORED.get(encoding)
    return [] if way is None else [_store(*way, share)]


def _decode_pictures(facts: Facts, share: float) -> list[Remedy]:
    if any(word in (line.source or "") for line in facts.fetch_lines for word in _QUICK):
        return []
    best = _find_best(facts.probe)
    return [_untried(share) if best is None else _measured(share, *best)]


def _store(setting: str, doing: str, cost: str, share: float) -> Remedy:
    return Remedy(
        setting=setting,
        why=f"{doing} takes {percent(share)} of the time to prepare samples, in every epoch again",
        applicability="display",
        cost=cost,
    )


def _find_best(probe: Probe | None) -> tuple[Probe, Ceiling, float, float] | None:
    """The quickest against Pillow doing the same: its ceiling and both rates; None if none is."""
    if probe is None:
        return None
    known = {each.name: each for each in probe.ceilings}
    found = []
    for name, (base, _) in _WAYS.items():
        if name in known and base in known:
            quick, plain = value_of(known[name].signal), value_of(known[base].signal)
            if quick is not None and plain and quick > plain:
                found.append((probe, known[name], quick, plain))
    return max(found, key=lambda each: each[2] / each[3], default=None)


def _measured(share: float, probe: Probe, way: Ceiling, quick: float, plain: float) -> Remedy:
    left = 1 - share * (1 - plain / quick)
    differs = way.mean_difference
    apart = "" if differs is None else f" by {differs:.2g} levels of 255 on average"
    return Remedy(
        setting=_WAYS[way.name][1],
        why=f"`fuelline probe` measured {number(quick)} JPEGs of {probe.path} per second on one "
        f"core, against {number(plain)} by Pillow; decoding takes {percent(share)} of the time to "
        "prepare samples",
        applicability="unsafe",
        risk=f"pixels differ{apart}",
        question=WhatIf(transform_factor=1 / left),
    )


def _untried(share: float) -> Remedy:
    return Remedy(
        setting="for JPEGs, image.draft('RGB', size) before resizing, or "
        "simplejpeg.decode_jpeg(...) instead of Pillow",
        why=f"decoding takes {percent(share)} of the time to prepare samples; `fuelline probe "
        "DATA_DIR` measures what each gains on your own JPEGs, and how far its pixels are from "
        "Pillow's",
        applicability="unsafe",
        risk="pixels may differ by a few levels out of 255",
    )
