"""A run handed to MLflow, W&B, TensorBoard and a collector: read back with their own libraries."""

from __future__ import annotations

import gzip
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

import fuelline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.serving import Home

JOB = """
import json, sys
import {imported}
{start}
exec(open("job.py").read())
{end}
"""


def export(home: Home, *words: str) -> tuple[int, str]:
    command = home.command("export", "job", *words)
    said, _ = command.communicate(timeout=120)
    return command.returncode, said


def run_reporting(home: Home, tool: str, source: str) -> str:
    """A job of its own that keeps a run there, recorded with --report-to."""
    (home.folder / "tracked.py").write_text(source)
    command = home.command("run", "--report-to", tool, "tracked.py", "480")
    said, _ = command.communicate(timeout=180)
    assert command.returncode == 0, said
    return said


def test_mlflow_has_figures_verdict_report_and_page(recorded, monkeypatch, tmp_path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="`make tools` has it")
    home, run = recorded
    store = f"sqlite:///{tmp_path}/ml.db"
    monkeypatch.setitem(home.environment, "MLFLOW_TRACKING_URI", store)
    mlflow.set_tracking_uri(store)
    experiment = mlflow.create_experiment("job", artifact_location=str(tmp_path / "kept"))
    client = mlflow.MlflowClient()
    theirs = client.create_run(experiment)
    code, said = export(home, "--mlflow", theirs.info.run_id)
    assert code == 0, said
    found = client.get_run(theirs.info.run_id).data
    diagnosis = fuelline.diagnose(run)
    assert found.metrics["fuelline/steps_total"] == diagnosis.steps.count
    assert found.metrics["fuelline/step_seconds"] == diagnosis.steps.mean
    for part in diagnosis.budget:
        assert found.metrics[f"fuelline/part_ratio/{part.part}"] == part.share
    assert found.tags["fuelline.verdict"] == diagnosis.title()
    kept = {each.path for each in client.list_artifacts(theirs.info.run_id, "fuelline")}
    assert kept == {"fuelline/fuelline.html", "fuelline/report.md"}
    code, said = export(home, "--mlflow", "0" * 32)
    assert code == 4
    assert "Traceback" not in said
    assert "MLFLOW_TRACKING_URI" in said


