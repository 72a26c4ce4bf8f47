"""How a case's script is started: by the interpreter, by torchrun, or in network namespaces."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.zoo.case import JOBS
from bench.zoo.fault import enter

if TYPE_CHECKING:
    from bench.zoo.case import Case
    from bench.zoo.fault import Planted

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def launcher(case: Case, planted: Planted) -> tuple[str, ...]:
    """The command before the script and its arguments."""
    if not case.ranks:
        return (sys.executable,)
    if planted.namespaces:
        where = planted.namespaces
        script = str(JOBS / "in_namespaces.py")
        names = ",".join(where.names)
        return (sys.executable, script, names, where.first_address, where.interface)
    torchrun = (*TORCHRUN, str(case.ranks))
    if planted.rank_groups and planted.rank_groups[1]:
        rank, groups = planted.rank_groups
        entering = enter(groups, f'[ "$RANK" = {rank} ]')
        return (*torchrun, "--no-python", *entering, sys.executable)
    return torchrun
