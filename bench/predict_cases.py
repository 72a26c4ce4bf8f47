"""Cases of the zoo with remedies that can really be applied: what is asked, and how it is done.

A remedy is options appended to the job's own (the last one counts), another fault in the place of
the case's, or both. Where pages must be in the cache for it, `warm` says so.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.zoo.case import DATA, JOBS
from bench.zoo.cases import CASES
from bench.zoo.fault import NOTHING
from bench.zoo.faults.groups import Quota, ReadRate
from bench.zoo.faults.processes import REPOSITORY
from fuelline.schema.diagnosis.forecasts import WhatIf

if TYPE_CHECKING:
    from bench.zoo.case import Case
    from bench.zoo.fault import Fault
    from fuelline.schema.parts import Pause

MB = 1_000_000


@dataclass(frozen=True)
class Applied:
    """One remedy: the question to the model and the job that answers it."""

    question: WhatIf
    options: str = ""
    fault: Fault | None = None
    """In the place of the case's own; None keeps that."""
    warm: bool = False

    def job(self, case: Case) -> Case:
        """The case with the remedy applied."""
        return replace(
            case,
            args=f"{case.args} {self.options}",
            fault=case.fault if self.fault is None else self.fault,
            cold=case.cold and not self.warm,
        )


def workers(count: int) -> Applied:
    return Applied(WhatIf(workers=count), f"--workers {count}")


def prefetch(count: int) -> Applied:
    return Applied(WhatIf(prefetch=count), f"--prefetch {count}")


def in_memory() -> Applied:
    return Applied(WhatIf(storage="warm"), fault=NOTHING, warm=True)


def twice_the_rate(rate: ReadRate) -> Applied:
    return Applied(WhatIf(storage="2x"), fault=rate)


def alone(name: str) -> Applied:
    return Applied(WhatIf(alone=True), fault=find_case(name).ambient)


def rarer(part: Pause, times: int, every: int) -> Applied:
    return Applied(WhatIf(rarer={part: float(times)}), f"--every {every}")


def find_case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def quicker_ngrams(before: int, after: int) -> Applied:
    """The factor is measured by running the function alone, as who speeds it up would do."""
    code = (
        "import json, sys, time; import text\n"
        f"lines = open(r'{DATA}/lines/text.jsonl').read().splitlines()[:40]\n"
        "texts = [json.loads(line)['text'] for line in lines]\n"
        "def took(n):\n"
        "    start = time.thread_time(); [text.hash_ngrams(t, n) for t in texts]\n"
        "    return time.thread_time() - start\n"
        f"print(min(took({before}) for _ in range(3)) / min(took({after}) for _ in range(3)))"
    )
    path = f"{JOBS}:{REPOSITORY}"
    told = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    factor = float(told.stdout)
    return Applied(WhatIf(transform_factor=factor), f"--ngrams {after}")


def plan() -> dict[str, list[Applied]]:
    """Case to its remedies."""
    find_case("transform-code-text").prepare()
    return {
        "decode-parallelism-images": [workers(2), prefetch(8)],
        "decode-parallelism-arrays": [workers(2), prefetch(8)],
        "decode-parallelism-no-workers": [workers(1), workers(2)],
        "transform-parallelism-audio": [workers(2), prefetch(8)],
        "transform-parallelism-text": [workers(1), workers(2)],
        "read-latency-images": [workers(4), workers(8), in_memory()],
        "read-latency-records": [workers(8), in_memory()],
        "read-latency-no-root": [workers(4), in_memory()],
        "read-latency-metadata": [workers(8), in_memory()],
        "read-bandwidth-images": [workers(8), twice_the_rate(ReadRate(6 * MB)), in_memory()],
        "read-bandwidth-tars": [workers(4), twice_the_rate(ReadRate(8 * MB)), in_memory()],
        "read-bandwidth-memmap": [twice_the_rate(ReadRate(2 * MB)), in_memory()],
        "read-iops-files": [twice_the_rate(ReadRate(requests_per_s=240)), in_memory()],
        "read-contention-neighbour": [workers(8), alone("read-contention-neighbour")],
        "read-contention-stream": [workers(4), alone("read-contention-stream")],
        "read-memory-records": [workers(8), in_memory()],
        "decode-cores-quota": [
            Applied(WhatIf(cores=1.2), fault=Quota(1.2)),
            Applied(WhatIf(cores=2), fault=NOTHING),
            workers(8),
        ],
        "transform-cores-affinity": [Applied(WhatIf(cores=2), fault=NOTHING), workers(8)],
        "transform-memory-copies": [workers(4)],
        "transform-memory-neighbour": [workers(2), alone("transform-memory-neighbour")],
        "decode-cores-hogs": [Applied(WhatIf(alone=True), fault=NOTHING), prefetch(8)],
        "transform-code-text": [quicker_ngrams(6, 3), workers(8)],
        "handoff-code-objects": [Applied(WhatIf(handoff_factor=10), "--boxes 60"), workers(4)],
        "launch-fixed-cost": [Applied(WhatIf(batch_size=16), "--batch 16"), workers(4)],
        "launch-tiny-batch": [Applied(WhatIf(batch_size=8), "--batch 8"), workers(2)],
        "pause-checkpoint": [rarer("checkpoint", 4, 20), workers(4)],
        "pause-validation": [rarer("validation", 4, 20), workers(4)],
        "pause-logging": [rarer("loop", 10, 10), workers(2)],
        "pause-garbage": [rarer("garbage collection", 10, 20), workers(2)],
        "pause-worker-restart": [Applied(WhatIf(persistent=True), "--persistent"), workers(4)],
        "healthy-compute-bound": [
            Applied(WhatIf(chip_factor=2), "--sample-ms 3 --fixed-ms 1"),
            workers(1),
            Applied(
                WhatIf(workers=4, chip_factor=8), "--workers 4 --sample-ms 0.75 --fixed-ms 0.25"
            ),
        ],
    }
