"""What a question changes in a Pipeline; Missing where the recording has no evidence for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.storages import LOCAL, PACKED, STORAGE_KINDS, StorageKind
from fuelline.schema.readings import Missing, Reading, value_of
from fuelline.schema.units import number, size
from fuelline.schema.worker_count import MOST_STRETCH
from fuelline.whatif.chip_ratio import compare_chips
from fuelline.whatif.fitting import MOST_OTHERS, count_in_flight, is_sure

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.schema.diagnosis.forecasts import WhatIf
    from fuelline.schema.parts import StepPart
    from fuelline.schema.readings import Signal
    from fuelline.whatif.fitting import Fit
    from fuelline.whatif.model import Pipeline

RESET_S = 5e-3
"""Persistent workers at an epoch's turn: indices are sent again, the first fetch starts; measured
on the zoo's short epochs (healthy-short-epochs) beside the fetch itself."""
LOADER_S = 15e-6
"""CPU time of a fetch that is torch's and the hooks' own, whatever the batch: 8 to 11 us for
batches of one number or of two tensors on an AMD EPYC, hooks aside."""
PINNED_GAIN = 0.5
"""Copies from pinned memory take about half the time of pageable ones (M. Harris, "How to Optimize
Data Transfers in CUDA C/C++", NVIDIA 2012: 2.2 to 2.5 times the rate)."""
_MUCH_WAITED = 0.2
"""Of a fetch: waits below it do not decide how many workers pay."""
_SEVERAL = 1.5


@dataclass(frozen=True)
class Changed:
    """A Pipeline after a question, and what had to be assumed."""

    pipe: Pipeline
    assumptions: list[str]


def change(fit: Fit, question: WhatIf) -> Changed | Missing:
    """Apply every part of a question, in an order in which they do not disturb each other."""
    changed = Changed(fit.pipe, [])
    for apply in _APPLY:
        step = apply(fit, changed.pipe, question)
        if isinstance(step, Missing):
            return step
        if step is not None:
            changed = Changed(step.pipe, [*changed.assumptions, *step.assumptions])
    if math.isfinite(changed.pipe.storage_most):
        return changed  # another storage: what it takes at once is known
    return _too_far(fit, changed.pipe) or changed


def _storage(fit: Fit, pipe: Pipeline, question: WhatIf) -> Changed | Missing | None:
    if question.storage is None:
        return None
    if not fit.storage_known:
        reason = fit.facts.demands.read_frac
        return reason if isinstance(reason, Missing) else None
    if question.storage == PACKED:
        return Changed(replace(pipe, metadata_s=0.0), ["reading from a shard blocks as before"])
    if question.storage[-1:] == "x" and question.measured is None:
        factor = float(question.storage[:-1])
        quicker = replace(pipe, read_s=pipe.read_s / factor, metadata_s=pipe.metadata_s / factor)
        return Changed(quicker, [])
    if question.measured is not None:
        return _on(fit, pipe, question.measured)
    kind = STORAGE_KINDS["nvme" if question.storage == LOCAL else question.storage]
    return _on(fit, pipe, kind)


def _on(fit: Fit, pipe: Pipeline, kind: StorageKind) -> Changed | Missing:
    """Reads as another kind of storage serves them; no slower than now unless it is slower."""
    if kind.request_seconds == 0.0:
        return Changed(replace(pipe, read_s=0.0, metadata_s=0.0, elasticity=0.0), [])
    calls = value_of(fit.facts.demands.read_calls)
    bytes_read = value_of(fit.facts.demands.read_bytes)
    if calls is None or bytes_read is None:
        return Missing(reason="how much a fetch reads was not counted")
    read_s = calls * kind.request_seconds + bytes_read / kind.bytes_per_s
    opening_s = min(pipe.metadata_s, calls * kind.request_seconds)
    moved = replace(
        pipe,
        read_s=read_s,
        metadata_s=opening_s,
        elasticity=0.0,
        storage_rivals=0.0,
        storage_most=_most_at_once(kind, calls, bytes_read, read_s + opening_s),
    )
    words = [f"{kind.words}: {number(kind.request_seconds * 1e6)} us per request"]
    if moved.storage_s > pipe.storage_s:
        words.append("no read is served from memory, as recorded ones may have been")
    return Changed(moved, words)


def _most_at_once(kind: StorageKind, calls: float, bytes_read: float, alone_s: float) -> float:
    """How many fetches at once fill this storage, by its bytes or by its requests."""
    full_s = bytes_read / kind.bytes_per_s
    if kind.requests_at_once is not None:
        full_s = max(full_s, calls * kind.request_seconds / kind.requests_at_once)
    return alone_s / full_s if full_s > 0 else math.inf


