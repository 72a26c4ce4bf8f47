"""A Ray cluster that is there already, as the place where an import reads its files.

Each file is a task, no more of them under way than twice the cluster's cores; what comes back is
facts, while tables are written to the run's folder, which all nodes have to see. Nothing is started
that outlives the import, and no cluster is started either.
"""

from __future__ import annotations

import importlib
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fuelline.schema.errors import FuellineError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fuelline.ingest.imports import Spread

_CONNECT_S = 5.0
_AHEAD = 2
"""Tasks under way for each core, so that none stands idle while a result is fetched."""


@contextmanager
def open_ray(address: str) -> Iterator[Spread]:
    """What runs a function with each of these arguments there, and gives results as they come."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise RefusedError(
            "--ray needs ray, which this Python does not have. Nothing was imported. `pip install "
            "'fuelline[ray]'` installs it; without --ray processes of this host read the files."
        ) from None
    _refuse_silent(address)
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except Exception as error:  # noqa: BLE001 - Ray has no base class for what may go wrong here
        raise _refusal(address, error) from None
    try:
        yield _Cluster(ray, address).spread
    finally:
        ray.shutdown()


class _Cluster:
    def __init__(self, ray: Any, address: str) -> None:
        self._ray, self._address = ray, address

    def spread(
        self, function: Callable[..., Any], tasks: list[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """Numbers of tasks with their results; FuellineError if one cannot be done."""
        ray = self._ray
        remote = ray.remote(num_cpus=1, max_retries=1)(function)
        most = max(2, _AHEAD * int(ray.cluster_resources().get("CPU", 1)))
        left = list(enumerate(tasks))[::-1]
        waiting: dict[Any, int] = {}
        while left or waiting:
            while left and len(waiting) < most:
                number, words = left.pop()
                waiting[remote.remote(*words)] = number
            (done, *_), _ = ray.wait(list(waiting), num_returns=1)
            try:
                found = ray.get(done)
            except ray.exceptions.RayError as error:
                raise _refusal(self._address, error) from None
            if isinstance(found, FuellineError):
                raise found
            yield waiting.pop(done), found


def _refuse_silent(address: str) -> None:
    """A head that does not answer is waited for by Ray itself for a minute and more."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except OSError as error:
        raise _refusal(address, error) from None


def _refusal(address: str, error: Exception) -> RefusedError:
    said = next((line for line in reversed(str(error).splitlines()) if line.strip()), "")
    return RefusedError(
        f"Ray at {address} cannot read these files ({(said or type(error).__name__)[:200]}). "
        "Nothing was imported. `ray status` shows the cluster, whose nodes need this release of "
        "fuelline; without --ray processes of this host read them."
    )
