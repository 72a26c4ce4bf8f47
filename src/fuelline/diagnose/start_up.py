"""What would make start-up shorter: advice for each part that is worth it, from its own evidence.

Nothing here is a finding: a verdict is about the steps. Sources: PyTorch's recipes on compile-time
caching and on loading models, JAX's persistent compilation cache, Hugging Face's environment
variables, Python's `-X importtime`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fuelline.schema.diagnosis.start_up import Shortening
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.schema.diagnosis.start_up import StartDetail, StartLedger, StartPart, StartUpPart
    from fuelline.schema.run.recording import LoaderFacts

_LEAST_SECONDS = 1.0
_LEAST_SHARE = 0.1
"""Of start-up: less is not worth a change."""
_BLOCKED = 0.3
"""Of a part, from which on its storage is the first thing to change."""
_PACKAGE_SHARE = 0.3
"""Of all imports: a package that alone takes as much is worth leaving out, if it is not needed."""
_NEEDED = frozenset({"torch", "tensorflow", "jax", "keras", "numpy", "fuelline"})
_CODE = "the line above runs once in every start; keep its result in a file if it does not change"
_ADVICE: dict[StartPart, Shortening] = {
    "download": Shortening(
        setting="download before the job starts, and set HF_HOME (or TORCH_HOME) to a disk that "
        "stays; HF_HUB_OFFLINE=1 then asks nobody",
        why="the accelerator is paid for while files are fetched",
    ),
    "compile": Shortening(
        setting="keep compiled code: TORCHINDUCTOR_CACHE_DIR on a disk that stays; "
        "jax.config.update('jax_compilation_cache_dir', DIR)",
        why="the next start then loads what this one compiled; shapes that change compile again",
    ),
    "process group": Shortening(
        setting="start all ranks at the same time, and do what one rank does alone before "
        "init_process_group or after the first step",
        why="every rank waits there for the last one",
    ),
    "tracking": Shortening(
        setting="WANDB_MODE=offline, or the tracker's asynchronous mode; upload after the job",
        why="it waits for a service",
    ),
    "model build": Shortening(
        setting="with torch.device('meta'): model = ... and load_state_dict(..., assign=True)",
        why="weights that are loaded anyway need not be made up first",
    ),
    "to device": Shortening(
        setting="load weights on the device directly: map_location='cuda', or device_map in "
        "from_pretrained",
        why="one copy less; the first use of a device also sets it up, once",
    ),
    "worker start": Shortening(
        setting="fewer imports at the top of the script that workers repeat; persistent_workers="
        "True keeps them through all epochs",
        why="with spawn or forkserver every worker imports everything again",
    ),
    "warm-up": Shortening(
        setting="fixed shapes (drop_last, padded lengths)",
        why="every new shape is compiled or tuned for again",
    ),
}


def shorten_start_up(start_up: StartLedger, loader: LoaderFacts | None = None) -> StartLedger:
    """The ledger with advice for its parts."""
    least = max(_LEAST_SECONDS, _LEAST_SHARE * start_up.seconds)
    return msgspec.structs.replace(
        start_up,
        parts=[
            part
            if part.seconds < least
            else msgspec.structs.replace(part, shorten=list(_advise(part, loader)))
            for part in start_up.parts
        ],
    )


def _advise(part: StartUpPart, loader: LoaderFacts | None) -> Iterator[Shortening]:
    if part.blocked_seconds >= _BLOCKED * part.seconds and part.mount is not None:
        yield Shortening(
            setting=f"copy what lies below {part.mount} ({part.fstype}) to a local disk first",
            why=f"{percent(part.blocked_seconds / part.seconds)} of this time is spent blocked in "
            f"files there, longest in {part.path}",
        )
    if part.part == "imports":
        yield from _advise_imports(part)
    elif part.part == "data set index":
        yield Shortening(
            setting="write the list of samples to one file once, and read that; or `fuelline pack`",
            why=f"{_name(part)} lists or opens the data set again at every start",
        )
    elif part.part == "model load":
        yield Shortening(
            setting="safetensors, or torch.load(..., mmap=True, weights_only=True)",
            why="weights are then mapped, not unpickled and copied; keep them on a local disk",
        )
    elif part.part == "first batch":
        workers = loader.num_workers if loader is not None else None
        yield Shortening(
            setting="build the loader's iterator before the model is loaded",
            why="workers then prepare the first batch meanwhile"
            if workers
            else "with num_workers=0 nobody prepares it before the loop asks for it",
        )
    elif part.part == "code":
        yield Shortening(setting=f"look at {_name(part)}", why=_CODE)
    elif part.part in _ADVICE:
        yield _ADVICE[part.part]


def _advise_imports(part: StartUpPart) -> Iterator[Shortening]:
    for each in part.details:
        if each.name not in _NEEDED and each.seconds >= _PACKAGE_SHARE * part.seconds:
            yield Shortening(
                setting=f"import {each.name} only where it is used",
                why=f"importing it takes {duration(each.seconds)} of every start, also in workers "
                "that are spawned",
            )
    if part.blocked_seconds < _BLOCKED * part.seconds:
        yield Shortening(
            setting="python -X importtime SCRIPT, and leave out what this job does not use",
            why="imports compute: faster storage does not shorten them",
        )


def _name(part: StartUpPart) -> str:
    first: StartDetail | None = part.details[0] if part.details else None
    if first is None:
        return "the job"
    return first.name if first.line is None else f"{first.name} ({first.line})"
