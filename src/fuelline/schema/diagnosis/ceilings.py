"""What a machine can do at most, as `probe` measured it. JSON of `probe --json`."""

from __future__ import annotations

from msgspec import Struct, field

from fuelline.schema.diagnosis.storages import StorageKind  # noqa: TC001 - likewise
from fuelline.schema.readings import Signal  # noqa: TC001 - msgspec resolves it at run time

PROBE_VERSION = 1


class Ceiling(Struct, frozen=True, kw_only=True):
    """One measured limit."""

    group: str
    """`storage`, `metadata`, `memory`, `cores`, `decode`, `network`, `device`."""
    name: str
    """For machines, e.g. `random_4k_cold_1`; the number at the end is threads."""
    what: str
    """For people."""
    signal: Signal
    mean_difference: float | None = None
    """Of a decoder: how far its pixels are from Pillow's on average, in levels of 255. Above 0.5 a
    training may notice; null where nothing was compared."""
    most_difference: float | None = None
    """The same of the pixel that differs most."""


class Probe(Struct, frozen=True, kw_only=True):
    """All of it."""

    schema_version: int = PROBE_VERSION
    fuelline_version: str = ""
    host: str
    path: str
    mount: str = ""
    fstype: str = ""
    seconds: float = 0.0
    ceilings: list[Ceiling] = field(default_factory=list)
    storage: StorageKind | None = None
    """What `whatif --storage FILE` takes; None if cold reads could not be measured here."""
