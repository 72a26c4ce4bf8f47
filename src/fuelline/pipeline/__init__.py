"""The data's path, top to bottom; a file for each way along it.

recording -> timeline -> signals -> diagnosis -> forecast -> report

No stage knows another: they meet here and nowhere else.
"""

from typing import TYPE_CHECKING

from fuelline.schema.lazily import load_lazily

if TYPE_CHECKING:
    from fuelline.ingest import find_sources
    from fuelline.pipeline.asked import (
        ask_as_json,
        ask_run,
        check_feed,
        judge_feed,
        seed_run,
        show_feed,
        show_forecasts,
        show_tuning,
    )
    from fuelline.pipeline.compared import compare_named, compare_runs
    from fuelline.pipeline.diagnosed import diagnose_as_json, diagnose_run, show_report
    from fuelline.pipeline.exported import export_perfetto
    from fuelline.pipeline.handed import hand_over, write_textfile
    from fuelline.pipeline.imported import Progress, import_files, list_parts
    from fuelline.pipeline.recorded import compact_run, measure_run
    from fuelline.pipeline.watched import RunWatch

__all__ = [
    "Progress",
    "RunWatch",
    "ask_as_json",
    "ask_run",
    "check_feed",
    "compact_run",
    "compare_named",
    "compare_runs",
    "diagnose_as_json",
    "diagnose_run",
    "export_perfetto",
    "find_sources",
    "hand_over",
    "import_files",
    "judge_feed",
    "list_parts",
    "measure_run",
    "seed_run",
    "show_feed",
    "show_forecasts",
    "show_report",
    "show_tuning",
    "write_textfile",
]

__getattr__ = load_lazily(
    __name__,
    {
        "Progress": "imported",
        "RunWatch": "watched",
        "ask_as_json": "asked",
        "ask_run": "asked",
        "check_feed": "asked",
        "compact_run": "recorded",
        "compare_runs": "compared",
        "compare_named": "compared",
        "diagnose_as_json": "diagnosed",
        "diagnose_run": "diagnosed",
        "export_perfetto": "exported",
        "find_sources": "imported",
        "hand_over": "handed",
        "import_files": "imported",
        "judge_feed": "asked",
        "list_parts": "imported",
        "measure_run": "recorded",
        "seed_run": "asked",
        "show_feed": "asked",
        "show_forecasts": "asked",
        "show_report": "diagnosed",
        "show_tuning": "asked",
        "write_textfile": "handed",
    },
)
