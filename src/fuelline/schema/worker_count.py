"""How many loader workers a job needs, and how many its cores have room for.

The two operational laws that every answer about workers rests on: rules, the pipeline model and
the loader of `run --fix` all count by them, so that they cannot contradict each other. Plain
numbers in and out; standard library only, because it runs inside the user's job as well.
"""

import math

HEADROOM = 1.15
"""More workers than the mean needs, since fetches differ (found with a prototype)."""
MOST_WORKERS = 128
"""Nobody starts more on one host for one loader."""
QUEUED = 0.25
"""Share of a fetch that is spent waiting for a core, beyond which more workers only queue, and
batches that are begun earlier wait with the others (found with a prototype)."""
MOST_STRETCH = 4
"""So many times as many requests in flight at most, where their number was not seen to vary."""


def count_needed(fetch_s: float, own_s: float) -> int:
    """Workers that keep up with a trainer who has a batch every `own_s`.

    A batch takes one of them `fetch_s`, so that so many are under way at any time.
    """
    if own_s <= 0:
        return MOST_WORKERS
    return max(1, min(MOST_WORKERS, math.ceil(HEADROOM * fetch_s / own_s)))


def count_affordable(cores: float, computing: float) -> int:
    """Workers that get a core when they want one, each of them this share of its time.

    Those that wait need none: cores do not bound them.
    """
    return max(1, min(MOST_WORKERS, math.ceil(cores / max(computing, 1 / MOST_WORKERS))))