def _fetching(_: Fit, pipe: Pipeline, question: WhatIf) -> Changed | None:
    if question.transform_factor is None and question.handoff_factor is None:
        return None
    transform, handoff = question.transform_factor or 1.0, question.handoff_factor or 1.0
    quicker = replace(
        pipe,
        cpu_s=pipe.cpu_s / transform,
        handoff_s=pipe.handoff_s / handoff,
        take_s=pipe.take_s / handoff,
        # Where taking is most of what the trainer does, what it takes beyond is the pipe's.
        surplus_s=pipe.surplus_s / (handoff if pipe.take_s > pipe.host_s else 1.0),
    )
    return Changed(quicker, [])


def _loader(fit: Fit, pipe: Pipeline, question: WhatIf) -> Changed | Missing | None:
    if question.workers is None and question.prefetch is None and question.persistent is None:
        return None
    workers = pipe.workers if question.workers is None else question.workers
    prefetch = pipe.prefetch if question.prefetch is None else question.prefetch
    persistent = pipe.persistent if question.persistent is None else question.persistent
    changed = replace(pipe, workers=workers, prefetch=prefetch, persistent=persistent)
    changed = replace(changed, pauses=_restarts(pipe, changed))
    assumptions = _memory(fit, workers - pipe.workers)
    if workers and not pipe.workers:
        # What next() did beside the fetch is the workers' then, too.
        changed = replace(changed, surplus_s=0.0)
        assumptions.append("handing a batch over costs what it did in our test jobs")
    return Changed(changed, assumptions)


def _restarts(old: Pipeline, new: Pipeline) -> dict[StepPart, float]:
    """Pauses with the start of epochs as the other loader has it."""
    if not math.isfinite(old.epoch_batches):
        return dict(old.pauses)
    now_s = old.pauses.get("epoch start", 0.0) * old.epoch_batches
    if new.persistent and new.workers:
        after_s = min(now_s, new.fetch_s + RESET_S)
    elif new.workers and not old.workers:
        after_s = new.workers * new.start_s + new.fetch_s
    elif not new.workers:
        after_s = min(now_s, new.fetch_s)
    else:
        # Before its first batch each worker has something of its own to do, on shared cores.
        own_s = max(0.0, now_s - old.fetch_s - old.workers * old.start_s)
        crowd = [max(1.0, pipe.workers * pipe.ranks / pipe.cores) for pipe in (old, new)]
        forked_s = max(0, new.workers - old.workers) * new.start_s
        after_s = now_s + forked_s + own_s * (crowd[1] / crowd[0] - 1)
    return {**old.pauses, "epoch start": after_s / old.epoch_batches}


def _memory(fit: Fit, more: int) -> list[str]:
    """A caution if more workers may not fit; an upper bound, because they share pages."""
    each = value_of(fit.facts.demands.worker_bytes)
    free = value_of(fit.facts.demands.free_bytes)
    if more <= 0 or not each or free is None or more * each <= free:
        return []
    return [f"{more} more workers may need up to {size(more * each)}, and {size(free)} are free"]


def _batch(fit: Fit, pipe: Pipeline, question: WhatIf) -> Changed | Missing | None:
    if question.batch_size is None:
        return None
    ratio = question.batch_size / pipe.batch_samples
    if fit.fixed_share is None:
        return Missing(
            reason="how the device's time depends on the batch size was not seen: all batches had "
            "the same size, or the device waited for them"
        )
    device_s = pipe.device_s * (fit.fixed_share + (1 - fit.fixed_share) * ratio)
    handing = 0.5 + 0.5 * ratio
    own_s = min(pipe.cpu_s, LOADER_S)
    larger = replace(
        pipe,
        memory_s=pipe.memory_s * ratio,
        batch_samples=float(question.batch_size),
        cpu_s=own_s + (pipe.cpu_s - own_s) * ratio,
        read_s=pipe.read_s * ratio,
        metadata_s=pipe.metadata_s * ratio,
        idle_s=pipe.idle_s * ratio,
        handoff_s=pipe.handoff_s * handing,
        take_s=pipe.take_s * handing,
        device_s=device_s,
        host_s=pipe.host_s if pipe.beside else pipe.host_s + device_s - pipe.device_s,
        pauses={part: s * ratio for part, s in pipe.pauses.items()},
        epoch_batches=pipe.epoch_batches / ratio,
        surplus_s=pipe.surplus_s * ratio,
    )
    return Changed(larger, ["the batch fits into the device's memory"])


def _chip(fit: Fit, pipe: Pipeline, question: WhatIf) -> Changed | Missing | None:
    if question.chip is not None:
        ratio = compare_chips(question.chip, fit.facts.devices)
        if isinstance(ratio, Missing):
            return ratio
        return Changed(_quicken(pipe, ratio.factor), [ratio.words])
    if question.chip_factor is None:
        return None
    return Changed(_quicken(pipe, question.chip_factor), [])


