"""What a machine can do at most, as `probe` measured it. JSON of `probe --json`."""

from __future__ import annotations

from msgspec import Struct, field

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


class MeasuredStorage(Struct, frozen=True, kw_only=True):
    """The storage in the two numbers that the pipeline model asks for."""

    words: str
    request_seconds: float
    """One random read of a few kilobytes, cold, nothing else going on."""
    bytes_per_s: float
    """Reading in large pieces, cold."""


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
    storage: MeasuredStorage | None = None
    """None if cold reads could not be measured here."""
