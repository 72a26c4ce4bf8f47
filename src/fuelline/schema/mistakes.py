"""A user's mistake becomes one sentence, without the call stack in which it was noticed.

What we raise on purpose leaves with a short traceback. What a disk refuses becomes a RefusedError,
and what a library says of damaged data an InputError, both with their cause attached.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from fuelline.schema.errors import FuellineError, InputError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def tell_plainly(function: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """A public function whose errors are FuellineErrors."""

    @wraps(function)
    def guarded(*args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
        try:
            return function(*args, **kwargs)
        except FuellineError as error:
            raise error.with_traceback(None) from error.__cause__
        except OSError as error:
            where = error.filename or "A file"
            raise RefusedError(
                f"{where} cannot be used ({error.strerror or error}). Nothing was done. Check "
                "the path and its permissions."
            ) from error
        except (TypeError, AttributeError):
            raise  # of the caller's arguments, or ours: either way its traceback is needed
        except Exception as error:
            words = next(iter(str(error).splitlines()), "")[:200]
            raise InputError(
                f"This data cannot be read: unexpected {type(error).__name__} ({words}). Nothing "
                "was changed. Copy the data again if it may be damaged; if it is intact, this is a "
                "bug in fuelline, and the error above shows where."
            ) from error

    return guarded
