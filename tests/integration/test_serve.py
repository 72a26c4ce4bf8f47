"""`fuelline serve` as a user meets it: the list, a page, two compared, and a job that goes on."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.integration.serving import Home, served
from tests.unit.report.pages import Page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("uvicorn", reason="`pip install 'fuelline[serve]'`")
pytestmark = [pytest.mark.integration, pytest.mark.torch]


class Client:
    """Asks with the cookie that it got for the token."""

    def __init__(self, address: str) -> None:
        self.parts = urlsplit(address)
        status, headers, _ = self.ask(f"/?{self.parts.query}")
        assert status == 303
        self.cookie = headers["set-cookie"].partition(";")[0]

    cookie = ""

    def ask(self, path: str) -> tuple[int, http.client.HTTPMessage, str]:
        with closing(http.client.HTTPConnection(self.parts.netloc, timeout=60)) as connection:
            connection.request("GET", path, headers={"cookie": self.cookie})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()

    def runs(self, query: str = "") -> list[dict]:
        return json.loads(self.ask(f"/api/runs?{query}")[2])["runs"]

    def follow(self, path: str) -> Iterator[dict]:
        with closing(http.client.HTTPConnection(self.parts.netloc, timeout=60)) as connection:
            connection.request("GET", path, headers={"cookie": self.cookie})
            with connection.getresponse() as answer:
                while line := answer.readline().decode():
                    if line.startswith("data: "):
                        yield json.loads(line.removeprefix("data: "))


def wait_for(client: Client, count: int, query: str = "") -> list[dict]:
    for _ in range(200):
        found = client.runs(query)
        if len(found) == count:
            return found
        time.sleep(0.1)
    raise AssertionError(client.runs())


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path)


def test_runs_have_pages_and_two_of_them_a_comparison(home: Home) -> None:
    for _ in range(2):
        assert home.train(60).wait(120) == 0
    with served(home) as address:
        client = Client(address)
        newer, older = wait_for(client, 2)
        status, _, html = client.ask(f"/run/{newer['run']}")
        assert status == 200
        page = Page(html)
        assert page.all("h1")
        assert [each for each in page.all("a") if each.attributes.get("href") == "/"]
        status, _, html = client.ask(f"/compare?before={older['run']}&after={newer['run']}")
        assert status == 200
        assert "per step before" in html
        assert client.ask("/run/another")[0] == 404
        assert client.ask(f"/compare?before={older['run']}&after=another")[0] == 404
        assert client.ask("/run/..%2F..%2Fetc")[0] == 404


def test_a_job_that_goes_on_is_followed_until_its_end(home: Home) -> None:
    job = home.train(500)
    with served(home) as address:
        client = Client(address)
        (run,) = wait_for(client, 1, "state=running")
        snapshots = list(client.follow(f"/live/{run['run']}/events"))
        assert job.wait(120) == 0
    *seen, last = snapshots
    steps = [rank["steps"] or 0 for each in seen for rank in each["ranks"]]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]
    assert seen[-1]["state"] == "ended"
    assert last == ""


def test_the_answer_over_many_runs_has_a_page(tmp_path: Path) -> None:
    home, store = Home(tmp_path), tmp_path / "fleet"
    assert (
        home.command(
            "run", "--quiet", "--store", str(store), "true", stdout=subprocess.DEVNULL
        ).wait(120)
        == 0
    )
    with served(home, "--store", str(store)) as address:
        client = Client(address)
        assert 'href="/fleet"' in client.ask("/")[2]
        status, _, page = client.ask("/fleet?by=host")
        assert (status, 'href="?by=user"' in page) == (200, True)
        assert "By host" in page
        assert client.ask("/fleet?by=nonsense")[0] == 200


def test_without_a_store_there_is_no_page_of_many_runs(tmp_path: Path) -> None:
    with served(Home(tmp_path)) as address:
        client = Client(address)
        assert "/fleet" not in client.ask("/")[2]
        status, _, page = client.ask("/fleet")
        assert (status, "fuelline serve --store STORE" in page) == (404, True)
