"""In a notebook: `%load_ext fuelline`, then `%%fuelline` records a cell and diagnoses it.

Nothing of it stays: no variable, no output number, no hook. Diagnoses show their first screen by
themselves (`api/shown.py`).
"""

from __future__ import annotations

from typing import Any

from fuelline.api.answers import diagnose
from fuelline.api.recording import record
from fuelline.schema.errors import FuellineError

_NAME = "fuelline"


def load(shell: Any) -> None:
    """`%load_ext fuelline`."""

    def fuelline(line: str, cell: str) -> None:
        """Record this cell and diagnose it: `%%fuelline [NAME]`, the name of its run."""
        from IPython.core.error import UsageError  # noqa: PLC0415 - the notebook's own
        from IPython.display import display  # noqa: PLC0415 - likewise

        with record(name=line.strip() or None) as run:
            outcome = shell.run_cell(cell, store_history=False)
        if not outcome.success:
            raise UsageError("the recorded cell failed, as shown above")  # in one line
        try:
            display(diagnose(run))
        except FuellineError as error:
            print(f"fuelline: {error}")  # noqa: T201 - the cell's output

    shell.register_magic_function(fuelline, "cell", _NAME)


def unload(shell: Any) -> None:
    """`%unload_ext fuelline`."""
    shell.magics_manager.magics["cell"].pop(_NAME, None)
