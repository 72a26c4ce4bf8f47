"""`fuelline probe`: what this machine can do at most."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import secrets
import signal
import socket
import sys
import time
from pathlib import Path

from fuelline import __version__
from fuelline.cli.record.endings import clean_up_on_signals
from fuelline.cli.saying import say
from fuelline.probe import (
    prepare_place,
    probe_cores,
    probe_decode,
    probe_memory,
    probe_peer,
    probe_pictures,
    probe_storage,
)
from fuelline.probe.network import PORT, name_address
from fuelline.probe.storage import THREADS
from fuelline.record.samplers.mounts import parse_mountinfo
from fuelline.schema.diagnosis.ceilings import Ceiling, Probe
from fuelline.schema.diagnosis.storages import StorageKind
from fuelline.schema.errors import RefusedError, UsageError
from fuelline.schema.foreign import encode_json
from fuelline.schema.names import encodable
from fuelline.schema.readings import Missing, Reading, value_of
from fuelline.store.probes import keep_probe

DEFAULT_BYTES = 256 << 20
DEFAULT_S = 2.0
SERVE_S = 600.0
LOOPBACK = "127.0.0.1"
TOKEN = "FUELLINE_PROBE_TOKEN"
"""Not an option: command lines are shown to every user of a host, environments are not."""
SHORTEST_TOKEN = 16
"""Characters: who listens to the line can try shorter ones at leisure."""
_UNFILLED = 0.8
"""Of as many times the rate as there are requests at once: more of them may bring more still."""
_ADDRESS = re.compile(
    r"(?P<six>[0-9a-fA-F.]*:[0-9a-fA-F.]*:[0-9a-fA-F:.]*(%[\w.-]+)?)"
    r"|(\[(?P<in_brackets>[0-9a-fA-F:.]+(%[\w.-]+)?)\]|(?P<host>[\w.-]+))(:(?P<port>.*))?"
)
_SIZES = {"M": 1 << 20, "G": 1 << 30}

_EPILOG = """\
examples:
  fuelline probe /data                  this machine, and the disk of /data
  fuelline probe --serve 10.0.0.7       on the other host, for ten minutes; it
                                        prints a line with a token to paste here
  FUELLINE_PROBE_TOKEN=... fuelline probe /data --peer 10.0.0.7:7654
                                        also the network to that host

