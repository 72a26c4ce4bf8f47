"""Accelerators through their vendors' management libraries, asked from outside the job.

A vendor's bindings are optional: they are looked for at run time, and what is missing, refused or
lost is said. `find_devices` gives everything that there is; `Devices` asks it, again and again.
"""

from fuelline.record.samplers.devices import amd, nvidia
from fuelline.record.samplers.devices.device import FoundDevices


def find_devices(now_ns: int) -> FoundDevices:
    """All accelerators of this host, NVIDIA's first, and what could not be opened."""
    found = nvidia.find_devices(now_ns)
    return found + amd.find_devices(now_ns, first=found.cards)
