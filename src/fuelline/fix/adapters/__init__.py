"""What runs inside the user's job to change it: the only place of this room that knows torch."""
# ruff: noqa: PTH100, PTH118, PTH120 - a guest loads as little as it can; no pathlib

import os

__all__ = ["FEED_VARIABLE", "GATE_DIR", "PATHS_VARIABLE", "SITE_DIR", "TRIALS_VARIABLE"]

_HERE = os.path.dirname(os.path.abspath(__file__))

SITE_DIR = os.path.join(_HERE, "site")
"""Goes on PYTHONPATH of a trial, behind the recorder's own folder."""
TRIALS_VARIABLE = "FUELLINE_TRIALS"
"""Environment variable with the file of a trial's plan; absent in every other run."""
GATE_DIR = os.path.join(_HERE, "gate")
"""Goes on PYTHONPATH of a job that is fed, packed or cached, behind the recorder's own folder."""
FEED_VARIABLE = "FUELLINE_FEED"
"""Environment variable with the file of a feed's plan; absent in every other run."""
PATHS_VARIABLE = "FUELLINE_PATHS"
"""Environment variable with the plan of served paths as JSON; absent if none are served."""
