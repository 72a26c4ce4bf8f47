"""Who is let in: with the token, by the server's own name, from its own pages, to read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("starlette", reason="`pip install 'fuelline[serve]'`")

from starlette.responses import PlainTextResponse

from fuelline.cli.serve.guard import Guard

NAMES = frozenset({"127.0.0.1", "localhost"})


def ask(path: str = "/", method: str = "GET", **headers: str) -> tuple[int, dict[str, str]]:
    """The answer's status and headers; 200 is the application's own."""
    guard = Guard(PlainTextResponse("inside"), "secret", NAMES, 8123)
    given = {"host": "localhost:8123", **headers}
    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": where,
        "query_string": query.encode(),
        "headers": [(key.encode(), value.encode()) for key, value in given.items()],
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(guard(scope, receive, send))
    told = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return sent[0]["status"], told


COOKIE = {"cookie": "fuelline-8123=secret"}


def test_nobody_is_let_in_without_the_token() -> None:
    assert ask()[0] == 401
    assert ask("/?token=guess")[0] == 401
    assert ask(cookie="fuelline-8123=guess")[0] == 401
    assert ask(cookie="\x00;=;")[0] == 401
    assert ask(cookie="fuelline-9999=secret")[0] == 401


def test_the_token_becomes_a_cookie_that_no_script_and_no_other_site_gets() -> None:
    status, headers = ask("/run/a?token=secret&x=1")
    assert status == 303
    assert headers["location"] == "/run/a?x=1"
    assert headers["set-cookie"].startswith("fuelline-8123=secret; ")
    assert "HttpOnly" in headers["set-cookie"]
    assert "samesite=strict" in headers["set-cookie"].lower()
    assert ask(**COOKIE)[0] == 200


@pytest.mark.parametrize("host", ["evil.example:8123", "localhost:9999", "", "localhost.evil:8123"])
def test_a_name_that_is_not_the_servers_is_refused(host: str) -> None:
    assert ask(**COOKIE, host=host)[0] == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://localhost:8123", "http://localhost:9"]
)
def test_another_sites_page_is_refused(origin: str) -> None:
    assert ask(**COOKIE, origin=origin)[0] == 403
    assert ask(**COOKIE, origin="http://localhost:8123")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_the_server_only_shows(method: str) -> None:
    assert ask(method=method, **COOKIE)[0] == 405


def test_answers_are_neither_kept_nor_framed_nor_guessed_at() -> None:
    _, headers = ask(**COOKIE)
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
