"""Kinds of storage that a question can name: what a request and a byte cost there.

Figures are typical ones from data sheets, for questions about storage that the job has not met;
`fuelline probe` measures the real ones of this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping


class StorageKind(Struct, frozen=True, kw_only=True):
    """One kind of storage."""

    words: str
    request_seconds: float
    """One random read of a few kilobytes, nothing else going on."""
    bytes_per_s: float
    """Reading in large pieces."""
    keeps_metadata: bool = True
    """False: files are no longer opened one by one."""
    requests_at_once: int | None = None
    """Random reads in flight beyond which no more are served; None if it was not measured."""


STORAGE_KINDS: Mapping[str, StorageKind] = {
    # Page cache: no request leaves the host; copying runs at memory speed and is CPU time already.
    "warm": StorageKind(words="data in memory", request_seconds=0.0, bytes_per_s=float("inf")),
    # Samsung PM9A3 data sheet: 75-80 us random read latency, 6.5 GB/s, 900,000 reads a second; half
    # of it for safety, so that 40 requests of 100 us fill it.
    "nvme": StorageKind(
        words="a local NVMe disk", request_seconds=100e-6, bytes_per_s=3e9, requests_at_once=40
    ),
    # Samsung PM893 data sheet: 550 MB/s, 98,000 reads a second, which 15 requests of 150 us make;
    # SATA adds some 50 us to the latency of the flash.
    "ssd": StorageKind(
        words="a local SATA SSD", request_seconds=150e-6, bytes_per_s=0.5e9, requests_at_once=15
    ),
    # Seagate Exos X20 data sheet: 4.16 ms rotational latency and as much seek; 285 MB/s outermost;
    # one arm.
    "hdd": StorageKind(
        words="a local hard disk", request_seconds=8e-3, bytes_per_s=150e6, requests_at_once=1
    ),
}
LOCAL = "local"
"""Another word for nvme: what a copy on the node's own disk usually is."""
PACKED = "packed"
"""The same storage, but samples in shards: no file is opened for a sample."""
STORAGE_NAMES = (*STORAGE_KINDS, LOCAL, PACKED)
