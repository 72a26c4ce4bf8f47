"""Collectives by the alpha-beta model: a floor for small messages, a bandwidth for large ones.

Inside a scale-up domain the link of the domain counts, beyond it the network's share per chip.
Times are of the slowest member with no jitter; jitter is added where ranks are many
(`reliability`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.plan.physics.rates import find_exchange

if TYPE_CHECKING:
    from fuelline.plan.physics.constants import Constants
    from fuelline.schema.plan.chips import Chip

GIGA = 1e9
NETWORK_FLOOR_S = 20e-6
"""A small collective over two hosts: 65 us floor measured on a poor network (Vidur), about 20 on
InfiniBand."""
NETWORK_SHARE = 0.8
"""Of the line rate that large messages reach between hosts."""
HOST = 8
"""Chips of one host, where a chip has no scale-up link."""
BUS_SHARE = 0.45
"""Of the bus that collectives reach when all chips of a host share it and its switches."""
BUS_GBPS = 25.0
"""A chip without a scale-up link exchanges over the host's PCIe; 4.0 x16 carries about this."""
HOST_SHARE = 0.8
"""Of its bus' line rate that copies from pinned host memory reach: 25 of 31.5 GB/s on PCIe 4.0."""


def host_gbps(chip: Chip) -> float:
    """What a chip reads from its host's memory; PCIe 4.0 where the catalogue does not know it."""
    return BUS_GBPS if chip.host_gbps is None else HOST_SHARE * chip.host_gbps


def host_size(chip: Chip) -> int:
    """Chips that reach one another without a network: the domain, or a host of eight on its bus."""
    return max(chip.scaleup_domain, HOST)


def link_gbps(chip: Chip, members: int) -> float:
    """What one chip can send to its partners, 1e9 bytes/s; inf is never returned."""
    if members <= host_size(chip) or chip.scaleout_gbps is None:
        return chip.scaleup_gbps or chip.scaleout_gbps or BUS_GBPS
    return chip.scaleout_gbps


def _floor_s(chip: Chip, constants: Constants, members: int, *, nccl: bool) -> float:
    entry = find_exchange(chip, constants)
    scale = 1.0 if nccl else constants.shares.floor_scale
    floors = entry.nccl_us if nccl else entry.custom_us
    steps = math.log2(max(members, 2))
    if steps <= 3:
        low, high = floors[int(steps) - 1], floors[min(int(steps), 2)]
        floor = low + (high - low) * (steps - int(steps))
    else:
        floor = floors[2] * steps / 3
    beyond = members > max(chip.scaleup_domain, 8)
    floor *= scale * 1e-6
    return floor + (
        NETWORK_FLOOR_S * math.log2(members / max(chip.scaleup_domain, 1)) if beyond else 0
    )


def _bandwidth(chip: Chip, constants: Constants, members: int) -> float:
    if members <= chip.scaleup_domain:
        share = find_exchange(chip, constants).bus_share
    else:
        share = BUS_SHARE if members <= host_size(chip) else NETWORK_SHARE
    return share * link_gbps(chip, members) * GIGA


def _folded(chip: Chip, members: int) -> float:
    """A large group on a torus cuts matrices both ways: traffic falls (arXiv 2211.05102)."""
    return min(1.0, 2 / math.sqrt(members)) if chip.kind == "tpu" else 1.0


def all_reduce(
    chip: Chip, constants: Constants, members: int, size_bytes: float, *, nccl: bool = False
) -> float:
    """Sum a buffer over all members, in seconds."""
    if members <= 1:
        return 0.0
    moved = 2 * (members - 1) / members * size_bytes * _folded(chip, members)
    return _floor_s(chip, constants, members, nccl=nccl) + moved / _bandwidth(
        chip, constants, members
    )


def all_gather(
    chip: Chip, constants: Constants, members: int, size_bytes: float, apart: int = 1
) -> float:
    """Everyone gets the whole buffer of this size.

    `apart`: members are every so manieth chip, so that they leave a domain sooner.
    """
    if members <= 1:
        return 0.0
    reach = members * apart
    floor_s = _floor_s(chip, constants, members, nccl=True)
    if reach > host_size(chip) >= members:
        floor_s += NETWORK_FLOOR_S
    return floor_s + (members - 1) / members * size_bytes / _bandwidth(chip, constants, reach)


def all_to_all(
    chip: Chip, constants: Constants, members: int, size_bytes: float, *, nccl: bool = False
) -> float:
    """Each member sends this many bytes in all, evenly to the others."""
    if members <= 1:
        return 0.0
    inside = min(members, chip.scaleup_domain)
    near = size_bytes * (inside - 1) / members
    far = size_bytes * (members - inside) / members
    near_s = near / (constants.shares.scatter_share * link_gbps(chip, inside) * GIGA)
    far_s = far / (NETWORK_SHARE * link_gbps(chip, members) * GIGA)
    return _floor_s(chip, constants, members, nccl=nccl) + max(near_s, far_s)


def send(chip: Chip, constants: Constants, size_bytes: float, *, far: bool = False) -> float:
    """One chip to another."""
    members = chip.scaleup_domain + 1 if far else 2
    return _floor_s(chip, constants, 2, nccl=True) + size_bytes / _bandwidth(
        chip, constants, members
    )


def hidden_part(busy_s: float, exchange_s: float) -> float:
    """What an exchange adds to the math that it overlaps with.

    Little while it is shorter, a quarter where both are alike, all but the math where it is
    longer: a cubic mean, because overlap is never perfect.
    """
    return float((busy_s**3 + exchange_s**3) ** (1 / 3) - busy_s)
