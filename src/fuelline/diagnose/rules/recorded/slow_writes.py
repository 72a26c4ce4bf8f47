"""IN107 slow-writes: the job is held up by writing what it produces.

What: the threads that work are blocked in write, fsync and the calls that make and close files.
Why: results go to a slow mount, are flushed to the disk one by one, or are many small files.
Not the same as: checkpoints (PA501), which the training loop writes and hooks see.
Threshold: at the limit (bandwidth) if the job writes 70 % of what its control group allows, or 100
MB/s and more, which a disk's own speed may be; otherwise each write takes long (latency).
Fix: write many results at a time, in another thread, without flushing each; to a local disk first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.rule import FETCH_SAMPLES, LISTED_SHARE, fact, found, line_fact
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import at_least
from fuelline.schema.units import percent, rate

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding

_AT_LIMIT = 0.7
_FAST_BYTES_PER_S = 100e6


class SlowWrites:
    """Write x latency, or bandwidth."""

    code: Final = "IN107"
    name: Final = "slow-writes"
    stage: Final = "write"
    limit: Final = "latency"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when writing dominates what the job waits for."""
        split = split_input(facts)
        if split is None or split.write < LISTED_SHARE:
            return None
        storage = facts.storage
        is_full = at_least(storage.write_limit_use, _AT_LIMIT) or at_least(
            storage.write_bytes_per_s, _FAST_BYTES_PER_S
        )
        finding = found(
            self,
            facts,
            split.write,
            sentence=f"{percent(split.write)} of training time is spent waiting for results to be "
            "written.",
            evidence=[
                *fact(
                    lambda v: f"{percent(v)} of fetch time is spent blocked in writing",
                    facts.input.write_share,
                ),
                *fact(lambda v: f"{rate(v)} written by the job", storage.write_bytes_per_s),
                *line_fact(facts.fetch_lines, FETCH_SAMPLES),
            ],
            remedies=[_fewer_bytes() if is_full else _fewer_writes(), _behind()],
        )
        return msgspec.structs.replace(finding, limit="bandwidth") if is_full else finding


def _fewer_writes() -> Remedy:
    return Remedy(
        setting="write many results at a time: one file (Parquet, tar, a shard) instead of many, "
        "and one flush (fsync, commit) for hundreds",
        why="each write waits for its own answer, however few bytes it holds",
        applicability="display",
        risk="after a crash the last results are missing",
    )


def _fewer_bytes() -> Remedy:
    return Remedy(
        setting="write fewer bytes: compress (zstd), or keep numbers in float16",
        why="the storage takes no more bytes in a second",
        applicability="display",
        cost="CPU time for compressing",
    )


def _behind() -> Remedy:
    return Remedy(
        setting="hand results to a thread that writes them (queue.Queue, "
        "ThreadPoolExecutor.submit) while the next ones are computed",
        why="who waits for storage needs no core",
        applicability="display",
        risk="what is queued needs memory",
    )
