"""Defaults of the user: `~/.config/fuelline/config.toml`, or below `$XDG_CONFIG_HOME`.

    price = 2.5             # USD per accelerator-hour, as --price
    store = "/data/runs"    # as FUELLINE_HOME
    cache = "/local/cache"  # as `run --cache`
    fleet = "s3://b/fleet"  # as `run --store`

The command line counts before the environment, and the environment before the file.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fuelline.schema.errors import UsageError
from fuelline.schema.files import is_own_file, open_below

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_BYTES = 64 * 1024
_MOST_USD = 1e6
"""Of an hour, as --price."""


class Config(NamedTuple):
    """What the file says; None where it says nothing."""

    price: float | None = None
    store: Path | None = None
    cache: Path | None = None
    fleet: str | None = None


def is_bucket(store: str) -> bool:
    """Whether a store of the fleet is in an object store; else it is a folder."""
    return re.fullmatch(r"(?:s3a?|gs|gcs|az|azure|abfss?|adl)://[^/]+.*", store) is not None


def check_store(store: str, option: str) -> None:
    """UsageError for an address of which we know no object store."""
    if "://" in store and not is_bucket(store):
        raise UsageError(
            f"{option} {store} is neither a folder nor a bucket that can be reached. Nothing was "
            "done. Name a folder such as /shared/fleet, or s3://bucket/fleet, gs://..., az://..."
        )


def find_config() -> Path | None:
    """Where the file would be; None for a user without a home."""
    base = os.environ.get("XDG_CONFIG_HOME")
    try:
        folder = Path(base) if base else Path("~/.config").expanduser()
    except RuntimeError:
        return None
    return folder / "fuelline" / "config.toml"


def read_config() -> Config:
    """What the user wants; UsageError, with the file and the key, if that makes no sense."""
    path = find_config()
    return Config() if path is None else _read(path)


@cache
def _read(path: Path) -> Config:
    content = _load(path)
    return Config() if content is None else _check(path, _decode(path, content))


def _load(path: Path) -> bytes | None:
    """None if there is no such file, or none that we may look at."""
    try:
        descriptor = open_below(*os.path.split(os.path.realpath(path)))
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not is_own_file(descriptor):
            raise UsageError(
                f"{path} belongs to another user, or others can write to it, so it is not used. "
                f"Nothing was done. `chmod go-w {path}` if it is yours; delete it if not."
            )
        if os.fstat(descriptor).st_size > _MOST_BYTES:
            raise UsageError(
                f"{path} has more than {_MOST_BYTES} bytes; it is no configuration of Fuelline. "
                "Nothing was done. Move it away."
            )
        return file.read(_MOST_BYTES)


def _decode(path: Path, content: bytes) -> Mapping[str, object]:
    # Only where there is a file: a job that is started need not wait for a reader of TOML.
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        entries: dict[str, object] = toml.loads(content.decode())
    except (ValueError, RecursionError) as error:  # of TOML and of UTF-8
        raise UsageError(
            f"{path} is no TOML ({error}). Nothing was done. Correct it, or move it away."
        ) from None
    return entries


def _check(path: Path, entries: Mapping[str, object]) -> Config:
    for key in entries:
        if key not in Config._fields:
            raise UsageError(
                f"{path} has the key {key!r}, which Fuelline does not know. Nothing was done. "
                f"There are {', '.join(Config._fields)}."
            )
    return Config(
        price=_check_price(path, entries.get("price")),
        store=_check_folder(path, "store", entries.get("store")),
        cache=_check_folder(path, "cache", entries.get("cache")),
        fleet=_check_fleet(path, entries.get("fleet")),
    )


def _check_fleet(path: Path, value: object) -> str | None:
    if isinstance(value, str) and is_bucket(value):
        return value
    folder = _check_folder(path, "fleet", value)
    return None if folder is None else str(folder)


def _check_price(path: Path, value: object) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < float(str(value)) < _MOST_USD:
        raise UsageError(
            f"{path}: price = {value!r} is not a price in USD between 0 and 1,000,000. Nothing "
            "was done. Write price = 2.5, for example."
        )
    return float(str(value))


def _check_folder(path: Path, key: str, value: object) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.startswith(("/", "~")) or "\0" in value:
        raise UsageError(
            f"{path}: {key} = {value!r} is not a folder. Nothing was done. Write a path that "
            f'begins with / or ~, such as {key} = "~/fuelline".'
        )
    try:
        return Path(value).expanduser()
    except RuntimeError:  # ~nobody
        raise UsageError(
            f"{path}: {key} = {value!r} names a home folder that is not there. Nothing was done. "
            "Write the path from / on."
        ) from None
