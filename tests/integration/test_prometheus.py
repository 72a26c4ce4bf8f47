"""A real Prometheus scrapes `fuelline serve --metrics-only`, and the dashboard's queries answer."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from fuelline.report.metrics import read_dashboard
from tests.integration.serving import Home, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROMETHEUS = shutil.which("prometheus")
pytest.importorskip("uvicorn", reason="`pip install 'fuelline[serve]'`")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.torch,
    pytest.mark.skipif(PROMETHEUS is None, reason="Debian's package prometheus has one"),
]
CONFIG = """
scrape_configs:
  - job_name: fuelline
    scrape_interval: 1s
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["{target}"]}}]
"""
ABSENT = ("fuelline_device_", "fuelline_lost_")
"""There is no accelerator here, and the job is healthy."""


@contextmanager
def scraping(folder: Path, target: str, token: Path) -> Iterator[str]:
    """The address of a Prometheus that does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.format(token=token, target=target))
    assert PROMETHEUS is not None
    words = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    with (folder / "prometheus.log").open("w") as log:
        server = subprocess.Popen(
            [PROMETHEUS, *words, f"--web.listen-address={address}"], stdout=log, stderr=log
        )
        try:
            yield f"http://{address}"
        finally:
            server.terminate()
            server.wait(30)


def ask(address: str, query: str) -> list[dict[str, Any]]:
    """What an instant query gives."""
    with urllib.request.urlopen(f"{address}/api/v1/query?{urlencode({'query': query})}") as answer:
        told = json.load(answer)
    assert told["status"] == "success"
    return told["data"]["result"]


def wait_for(address: str, query: str) -> list[dict[str, Any]]:
    for _ in range(600):
        try:
            found = ask(address, query)
        except (urllib.error.URLError, ConnectionError):
            found = []
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(query)


def queries() -> list[str]:
    """Of all panels, as Grafana would send them for all runs."""
    return [
        target["expr"].replace("$run", ".*").replace("$__rate_interval", "30s")
        for panel in json.loads(read_dashboard())["panels"]
        for target in panel["targets"]
    ]


def test_a_running_job_is_scraped_and_every_query_of_the_dashboard_answers(tmp_path: Path) -> None:
    home, token = Home(tmp_path), tmp_path / "token"
    assert home.train(60).wait(120) == 0
    ended = home.command("diagnose", stdout=subprocess.DEVNULL)
    assert ended.wait(120) == 0
    job = home.train(3000)
    with served(home, "--metrics-only", "--token-file", str(token)) as address:
        target = address.removeprefix("http://").removesuffix("/metrics")
        with scraping(tmp_path, target, token) as prometheus:
            wait_for(prometheus, 'fuelline_part_ratio{part="input"}')
            wait_for(prometheus, "rate(fuelline_steps_total[30s]) > 0")
            wait_for(prometheus, "fuelline_verdict_info")
            empty = [query for query in queries() if not ask(prometheus, query)]
            assert [query for query in empty if not any(name in query for name in ABSENT)] == []
            (rank,) = ask(prometheus, "fuelline_step_seconds")
            assert rank["metric"]["program"] == "job"
            assert 0.02 < float(rank["value"][1]) < 60
            states = {each["metric"]["state"] for each in ask(prometheus, "fuelline_run_info")}
            assert {"running", "ok"} <= states
            (up,) = ask(prometheus, 'up{job="fuelline"}')
            assert up["value"][1] == "1"
    job.terminate()
    job.wait(60)


def test_promtool_finds_nothing_wrong_with_the_textfile(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("comes with Debian's package prometheus")
    home = Home(tmp_path)
    assert home.train(60).wait(120) == 0
    written = home.command("export", "--prometheus", "run.prom")
    said, _ = written.communicate(timeout=120)
    assert written.returncode == 0, said
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=(tmp_path / "run.prom").read_text(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "error" not in (checked.stderr + checked.stdout).lower(), checked.stderr
