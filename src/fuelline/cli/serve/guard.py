"""Who may ask: with the token, by the name that the server has, from its own pages, to read.

A page elsewhere in the user's browser can send requests to this server. It does not know the token;
its Origin is another; and a name that an attacker's DNS leads here is not the server's (rebinding).
"""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "token"
"""In the address that is printed; from then on it is in a cookie. Programs bear it in a header."""
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class Guard:
    """Around everything that the server answers."""

    def __init__(self, app: ASGIApp, token: str, names: frozenset[str], port: int) -> None:
        """`names`: hosts by which it may be called."""
        self._app, self._token = app, token
        self._hosts = frozenset(called for name in names for called in (name, f"{name}:{port}"))
        self._cookie = f"fuelline-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An answer, or why there is none."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        answer = self._refuse(scope, headers) or self._let_in(scope, headers)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        await (answer or self._app)(scope, receive, send_guarded)

    def _refuse(self, scope: Scope, headers: dict[str, str]) -> PlainTextResponse | None:
        if headers.get("host", "") not in self._hosts:
            return PlainTextResponse("Not a name of this server.\n", 421)
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{headers['host']}":
            return PlainTextResponse("Not asked by a page of this server.\n", 403)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("This server only shows.\n", 405)
        return None

    def _let_in(
        self, scope: Scope, headers: dict[str, str]
    ) -> PlainTextResponse | RedirectResponse | None:
        """None if whoever asks has been here; with the token in the address it becomes a cookie."""
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        given = asked.pop(TOKEN, [""])[0]
        if given and self._is_token(given):
            rest = urlencode(asked, doseq=True)
            answer = RedirectResponse(scope["path"] + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return answer
        scheme, _, borne = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(borne.strip()):
            return None
        if self._is_token(_find_cookie(headers.get("cookie", ""), self._cookie)):
            return None
        words = "Open the address that `fuelline serve` printed: it has a token.\n"
        return PlainTextResponse(words, 401)

    def _is_token(self, word: str) -> bool:
        return hmac.compare_digest(word.encode(), self._token.encode())


def _find_cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
