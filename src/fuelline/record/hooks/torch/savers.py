"""Ways to write a checkpoint beside `torch.save`: of the frameworks, and of torch for many ranks.

Each is watched when its module has been imported, before another module can take the function out
of it. Those that call `torch.save` on their way contain it: the outer record is the longer one.
"""

import sys

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch.pauses import Save

__all__ = ["install_distributed", "install_fabric", "install_lightning", "install_safetensors"]


def install_safetensors(guest: Guest, patches: Patches) -> list[Hook]:
    """Hugging Face's Trainer and Accelerate write weights this way, without `torch.save`."""
    return _watch(guest, patches, "safetensors.torch", "save_file", "filename")


def install_lightning(guest: Guest, patches: Patches) -> list[Hook]:
    """Lightning lets `torch.save` write to memory and then writes that to the file."""
    module = "lightning.fabric.utilities.cloud_io"
    return _watch(guest, patches, module, "_atomic_save", "filepath")


def install_fabric(guest: Guest, patches: Patches) -> list[Hook]:
    """The same under the name it has in `pytorch_lightning`."""
    module = "lightning_fabric.utilities.cloud_io"
    return _watch(guest, patches, module, "_atomic_save", "filepath")


def install_distributed(guest: Guest, patches: Patches) -> list[Hook]:
    """Sharded checkpoints: every rank writes its part."""
    module = "torch.distributed.checkpoint.state_dict_saver"
    return _watch(guest, patches, module, "save", "checkpoint_id")


def _watch(guest: Guest, patches: Patches, module: str, function: str, keyword: str) -> list[Hook]:
    owner, save = sys.modules[module], Save(guest, keyword)
    patches.replace(owner, function, save.wrap(getattr(owner, function)))
    return [save]
