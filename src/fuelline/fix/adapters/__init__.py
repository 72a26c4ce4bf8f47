"""What runs inside the user's job to change it: the only place of this room that knows torch."""

from pathlib import Path

SITE_DIR = Path(__file__).parent / "site"
"""Goes on PYTHONPATH of a trial, behind the recorder's own folder."""
TRIALS_VARIABLE = "FUELLINE_TRIALS"
"""Environment variable with the file of a trial's plan; absent in every other run."""
