"""The pages that only a server has: the list of runs, and a run that goes on. Scripts fill them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fuelline.report.renderers.page.markup import Markup, tag
from fuelline.report.renderers.page.page import draw_shell

_HERE = Path(__file__).parent


def draw_runs(*, has_fleet: bool = False) -> str:
    """The list of runs; a script asks for what it shows."""
    fleet = [tag("p", tag("a", "Many runs: what waiting costs", href="/fleet"))] * has_fleet
    states = ("", "running", "ok", "failed", "unfinished", "imported")
    options = [tag("option", state or "all states", value=state) for state in states]
    search = tag(
        "form",
        tag("label", tag("span", "Search"), tag("input", type="search", id="search", autofocus=True,
            placeholder="job, id or verdict", autocomplete="off"), class_="grows"),
        tag("label", tag("span", "State"), tag("select", *options, id="state")),
        tag("button", "Compare the two chosen", type="button", id="compare", disabled=True),
        role="search", class_="tools",
    )  # fmt: skip
    heads = ("", "run", "started", "took", "samples/s", "state", "verdict")
    head = tag("tr", *(tag("th", each, scope="col") for each in heads))
    table = tag("table", tag("thead", head), tag("tbody", id="rows"), class_="runs")
    main = tag(
        "main",
        tag(
            "section",
            tag("h1", "Runs"),
            *fleet,
            search,
            tag("div", table, class_="wide"),
            tag("p", id="count", aria_live="polite"),
            tag("button", "Show more", type="button", id="more", hidden=True),
        ),
        id="main",
    )
    return draw_shell(
        "Runs", [_bar(), main], styles=[_read("serve.css")], scripts=[_read("runs.js")]
    )


def draw_live(run_id: str) -> str:
    """A run that goes on; a script follows it."""
    path = f"/live/{run_id}/events"
    main = tag(
        "main",
        tag(
            "section",
            tag(
                "div",
                tag("p", tag("code", run_id), class_="job"),
                tag("p", tag("span", "…", class_="sign", aria_hidden="true"),
                    tag("span", "connecting", id="state"), class_="label"),
                class_="about",
            ),
            tag("h1", "Waiting for the first steps", id="verdict", aria_live="polite"),
            tag("div", tag("dl", id="figures", class_="figures"), class_="facts"),
            class_="summary unsure",
            id="top",
        ),
        tag("section", tag("h2", "Ranks, in the last seconds"),
            tag("ul", id="legend", class_="legend"),
            tag("div", tag("table", id="ranks"), class_="wide")),
        tag("section", tag("h2", "The machine"), tag("ul", id="machine", class_="items")),
        tag("p", tag("button", "Stop watching", type="button", id="stop"), " ",
            tag("a", "The report so far", href=f"/run/{run_id}")),
        id="main",
        data_events=path,
    )  # fmt: skip
    return draw_shell(
        run_id, [_bar(), main], styles=[_read("serve.css")], scripts=[_read("live.js")]
    )


def draw_tracks(run_id: str) -> str:
    """A run's tracks, to be handed to Perfetto's page or kept as a file."""
    main = tag(
        "main",
        tag(
            "section",
            tag("h1", "Open in Perfetto"),
            tag("p", tag("code", run_id)),
            tag("p", "Opens ui.perfetto.dev in a new tab and hands it this run's tracks. Your "
                "browser loads that page from the internet; the tracks stay in your browser."),
            tag("p", tag("button", "Open ui.perfetto.dev", type="button", id="perfetto"), " ",
                tag("a", "Download the file", href="?as=file", id="file"), " ",
                tag("a", "Back to the report", href="?")),
            tag("p", id="said", aria_live="polite"),
        ),
        id="main",
        data_run=run_id,
    )  # fmt: skip
    return draw_shell(
        run_id, [_bar(), main], styles=[_read("serve.css")], scripts=[_read("perfetto.js")]
    )


def draw_message(title: str, words: str) -> str:
    """Why there is no page."""
    section = tag(
        "section", tag("h1", title), tag("p", words), tag("p", tag("a", "All runs", href="/"))
    )
    return draw_shell(title, [_bar(), tag("main", section, id="main")])


def _bar() -> Markup:
    return tag("header", tag("a", tag("b", "fuelline"), class_="brand", href="/"), class_="bar")


@cache
def _read(name: str) -> str:
    return (_HERE / "assets" / name).read_text(encoding="utf-8")
