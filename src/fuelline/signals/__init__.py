"""Pure functions: Timeline in, Reading out."""

from typing import TYPE_CHECKING

from fuelline.schema.lazily import load_lazily

if TYPE_CHECKING:
    from fuelline.signals.devices.devices import measure_devices
    from fuelline.signals.feeding import answer_feed, measure_feed, with_waiting
    from fuelline.signals.ranks.hosts import (
        HostView,
        align_hosts,
        count_ranks_beside,
        view_host,
    )
    from fuelline.signals.ranks.lateness import Comparison, compare_ranks, find_reason, sum_parts
    from fuelline.signals.ranks.unseen import find_unseen, why_no_steps

__all__ = [
    "Comparison",
    "HostView",
    "align_hosts",
    "answer_feed",
    "compare_ranks",
    "count_ranks_beside",
    "find_reason",
    "find_unseen",
    "measure_devices",
    "measure_feed",
    "sum_parts",
    "view_host",
    "why_no_steps",
    "with_waiting",
]

__getattr__ = load_lazily(
    __name__,
    {
        "Comparison": "ranks.lateness",
        "HostView": "ranks.hosts",
        "align_hosts": "ranks.hosts",
        "answer_feed": "feeding",
        "compare_ranks": "ranks.lateness",
        "count_ranks_beside": "ranks.hosts",
        "find_reason": "ranks.lateness",
        "find_unseen": "ranks.unseen",
        "measure_devices": "devices.devices",
        "measure_feed": "feeding",
        "sum_parts": "ranks.lateness",
        "view_host": "ranks.hosts",
        "why_no_steps": "ranks.unseen",
        "with_waiting": "feeding",
    },
)
