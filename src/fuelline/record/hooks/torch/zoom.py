"""A closer look at a few steps: the framework's own profiler, and one step's floating-point work.

Only on request (`fuelline run --zoom 3@100`), because a profiled step is slower and holds memory.
The trace is left beside the recording for a trace viewer. Steps are those of the first optimizer
that steps. Whatever fails here ends the zoom, not the training.
"""

import atexit
import gzip
import os
import shutil
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import optimizer as optimizers
from torch.utils.flop_counter import FlopCounterMode

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.schema.wire import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["install"]

_ZOOM, _FLOPS = int(Kind.ZOOM), int(Kind.FLOPS)
_BLOCK_BYTES = 1 << 20


def install(guest: Guest, patches: Patches, run_dir: str, request: str) -> list[Hook]:
    """Profile the requested steps of this process: `3@100` is three from step 100 on."""
    steps, _, first = request.partition("@")
    zoom = Zoom(guest, run_dir, int(steps), int(first))
    handle = optimizers.register_optimizer_step_post_hook(zoom.notice)
    patches.on_undo(handle.remove)
    patches.on_undo(zoom.stop)
    return [zoom]


def _export(profiler: torch.profiler.profile, path: str) -> None:
    """Write the trace for its owner alone, and without what looks like a secret in its names.

    The profiler makes its file as the umask of the job says, so it makes it where nobody else gets.
    """
    from fuelline.schema.files import OWNER_FOLDER, write_whole  # noqa: PLC0415 - only for a zoom
    from fuelline.schema.redaction import redact_json  # noqa: PLC0415

    parent, name = os.path.split(path)
    folder = f"{parent}/.{name}.{os.urandom(6).hex()}"
    plain = f"{folder}/trace.json"
    os.mkdir(folder, OWNER_FOLDER)  # noqa: PTH102 - no pathlib; a run that was deleted stays so
    try:
        profiler.export_chrome_trace(plain)
        with (
            open(plain, encoding="utf-8", errors="replace") as trace,  # noqa: PTH123
            write_whole(path) as file,
            gzip.open(file, "wt", compresslevel=6, encoding="utf-8") as packed,
        ):
            blocks = iter(lambda: "".join(trace.readlines(_BLOCK_BYTES)), "")
            packed.writelines(redact_json(blocks))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Zoom(Hook):
    """Counts steps, profiles the requested ones, and counts the operations of the one after."""

    name = "zoom"
    forbids = "looking into single steps"

    def __init__(self, guest: Guest, run_dir: str, steps: int, first: int) -> None:
        super().__init__(guest)
        self._run_dir = run_dir
        self._optimizer = 0
        self._done = 0
        self._acts: dict[int, Callable[[], None]] = {
            first: self._start_profiler,
            first + steps: self._stop_profiler,
            first + steps + 1: self._stop_counter,
        }
        self._profiler: torch.profiler.profile | None = None
        self._counter: FlopCounterMode | None = None
        guest.on_fork(self._let_go)
        # A job that fails in the midst of it: torch crashes at the exit if its profiler still runs.
        atexit.register(self._give_up)

    def notice(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Torch calls this after each optimizer step."""
        if not self.is_on:
            return
        self._optimizer = self._optimizer or id(optimizer)
        if id(optimizer) != self._optimizer:
            return
        self._done += 1
        act = self._acts.pop(self._done, None)
        if act is None:
            return
        try:
            act()
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)
            self._give_up()

    def _give_up(self) -> None:
        try:
            self.stop()
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)

    def stop(self) -> None:
        """Leave whatever is open."""
        self.is_on = False
        profiler, counter = self._profiler, self._counter
        self._let_go()
        if profiler is not None:
            profiler.stop()
        if counter is not None:
            counter.__exit__(None, None, None)

    def _let_go(self) -> None:
        self._profiler = self._counter = None

    def _start_profiler(self) -> None:
        self._profiler = torch.profiler.profile(record_shapes=True)
        self._profiler.start()

    def _stop_profiler(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        start_ns = monotonic_ns()
        profiler.stop()
        path = f"zoom-{self.guest.pid}.json.gz"
        _export(profiler, f"{self._run_dir}/{path}")
        dur_ns = monotonic_ns() - start_ns
        self.guest.append(_ZOOM, start_ns, dur_ns, self.guest.spool.text(path))
        self._counter = FlopCounterMode(display=False)
        self._counter.__enter__()

    def _stop_counter(self) -> None:
        counter, self._counter = self._counter, None
        if counter is None:
            return
        counter.__exit__(None, None, None)
        self.guest.append(_FLOPS, monotonic_ns(), 0, int(counter.get_total_flops()))
