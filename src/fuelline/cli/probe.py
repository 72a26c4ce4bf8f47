"""`fuelline probe`: what this machine can do at most."""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fuelline import __version__
from fuelline.cli.saying import say
from fuelline.record.ceilings import (
    prepare_place,
    probe_cores,
    probe_decode,
    probe_memory,
    probe_peer,
    probe_pictures,
    probe_storage,
    serve,
)
from fuelline.record.ceilings.network import PORT
from fuelline.record.ceilings.storage import THREADS
from fuelline.record.samplers.mounts import parse_mountinfo
from fuelline.schema.ceilings import Ceiling, Probe
from fuelline.schema.readings import Missing, Reading, value_of
from fuelline.schema.storages import StorageKind

if TYPE_CHECKING:
    from types import FrameType

DEFAULT_BYTES = 256 << 20
DEFAULT_S = 2.0
SERVE_S = 600.0
_UNFILLED = 0.8
"""Of as many times the rate as there are requests at once: more of them may bring more still."""
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SIZES = {"M": 1 << 20, "G": 1 << 30}

_EPILOG = """\
examples:
  fuelline probe /data                  this machine, and the disk of /data
  fuelline probe --serve                on the other host, for ten minutes
  fuelline probe /data --peer node2     also the network to that host

Writes up to --size to a folder of its own below PATH and deletes it, also
after Ctrl-C. A job that lists PATH meanwhile sees that folder: name the one
above the data then. About 12 measurements of --seconds each at most.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "probe",
        help="this machine's ceilings: storage, memory, cores, decoding, network",
        description="Measure what this machine can do at most.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="PATH",
        help="a folder on the disk to measure (default: the current folder)",
    )
    parser.add_argument(
        "--peer",
        type=_peer,
        metavar="HOST[:PORT]",
        help="also measure the network to a host that runs `fuelline probe --serve` (default: "
        "none)",
    )
    parser.add_argument(
        "--serve",
        nargs="?",
        type=_port,
        const=PORT,
        metavar="PORT",
        help=f"answer probes of other hosts for {SERVE_S / 60:.0f} minutes, nothing else "
        f"(default: off; port {PORT})",
    )
    parser.add_argument(
        "--size",
        type=_size,
        default=DEFAULT_BYTES,
        metavar="256M",
        help="most bytes to write, 16M to 64G; more than the disk's own cache tells more "
        "(default: 256M)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=DEFAULT_S,
        metavar="S",
        help=f"most time for each measurement, 0.1 to 60 (default: {DEFAULT_S:g})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON (default: a report)")
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Measure, or serve."""
    for each in _ENDS:
        signal.signal(each, _interrupt)  # whatever ends us, what we wrote is deleted
    if options.serve is not None:
        serve(options.serve, SERVE_S, say)
        return 0
    probe = _measure(options)
    if options.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(probe)).decode() + "\n")
    else:
        from fuelline.report.ceilings import write_probe  # noqa: PLC0415 - rich, after the work
        from fuelline.report.terminal import render_terminal  # noqa: PLC0415 - as above

        render_terminal(write_probe(probe), sys.stdout)
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Once: a second Ctrl-C must not end the deleting."""
    for each in _ENDS:
        signal.signal(each, _go_on)
    raise KeyboardInterrupt


def _go_on(_number: int, _frame: FrameType | None) -> None:
    """Not SIG_IGN, of which Python complains if both signals came at once."""


def _measure(options: argparse.Namespace) -> Probe:
    start = time.monotonic()
    path = options.path.absolute()
    tell = say if sys.stderr.isatty() else lambda _: None
    with prepare_place(path, options.size, options.seconds) as place:
        ceilings = probe_storage(place, tell)
    tell("memory, cores, decoding")
    ceilings += probe_memory(options.seconds)
    ceilings += probe_cores(options.seconds)
    ceilings += probe_decode(options.seconds)
    ceilings += probe_pictures(path, options.seconds)
    if options.peer is not None:
        tell("network")
        host, port = options.peer
        ceilings += probe_peer(host, port, options.seconds)
    ceilings += _probe_device()
    mount, fstype = _find_mount(path)
    return Probe(
        fuelline_version=__version__,
        host=socket.gethostname(),
        path=str(path),
        mount=mount,
        fstype=fstype,
        seconds=time.monotonic() - start,
        ceilings=ceilings,
        storage=_summarise(ceilings, fstype),
    )


def _probe_device() -> list[Ceiling]:
    from fuelline.fix.adapters.device_copy import measure_copies  # noqa: PLC0415 - may load torch

    found = measure_copies()
    if isinstance(found, str):
        missing = Missing(reason=found)
        return [Ceiling(group="device", name="copy", what="copies to a device", signal=missing)]
    return [
        Ceiling(
            group="device",
            name=f"copy_{memory}",
            what=f"copies to a device, {memory} memory",
            signal=Reading(value=value, unit="bytes/s", origin="probe device"),
        )
        for memory, value in found.items()
    ]


def _find_mount(path: Path) -> tuple[str, str]:
    """The mount that holds the path: the deepest whose point is above it."""
    mounts = parse_mountinfo(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    real = os.path.realpath(path)
    above = [
        mount
        for mount in mounts
        if real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
    ]
    deepest = max(above, key=lambda mount: len(mount.point), default=None)
    return ("", "") if deepest is None else (deepest.point, deepest.fstype)


def _summarise(ceilings: list[Ceiling], fstype: str) -> StorageKind | None:
    """The numbers for `whatif --storage`."""
    known = {each.name: value_of(each.signal) for each in ceilings}
    requests, bytes_per_s = known.get("random_4k_cold_1"), known.get("sequential_read_cold")
    if not requests or not bytes_per_s:
        return None
    return StorageKind(
        words=f"this {fstype}, as measured",
        request_seconds=1 / requests,
        bytes_per_s=bytes_per_s,
        requests_at_once=_at_once(requests, known.get(f"random_4k_cold_{THREADS}")),
    )


def _at_once(alone_per_s: float, crowd_per_s: float | None) -> int | None:
    """Requests that fill the disk; None if as many as were tried did not."""
    if crowd_per_s is None or crowd_per_s >= _UNFILLED * THREADS * alone_per_s:
        return None
    return max(1, round(crowd_per_s / alone_per_s))


def _peer(word: str) -> tuple[str, int]:
    host, colon, port = word.rpartition(":")
    return (host, _port(port)) if colon and host else (word, PORT)


def _port(word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= 65535:
        raise argparse.ArgumentTypeError(f"{word!r} is not a port from 1 to 65535")
    return int(word)


def _size(word: str) -> int:
    found = re.fullmatch(r"(\d+)([MG])i?B?", word)
    value = int(found[1]) * _SIZES[found[2]] if found else 0
    if not 16 << 20 <= value <= 64 << 30:
        raise argparse.ArgumentTypeError(f"{word!r} is not a size such as 256M (16M to 64G)")
    return value


def _seconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0.1 <= value <= 60:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds from 0.1 to 60")
    return value
