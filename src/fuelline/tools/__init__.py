"""Other people's tools, a file each. None is a dependency: what a user has is found at run time.

`TRACKERS` take a run that was diagnosed (`pipeline/handed.py`) and attach it to the run that the
same job has with them. Each file raises RefusedError where its tool is missing or refuses.
"""

from __future__ import annotations

import importlib.util
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fuelline.schema.errors import RefusedError

if TYPE_CHECKING:
    from fuelline.pipeline.handed import HandedRun

TRACKERS = {
    "mlflow": ("fuelline.tools.to_mlflow", "mlflow", "mlflow"),
    "otlp": (
        "fuelline.tools.to_otlp",
        "opentelemetry.exporter.otlp.proto.http",
        "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
    ),
    "tensorboard": ("fuelline.tools.to_tensorboard", "tensorboard", "tensorboard"),
    "wandb": ("fuelline.tools.to_wandb", "wandb", "wandb"),
}
"""By name: our file, the module it needs, and what installs that."""


class Tracker(Protocol):
    """What each of these files is."""

    @staticmethod
    def attach(handed: HandedRun, where: str) -> str:
        """Hand it over; where it is then, in words. `where`: a run's id, a folder, an address."""
        ...

    @staticmethod
    def find(began_s: float) -> str | None:
        """Where a job that was started then (seconds since 1970) keeps its own run, if seen."""
        ...


def attach(tool: str, where: str | None, run_dir: Path, *, name: str, price: float | None) -> str:
    """Diagnose a run and hand it to a tool; without `where`, to the run of the same job."""
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - a job that starts needs none of it

    from fuelline.pipeline.handed import hand_over  # noqa: PLC0415 - likewise

    tracker = _load(tool)
    if where is None:
        from fuelline.store.listing import find_start_ns  # noqa: PLC0415 - likewise

        where = tracker.find(find_start_ns(run_dir) / 1e9)
    if where is None:
        raise RefusedError(
            f"No run of this job was found in {tool}. Nothing was attached. "
            f"`fuelline export {name} --{tool} ...` names it; `fuelline help export` says how."
        )
    with TemporaryDirectory(prefix="fuelline-") as folder:
        handed = hand_over(run_dir, Path(folder), name=name, price=price)
        return tracker.attach(handed, where)


def check_tool(tool: str) -> None:
    """RefusedError if this Python does not have it."""
    _, needed, install = TRACKERS[tool]
    if not _is_there(needed):
        raise RefusedError(
            f"--{tool} needs {needed.partition('.')[0]}, which this Python does not have. Nothing "
            f"was attached. `pip install {install}` beside fuelline."
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even what it is in
        return False


def _load(tool: str) -> Tracker:
    check_tool(tool)
    return import_module(TRACKERS[tool][0])  # type: ignore[return-value]