def _quicken(pipe: Pipeline, factor: float) -> Pipeline:
    device_s = pipe.device_s / factor
    saved_s = 0.0 if pipe.beside else pipe.device_s - device_s
    host_cpu_s = max(0.0, pipe.host_cpu_s - saved_s)
    return replace(pipe, device_s=device_s, host_s=pipe.host_s - saved_s, host_cpu_s=host_cpu_s)


def _pin(fit: Fit, pipe: Pipeline, question: WhatIf) -> Changed | Missing | None:
    loader = fit.facts.loader
    now = loader.pin_memory if loader is not None else None
    if question.pin is None or question.pin == now:
        return None
    copying = fit.facts.demands.copy_seconds
    if isinstance(copying, Missing):
        return copying
    factor = PINNED_GAIN if question.pin else 1 / PINNED_GAIN
    host_s = max(0.0, pipe.host_s + (factor - 1) * copying.value)
    return Changed(replace(pipe, host_s=host_s), ["pinned copies run at twice the rate"])


def _cores(fit: Fit, pipe: Pipeline, question: WhatIf) -> Changed | None:
    if question.cores is None and not question.alone:
        return None
    cores = pipe.cores if question.cores is None else question.cores
    rivals = pipe.rivals
    if cores > pipe.cores:  # the new cores have their users already
        rivals = max(rivals, value_of(fit.facts.cores.others) or 0.0)
    assumptions = []
    if question.alone:
        rivals = 0.0
        pipe = _undisturbed(fit, pipe)
        assumptions.append("nobody else uses the cores or the storage")
    changed = replace(pipe, cores=cores, rivals=rivals)
    wait_s = (pipe.host_s - pipe.host_cpu_s) * _crowd(changed) / max(_crowd(pipe), 1e-9)
    host_s = pipe.host_cpu_s + wait_s if _crowd(pipe) > 0 else pipe.host_s
    return Changed(replace(changed, host_s=host_s), assumptions)


def _undisturbed(fit: Fit, pipe: Pipeline) -> Pipeline:
    """With the storage for itself; where its rivals are not modelled, by the bytes they moved."""
    if pipe.storage_rivals or pipe.elasticity:
        return replace(pipe, storage_rivals=0.0)
    own = 1 - min(MOST_OTHERS, value_of(fit.facts.storage.others_share) or 0.0)
    return replace(pipe, read_s=pipe.read_s * own, metadata_s=pipe.metadata_s * own)


def _crowd(pipe: Pipeline) -> float:
    """How far what wants to run exceeds the cores; the trainer's own waiting follows it."""
    running = max(1, pipe.workers) * pipe.cpu_s / max(pipe.fetch_s, 1e-12)
    return max(0.0, (1 + running + pipe.rivals) / pipe.cores - 1)


def _crowding(fit: Fit, pipe: Pipeline, question: WhatIf) -> Changed | None:
    """CPU time of a fetch follows those who run at once, where they were seen to share memory."""
    own, beside = fit.facts.input.cpu_growth, _surely(fit.facts.input.beside_growth)
    others = value_of(fit.facts.cores.others) or 0.0
    now, then = at_once(fit.pipe), at_once(pipe)
    words = "who runs at once slows the others down, as was seen"
    if isinstance(own, Reading):
        factor = (then / now) ** _surely(own)
    elif beside:
        factor = ((then + others) / (now + others)) ** beside
    else:
        factor = (then / now) ** (fit.most_growth / 2)  # between 0 and that
        words = "memory may be the limit of workers that move bytes: the probe's copies say so"
    if question.alone:
        factor *= (then / (then + others)) ** beside
    if factor == 1:
        return None
    return Changed(replace(pipe, cpu_s=pipe.cpu_s * factor), [words])


def _surely(growth: Signal) -> float:
    """An elasticity between 0 and 1; 0 where it was not seen, or may be none."""
    is_sure = isinstance(growth, Reading) and (growth.low or 0.0) > 0
    return min(1.0, value_of(growth) or 0.0) if is_sure else 0.0


def at_once(pipe: Pipeline) -> float:
    """Fetches that can run at the same time."""
    return max(1.0, min(pipe.workers * pipe.ranks, pipe.cores))


def _rarer(_: Fit, pipe: Pipeline, question: WhatIf) -> Changed | Missing | None:
    if not question.rarer:
        return None
    for part, factor in question.rarer.items():
        if part == "loop":
            pipe = replace(
                pipe,
                host_s=pipe.host_s - pipe.loop_s * (1 - 1 / factor),
                host_cpu_s=max(0.0, pipe.host_cpu_s - pipe.loop_s * (1 - 1 / factor)),
                loop_s=pipe.loop_s / factor,
            )
        elif part not in pipe.pauses:
            return Missing(reason=f"no {part} was seen inside the window")
        else:
            pipe = replace(pipe, pauses={**pipe.pauses, part: pipe.pauses[part] / factor})
    return Changed(pipe, [])


