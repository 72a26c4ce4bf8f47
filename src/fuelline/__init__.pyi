# The public names with their types; at run time `__init__.py` loads each when it is used.

from fuelline import plan as plan
from fuelline.api.answers import compare as compare
from fuelline.api.answers import diagnose as diagnose
from fuelline.api.answers import import_traces as import_traces
from fuelline.api.answers import load as load
from fuelline.api.answers import suggest as suggest
from fuelline.api.questions import whatif as whatif
from fuelline.api.recording import record as record
from fuelline.api.run import Run as Run
from fuelline.api.watching import watch as watch
from fuelline.schema.diagnosis.comparison import RunComparison as RunComparison
from fuelline.schema.diagnosis.findings import Diagnosis as Diagnosis
from fuelline.schema.diagnosis.findings import Finding as Finding
from fuelline.schema.diagnosis.forecasts import Forecast as Forecast
from fuelline.schema.errors import DamagedRecordingError as DamagedRecordingError
from fuelline.schema.errors import FuellineError as FuellineError
from fuelline.schema.errors import InputError as InputError
from fuelline.schema.errors import NewerRecordingError as NewerRecordingError
from fuelline.schema.errors import NotARecordingError as NotARecordingError
from fuelline.schema.errors import RefusedError as RefusedError
from fuelline.schema.errors import UsageError as UsageError
from fuelline.schema.readings import Missing as Missing
from fuelline.schema.readings import Reading as Reading
from fuelline.schema.run.recording import Blindspot as Blindspot

__version__: str