def test_a_job_that_keeps_its_own_run_in_mlflow_finds_the_report_there(
    recorded, monkeypatch, tmp_path
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="`make tools` has it")
    home, _ = recorded
    store = f"sqlite:///{tmp_path}/ml.db"
    monkeypatch.setitem(home.environment, "MLFLOW_TRACKING_URI", store)
    mlflow.set_tracking_uri(store)
    mlflow.create_experiment("job", artifact_location=str(tmp_path / "kept"))
    source = JOB.format(
        imported="mlflow",
        start="mlflow.set_experiment('job'); mlflow.start_run()",
        end="mlflow.end_run()",
    )
    said = run_reporting(home, "mlflow", source)
    assert "attached: run " in said, said
    (theirs,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    assert theirs.info.status == "FINISHED"
    assert theirs.data.tags["fuelline.verdict"]


def test_wandb_keeps_it_offline(recorded, monkeypatch, tmp_path) -> None:
    pytest.importorskip("wandb", reason="`make tools` has it")
    home, run = recorded
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_DIR", str(tmp_path))):
        monkeypatch.setitem(home.environment, name, value)
    code, said = export(home, "--wandb", "project/abc123")
    assert code == 0, said
    (folder,) = (tmp_path / "wandb").glob("offline-run-*-abc123")
    summary = read_wandb(folder)
    assert summary["fuelline/steps_total"] == fuelline.diagnose(run).steps.count
    assert summary["fuelline.verdict"] == fuelline.diagnose(run).title()
    (page,) = folder.glob("files/media/html/**/*.html")
    assert page.read_text().startswith("<!doctype html>")


def test_a_job_that_keeps_its_own_run_in_wandb_finds_the_report_there(
    recorded, monkeypatch, tmp_path
) -> None:
    pytest.importorskip("wandb", reason="`make tools` has it")
    home, _ = recorded
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_DIR", str(tmp_path))):
        monkeypatch.setitem(home.environment, name, value)
    source = JOB.format(
        imported="wandb", start="run = wandb.init(id='own1', project='p')", end="run.finish()"
    )
    said = run_reporting(home, "wandb", source)
    assert "attached: " in said, said
    folders = sorted((tmp_path / "wandb").glob("offline-run-*-own1"))
    assert len(folders) == 2  # the job's, and what is to be merged into it
    assert "fuelline.verdict" in read_wandb(folders[-1])


def read_wandb(folder: Path) -> dict[str, Any]:
    """The summary, by W&B's own description of what its log holds, which `wandb sync` sends."""
    from wandb.proto import wandb_internal_pb2

    summary = {}
    for data in scan_log(next(folder.glob("*.wandb")).read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        for item in (*record.summary.update, *record.history.item):
            summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    return summary


def scan_log(raw: bytes) -> Iterator[bytes]:
    """Records of LevelDB's log format: blocks of 32 KiB, pieces with a head of 7 bytes."""
    at, begun, last = 7, b"", (1, 4)
    while at + 7 <= len(raw):
        if (1 << 15) - at % (1 << 15) < 7:  # too little is left of a block
            at += (1 << 15) - at % (1 << 15)
            continue
        _, length, kind = struct.unpack_from("<IHB", raw, at)
        begun += raw[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in last:
            yield begun
            begun = b""


def test_tensorboard_shows_scalars_and_the_report(recorded, tmp_path) -> None:
    pytest.importorskip("tensorboard", reason="`make tools` has it")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    home, run = recorded
    code, said = export(home, "--tensorboard", str(tmp_path))
    assert code == 0, said
    events = EventAccumulator(str(tmp_path / "fuelline"))
    events.Reload()
    diagnosis = fuelline.diagnose(run)
    (mean,) = events.Tensors("fuelline/step_seconds")
    assert mean.step == diagnosis.steps.count
    assert mean.tensor_proto.float_val[0] == pytest.approx(diagnosis.steps.mean)
    (report,) = events.Tensors("fuelline/report")
    assert diagnosis.verdict.sentence[:20].encode() in report.tensor_proto.string_val[0]
    assert (tmp_path / "fuelline" / "fuelline.html").read_text().startswith("<!doctype html>")


class Collector(BaseHTTPRequestHandler):
    """Takes metrics as a collector of OpenTelemetry does."""

    taken: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        packed = self.headers.get("content-encoding") == "gzip"
        self.taken.append((self.path, gzip.decompress(body) if packed else body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_collector_gets_every_metric_over_otlp(recorded) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="`make tools` has it")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    home, run = recorded
    Collector.taken = []
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code, said = export(home, "--otlp", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert code == 0, said
    ((path, body),) = Collector.taken
    assert path == "/v1/metrics"
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    found = {each.name: each for scope in resource.scope_metrics for each in scope.metrics}
    diagnosis = fuelline.diagnose(run)
    (mean,) = found["fuelline_step_seconds"].gauge.data_points
    assert mean.as_double == diagnosis.steps.mean
    parts = {
        next(each.value.string_value for each in point.attributes if each.key == "part")
        for point in found["fuelline_part_ratio"].gauge.data_points
    }
    assert parts == {each.part for each in diagnosis.budget}


def test_what_is_missing_or_refuses_is_said_and_the_job_is_not_harmed(recorded, tmp_path) -> None:
    home, _ = recorded
    code, said = export(home, "--otlp", "nonsense")
    assert code == 4
    assert "Traceback" not in said
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="`make tools` has it")
    command = home.command("run", "--report-to", "otlp", "job.py", "80")
    said, _ = command.communicate(timeout=120)
    assert command.returncode == 0
    assert "not attached to otlp" in said