Writes up to --size to a new folder below PATH and deletes it, also after
Ctrl-C. A job that lists PATH meanwhile would see that folder: in that case
name the folder above the data. About 12 measurements of --seconds each at most.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "probe",
        help="measure this machine's limits: storage, memory, cores, decoding, network",
        description="Measure the most that this machine can do.",
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
        type=_address,
        metavar="HOST[:PORT]",
        help="also measure the network to a host that runs `fuelline probe --serve`; the token "
        f"that it printed is read from {TOKEN} or asked for (default: none)",
    )
    parser.add_argument(
        "--serve",
        nargs="?",
        type=_own_address,
        const=(LOOPBACK, PORT),
        metavar="ADDRESS[:PORT]",
        help="answer probes from hosts that know the token, on this address of this host, for "
        f"{SERVE_S / 60:.0f} minutes, and do nothing else; 0.0.0.0 is all of them (default: off; "
        f"{LOOPBACK}, port {PORT})",
    )
    parser.add_argument(
        "--size",
        type=_size,
        default=DEFAULT_BYTES,
        metavar="256M",
        help="most bytes to write, 16M to 64G; use more than the disk's own cache holds "
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
    with clean_up_on_signals():
        if options.serve is not None:
            return _serve(*options.serve)
        probe = _measure(options)
    _keep(probe)
    if options.json:
        sys.stdout.write(encode_json(probe) + "\n")
    else:
        from fuelline.report.diagnosis.feeding import write_probe  # noqa: PLC0415 - rich, after the work
        from fuelline.report.renderers.terminal import render_terminal  # noqa: PLC0415 - as above

        render_terminal(write_probe(probe), sys.stdout)
    return 0


def _keep(probe: Probe) -> None:
    """For later diagnoses; a store that cannot be used costs them the figures, not this command."""
    try:
        keep_probe(probe)
    except (OSError, RefusedError) as error:
        say(f"Not kept for later diagnoses: {error}")


def _serve(host: str, port: int) -> int:
    # A server's own needs; who measures has no use for them.
    from fuelline.probe.network_server import open_listener, serve  # noqa: PLC0415

    given = _given_token()
    token = given or secrets.token_urlsafe(SHORTEST_TOKEN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(round(SERVE_S) + 5)  # also ends us where a stopped terminal takes no more words
    try:
        with open_listener(host, port) as listener:
            _tell_how_to_ask(listener.getsockname()[0], port, token if given is None else None)
            serve(listener, token, SERVE_S, say)
    finally:
        signal.alarm(0)
    return 0


def _tell_how_to_ask(host: str, port: int, token: str | None) -> None:
    """The line to paste goes to standard output, whole; a token that was given is not shown."""
    from fuelline.probe.network_server import find_own_address  # noqa: PLC0415 - as above

    bound = ipaddress.ip_address(host)
    minutes = f"{SERVE_S / 60:.0f} minutes"
    if bound.is_loopback:
        wider = name_address(find_own_address(), port)
        say(
            f"listening on {name_address(host, port)} for {minutes}, reachable from this "
            "host only. For other hosts, name an address of this one: "
            f"fuelline probe --serve {wider}"
        )
    else:
        which = "every address of this host" if bound.is_unspecified else "this address alone"
        say(f"listening on {name_address(host, port)} for {minutes}, {which}. On the other host:")
    peer = name_address(socket.gethostname() if bound.is_unspecified else host, port)
    shown = f"{TOKEN}={token} " if token is not None else ""
    sys.stdout.write(f"{shown}fuelline probe --peer {peer}\n")
    sys.stdout.flush()


def _given_token() -> str | None:
    token = os.environ.get(TOKEN, "").strip()
    if token and len(token) < SHORTEST_TOKEN:
        raise UsageError(
            f"{TOKEN} has only {len(token)} characters and could be guessed. Nothing was started. "
            f"Give it {SHORTEST_TOKEN} or more, or unset it: `fuelline probe --serve` makes one."
        )
    return token or None


def _peer_token(host: str) -> str:
    token = _given_token()
    if token is None and sys.stdin is not None and sys.stdin.isatty():
        from getpass import getpass  # noqa: PLC0415 - hardly ever needed

        token = getpass(f"Token that `fuelline probe --serve` printed on {host}: ").strip()
    if not token:
        raise UsageError(
            f"There is no token for {host}. Nothing was measured. Use the line that "
            f"`fuelline probe --serve` printed there: {TOKEN}=... fuelline probe --peer {host}"
        )
    return token


def _measure(options: argparse.Namespace) -> Probe:
    start = time.monotonic()
    path = options.path.absolute()
    report = say if sys.stderr.isatty() else lambda _: None
    network: list[Ceiling] = []
    if options.peer is not None:  # first, since a wrong token is known at once
        host, port = options.peer
        token = _peer_token(host)
        report("network")
        network = probe_peer(host, port, token, options.seconds)
    with prepare_place(path, options.size, options.seconds) as place:
        ceilings = probe_storage(place, report)
    report("memory, cores, decoding")
    ceilings += probe_memory(options.seconds)
    ceilings += probe_cores(options.seconds)
    ceilings += probe_decode(options.seconds)
    ceilings += probe_pictures(path, options.seconds)
    ceilings += network
    ceilings += _probe_device()
    mount, fstype = _find_mount(path)
    return Probe(
        fuelline_version=__version__,
        host=socket.gethostname(),
        path=encodable(str(path)),
        mount=encodable(mount),
        fstype=fstype,
        seconds=time.monotonic() - start,
        ceilings=ceilings,
        storage=_summarise(ceilings, fstype),
    )


def _probe_device() -> list[Ceiling]:
    from fuelline.probe.device_copy import measure_copies  # noqa: PLC0415 - may load torch

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


def _find_mount(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> tuple[str, str]:
    """The mount that holds the path: the deepest whose point is above it."""
    mounts = parse_mountinfo(os.fsdecode(mountinfo.read_bytes()))
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


def _own_address(word: str) -> tuple[str, int]:
    """What to listen on; a port alone is one that only this host reaches."""
    return (LOOPBACK, _port(word)) if word.isdecimal() else _address(word)


def _address(word: str) -> tuple[str, int]:
    """`node2`, `node2:7000`, `fe80::1%eth0`, `[::1]:7000`."""
    found = _ADDRESS.fullmatch(word)
    if found is None:
        raise argparse.ArgumentTypeError(f"{word!r} is not an address such as 10.0.0.7:{PORT}")
    port = PORT if found["port"] is None else _port(found["port"])
    return found["in_brackets"] or found["six"] or found["host"], port


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
