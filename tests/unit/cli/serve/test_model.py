"""Under `serve` the sliders ask the model: no other question, and no file, gets through."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fuelline.cli.serve import making
from fuelline.report import render_page, write_document
from tests.golden.freeze import make_diagnoses
from tests.unit.report.pages import drawn

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize(
    "turned",
    [
        {},
        {"storage": "/etc/passwd"},
        {"storage": "probe.json"},
        {"workers": "-1"},
        {"workers": "4\n"},
        {"price": "3"},
        {"debug": ""},
        {"chip": "H100"},
    ],
)
def test_only_what_a_slider_turns_is_asked(
    turned: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Sequence[str], __: int) -> None:
        raise AssertionError("it was asked")

    monkeypatch.setattr(making.PageMaker, "_start", staticmethod(refuse))
    maker = making.PageMaker(None)
    assert asyncio.run(maker.ask(Path("run"), turned)) is None
    maker.close()


def test_a_served_page_may_ask_its_server_and_runs_no_script_but_ours() -> None:
    page = render_page(write_document(make_diagnoses()["computing"], "x", None, drawn()), "x")
    made = making._lead_home(page.encode(), "diagnose").decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', made)
    assert policy is not None
    assert "connect-src &#x27;self&#x27;" in policy[1] or "connect-src 'self'" in policy[1]
    scripts = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"sha256-{digest}" in policy[1]
    assert "connect-src" not in page


def test_a_page_without_sliders_asks_nothing() -> None:
    page = render_page(write_document(make_diagnoses()["starved"], "x", None, None), "x")
    assert b"connect-src" not in making._lead_home(page.encode(), "diagnose")
