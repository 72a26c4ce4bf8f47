"""The public Python names are a contract: one is added here on purpose or not at all."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.generate import generate

import fuelline

ROOT = Path(__file__).parents[2]
FROZEN = {
    "Blindspot", "DamagedRecordingError", "Diagnosis", "Finding", "Forecast", "FuellineError",
    "InputError", "Missing", "NewerRecordingError", "NotARecordingError", "Reading",
    "RefusedError", "Run", "RunComparison", "UsageError", "__version__", "compare", "diagnose",
    "import_traces", "load", "plan", "record", "suggest", "watch", "whatif",
}  # fmt: skip
PARAMETERS = {
    "compare": "before after threshold",
    "diagnose": "run usd_per_hour",
    "import_traces": "paths output partial jobs",
    "load": "run",
    "record": "path name command",
    "suggest": "run usd_per_hour",
    "watch": "source name",
    "whatif": "run workers prefetch pin persistent batch_size storage transform handoff chip cores "
    "alone ranks rarer usd_per_hour",
    "plan.serve": "model chip prompt_tokens output_tokens requests_per_s batch ttft_s tpot_s tp pp "
    "ep cp most_chips precision kv_bits usd_per_chip_hour headroom_frac arrivals vary_frac "
    "attain_frac trace measured_tokens_per_s engine offload catalogue",
    "plan.train": "model chip chips tokens sequence_tokens batch_tokens tp pp cp ep microbatch "
    "zero interleave recompute precision usd_per_chip_hour jitter_frac checkpoint_s "
    "chip_mtbf_hours sample_bytes sites link_bytes_per_s catalogue",
}
RUN = {
    "blindspots", "compare", "diagnose", "facts", "kind", "path", "suggest", "tables", "whatif",
}  # fmt: skip
HEAVY = ("polars", "msgspec", "rich", "torch", "numpy")
MOST_S = 0.05


def test_the_public_names_are_the_frozen_ones() -> None:
    assert set(fuelline.__all__) == FROZEN == set(dir(fuelline))
    assert set(fuelline.plan.__all__) == {"serve", "train"}
    assert {name for name in vars(fuelline.Run) if not name.startswith("_")} == RUN


@pytest.mark.parametrize("name", sorted(FROZEN))
def test_every_public_name_is_there_and_described(name: str) -> None:
    found = getattr(fuelline, name)
    assert name == "__version__" or inspect.getdoc(found)
    assert name in (ROOT / "docs" / "api.md").read_text() or name == "__version__"


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_frozen_ones(name: str) -> None:
    room, _, last = name.rpartition(".")
    function = getattr(fuelline.plan if room else fuelline, last)
    assert list(inspect.signature(function).parameters) == PARAMETERS[name].split()


def test_type_checkers_see_the_same_names() -> None:
    stub = ast.parse((ROOT / "src" / "fuelline" / "__init__.pyi").read_text())
    names = {
        alias.asname
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert names | {"__version__"} == FROZEN
    assert (ROOT / "src" / "fuelline" / "py.typed").exists()


def test_no_public_function_is_hidden_by_the_package_of_its_name() -> None:
    code = (
        "import fuelline.diagnose.engine, fuelline.record.launch, fuelline.whatif.model, fuelline\n"
        "from fuelline import diagnose, record, whatif\n"
        "from fuelline.diagnose import engine\n"
        "names = ('diagnose', 'record', 'whatif')\n"
        "print(all(callable(getattr(fuelline, name)) for name in names), callable(diagnose))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_importing_the_package_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, time; since_s = time.process_time(); import fuelline; "
        "print(time.process_time() - since_s); "
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    times_s = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        took, heavy = done.stdout.splitlines()
        assert heavy == "[]"
        times_s.append(float(took))
    assert min(times_s) < MOST_S


def test_every_keyword_of_the_planner_is_a_flag_of_the_command() -> None:
    from fuelline.plan.asked import serving, training

    for module in (serving, training):
        flags = [flag for flag, _ in module._PYTHON.values()]
        assert sorted(flags) == sorted(module.RANGES)


def test_the_page_has_no_column_without_words() -> None:
    page = generate()[ROOT / "docs" / "api.md"]
    assert re.findall(r"^\| `\w+` \| .* \|  \|$", page, re.MULTILINE) == []
