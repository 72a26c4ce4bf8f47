"""`fuelline export`: a run for other tools, as a file or into a run of theirs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.record.run import add_price
from fuelline.schema.errors import UsageError
from fuelline.schema.names import clean
from fuelline.store.runs import RUN_HELP, find_run, name_run
from fuelline.tools import TRACKERS, attach, check_tool

if TYPE_CHECKING:
    import argparse

_EPILOG = """\
examples:
  fuelline export --perfetto timeline.json.gz          for ui.perfetto.dev
  fuelline export --grafana fuelline.json              the dashboard, to import
  fuelline export --prometheus /var/lib/node_exporter/fuelline.prom
  fuelline export --mlflow 3f1c0f6a...                 to a run in MLflow
  fuelline export --wandb team/project/1a2b3c4d        to a run in W&B
  fuelline export --tensorboard logs/                  beside the job's events
  fuelline export --otlp http://localhost:4318         to a collector

A file whose name ends with .gz is compressed; Perfetto opens both. MLflow, W&B,
TensorBoard and OpenTelemetry are used if this Python has them.
"""
_WHERE = {
    "mlflow": ("RUN_ID", "attach figures, verdict and page to this run in MLflow (default: none)"),
    "otlp": ("URL", "send the figures to this OpenTelemetry collector (default: none)"),
    "tensorboard": ("LOGDIR", "write figures, report and page below this folder (default: none)"),
    "wandb": (
        "RUN_ID",
        "attach figures, verdict and page to ID or ENTITY/PROJECT/ID in W&B (default: none)",
    ),
}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    from argparse import RawDescriptionHelpFormatter  # noqa: PLC0415 - here alone

    parser = commands.add_parser(
        "export",
        help="export a run: Perfetto, Prometheus, MLflow, W&B, TensorBoard, OTLP",
        description="Write a run for another tool, or attach it to the run that its job has there.",
        epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        usage="fuelline export [-h] [--price USD] [run]\n"
        "         --perfetto FILE | --prometheus FILE.prom | --grafana FILE |\n"
        "         --mlflow RUN_ID | --otlp URL | --tensorboard LOGDIR | --wandb RUN_ID",
    )
    parser.add_argument("run", nargs="?", help=RUN_HELP)
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument(
        "--perfetto",
        type=Path,
        metavar="FILE",
        help="write its timeline as tracks, with where the time went (default: none)",
    )
    to.add_argument(
        "--prometheus",
        type=Path,
        metavar="FILE.prom",
        help="write its figures for node-exporter's textfile collector (default: none)",
    )
    to.add_argument(
        "--grafana",
        type=Path,
        metavar="FILE",
        help="write the Grafana dashboard for these metrics and those of `fuelline serve` "
        "(default: none)",
    )
    for tool in TRACKERS:
        metavar, words = _WHERE[tool]
        to.add_argument(f"--{tool}", metavar=metavar, help=words)
    add_price(parser)
    parser.set_defaults(act=act, reads=_list_read)


def _list_read(options: argparse.Namespace) -> list[Path]:
    return [] if options.grafana is not None else [find_run(options.run)]


def act(options: argparse.Namespace) -> int:
    """Write it, and say what to do with it."""
    if options.grafana is not None:
        return _write_dashboard(options.grafana)
    tool = next((name for name in TRACKERS if getattr(options, name) is not None), None)
    run_dir = find_run(options.run)
    if tool is not None:
        check_tool(tool)
        where = getattr(options, tool)
        if not where:
            raise UsageError(
                f"--{tool} names nothing. Nothing was attached. `fuelline help export` shows how."
            )
        done = attach(tool, where, run_dir, name=name_run(run_dir), price=options.price)
        print(f"Attached: {clean(done)}")
        return 0
    from fuelline import pipeline  # noqa: PLC0415 - `fuelline --help` need not load polars

    if options.prometheus is not None:
        series = pipeline.write_textfile(run_dir, options.prometheus, options.price)
        print(
            f"{series} series in {_shown(options.prometheus)}\n\n"
            "Next: `node_exporter --collector.textfile.directory` reads the folder that it is in"
        )
        return 0
    events = pipeline.export_perfetto(run_dir, options.perfetto)
    print(
        f"{events} events in {_shown(options.perfetto)}\n\n"
        "Next: open it at https://ui.perfetto.dev (nothing is uploaded)"
    )
    return 0


def _write_dashboard(path: Path) -> int:
    from fuelline.report.metrics import read_dashboard  # noqa: PLC0415 - loads the report
    from fuelline.report.renderers.whole_file import write_named  # noqa: PLC0415

    with write_named(path, b'"title": "Fuelline"') as file:
        file.write(read_dashboard().encode())
    print(
        f"Dashboard written to {_shown(path)}\n\nNext: Grafana, Dashboards, New, Import; its data "
        "source is the Prometheus that scrapes `fuelline serve --metrics-only`"
    )
    return 0


def _shown(path: Path) -> str:
    return clean(shlex.quote(str(path)))
