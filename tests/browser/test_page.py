"""The page in a real browser: the first screen, the numbers, the answers, the keyboard."""

from __future__ import annotations

import itertools
import json
import random
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from fuelline.report import render_page, write_comparison, write_document
from fuelline.report.document import Chart, Document, Heading, Series, Statement
from fuelline.schema.foreign import encode_json
from fuelline.schema.readings import Missing
from fuelline.schema.units import times
from fuelline.signals.changes import compare_samples
from tests.golden.freeze import make_diagnoses
from tests.unit.report.pages import drawn, find, name_hostile
from tests.unit.report.test_comparison import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fuelline.schema.diagnosis.forecasts import ForecastGrid

NAMES = sorted(make_diagnoses())


@cache
def html_of(name: str) -> str:
    return render_page(write_document(make_diagnoses()[name], "a run", None, drawn()), name)


def others() -> dict[str, str]:
    comparison = compare_samples(run(), run(step_s=0.02), threshold=0.05)
    chart = Chart(
        "Roofline", "FLOPs per byte", "GFLOP/s", (Series("roof", ((0.1, 1.0), (10.0, 100.0))),),
        log_x=True, log_y=True,
    )  # fmt: skip
    planned = Document((Statement("A plan"), Heading("Its roof"), chart))
    return {
        "comparison": render_page(write_comparison(comparison), "two runs"),
        "plan": render_page(planned, "a plan"),
        "hostile": render_page(write_document(name_hostile(), "x", None, drawn()), "x"),
    }


@pytest.mark.parametrize(
    ("size", "scheme"), list(itertools.product(("wide", "phone"), ("light", "dark")))
)
@pytest.mark.parametrize("name", [*NAMES, *others()])
def test_a_page_opens_without_an_error_and_is_no_wider_than_the_screen(
    show: Callable[..., Any], name: str, size: str, scheme: str
) -> None:
    page = show(others().get(name) or html_of(name), size, scheme)
    assert page.title().endswith("· Fuelline")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in dark.strip("rgb()").split(",")) > 380
    assert light == (scheme == "light")


@pytest.mark.parametrize("size", ["wide", "phone"])
@pytest.mark.parametrize("name", [name for name in NAMES if make_diagnoses()[name].findings])
def test_the_first_screen_has_verdict_cost_and_change_without_scrolling(
    show: Callable[..., Any], name: str, size: str
) -> None:
    page = show(html_of(name), size)
    height = page.viewport_size["height"]
    wanted = [
        ".summary h1",
        ".summary .figures > div:first-child",
        ".advice .copied",
        ".advice .gain",
    ]
    for place in wanted[: 4 if page.locator(".advice .gain").count() else 2]:
        box = page.locator(place).bounding_box()
        assert box["y"] + box["height"] <= height, place


@pytest.mark.parametrize("name", NAMES)
def test_every_number_that_the_browser_shows_is_the_one_of_the_json(
    show: Callable[..., Any], name: str
) -> None:
    answer = json.loads(encode_json(make_diagnoses()[name]))
    page = show(html_of(name))
    shown = page.evaluate(
        "[...document.querySelectorAll('data[data-path]')]"
        ".map(e => [e.dataset.path, e.value, e.innerText])"
    )
    assert shown or name == "cannot_tell"
    for path, value, text in shown:
        assert float(value) == find(answer, path), path
        assert any(letter.isdigit() for letter in text)


def test_the_budget_of_the_whole_run_is_that_of_its_parts_and_a_stretch_has_its_own(
    show: Callable[..., Any],
) -> None:
    page = show(html_of("computing"))
    picture = drawn().picture
    sums = {part: sum(values) for part, values in picture.levels[0].parts_us.items()}
    assert shares(page) == pytest.approx({k: v / sum(sums.values()) for k, v in sums.items()})
    view = page.locator(".story .view")
    view.scroll_into_view_if_needed()
    box = view.bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 90)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 90, steps=5)
    page.mouse.up()
    assert page.locator(".stretch h3").inner_text().startswith("Selected: ")
    page.get_by_role("button", name="Zoom to the selection").click()
    assert "the whole run" not in page.locator(".story .shown").inner_text()
    assert sum(shares(page).values()) == pytest.approx(1, abs=0.01)
    page.get_by_role("button", name="Whole run").click()
    page.keyboard.press("Escape")


def shares(page: Any) -> dict[str, float]:
    found = page.evaluate(
        "[...document.querySelectorAll('.stretch data')]"
        ".map(e => [e.dataset.part, e.getAttribute('value')])"
    )
    return {part: float(value) for part, value in found}


