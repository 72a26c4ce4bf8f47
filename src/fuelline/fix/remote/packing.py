"""Packs what a worker elsewhere needs. Runs in a parked worker, which has run no code of the job.

That one has the dataset as the trainer had it when the epoch began, and nothing that it does can
disturb the trainer: it pickles dataset, collate function and `worker_init_fn`, prepares a few
batches to compare with, and collects the source of the job's own modules. After that it gets no
work any more. What is in the file: a length, what the environment has to be and code (pickled),
then the dataset and the like (pickled by cloudpickle, which knows classes of `__main__`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import pickle
import platform
import struct
import sys
import sysconfig
from multiprocessing import reduction
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

from fuelline.fix.elastic import seam
from fuelline.fix.remote.parcels import find_fingerprint, pack_small

__all__ = ["Descriptor", "PackedDataset", "find_environment", "pack_dataset", "unpack"]

MOST_BYTES = 1 << 30
"""Of a pickled dataset: sent to each worker, over a line that batches need."""
MOST_SOURCE_BYTES = 32 << 20
_LENGTH = struct.Struct("<Q")
PICKLER = "fuelline_cloudpickle"
"""The name under which a copy of cloudpickle is loaded here and there: whatever the other host has,
both sides have the same."""
_RECIPE = ("dataset_kind", "dataset", "auto_collation", "collate_fn", "drop_last")


class PackedDataset(NamedTuple):
    """What a parked worker gives back."""

    size: int
    fingerprint: str
    """Of dataset and the like: whether those of another epoch are the same."""
    batches: tuple[str, ...]
    """Fingerprints of the batches to compare with."""


class Descriptor:
    """An open file on its way to a worker."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return _receive, (reduction.DupFd(self.fd),)


def _receive(slot: Any) -> int:
    return int(slot.detach())


def pack_dataset(given: dict[str, Any], fd: int, indices: list[Any]) -> PackedDataset:
    """Write all of it to a file; `given` is what torch's worker loop was called with."""
    try:
        recipe = {name: given[name] for name in _RECIPE}
        recipe["init_fn"] = given["init_fn"].original
        content = _pickle(recipe)
        fingerprint = hashlib.sha256(content).hexdigest()
        batches = tuple(_prepare(given, indices)) if indices else ()
        head = {
            "environment": find_environment(),
            "sources": _collect_sources(),
            "folder": os.getcwd(),  # noqa: PTH109 - no pathlib in the job
            "checks": [bytes(pack_small((n, index))) for n, index in enumerate(indices)],
        }
        packed = pickle.dumps(head)
        size = 0
        with open(fd, "wb", closefd=False) as file:
            for part in (_LENGTH.pack(len(packed)), packed, content):
                size += file.write(part)
    finally:
        os.close(fd)
    return PackedDataset(size, fingerprint, batches)


def unpack(content: memoryview) -> tuple[dict[str, Any], memoryview]:
    """What comes first, and the dataset as it was pickled."""
    (length,) = _LENGTH.unpack_from(content)
    end = _LENGTH.size + length
    return pickle.loads(content[_LENGTH.size : end]), content[end:]


def _pickle(recipe: dict[str, Any]) -> memoryview:
    content = _Limited()
    module = find_pickler()
    pickler = pickle.Pickler(content) if module is None else module.Pickler(content)
    try:
        pickler.dump(recipe)
    except _TooMuchError:
        raise
    except Exception as refusal:
        kind = type(recipe["dataset"])
        raise TypeError(
            f"{kind.__module__}.{kind.__qualname__} cannot be pickled: "
            f"{type(refusal).__name__}: {refusal}"
        ) from refusal
    return content.getbuffer()


class _TooMuchError(ValueError):
    """More than is sent."""


class _Limited(io.BytesIO):
    """Does not fill the memory with a dataset that is too large anyway."""

    def write(self, part: Any) -> int:
        if self.tell() + memoryview(part).nbytes > MOST_BYTES:
            raise _TooMuchError(f"its dataset takes more than {MOST_BYTES >> 20} MB when pickled")
        return super().write(part)


def find_pickler() -> Any:
    """Ray's copy of cloudpickle or the user's own, loaded from its file; None if there is none."""
    if PICKLER in sys.modules:
        return sys.modules[PICKLER]
    for owner, path in (("ray", "cloudpickle/cloudpickle.py"), ("cloudpickle", "cloudpickle.py")):
        found = importlib.util.find_spec(owner)
        file = Path(found.origin).parent / path if found and found.origin else None
        if file is not None and file.is_file():
            spec = importlib.util.spec_from_file_location(PICKLER, file)
            if spec is None or spec.loader is None:
                continue
            module = sys.modules[PICKLER] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            _name_classes(module)
            return module
    return None


def _name_classes(module: Any) -> None:
    """Have classes of `__main__` numbered alike in every process: cloudpickle draws at random.

    Otherwise no two pickles of one dataset were equal.
    """
    names: dict[type, str] = {}

    def find(kind: type) -> str:
        if kind not in names:
            name = f"{kind.__module__}.{kind.__qualname__}"
            same = sum(each.__qualname__ == kind.__qualname__ for each in names)
            names[kind] = hashlib.sha256(f"{name} {same}".encode()).hexdigest()[:32]
        return names[kind]

    if hasattr(module, "_get_or_create_tracker_id"):
        module._get_or_create_tracker_id = find


def _prepare(given: dict[str, Any], indices: list[Any]) -> Any:
    """The batches to compare with, as a worker of this host makes them."""
    info: Any = get_worker_info()
    given["init_fn"].run(info.id)
    fetcher = seam.DatasetKind.create_fetcher(*(given[name] for name in _RECIPE))
    for index in indices:
        yield find_fingerprint(fetcher.fetch(index))


def find_environment() -> dict[str, str]:
    """What has to be the same on both sides, by name; what is not loaded here does not count."""
    found = {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "the processor's architecture": platform.machine(),
        "torch's CPU kernels": torch.backends.cpu.get_cpu_capability(),
    }
    for name in ("torch", "numpy", "PIL", "torchvision", "torchaudio", "cv2"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def _collect_sources() -> dict[str, tuple[str, str, bool]]:
    """The job's own modules, which no other host need have: name to path, text, whether a package.

    Installed ones and Python's own are there, or are reported as missing.
    """
    installed = _list_installed()
    sources, size = {}, 0
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name == "__main__" or not isinstance(path, str) or not path.endswith(".py"):
            continue
        if name != PICKLER and os.path.realpath(path).startswith(installed):
            continue
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # it is gone, or written in another way: missing there, and so reported
        size += len(text)
        if size > MOST_SOURCE_BYTES:
            raise ValueError(f"its code has more than {MOST_SOURCE_BYTES >> 20} MB")
        sources[name] = (path, text, hasattr(module, "__path__"))
    return sources


def _list_installed() -> tuple[str, ...]:
    """Folders of Python itself, of what is installed, and of this package."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    package = str(Path(__file__).resolve().parents[2])
    folders = [package, *(os.path.realpath(sysconfig.get_path(each)) for each in names)]
    folders += [os.path.realpath(each) for each in sys.path if each.endswith("-packages")]
    return tuple(f"{each}{os.sep}" for each in folders)
