"""Pure functions: Timeline in, Reading out."""

from fuelline.signals.devices import measure_devices
from fuelline.signals.feeding import answer_feed, measure_feed
from fuelline.signals.hosts import HostView, align_hosts, count_ranks_beside, view_host
from fuelline.signals.measure import measure
from fuelline.signals.ranks import Comparison, compare_ranks, find_reason
from fuelline.signals.unseen import find_unseen, why_no_steps

__all__ = [
    "Comparison",
    "HostView",
    "align_hosts",
    "answer_feed",
    "compare_ranks",
    "count_ranks_beside",
    "find_reason",
    "find_unseen",
    "measure",
    "measure_devices",
    "measure_feed",
    "view_host",
    "why_no_steps",
]
