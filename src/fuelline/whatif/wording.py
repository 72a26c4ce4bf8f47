"""Questions and limits in plain words, for reports and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.storages import LOCAL, PACKED, STORAGE_KINDS
from fuelline.schema.units import number
from fuelline.whatif.model import is_saturated

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.forecasts import WhatIf
    from fuelline.whatif.model import Limit, Pipeline

_SATURATED = 0.5
_STORAGES = {name: kind.words for name, kind in STORAGE_KINDS.items()} | {
    LOCAL: "data on a local disk",
    PACKED: "samples packed into shards",
}


def word_question(question: WhatIf) -> str:
    """`8 workers, data in memory`."""
    parts = [
        *_loader_words(question),
        *_input_words(question),
        *_machine_words(question),
        *(
            f"{part} {number(factor)} times rarer" if factor < _NEVER else f"no {part}"
            for part, factor in question.rarer.items()
        ),
    ]
    return ", ".join(parts) or "nothing changed"


_NEVER = 1e6


def _loader_words(question: WhatIf) -> list[str]:
    words = []
    if question.workers is not None:
        words.append(f"{question.workers} worker{'' if question.workers == 1 else 's'}")
    if question.prefetch is not None:
        batches = "batch" if question.prefetch == 1 else "batches"
        words.append(f"{question.prefetch} {batches} prefetched by each")
    if question.persistent is not None:
        words.append("workers kept" if question.persistent else "workers started anew")
    if question.pin is not None:
        words.append("pinned memory" if question.pin else "pageable memory")
    if question.batch_size is not None:
        words.append(f"batches of {question.batch_size}")
    return words


def _factor(value: float) -> str:
    """`0.01`, which `number` would round to nothing."""
    return number(value) if value >= 1 else f"{value:g}"


def _input_words(question: WhatIf) -> list[str]:
    words = []
    if question.storage is not None:
        probed = question.measured
        known = _STORAGES.get(question.storage) if probed is None else probed.words
        words.append(known or f"storage {question.storage[:-1]} times as fast")
    if question.transform_factor is not None:
        words.append(f"preparing samples {_factor(question.transform_factor)} times as fast")
    if question.handoff_factor is not None:
        words.append(f"hand-off {_factor(question.handoff_factor)} times as fast")
    return words


def _machine_words(question: WhatIf) -> list[str]:
    words = []
    if question.chip_factor is not None:
        words.append(f"a device {_factor(question.chip_factor)} times as fast")
    if question.chip is not None:
        words.append(f"a device {question.chip}")
    if question.cores is not None:
        words.append(f"{number(question.cores)} core{'' if question.cores == 1 else 's'}")
    if question.alone:
        words.append("the host to itself")
    if question.ranks is not None:
        words.append(f"{question.ranks} ranks on this host")
    return words


def word_limit(limit: Limit, pipe: Pipeline) -> str:
    """The limit as people call it."""
    is_full = pipe.elasticity >= _SATURATED or is_saturated(pipe)
    words: dict[Limit, str] = {
        "device": "the device itself",
        "host": "the training process itself",
        "workers": "the number of workers",
        "cores": "cores",
        "memory": "memory bandwidth of the host",
        "storage": "storage bandwidth" if is_full else "storage latency",
        "service": "what the workers wait for",
        "pauses": "pauses of the loop",
    }
    return words[limit]
