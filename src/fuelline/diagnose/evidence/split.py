"""How the wait for input divides among stages: read, fetch, prepare, collate, handoff, unknown.

The trainer's own CPU time inside next() is hand-off (unpickling). The rest of the wait is charged
to the threads that fetch, by what they did meanwhile. Small shares are folded into the largest one,
because a few per cent of samples in another state are noise, not a second cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.diagnose.evidence.blocked import may_take_turns
from fuelline.diagnose.evidence.cpu import THROTTLED
from fuelline.diagnose.rule import workers_now
from fuelline.schema.readings import at_least, value_of

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts

_FOLDED_SHARE = 0.2
"""A stage with less than a fifth of the wait is not a cause of its own."""
IDLE_SHARE = 0.6
"""Workers that are idle this much while the trainer waits are not what it waits for."""
SMALL_BYTES = 1 << 20
"""Copied into shared memory within half a millisecond: what is left is the price of a message."""
FEW_OBJECTS_BYTES = 1 << 14
"""Pickled, a batch of that size holds a thousand objects at most, which take a tenth of a
millisecond: the rest is the tensors' handles."""
_MESSAGE_S = 0.010
"""A batch of a few tensors takes 1.3 to 2.3 ms from worker to trainer (`whatif/fitting.py`), and on
crowded cores each of its two wake-ups may wait for another process's time slice of 3 to 4 ms. What
takes longer is no mere message."""
_COLLATE_SHARE = 0.5
"""Collate is the stage if it takes more than half of a fetch."""


class InputSplit(Struct, frozen=True, kw_only=True):
    """Shares of the window lost to each stage of input; they sum to the exposed wait."""

    read: float = 0.0
    fetch: float = 0.0
    """Blocked, and not in reading."""
    prepare: float = 0.0
    """decode and transform."""
    collate: float = 0.0
    """Joining samples into batches, where that is most of a fetch; `prepare` is 0 then."""
    handoff: float = 0.0
    """Pickling and unpickling."""
    write: float = 0.0
    """Blocked in writing: of results, where nothing is trained."""
    unknown: float = 0.0


def split_input(facts: Facts) -> InputSplit | None:
    """None if the exposed wait itself is unknown."""
    exposed = value_of(facts.input.exposed_share)
    if exposed is None:
        return None
    weights = _fold(_weights(facts))
    return InputSplit(**{stage: exposed * weight for stage, weight in weights.items()})


def _weights(facts: Facts) -> dict[str, float]:
    own = min(1.0, value_of(facts.input.unpickle_share) or 0.0)
    fetched = _fetch_weights(facts)
    weights = {stage: (1 - own) * weight for stage, weight in fetched.items()}
    weights["handoff"] = weights.get("handoff", 0.0) + own
    return weights


def _fetch_weights(facts: Facts) -> dict[str, float]:
    """What the fetching threads did while the trainer waited, by stage."""
    signals = facts.input
    if (value_of(signals.idle_share) or 0.0) >= IDLE_SHARE:
        if at_least(facts.cores.throttled_share, THROTTLED):
            # The quota stops the trainer as well, which then does not get at a batch that is ready.
            return {"prepare": 1.0}
        is_handed = _serialises(facts) or is_message(facts)
        return {"handoff": 1.0} if is_handed else {"unknown": 1.0}
    cpu, queued = value_of(signals.cpu_share), value_of(signals.core_wait_share)
    read, metadata = value_of(signals.read_share), value_of(signals.metadata_share)
    if cpu is None or queued is None or read is None or metadata is None:
        return {"unknown": 1.0}
    queue, rest = _lock_queue(facts)
    write = value_of(signals.write_share) or 0.0
    # Files that are made are opened and closed as well.
    write += metadata if write > read else 0.0
    metadata = 0.0 if write > read else metadata
    storage = queue + rest * (read + metadata)
    written = rest * write
    blocked = 0.0 if may_take_turns(facts) else rest * (value_of(signals.blocked_share) or 0.0)
    prepare = rest * (cpu + queued + _at_memory_locks(facts))
    unknown = max(0.0, 1 - storage - blocked - prepare - written)
    collate = value_of(signals.collate_share) or 0.0
    if collate > _COLLATE_SHARE and prepare > storage:
        return {
            "read": storage,
            "fetch": blocked,
            "collate": prepare,
            "write": written,
            "unknown": unknown,
        }
    return {
        "read": storage,
        "fetch": blocked,
        "prepare": prepare,
        "write": written,
        "unknown": unknown,
    }


def is_message(facts: Facts) -> bool:
    """Whether handing a batch over costs the same for any size: it is small, and of few objects."""
    sent, pickled = value_of(facts.input.batch_bytes), value_of(facts.input.pickled_bytes)
    wait = value_of(facts.input.wait_share)
    if sent is None or pickled is None or wait is None or facts.steps.mean is None:
        return False
    is_small = sent <= SMALL_BYTES and pickled < FEW_OBJECTS_BYTES
    return is_small and wait * facts.steps.mean <= _MESSAGE_S


def memory_queue(facts: Facts) -> float:
    """The part of fetching that locks in memory make serial among several workers."""
    return _as_queue(_at_memory_locks(facts), facts)


def _at_memory_locks(facts: Facts) -> float:
    """A worker alone has nobody of its kind to wait for: what it waits for then is not known."""
    if workers_now(facts) < 2:
        return 0.0
    locked = value_of(facts.input.lock_share) or 0.0
    return max(0.0, locked - (value_of(facts.input.file_lock_share) or 0.0))


def takes_turns(facts: Facts) -> bool:
    """Whether a queue at a lock of a file is most of what the fetching threads lose to storage."""
    queue, rest = _lock_queue(facts)
    read, metadata = value_of(facts.input.read_share), value_of(facts.input.metadata_share)
    return queue > 0 and queue >= rest * ((read or 0.0) + (metadata or 0.0))


def _lock_queue(facts: Facts) -> tuple[float, float]:
    """The part of fetching that locks of files make serial, and the factor for all other states."""
    locked = value_of(facts.input.file_lock_share) or 0.0
    queue = _as_queue(locked, facts)
    return queue, (1 - queue) / (1 - locked) if locked < 1 else 0.0


def _as_queue(locked: float, facts: Facts) -> float:
    """The queue at a lock, with its head.

    When n workers take turns, n - 1 are seen at the lock, and what the one that holds it does is
    what they wait for: n of n are the queue's. A single one waits for somebody else.
    """
    workers = workers_now(facts)
    return min(1.0, locked * workers / (workers - 1)) if workers > 1 else locked


def _serialises(facts: Facts) -> bool:
    """Idle workers are explained by the hand-off only if someone is seen serialising."""
    return (value_of(facts.input.pickle_share) or 0.0) > 0.25 or (
        value_of(facts.input.unpickle_share) or 0.0
    ) > 0.25


def _fold(weights: dict[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    if total <= 0:
        return {"unknown": 1.0}
    shares = {stage: weight / total for stage, weight in weights.items()}
    largest = max(shares, key=lambda stage: shares[stage])
    kept = {
        stage: share
        for stage, share in shares.items()
        if share >= _FOLDED_SHARE or stage == largest
    }
    kept[largest] += 1 - sum(kept.values())
    return kept
