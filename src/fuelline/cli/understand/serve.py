"""`fuelline serve`: the pages of all runs in a browser; running ones live."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import secrets
import socket
import stat
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.record.run import add_price
from fuelline.schema.errors import RefusedError
from fuelline.store.config import check_store, read_config

if TYPE_CHECKING:
    from types import TracebackType

PORT = 8123
_LOOPBACK = "127.0.0.1"
_MOST_TOKEN = 200
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")
_DESCRIPTION = """\
Show all runs in a browser: their reports, any two compared, running jobs live.
For this machine alone, unless you say otherwise; never without a token.
"""
_EPILOG = """\
examples:
  fuelline serve                    opens the list of runs in your browser
  fuelline serve --no-open          on a server: prints the address to tunnel to
  ssh -L 8123:localhost:8123 node7  from your desk; then open that address
  fuelline serve --metrics-only --token-file ~/.fuelline-token   for Prometheus

Whoever knows the address with its token can read your runs. Nobody can change
anything by it.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "serve",
        help="show the pages of all runs in a browser, running ones live",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--port", type=_port, default=PORT, metavar="N", help=f"port to serve at (default: {PORT})"
    )
    parser.add_argument(
        "--host",
        default=_LOOPBACK,
        metavar="NAME",
        help="name or address to serve at, for others on the network (default: this machine only)",
    )
    parser.add_argument(
        "--no-open", action="store_true", help="do not open a browser (default: open it)"
    )
    parser.add_argument(
        "--metrics-only",
        action="store_true",
        help="answer at /metrics alone, for Prometheus (default: pages and /metrics)",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="keep the token in FILE, made if there is none: the `credentials_file` of a scrape "
        "(default: a new token at every start)",
    )
    parser.add_argument(
        "--store",
        metavar="STORE",
        help="show the answer of `fuelline fleet STORE` as well (default: that of the "
        "configuration file, `fleet`; else none)",
    )
    add_price(parser)
    parser.set_defaults(act=act)


def _port(word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= 65535:
        raise argparse.ArgumentTypeError(f"{word!r} is not a port from 1 to 65535")
    return int(word)


def act(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    missing = [each for each in ("starlette", "uvicorn") if importlib.util.find_spec(each) is None]
    if missing:
        raise RefusedError(
            f"`fuelline serve` needs {' and '.join(missing)}, which this Python does not have. "
            "Nothing was started. `pip install 'fuelline[serve]'` installs it; `fuelline diagnose "
            "--html report.html` needs no server."
        )
    if options.store is not None:
        check_store(options.store, "--store")
    token = _choose_token(options.token_file)
    with _bind(options.host, options.port) as bound:
        _serve(options, bound, token)
    return 0


def _bind(host: str, port: int) -> _Bound:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen(128)  # the address is said before the server has loaded all that it needs
    except OSError as error:
        opened.close()
        raise RefusedError(
            f"Port {port} of {host} cannot be served at ({error.strerror}). Nothing was started. "
            f"`fuelline serve --port {port % 65535 + 1}` tries another."
        ) from None
    return _Bound(opened)


class _Bound:
    """A socket that is ours before anything is said of it."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened

    def __enter__(self) -> _Bound:  # noqa: PYI034 - Self came with 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()


def _choose_token(path: Path | None) -> str:
    """A new one, or the one of a file that nobody else can read."""
    if path is None:
        return secrets.token_urlsafe(24)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            token = secrets.token_urlsafe(24)
            file.write(token + "\n")
            return token
    except FileExistsError:
        pass
    found = path.stat()
    with path.open(encoding="utf-8", errors="replace") as file:
        token = file.read(_MOST_TOKEN).strip()
    others = stat.S_IMODE(found.st_mode) & 0o077
    if others or _TOKEN.fullmatch(token) is None:
        why = (
            "can be read by others"
            if others
            else "holds no token (16 to 200 letters, digits, - or _)"
        )
        raise RefusedError(
            f"{path} {why}. Nothing was started. Remove it, and `fuelline serve --token-file` "
            "makes a new one."
        )
    return token


def _serve(options: argparse.Namespace, bound: _Bound, token: str) -> None:
    import logging  # noqa: PLC0415 - as the next

    import uvicorn  # noqa: PLC0415 - an extra, and not for the help

    from fuelline.cli.serve.app import RunServer  # noqa: PLC0415

    called = f"[{options.host}]" if ":" in options.host else options.host
    names = frozenset({called, "localhost", _LOOPBACK} if options.host == _LOOPBACK else {called})
    is_shown = not options.metrics_only
    store = options.store or read_config().fleet or ""
    app = RunServer(options.price, store).build(token, names, options.port, pages=is_shown)
    place = f"http://{called}:{options.port}"
    address = f"{place}/?token={token}" if is_shown else f"{place}/metrics"
    what = "Runs are shown" if is_shown else "Metrics are"
    print(f"{what} at {address}\nCtrl-C ends that.", flush=True)
    if not is_shown and options.token_file is None:
        print(f"A scrape bears the token: Authorization: Bearer {token}", flush=True)
    if is_shown and not options.no_open:
        webbrowser.open(address)
    # A reader that has just ended by itself when it is told to end is no news to anybody.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[bound.socket])
