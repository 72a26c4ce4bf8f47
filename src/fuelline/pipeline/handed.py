"""A diagnosed run as it is handed to other tools: its figures, the report as text, and its page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuelline import __version__
from fuelline.pipeline.diagnosed import diagnose_run
from fuelline.pipeline.paged import write_run_page
from fuelline.report import render_markdown, write_document
from fuelline.report.metrics import list_metrics, render_metrics
from fuelline.report.renderers.whole_file import write_named
from fuelline.schema.names import encodable
from fuelline.store.runs import job_of

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.report.metrics import Metric
    from fuelline.schema.diagnosis.findings import Diagnosis

SIGN = b"# HELP fuelline_"


@dataclass(frozen=True)
class HandedRun:
    """What other tools keep of a run."""

    diagnosis: Diagnosis
    metrics: list[Metric]
    markdown: str
    page: Path

    def figures(self) -> dict[str, float]:
        """Metrics by a name that says all: `fuelline/part_ratio/input`."""
        return {
            "/".join(["fuelline", each.name.removeprefix("fuelline_"), *_apart(each)]): each.value
            for each in self.metrics
            if each.kind != "info"
        }

    def tags(self) -> dict[str, str]:
        """What is no number: the verdict and what is recommended."""
        verdict, recommended = self.diagnosis.verdict, self.diagnosis.recommended
        found = {
            "fuelline.verdict": self.diagnosis.title(),
            "fuelline.sentence": verdict.sentence,
            "fuelline.stage": verdict.stage or "",
            "fuelline.limit": verdict.limit or "",
            "fuelline.recommended": "" if recommended is None else recommended.text(),
            "fuelline.run": self.diagnosis.run.run_id,
            "fuelline.version": __version__,
        }
        return {name: encodable(words) for name, words in found.items() if words}


def _apart(metric: Metric) -> list[str]:
    """Labels that tell series of one run apart."""
    return [word for name, word in metric.labels.items() if name not in ("run", "program")]


def hand_over(run_dir: Path, folder: Path, *, name: str, price: float | None) -> HandedRun:
    """Diagnose a run and write its page into `folder`; `name` as of `show_report`."""
    diagnosis = diagnose_run(run_dir, price)
    page = folder / "fuelline.html"
    write_run_page(diagnosis, run_dir, page, name=name)
    return HandedRun(
        diagnosis=diagnosis,
        metrics=list_metrics(diagnosis, job_of(run_dir.name)),
        markdown=render_markdown(write_document(diagnosis, encodable(name))),
        page=page,
    )


def write_textfile(run_dir: Path, path: Path, price: float | None) -> int:
    """For the textfile collector of node-exporter; how many series it has."""
    metrics = list_metrics(diagnose_run(run_dir, price), job_of(run_dir.name))
    with write_named(path, SIGN) as file:
        file.write(render_metrics(metrics, is_open=False).encode())
    return len(metrics)
