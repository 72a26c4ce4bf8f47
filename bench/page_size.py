"""The size of a page, and how soon a browser shows it: an hour at 10 steps/s, and 64 ranks.

The hour is that of `bench/hour.py`, the ranks are those of `bench/many_ranks.py`: real runs of a
minute, repeated. Where Chromium and playwright are (`make browser`), the time to the first screen
and until everything can be used is measured as well, from the start of the navigation.

    python -m bench.page_size
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from bench import hour, many_ranks, results
from bench.stretch import stretch
from fuelline import pipeline
from fuelline.ingest import compact_recording
from fuelline.schema.run.recording import PART_PREFIX

OUT = Path(__file__).with_name("out") / "pages"
BARS = {
    "hour_bytes": 1e6,
    "ranks_bytes": 3e6,
    **{f"{name}_first_screen_s": 1.0 for name in ("hour", "ranks")},
    **{f"{name}_usable_s": 2.0 for name in ("hour", "ranks")},
}
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
REPEATS = 5
TIMES = """() => [
  performance.getEntriesByName('first-contentful-paint')[0]?.startTime,
  performance.getEntriesByType('navigation')[0].loadEventEnd,
]"""


def main() -> dict[str, Any]:
    """The figures and whether they meet their bars."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    figures: dict[str, Any] = {}
    for name, make in (("hour", make_hour), ("ranks", make_ranks)):
        run_dir, page = make(), OUT / f"{name}.html"
        start_s = time.perf_counter()
        pipeline.show_report(run_dir, name=name, price=2.5, stream=None, page=page)
        figures[f"{name}_seconds"] = round(time.perf_counter() - start_s, 2)
        figures[f"{name}_bytes"] = page.stat().st_size
    for name in ("hour", "ranks"):
        figures |= {f"{name}_{key}": value for key, value in show(OUT / f"{name}.html").items()}
    figures["passed"] = all(figures[name] <= bar for name, bar in BARS.items() if name in figures)
    results.write_section("page_size", section(figures))
    shutil.rmtree(OUT)
    return figures


def make_hour() -> Path:
    """An hour at ten steps a second."""
    hour.record(OUT / "minute")
    stretch(OUT / "minute", OUT / "hour", hour.HOUR_S)
    return OUT / "hour"


def make_ranks() -> Path:
    """64 ranks on 8 hosts over an hour."""
    many_ranks.record(OUT / "short")
    stretch(OUT / "short", OUT / "long", many_ranks.SECONDS)
    for host in range(many_ranks.HOSTS):
        part = OUT / "run" / f"{PART_PREFIX}{host:04d}"
        many_ranks.populate(OUT / "long", part, host)
        compact_recording(part)
    return OUT / "run"


def show(page: Path) -> dict[str, float]:
    """Seconds in a real browser, the middle one of several; nothing where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        seen = [load(browser, page) for _ in range(REPEATS)]
        browser.close()
    first, usable = (statistics.median(each) / 1e3 for each in zip(*seen, strict=True))
    return {"first_screen_s": round(first, 2), "usable_s": round(usable, 2)}


def load(browser: Any, page: Path) -> tuple[float, float]:
    """Milliseconds to the first paint and to the end of the script, in a fresh context."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True)
    tab = context.new_page()
    tab.goto(page.as_uri())
    first, usable = None, 0.0
    while not first or not usable:  # the page's policy forbids to have it wait for a condition
        tab.wait_for_timeout(50)
        first, usable = tab.evaluate(TIMES)
    context.close()
    return first, usable


def section(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    rows = [
        f"| page of an hour at 10 steps/s | {figures['hour_bytes'] / 1e6:.2f} MB | 1 MB |",
        f"| page of 64 ranks over an hour | {figures['ranks_bytes'] / 1e6:.2f} MB | 3 MB |",
        f"| to diagnose the hour and write it | {figures['hour_seconds']} s | |",
        f"| to diagnose 64 ranks and write them | {figures['ranks_seconds']} s | |",
    ]
    if "hour_usable_s" in figures:
        rows += [
            f"| {words}: first screen, all of it usable, in Chromium "
            f"| {figures[f'{name}_first_screen_s']} s, {figures[f'{name}_usable_s']} s | 1 s, 2 s |"
            for name, words in (("hour", "the hour"), ("ranks", "64 ranks"))
        ]
    table = "\n".join(rows)
    return f"""## The page

`python -m bench.page_size`, {results.machine()}.

| figure | measured | bar |
| --- | --- | --- |
{table}"""


if __name__ == "__main__":
    measured = main()
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
