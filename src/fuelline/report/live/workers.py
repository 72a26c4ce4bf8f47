"""Those who prepare batches, one line each: on a core, waiting for one, idle, blocked on what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.live.columns import UNKNOWN, brief
from fuelline.schema.names import clean

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.live import WorkerRow, WorkerState

_WIDE = 100
_PATH_WIDTH = 24
_LINE = "{who:>10} {pid:>8} {running:>6} {queued:>6} {idle:>6}  {blocked:<13} {place}"
_NOT_BLOCKED: tuple[WorkerState, ...] = ("running", "for core", "idle")


def worker_title(width: int) -> str:
    """What the columns of the lines are."""
    fetch = f" {'fetch':>7}" if width >= _WIDE else ""
    words = _LINE.format(
        who="worker",
        pid="pid",
        running="core %",
        queued="wait %",
        idle="idle %",
        blocked="blocked %",
        place="most on",
    )
    return words[:19] + fetch + words[19:]


def worker_line(worker: WorkerRow, width: int) -> str:
    """What one of them did in the last seconds."""
    fracs = {share.part: share.frac for share in worker.mix}
    words = _LINE.format(
        who="trainer" if worker.worker_id is None else _name(worker),
        pid=worker.pid,
        running=_cell(fracs, "running"),
        queued=_cell(fracs, "for core"),
        idle=_cell(fracs, "idle"),
        blocked=_blocked(fracs),
        place=_place(worker, width - 58),
    ).rstrip()
    if width < _WIDE:
        return words
    fetch = UNKNOWN if worker.fetch_s is None else brief(worker.fetch_s)
    return f"{words[:19]} {fetch:>7}{words[19:]}"


def _name(worker: WorkerRow) -> str:
    """Loaders are numbered from the second on."""
    loader = f"{worker.source_id}/" if worker.source_id > 1 else ""
    return f"{loader}{worker.worker_id}"


def _cell(fracs: dict[str, float], part: WorkerState) -> str:
    """Without clocks, waiting for a core looks like running: unknown, not zero."""
    if not fracs or (part == "for core" and part not in fracs):
        return UNKNOWN
    return f"{100 * fracs.get(part, 0.0):.0f}"


def _blocked(fracs: dict[str, float]) -> str:
    blocked = {part: frac for part, frac in fracs.items() if part not in _NOT_BLOCKED}
    most = max(blocked, key=lambda part: blocked[part], default=None)
    if most is None or blocked[most] < 0.005:
        return "" if fracs else UNKNOWN
    return f"{100 * blocked[most]:.0f} {most}"


def _place(worker: WorkerRow, room: int) -> str:
    """The end of a path says more than its beginning."""
    if worker.place is None:
        return ""
    room = max(_PATH_WIDTH, room) - len(worker.place.fstype) - 1
    path = clean(worker.place.path)
    path = path if len(path) <= room else ".." + path[-(room - 2) :]
    return f"{clean(worker.place.fstype)} {path}"
