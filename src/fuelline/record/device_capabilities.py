"""What of the accelerators can be seen: the doctor's questions to the management libraries.

They are asked once, from this process, as the observer would ask them; nothing is changed.
"""

import time
from collections import Counter
from pathlib import Path

from fuelline.record.samplers.devices import amd, nvidia
from fuelline.record.samplers.devices.device import (
    Device,
    FoundDevices,
    LostError,
    Rate,
    UnavailableError,
)
from fuelline.record.samplers.devices.processes import is_initial_namespace
from fuelline.schema.run.capabilities import Capability

_ENABLES = "the utilisation ladder; throttled, badly connected and faulty accelerators"
_GPM_ENABLES = "how full the chip was: SMs and tensor cores active, memory bandwidth, PCIe traffic"

_GPM_HOW = (
    "a Hopper or later chip and driver 525 or later; where permission is missing, root or "
    "NVreg_RestrictProfilingToAdminUsers=0; on older chips `dcgmi dmon` shows them"
)


def find_accelerators() -> list[Capability]:
    """One row a vendor that is here, and rows for what may be missing of it."""
    found = [*_find_nvidia(), *_find_amd()]
    if found:
        return found
    return [
        Capability(
            name="GPU counters",
            ok=False,
            detail="no NVIDIA or AMD driver library: no GPU seen",
            enables=_ENABLES,
            how_to_enable="on a GPU machine install the driver; in a container pass --gpus all",
        )
    ]


def _find_nvidia() -> list[Capability]:
    try:
        if nvidia.load() is None:
            return []
    except UnavailableError as error:
        return [_unavailable("NVIDIA", error)]
    found = nvidia.find_devices(time.monotonic_ns())
    return [_describe("NVIDIA", found), *(_describe_more(found) if found.devices else [])]


def _find_amd() -> list[Capability]:
    try:
        if amd.load() is None:
            return []
    except UnavailableError as error:
        return [_unavailable("AMD", error)]
    return [_describe("AMD", amd.find_devices(time.monotonic_ns()))]


def _unavailable(vendor: str, error: UnavailableError) -> Capability:
    return Capability(
        name=f"GPU counters ({vendor})",
        ok=False,
        detail=str(error),
        enables=_ENABLES,
        how_to_enable=error.how,
    )


def _describe(vendor: str, found: FoundDevices) -> Capability:
    names = Counter(each.seen.name for each in found.devices)
    drivers = sorted({each.seen.driver for each in found.devices if each.seen.driver})
    words = [f"{count} x {name}" for name, count in names.items()] or [
        "the library shows no device"
    ]
    words += [f"driver {driver}" for driver in drivers]
    troubles = [f"{blind.what}: {blind.why}" for blind in found.blinds]
    troubles += [f"{each.seen.device} is lost" for each in found.devices if not _answers(each)]
    is_fine = bool(found.devices) and not troubles
    how = "check `nvidia-smi -L` and that this user may open /dev/nvidia*, or in a container --gpus"
    return Capability(
        name=f"GPU counters ({vendor})",
        ok=is_fine,
        detail="; ".join([*words, *troubles]),
        enables=_ENABLES,
        how_to_enable="" if is_fine else how,
    )


def _answers(device: Device) -> bool:
    """Whether the driver still has it. Also takes a GPM sample: support alone is no permission."""
    try:
        device.read(Rate.SECOND)
    except LostError:
        return False
    return True


def _describe_more(found: FoundDevices) -> list[Capability]:
    return [_describe_gpm(found.devices), _describe_processes()]


def _describe_gpm(devices: tuple[Device, ...]) -> Capability:
    leaves = [
        each for each in devices if not any(d.seen.parent == each.seen.device for d in devices)
    ]
    refused = sorted({each.seen.refusals["gpm"] for each in leaves if "gpm" in each.seen.refusals})
    return Capability(
        name="GPU metrics (GPM)",
        ok=not refused,
        detail="; ".join(refused) or f"can be sampled on all {len(leaves)} devices",
        enables=_GPM_ENABLES,
        how_to_enable=_GPM_HOW if refused else "",
    )


def _describe_processes() -> Capability:
    can_match = is_initial_namespace(Path("/proc/self/ns/pid"))
    return Capability(
        name="processes on GPUs",
        ok=can_match,
        detail="the driver's process numbers match ours"
        if can_match
        else "in a pid namespace, where the driver's process numbers may differ from ours",
        enables="knowing which accelerator belongs to which process of the job",
        how_to_enable="" if can_match else "start the container with --pid=host",
    )
