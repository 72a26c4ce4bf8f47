"""Over OTLP: the same metrics, once, to a collector of OpenTelemetry.

Headers and certificates are those of OpenTelemetry's own environment (OTEL_EXPORTER_OTLP_*).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
from opentelemetry.sdk.resources import Resource

from fuelline import __version__
from fuelline.schema.errors import RefusedError

if TYPE_CHECKING:
    from fuelline.pipeline.handed import HandedRun

_PATH = "/v1/metrics"
_LONGEST_S = 10
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def attach(handed: HandedRun, where: str) -> str:
    """To the collector at `where`, such as http://localhost:4318."""
    address = where if where.endswith(_PATH) else where.rstrip("/") + _PATH
    reader = InMemoryMetricReader()
    resource = Resource.create({"service.name": "fuelline", "service.version": __version__})
    provider = MeterProvider([reader], resource=resource)
    meter = provider.get_meter("fuelline", __version__)
    gauges = {each.name: meter.create_gauge(each.name, description=each.words)
              for each in handed.metrics}  # fmt: skip
    for each in handed.metrics:
        gauges[each.name].set(each.value, dict(each.labels))
    data = reader.get_metrics_data()
    exporter = OTLPMetricExporter(endpoint=address, timeout=_LONGEST_S)
    try:
        result = MetricExportResult.FAILURE if data is None else exporter.export(data)
    except OSError:  # requests' errors are
        result = MetricExportResult.FAILURE
    finally:
        exporter.shutdown()
        provider.shutdown()
    if result is not MetricExportResult.SUCCESS:
        raise RefusedError(
            f"No collector took the metrics at {address}. Nothing was attached. It must be the "
            "address for OTLP over HTTP, such as http://localhost:4318."
        )
    return address


def find(began_s: float) -> str | None:
    """Where the environment says."""
    return next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
