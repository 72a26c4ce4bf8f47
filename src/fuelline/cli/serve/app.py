"""What is answered at which address."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from fuelline.cli.serve.guard import Guard
from fuelline.cli.serve.live import LiveReaders
from fuelline.cli.serve.making import GROUPINGS, PageMaker
from fuelline.cli.serve.scrape import Scraper
from fuelline.cli.serve.screens import draw_live, draw_message, draw_runs, draw_tracks
from fuelline.cli.serve.shelf import RunShelf
from fuelline.schema.foreign import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.requests import Request

_MOST_SKIPPED = 10**6


class RunServer:
    """The list, the pages, and the jobs that go on."""

    def __init__(self, price: float | None, store: str = "") -> None:
        self._store = store
        self._shelf = RunShelf()
        self._maker = PageMaker(price)
        self._live = LiveReaders()
        self._scraper = Scraper(self._shelf, self._live)

    def build(
        self, token: str, names: frozenset[str], port: int, *, pages: bool = True
    ) -> Starlette:
        """The application, guarded; without `pages` it has its metrics only."""
        metrics = Route("/metrics", self.scrape)
        routes = [
            metrics,
            Route("/", self.list_runs),
            Route("/api/runs", self.search),
            Route("/run/{run_id}", self.show_run),
            Route("/compare", self.compare),
            Route("/fleet", self.show_fleet),
            Route("/live/{run_id}", self.show_live),
            Route("/live/{run_id}/events", self.follow),
        ]
        guard = Middleware(Guard, token=token, names=names, port=port)
        routes = routes if pages else [metrics]
        return Starlette(routes=routes, middleware=[guard], lifespan=self._live_long)

    @asynccontextmanager
    async def _live_long(self, _: Starlette) -> AsyncIterator[None]:
        self._shelf.open()
        yield
        self._scraper.close()
        self._shelf.close()
        self._maker.close()

    async def scrape(self, request: Request) -> Response:
        """For Prometheus."""
        kind, text = self._scraper.answer(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": kind})

    async def list_runs(self, _: Request) -> Response:
        """The first page."""
        return HTMLResponse(draw_runs(has_fleet=bool(self._store)))

    async def search(self, request: Request) -> Response:
        """Runs for the first page, as JSON."""
        asked = request.query_params
        skip = asked.get("skip", "0")
        found = self._shelf.search(
            asked.get("words", "")[:200],
            asked.get("state", ""),
            min(int(skip), _MOST_SKIPPED) if skip.isdecimal() else 0,
        )
        return Response(encode_json(found, is_indented=False), media_type="application/json")

    async def show_run(self, request: Request) -> Response:
        """A run's report; or the way to Perfetto, and the file that goes there."""
        run_id, shape = request.path_params["run_id"], request.query_params.get("as", "page")
        if shape == "tracks" and self._shelf.find(run_id) is not None:
            return HTMLResponse(draw_tracks(run_id))
        if shape == "whatif":
            return await self._ask(run_id, request)
        if shape == "file":
            return await self._show("export", [run_id], f"{run_id}.json.gz")
        return await self._show("diagnose", [run_id])

    async def _ask(self, run_id: str, request: Request) -> Response:
        """The model's answer for the page's sliders."""
        path = self._shelf.find(run_id)
        turned = {name: value for name, value in request.query_params.items() if name != "as"}
        answer = None if path is None else await self._maker.ask(path, turned)
        if answer is None:
            return Response("null", 422, media_type="application/json")
        return Response(encode_json(answer, is_indented=False), media_type="application/json")

    async def compare(self, request: Request) -> Response:
        """Two runs side by side."""
        asked = request.query_params
        return await self._show("compare", [asked.get("before", ""), asked.get("after", "")])

    async def show_fleet(self, request: Request) -> Response:
        """All runs of the store together."""
        if not self._store:
            words = "Start `fuelline serve --store STORE`, or name a store in the configuration."
            return HTMLResponse(draw_message("There is no store of many runs", words), 404)
        by = request.query_params.get("by", GROUPINGS[0])
        made = await self._maker.make_fleet(self._store, by if by in GROUPINGS else GROUPINGS[0])
        if isinstance(made, str):
            return HTMLResponse(draw_message("There is no page", made), 422)
        return HTMLResponse(made)

    async def _show(self, command: str, run_ids: list[str], file: str = "") -> Response:
        paths = [self._shelf.find(run_id) for run_id in run_ids]
        known: list[Path] = [path for path in paths if path is not None]
        if len(known) < len(paths):
            return _miss()
        made = await self._maker.make(command, known)
        if isinstance(made, str):
            return HTMLResponse(draw_message("There is no page", made), 422)
        if file:
            named = {"content-disposition": f"attachment; filename*=utf-8''{quote(file)}"}
            return Response(made, media_type="application/gzip", headers=named)
        return HTMLResponse(made)

    async def show_live(self, request: Request) -> Response:
        """A run that goes on; one that has ended has its report."""
        run_id = request.path_params["run_id"]
        if self._shelf.find(run_id) is None:
            return _miss()
        if self._shelf.state_of(run_id) in ("ok", "failed", "imported"):
            return RedirectResponse(f"/run/{run_id}", 303)
        return HTMLResponse(draw_live(run_id))

    async def follow(self, request: Request) -> Response:
        """What `watch` would show, as server-sent events."""
        path = self._shelf.find(request.path_params["run_id"])
        if path is None:
            return _miss()
        events = (
            f"event: {kind}\ndata: {words}\n\n" async for kind, words in self._live.follow(path)
        )
        return StreamingResponse(events, media_type="text/event-stream")


def _miss() -> Response:
    words = "There is no run of that name, or it is not in the list yet."
    return HTMLResponse(draw_message("No such run", words), 404)