def _ranks(fit: Fit, pipe: Pipeline, question: WhatIf) -> Changed | Missing | None:
    if question.ranks is None or question.ranks == 1:
        return None
    if fit.facts.sync.ranks > 1:
        return Missing(reason=f"the recording has {fit.facts.sync.ranks} ranks already")
    words = ["each rank has its own device", "exchange between the ranks costs nothing"]
    return Changed(replace(pipe, ranks=question.ranks), words)


def waits_unseen(fit: Fit, pipe: Pipeline) -> bool:
    """Whether fetches wait for something that was never seen with another number of them."""
    return _reads_unseen(fit, pipe) or _answers_unseen(fit, pipe)


def _reads_unseen(fit: Fit, pipe: Pipeline) -> bool:
    return pipe.storage_s > _MUCH_WAITED * pipe.fetch_s and not fit.seen_scaling


def is_open(fit: Fit) -> bool:
    """Whether several reads are in flight, and nothing shows if they wait for each other.

    As in IN101. A single one is answered as soon as the storage can.
    """
    return _reads_unseen(fit, fit.pipe) and count_in_flight(fit.facts) >= _SEVERAL


def _answers_unseen(fit: Fit, pipe: Pipeline) -> bool:
    return asks_somebody(fit, pipe) and not is_sure(fit.facts.input.blocked_growth)


def asks_somebody(fit: Fit, pipe: Pipeline) -> bool:
    """A sleep takes as long however many sleep; a service may not take more at once.

    The share asleep is of all blocked time; what is blocked elsewhere and does not sleep waits for
    somebody.
    """
    asleep = value_of(fit.facts.demands.sleep_frac) or 0.0
    somebody_s = pipe.idle_s - min(pipe.idle_s, asleep * (pipe.idle_s + pipe.storage_s))
    return somebody_s > _MUCH_WAITED * pipe.fetch_s


def with_queues(fit: Fit, storage: float, service: float) -> Fit:
    """The same recording, if requests slowed each other down by that much more than was seen."""
    pipe, count = fit.pipe, count_in_flight(fit.facts)
    growth = min(1.0, pipe.elasticity + storage)
    waiting = min(1.0, pipe.idle_elasticity + service)
    alone = (count + pipe.storage_rivals) ** (pipe.elasticity - growth)
    queued = replace(
        pipe,
        elasticity=growth,
        read_s=pipe.read_s * alone,
        metadata_s=pipe.metadata_s * alone,
        idle_elasticity=waiting,
        idle_s=pipe.idle_s * count ** (pipe.idle_elasticity - waiting),
    )
    return replace(fit, pipe=queued)


def least_favourable(fit: Fit, question: WhatIf) -> Fit:
    """The same recording, as it may be as well, of what it does not show.

    What never had more company serves one at a time. Others who read from a storage that is full
    keep what they have, however many requests the job makes.
    """
    least = with_queues(
        fit,
        storage=float(_reads_unseen(fit, fit.pipe)),
        service=float(_answers_unseen(fit, fit.pipe)),
    )
    pipe, count = least.pipe, count_in_flight(fit.facts)
    if not pipe.storage_rivals or question.alone:
        return least
    shared = (1 + pipe.storage_rivals / count) ** pipe.elasticity
    kept = replace(
        pipe,
        storage_rivals=0.0,
        read_s=pipe.read_s * shared,
        metadata_s=pipe.metadata_s * shared,
    )
    return replace(least, pipe=kept)


def _too_far(fit: Fit, pipe: Pipeline) -> Missing | None:
    """What was never seen under another load may not take many times as many requests."""
    old, new = max(1, fit.pipe.workers) * fit.pipe.ranks, pipe.workers * pipe.ranks
    if not waits_unseen(fit, pipe) or new <= MOST_STRETCH * old:
        return None
    waited = "the storage" if pipe.storage_s > pipe.idle_s else "what workers wait for"
    return Missing(
        reason=f"whether {waited} takes {number(new / old)} times as many requests at once was "
        "not seen: the number in flight never changed. Ask for at most "
        f"{number(MOST_STRETCH * max(1, fit.pipe.workers))} workers"
    )


_APPLY: tuple[Callable[[Fit, Pipeline, WhatIf], Changed | Missing | None], ...] = (
    _storage,
    _fetching,
    _batch,
    _loader,
    _pin,
    _rarer,
    _chip,
    _cores,
    _ranks,
    _crowding,
)
