"""What this machine can do at most: storage, metadata, memory, cores, decoding, network.

Each file measures one thing for a bounded time and gives `Ceiling`s. Nothing outlives a
measurement: no file, no process, no thread.
"""

from fuelline.probe.cores import probe_cores, probe_memory
from fuelline.probe.network import probe_peer
from fuelline.probe.pictures import probe_decode, probe_pictures
from fuelline.probe.place import ProbeFolder, prepare_place
from fuelline.probe.storage import probe_storage

__all__ = [
    "ProbeFolder",
    "prepare_place",
    "probe_cores",
    "probe_decode",
    "probe_memory",
    "probe_peer",
    "probe_pictures",
    "probe_storage",
]
