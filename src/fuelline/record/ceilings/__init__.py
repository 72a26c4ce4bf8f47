"""What this machine can do at most: storage, metadata, memory, cores, decoding, network.

Each file measures one thing for a bounded time and gives `Ceiling`s. Nothing outlives a
measurement: no file, no process, no thread.
"""

from fuelline.record.ceilings.cores import probe_cores, probe_memory
from fuelline.record.ceilings.decode import probe_decode
from fuelline.record.ceilings.network import probe_peer
from fuelline.record.ceilings.pictures import probe_pictures
from fuelline.record.ceilings.place import Place, prepare_place
from fuelline.record.ceilings.storage import probe_storage

__all__ = [
    "Place",
    "prepare_place",
    "probe_cores",
    "probe_decode",
    "probe_memory",
    "probe_peer",
    "probe_pictures",
    "probe_storage",
]
