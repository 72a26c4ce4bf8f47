"""`fuelline.whatif`: a question in plain Python types, refused where it makes no sense."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from fuelline import pipeline
from fuelline.api.answers import AnyRun, check_price, locate
from fuelline.schema.diagnosis.ceilings import Probe
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.storages import STORAGE_NAMES, StorageKind
from fuelline.schema.errors import InputError, UsageError
from fuelline.schema.files import read_given
from fuelline.schema.foreign import decode_json
from fuelline.schema.mistakes import tell_plainly
from fuelline.schema.parts import PAUSES, Pause
from fuelline.schema.plan.chips import find_chip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.schema.diagnosis.forecasts import Forecast

MOST_WORKERS = 512
"""On one host; the model counts no further (whatif.network)."""
LIMITS: Mapping[str, tuple[float, float]] = {
    # Lowest and highest value that makes sense.
    "workers": (0, MOST_WORKERS),
    "prefetch": (1, 1000),
    "batch_size": (1, 10**7),
    "transform": (0.01, 1000),
    "handoff": (0.01, 1000),
    "chip": (0.01, 1000),
    "cores": (0.1, 4096),
    "ranks": (1, 64),
    "rarer": (0.01, 1000),
}
_COUNTS = ("workers", "prefetch", "batch_size", "ranks")


@tell_plainly
def whatif(
    run: AnyRun = None,
    *,
    workers: int | None = None,
    prefetch: int | None = None,
    pin: bool | None = None,
    persistent: bool | None = None,
    batch_size: int | None = None,
    storage: str | None = None,
    transform: float | None = None,
    handoff: float | None = None,
    chip: str | float | None = None,
    cores: float | None = None,
    alone: bool = False,
    ranks: int | None = None,
    rarer: Mapping[Pause, float] | None = None,
    usd_per_hour: float | None = None,
) -> Forecast:
    """What would be with other settings, storage or hardware; `fuelline whatif`.

    What is left out stays as it was recorded. `storage` is a kind such as "nvme", a factor such as
    "2x", or the JSON file of a probe; `chip` a name of the catalogue or how many times as fast;
    `transform` and `handoff` how many times less they take; `rarer` maps a pause such as
    "checkpoint" to how many times fewer. Where the recording has no evidence, `speedup` is Missing.

    Raises:
        UsageError: a value makes no sense, or nothing would be different.
    """
    check_price(usd_per_hour)
    if workers == 0 and prefetch is not None:
        raise UsageError(
            "prefetch needs workers, and workers is 0. Nothing was asked. Leave one of the two out."
        )
    for part in rarer or {}:
        if part not in PAUSES:
            raise UsageError(
                f"rarer names {part!r}, which is not a pause. Nothing was asked. There are: "
                f"{', '.join(PAUSES)}."
            )
    question = WhatIf(
        workers=_count("workers", workers),
        prefetch=_count("prefetch", prefetch),
        pin=pin,
        persistent=persistent,
        batch_size=_count("batch_size", batch_size),
        storage=None if storage is None else _name_storage(storage),
        transform_factor=_amount("transform", transform),
        handoff_factor=_amount("handoff", handoff),
        chip_factor=None if isinstance(chip, str) else _amount("chip", chip),
        cores=_amount("cores", cores),
        alone=alone,
        ranks=_count("ranks", ranks),
        rarer={part: _checked("rarer", factor) for part, factor in (rarer or {}).items()},
        measured=read_probe(storage),
        chip=find_chip(chip).name if isinstance(chip, str) else None,
    )
    if question.is_empty():
        raise UsageError(
            "Nothing would be different. Nothing was asked. Name a change, such as workers=8, or "
            "call suggest(run) for what would help most."
        )
    return pipeline.ask_run(locate(run), question, usd_per_hour).forecasts[0]


def _amount(name: str, value: float | None) -> float | None:
    return None if value is None else _checked(name, value)


def _count(name: str, value: int | None) -> int | None:
    return None if value is None else int(_checked(name, value))


def _checked(name: str, value: object) -> float:
    low, high = LIMITS[name]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and low <= value <= high and (name not in _COUNTS or value == int(value)):  # type: ignore[operator,call-overload]
        return float(value)  # type: ignore[arg-type]
    kind = "a whole number" if name in _COUNTS else "a number"
    raise UsageError(
        f"{name}={value!r} is not {kind} from {low:g} to {high:,g}. Nothing was asked. Leave it "
        "out to keep what was recorded."
    )


def _name_storage(word: str) -> str:
    if word in STORAGE_NAMES or word.endswith(".json"):
        return word
    found = re.fullmatch(r"(\d+(?:\.\d+)?)x", word)
    if found:
        return f"{_checked('rarer', float(found[1])):g}x"
    raise UsageError(
        f"storage={word!r} is not known. Nothing was asked. Give one of "
        f"{', '.join(STORAGE_NAMES)}, a factor such as '2x', or a file that "
        "`fuelline probe --json` wrote."
    )


def read_probe(word: str | None) -> StorageKind | None:
    """The storage that a probe measured; None if the word does not name one."""
    if word is None or not word.endswith(".json"):
        return None
    try:
        storage = decode_json(read_given(word), Probe).storage
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{word} is not what `fuelline probe --json` writes ({error}). Nothing was asked. "
            f"`fuelline probe /data --json > {word}` makes one."
        ) from None
    if storage is None:
        raise InputError(
            f"{word} has no cold reads: that disk could not be measured cold. Nothing was asked. "
            "Probe a folder on the disk that the data is on."
        )
    return storage
