"""The folder that brings trials, fixes, `feed` and served files into a job, and their variables."""
# ruff: noqa: PTH100, PTH118, PTH120 - a guest loads as little as it can; no pathlib

import os

__all__ = [
    "FEED_VARIABLE",
    "PATHS_VARIABLE",
    "PRICE_VARIABLE",
    "RAY_VARIABLE",
    "SITE_DIR",
    "TRIALS_VARIABLE",
    "put_on_path",
]

SITE_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
"""Goes on PYTHONPATH of a job that we change, behind the recorder's own folder."""
TRIALS_VARIABLE = "FUELLINE_TRIALS"
"""Environment variable with the file of a trial's plan; absent in every other run."""
FEED_VARIABLE = "FUELLINE_FEED"
"""Environment variable with the file of a feed's plan; absent in every other run."""
RAY_VARIABLE = "FUELLINE_RAY"
"""Environment variable with the Ray cluster of workers on other hosts; absent without --ray."""
PRICE_VARIABLE = "FUELLINE_CORE_PRICE"
"""Environment variable with the price of a core-hour there, in USD; absent if none was given."""
PATHS_VARIABLE = "FUELLINE_PATHS"
"""Environment variable with the plan of served paths as JSON; absent if none are served."""


def put_on_path() -> dict[str, str]:
    """The variable that brings the site folder into a job, before what is there already."""
    path = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{SITE_DIR}{os.pathsep}{path}" if path else SITE_DIR}
