"""The Grafana dashboard: a file of the package, with queries on the metrics of this folder."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).with_name("dashboard.json")


def read_dashboard() -> str:
    """As Grafana imports it."""
    return FILE.read_text(encoding="utf-8")
