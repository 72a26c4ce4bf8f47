"""What more workers would bring, by the operational laws: device, workers, cores, and strangers.

Cores are shared out evenly among all that want one: a job whose processes waited for a core has
strangers beside it, who will take their share of what it wants more. How many there are is told by
how long the job's own waited, and by what the host's cores were busy with besides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuelline.fix.elastic.observation import Look

__all__ = ["predict_speedup"]

SURE = 0.9
"""Share of its time on a core, of what a process wanted, above which nobody need be in its way:
each wake-up waits a little."""


def predict_speedup(look: Look, target: int, cores: float) -> float:
    """Of the job with so many workers, against now; 1 at least."""
    batches, fetches = max(1, look.batches), max(1, look.fetches)
    own_s = (look.seconds - look.wait_s) / batches
    fetch_cpu_s = look.cpu_s / fetches
    strangers = _count_strangers(look, cores)
    wanted = target * fetch_cpu_s / max(look.service_s, 1e-9) + look.own_cpu_s / look.seconds
    share = min(1.0, cores / max(wanted + strangers, 1e-9))
    service_s = look.service_s + fetch_cpu_s * (1 / share - 1)
    cpu_s = fetch_cpu_s + look.own_cpu_s / batches
    ours = cores * wanted / (wanted + strangers) if wanted + strangers > cores else cores
    slowest_s = max(own_s, service_s / target, cpu_s / max(ours, 1e-9), 1e-9)
    return max(1.0, 1 / (look.rate * slowest_s))


def _count_strangers(look: Look, cores: float) -> float:
    """Processes of others that want a core, on average."""
    queued_s = (look.queued or 0.0) * look.busy_s
    on_core_s = look.cpu_s + look.own_cpu_s
    if not on_core_s:
        return look.others or 0.0
    share = look.cpu_s / max(look.cpu_s + queued_s, 1e-9)
    wanting = (on_core_s + queued_s) / look.seconds
    by_wait = cores / max(share, 1e-9) - wanting if share < SURE else 0.0
    return max(by_wait, look.others or 0.0)