def test_sliders_give_the_answers_of_whatif(show: Callable[..., Any]) -> None:
    page, grid = show(html_of("computing")), the_grid()
    for places in random.Random(7).sample(sorted(grid.answers), 25):
        set_sliders(page, places)
        answer = grid.answers[places]
        told = page.locator(".answer .speedup data")
        if places == tuple(axis.now for axis in grid.axes):
            assert float(told.get_attribute("value")) == grid.samples_per_s
        elif isinstance(answer.speedup, Missing):
            assert told.inner_text() == "Cannot tell"
        else:
            assert float(told.get_attribute("value")) == answer.speedup.value
            assert told.inner_text() == times(answer.speedup)
            assert answer.limit_words in page.locator(".answer .pace").inner_text()


def test_what_the_file_does_not_hold_is_a_command_away(show: Callable[..., Any]) -> None:
    page, grid = show(html_of("computing")), the_grid()
    places = tuple(len(axis.values) - 1 for axis in grid.axes)
    assert places not in grid.answers
    set_sliders(page, places)
    assert page.locator(".answer .speedup data").inner_text() == "Ask the model"
    command = page.locator(".answer code").inner_text()
    assert command.startswith("fuelline whatif 'a run' --workers ")
    assert "--storage warm" in command


def the_grid() -> ForecastGrid:
    grid = drawn().grid
    assert grid is not None
    assert not isinstance(grid, Missing)
    return grid


def set_sliders(page: Any, places: tuple[int, ...]) -> None:
    for number, place in enumerate(places):
        page.locator(f"#slider-{number}").fill(str(place))


def test_the_recommended_change_is_copied_as_it_is_written(show: Callable[..., Any]) -> None:
    page = show(html_of("computing"), permissions=["clipboard-read", "clipboard-write"])
    button = page.locator(".advice .copy")
    button.click()
    page.wait_for_selector(".advice .copy.done")
    recommended = make_diagnoses()["computing"].recommended
    assert page.evaluate("navigator.clipboard.readText()") == recommended.text()


def test_the_keyboard_reaches_everything_and_moves_through_the_run(
    show: Callable[..., Any],
) -> None:
    page = show(html_of("computing"))
    wanted = page.evaluate(
        "[...document.querySelectorAll("
        "'a[href], button:not(:disabled), input, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility()).length"
    )
    page.evaluate(
        "window.reached = new Set();"
        "document.addEventListener('focusin', e => reached.add(e.target))"
    )
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
    assert page.evaluate("reached.size") >= wanted
    page.locator(".story .view").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert "step" in page.locator(".story p[aria-live]").inner_text()
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
    assert page.locator(".stretch h3").inner_text().startswith("Selected: ")
    page.keyboard.press("Enter")
    assert "the whole run" not in page.locator(".story .shown").inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    assert "the whole run" in page.locator(".story .shown").inner_text()


def test_a_hostile_name_stays_text(show: Callable[..., Any]) -> None:
    page = show(others()["hostile"])
    page.wait_for_timeout(200)
    assert page.locator("img").count() == 0
    assert page.locator("h1").inner_text().startswith("</script><script>alert(1)</script>")
    assert page.evaluate("document.scripts.length") == show(html_of("starved")).evaluate(
        "document.scripts.length"
    )


def test_the_policy_stops_what_would_be_smuggled_in(browser: Any, tmp_path: Path) -> None:
    smuggled = "<script>window.smuggled = 1</script><body style='color: red'>"
    file = tmp_path / "smuggled.html"
    file.write_text(html_of("starved").replace("<body>", smuggled), encoding="utf-8")
    page = browser.new_page()
    refused: list[str] = []
    page.on("console", lambda said: refused.append(said.text))
    page.goto(file.as_uri())
    assert page.evaluate("window.smuggled") is None
    assert len(refused) == 2
    assert all("Content Security Policy" in words for words in refused)
    page.close()


def test_without_a_script_the_tables_are_there(show: Callable[..., Any]) -> None:
    page = show(html_of("computing"), java_script_enabled=False)
    page.locator(".sliders summary").click()
    assert "CPU cores" in page.locator(".sliders table").inner_text()
    assert page.locator("h1").inner_text() == make_diagnoses()["computing"].verdict.sentence


def test_on_paper_nothing_is_left_that_can_only_be_pressed(show: Callable[..., Any]) -> None:
    page = show(html_of("computing"))
    page.emulate_media(media="print")
    assert page.locator(".copy:visible, .bar:visible, input:visible").count() == 0
    assert page.locator("h1").is_visible()
