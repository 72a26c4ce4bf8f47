"""What a Kineto file says about itself: rank, world, chips, what the profiler was asked for."""

from __future__ import annotations

import re
from typing import Any

from fuelline.schema.run.trace import ChipFacts, RankFacts

_SETTINGS = ("record_shapes", "with_stack", "with_flops", "with_modules", "profile_memory")
_RANK_IN_NAME = re.compile(r"rank[-_. ]?(\d{1,6})", re.IGNORECASE)


def describe(said: dict[str, Any], rank: int, file: str) -> RankFacts:
    """Facts of the one rank that a file is about; `rank` if neither it nor its name tells."""
    world = said.get("distributedInfo")
    world = world if isinstance(world, dict) else {}
    claimed = _whole(world.get("rank"))
    named = _RANK_IN_NAME.search(file)
    by_name = rank if named is None else int(named[1])
    base = _whole(said.get("baseTimeNanoseconds"))
    return RankFacts(
        rank=by_name if claimed is None else claimed,
        world_size=_whole(world.get("world_size")),
        host=_text(said.get("host_name")),
        chips=[_chip(each) for each in _list(said.get("deviceProperties"))],
        origin_ns=base or 0,
        is_rank_known=claimed is not None,
        settings={key: _text(said[key]) for key in _SETTINGS if key in said},
    )


def _chip(properties: dict[str, Any]) -> ChipFacts:
    get = properties.get
    return ChipFacts(
        device=_whole(get("id")) or 0,
        name=_text(get("name")),
        sm_count=_whole(get("numSms")),
        warp_size=_whole(get("warpSize")),
        max_threads_per_sm=_whole(get("maxThreadsPerMultiprocessor")),
        registers_per_sm=_whole(get("regsPerMultiprocessor")),
        shared_bytes_per_sm=_whole(
            get("sharedMemPerMultiprocessor") or get("maxSharedMemoryPerMultiProcessor")
        ),
        memory_bytes=_whole(get("totalGlobalMem")),
    )


def _whole(value: object) -> int | None:
    """A number of no absurd size, also if it came as text."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    is_fit = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return int(value) if is_fit else None  # type: ignore[call-overload]


def _text(value: object) -> str:
    return "" if value is None else str(value)[:200]


def _list(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
