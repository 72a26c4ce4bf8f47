"""Metrics for other people's monitoring: few, named for good, and without a path in any label."""

from __future__ import annotations

import json
import re
from collections import Counter

import msgspec
import pytest

from fuelline.report.metrics import (
    Metric,
    list_ended,
    list_live,
    list_metrics,
    read_dashboard,
    render_metrics,
)
from fuelline.report.metrics.metrics import HELP, MOST_DEVICES
from fuelline.schema.diagnosis.live import DeviceRow, HostLine, RankRow, Share, Snapshot
from fuelline.schema.parts import STEP_PARTS
from fuelline.schema.run.recording import RunFacts
from tests.golden.freeze import make_diagnoses

MOST_SERIES = 40
"""Of a rank."""
LINE = re.compile(
    r'(?P<name>[a-z0-9_]+)\{(?P<labels>([a-z]+="([^"\\\n]|\\[\\"n])*",?)*)\} (?P<value>\S+)'
)


def snapshot(ranks: int = 64, devices: int = 16) -> Snapshot:
    """As full as it can be: every part, every figure, every device."""
    run = RunFacts(
        run_id="x",
        command=["python", "/data/secret/train.py"],
        host="here",
        started_wall_ns=1,
        started_ns=1,
    )
    shares = [Share(part=part, frac=1 / len(STEP_PARTS)) for part in STEP_PARTS]
    row = RankRow(
        pid=1, steps=7, steps_per_s=1.0, step_mean_s=0.1, step_p95_s=0.2, samples_per_s=3.0,
        shares=shares,
    )  # fmt: skip
    device = DeviceRow(
        device="gpu0", reported_frac=0.9, sm_frac=0.5, throttled_frac=0.0, watts=3.0, memory_bytes=1
    )
    return Snapshot(
        run=run,
        state="running",
        run_s=1.0,
        window_s=10.0,
        ranks=[msgspec.structs.replace(row, rank=rank) for rank in range(ranks)],
        host=HostLine(*[], **dict.fromkeys(HostLine.__struct_fields__, 1.0)),
        devices=[msgspec.structs.replace(device, device=f"gpu{at}") for at in range(devices)],
        verdict="PR201 too few workers: slow reads from /data/secret",
        code="PR201",
        stage="read",
        limit="latency",
        lost_share=0.4,
    )


def test_a_rank_has_at_most_forty_series_and_its_run_few_more() -> None:
    metrics = list_live(snapshot(), "20260412-093015-train-1", "train")
    counts = Counter(each.labels.get("rank") for each in metrics)
    of_run = counts.pop(None)
    assert len(counts) == 64
    assert max(counts.values()) <= MOST_SERIES
    assert of_run <= 20 + 5 * MOST_DEVICES
    assert len({(each.name, *each.labels.items()) for each in metrics}) == len(metrics)


def test_no_label_holds_a_path_or_a_sentence() -> None:
    metrics = list_live(snapshot(), "20260412-093015-train-1", "train")
    for diagnosis in make_diagnoses().values():
        metrics += list_metrics(diagnosis, "train")
    for each in metrics:
        assert not [value for value in each.labels.values() if "/" in value or len(value) > 64]


@pytest.mark.parametrize("is_open", [True, False])
def test_every_line_is_one_that_a_scrape_understands(*, is_open: bool) -> None:
    hostile = 'tr"ain\\\n\x1b[31m\ud800/x'
    metrics = [*list_live(snapshot(2, 1), hostile, hostile), *list_ended("y", "y", "ok", None)]
    *lines, last = render_metrics(metrics, is_open=is_open).splitlines()
    assert (last == "# EOF") == is_open
    told: dict[str, str] = {}
    values = 0
    for line in lines if is_open else [*lines, last]:
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split()
            assert family not in told  # all series of a family stand together
            told[family] = kind
        elif not line.startswith("# HELP "):
            found = LINE.fullmatch(line)
            assert found, line
            float(found["value"])
            values += 1
    assert values == len(metrics)
    assert told["fuelline_run" if is_open else "fuelline_run_info"] == (
        "info" if is_open else "gauge"
    )
    assert told["fuelline_steps" if is_open else "fuelline_steps_total"] == "counter"


def test_a_diagnosis_has_the_figures_of_its_json() -> None:
    diagnosis = make_diagnoses()["starved"]
    found = {each.name: each.value for each in list_metrics(diagnosis) if len(each.labels) == 1}
    top = diagnosis.findings[0]
    assert found["fuelline_lost_ratio"] == top.lost_share
    assert found["fuelline_lost_seconds"] == top.lost_seconds
    assert found["fuelline_steps_total"] == diagnosis.steps.count
    assert found["fuelline_step_seconds"] == diagnosis.steps.mean


def test_what_cannot_be_told_is_an_answer_and_what_was_not_seen_is_no_zero() -> None:
    metrics = list_metrics(make_diagnoses()["cannot_tell"])
    verdict = next(each for each in metrics if each.name == "fuelline_verdict_info")
    assert verdict.labels["code"] == "cannot tell"
    assert "fuelline_lost_ratio" not in {each.name for each in metrics}
    blank = Snapshot(run=snapshot().run, state="running", run_s=1.0, window_s=1.0)
    assert [each.name for each in list_live(blank, "x", "x")] == ["fuelline_run_info"]


def test_the_dashboard_asks_for_metrics_that_there_are_and_for_all_of_the_live_ones() -> None:
    board = json.loads(read_dashboard())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"fuelline_\w+", target["expr"])
    }
    assert asked <= set(HELP)
    live = {each.name for each in list_live(snapshot(), "x", "x")}
    assert live - asked <= {"fuelline_steps_per_second"}  # the rate of steps says the same
    assert {Metric(name, 1, {}).words for name in HELP} == set(HELP.values())
