r"""Metrics as a scrape is answered: OpenMetrics, or Prometheus' older text.

    # HELP fuelline_step_seconds Mean length of a step.
    # TYPE fuelline_step_seconds gauge
    fuelline_step_seconds{run="20260412-093015-train-4711",program="train",rank="0"} 0.0117

The older text knows no infos: they are gauges there. It is what node-exporter's textfiles hold.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from fuelline.schema.names import clean, encodable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fuelline.report.metrics.metrics import Metric

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render_metrics(metrics: Iterable[Metric], *, is_open: bool) -> str:
    """All series of a name together, as both formats ask for."""
    lines = []
    ordered = sorted(metrics, key=lambda metric: metric.name)  # stable within a name
    for name, group in groupby(ordered, key=lambda metric: metric.name):
        found = list(group)
        family = name.removesuffix(_ENDINGS.get(found[0].kind, "")) if is_open else name
        kind = "gauge" if found[0].kind == "info" and not is_open else found[0].kind
        lines += [f"# HELP {family} {found[0].words}", f"# TYPE {family} {kind}"]
        lines += [f"{name}{{{_labels(each.labels)}}} {each.value:.10g}" for each in found]
    if is_open:
        lines.append("# EOF")
    return "".join(f"{line}\n" for line in lines)


_ENDINGS = {"counter": "_total", "info": "_info"}
"""That OpenMetrics leaves out where it describes a family."""


def _labels(labels: dict[str, str]) -> str:
    return ",".join(
        f'{name}="{clean(encodable(value)).translate(_ESCAPED)}"' for name, value in labels.items()
    )
