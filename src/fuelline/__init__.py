"""Fuelline finds what keeps accelerators waiting, proves it, and says what it costs.

The public names are below; docs/api.md describes them. Importing this package costs nothing, since
it is also imported inside the user's training job: a name is loaded when it is first used. Type
checkers read them in `__init__.pyi`; a test holds the two together.
"""

import sys

_ModuleType = type(sys)

__version__ = "0.1.0"

_HOMES = {
    "Blindspot": "schema.run.recording",
    "DamagedRecordingError": "schema.errors",
    "Diagnosis": "schema.diagnosis.findings",
    "Finding": "schema.diagnosis.findings",
    "Forecast": "schema.diagnosis.forecasts",
    "FuellineError": "schema.errors",
    "InputError": "schema.errors",
    "Missing": "schema.readings",
    "NewerRecordingError": "schema.errors",
    "NotARecordingError": "schema.errors",
    "Reading": "schema.readings",
    "RefusedError": "schema.errors",
    "Run": "api.run",
    "RunComparison": "schema.diagnosis.comparison",
    "UsageError": "schema.errors",
    "compare": "api.answers",
    "diagnose": "api.answers",
    "import_traces": "api.answers",
    "load": "api.answers",
    "record": "api.recording",
    "suggest": "api.answers",
    "watch": "api.watching",
    "whatif": "api.questions",
}
"""Public name to the file that has it; `plan` is a package and public itself."""

__all__ = [  # noqa: PLE0604 - the names of a dictionary
    "__version__",
    "plan",
    *_HOMES,
]


_EXTENSION = {"load_ipython_extension": "load", "unload_ipython_extension": "unload"}
"""What `%load_ext fuelline` asks for; no name for users."""


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415 - a job that records needs none of this

    if name == "plan":
        return import_module("fuelline.plan")
    if name in _EXTENSION:
        return getattr(import_module("fuelline.tools.notebook"), _EXTENSION[name])
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"fuelline.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(_ModuleType):
    """This module, but for one thing: importing a package below does not hide a public function.

    `fuelline.diagnose`, `.record` and `.whatif` are packages as well, with what those functions are
    made of. Python sets a package as an attribute of the one above when it is imported, and which
    of the two a caller gets must not depend on what was imported before.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOMES or not isinstance(value, _ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
