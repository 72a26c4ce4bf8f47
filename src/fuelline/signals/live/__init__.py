"""What a running job did in the last seconds: growth in, snapshot out, nothing is read twice.

Unlike the other signals these keep state, because a look brings only what is new. Each record is
taken in once, in about a microsecond; what is kept is bounded by the last seconds, not by the run.
"""

from fuelline.signals.live.run import LiveRun, join_snapshots

__all__ = ["LiveRun", "join_snapshots"]
