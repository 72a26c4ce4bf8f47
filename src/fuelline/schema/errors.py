"""What can go wrong, as one family; each error knows the exit code of the command line.

FuellineError
├── UsageError          2  the command line makes no sense
├── InputError          3  a file or folder is not what it should be
│   ├── NotARecordingError
│   ├── DamagedRecordingError
│   ├── NewerRecordingError
│   └── DoesNotFitError
└── RefusedError  4  the machine does not allow it

A message has three beats: what happened with the actual value, what it costs, the next command.
"""


class FuellineError(Exception):
    """Base of everything that we raise on purpose; its text is written for the user."""

    exit_code = 1


class UsageError(FuellineError):
    """The command line makes no sense."""

    exit_code = 2


class InputError(FuellineError):
    """A file or folder is not what it should be."""

    exit_code = 3


class NotARecordingError(InputError):
    """The folder exists, or not, but holds no run of ours."""


class DamagedRecordingError(InputError):
    """A recording that was cut short or altered after it was written."""


class NewerRecordingError(InputError):
    """A recording written by a newer version than this one can read."""


class DoesNotFitError(InputError):
    """A model needs more memory than the chips have that it was to be planned on."""


class RefusedError(FuellineError):
    """The machine refuses something that we cannot work without."""

    exit_code = 4
