"""The list of runs and a job that goes on, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.integration.serving import Home, served

if TYPE_CHECKING:
    from pathlib import Path


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
        page.wait_for_function("document.querySelectorAll('#rows tr').length === 2")
        for box in page.locator("#rows input").all():
            box.check()
        page.click("#compare")
        assert "per step before" in page.locator(".figures").inner_text()
        page.click(".brand")
        page.select_option("#state", "running")
        page.wait_for_function("document.querySelectorAll('#rows tr').length === 1", timeout=30_000)
        page.locator("#rows a").click()
        page.wait_for_function("document.querySelectorAll('#ranks tbody tr').length === 1")
        steps = "Number(document.querySelector('#figures dd').textContent.replace(',', ''))"
        page.wait_for_function(f"{steps} > 0", timeout=30_000)
        before = page.evaluate(steps)
        page.wait_for_function(f"{steps} > {before}", timeout=30_000)
        page.click("#stop")
        assert page.locator("#state").inner_text() == "no longer watched"
        page.close()
    assert job.wait(120) == 0
    assert wrong == []
