"""PR211 starved-device: the device is idle while the host waits in its data loader.

What: idle time of the devices of an imported trace under the loader's events.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Known problem: a trace shows that the loader is late, not why. `fuelline run` can say whether it is
slow storage, slow CPU or too few workers.
Fix: workers, if there are none; otherwise record the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.advice import prepare_beside
from fuelline.diagnose.evidence.traces import busy_evidence, found_in, shorten
from fuelline.diagnose.rule import LISTED_SHARE
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.readings import Missing
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class StarvedDevice:
    """Transform x parallelism, from a trace."""

    code: Final = "PR211"
    name: Final = "starved-device"
    stage: Final = "transform"
    limit: Final = "parallelism"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if the loader's events cover much idle time."""
        trace = facts.trace
        if trace is None or isinstance(trace.data_wait_share, Missing):
            return None
        share = trace.data_wait_share.value
        if share < LISTED_SHARE:
            return None
        workers = " The loader has no workers." if trace.loader_in_process else ""
        return found_in(
            self,
            facts,
            share,
            sentence=f"The devices are idle for {percent(share)} of the time because the next "
            f"batch is not ready.{workers}",
            evidence=[
                Evidence(
                    what=f"the host waits in {shorten(trace.loader)}", signal=trace.data_wait_share
                ),
                *busy_evidence(trace),
            ],
            remedies=[prepare_beside(trace) if trace.loader_in_process else _RECORD],
            confidence="high" if trace.loader_in_process else "medium",
        )


_RECORD = Remedy(
    setting="fuelline run train.py",
    why="a trace does not show whether storage, cores or workers hold up the loader",
    applicability="display",
)
