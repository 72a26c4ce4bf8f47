"""The list of runs and a job that goes on, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.integration.serving import Home, served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def wait_until(page: Any, holds: Callable[[], bool]) -> None:
    """The page's policy forbids to evaluate conditions inside it again and again."""
    for _ in range(300):
        if holds():
            return
        page.wait_for_timeout(100)
    raise AssertionError(page.locator("main").inner_text())


def count_steps(page: Any) -> int:
    return int(page.locator("#figures dd").first.inner_text().replace(",", ""))


def test_runs_are_found_compared_and_followed(browser: Any, tmp_path: Path) -> None:
    home = Home(tmp_path)
    for _ in range(2):
        assert home.train(60).wait(120) == 0
    job = home.train(900)
    wrong: list[str] = []
    with served(home) as address:
        page = browser.new_page()
        page.on("console", lambda said: wrong.append(said.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        own = address.partition("/?")[0]
        page.on("request", lambda asked: asked.url.startswith(own) or wrong.append(asked.url))
        page.goto(address)
        assert "token" not in page.url
        page.select_option("#state", "ok")
        wait_until(page, lambda: page.locator("#rows tr").count() == 2)
        for box in page.locator("#rows input").all():
            box.check()
        page.click("#compare")
        assert "per step before" in page.locator(".figures").inner_text()
        page.click(".brand")
        page.select_option("#state", "running")
        wait_until(page, lambda: page.locator("#rows tr").count() == 1)
        page.locator("#rows a").click()
        page.wait_for_selector("#ranks tbody tr")
        wait_until(page, lambda: count_steps(page) > 0)
        before = count_steps(page)
        wait_until(page, lambda: count_steps(page) > before)
        page.click("#stop")
        assert page.locator("#state").inner_text() == "no longer watched"
        page.close()
    assert job.wait(120) == 0
    assert wrong == []
