"""Facts in, Diagnosis out."""

from fuelline.diagnose.engine import cannot_tell, diagnose
from fuelline.diagnose.scrapes import judge_scrapes

__all__ = ["cannot_tell", "diagnose", "judge_scrapes"]
