"""What can be seen on a machine: the answer of `fuelline doctor`, one row a source."""

from msgspec import Struct


class Capability(Struct, frozen=True, kw_only=True):
    """One source of evidence, whether it can be read here, and what depends on it."""

    name: str
    """The source in a few words."""
    ok: bool
    """Whether it can be read by this user on this machine, now."""
    detail: str
    """What was found, with the actual value."""
    enables: str
    """What a diagnosis can say with it, and cannot say without it."""
    how_to_enable: str = ""
    """The next thing to do where it is not ok; empty where it is, or where nothing can be done."""
