"""`fuelline.record()`: a block of the caller's own process, recorded as `fuelline run` records."""

from __future__ import annotations

import signal
import sys
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.api.run import Run
from fuelline.record.inside import ProcessRecording, check_alone
from fuelline.schema.errors import UsageError
from fuelline.schema.mistakes import tell_plainly
from fuelline.store.runs import is_there, new_run_dir, note_run

if TYPE_CHECKING:
    import os
    from types import TracebackType


def record(
    path: str | os.PathLike[str] | None = None, *, name: str | None = None, command: bool = True
) -> AbstractContextManager[Run]:
    """Record what runs inside the block; the Run can be diagnosed when the block has ended.

        with fuelline.record() as run:
            train()
        print(run.diagnose())

    `path` is the run's folder, which must not exist yet; by default it is a new one in the run
    store, and `name` is part of what it is called. Without `command` the command line of this
    process is not written down. Exceptions of the block pass through. If nothing can be recorded
    (no room, limits too low), that is a warning and the block runs anyway.

    Raises:
        UsageError: on entering, if this process is being recorded already, or the folder exists.
    """
    return _Recording(None if path is None else Path(path), name, with_command=command)


class _Recording(AbstractContextManager[Run]):
    """The block."""

    def __init__(self, path: Path | None, name: str | None, *, with_command: bool) -> None:
        self._path = path
        self._name = name
        self._shown: list[str] | None = None if with_command else []
        self._inside: ProcessRecording | None = None

    @tell_plainly
    def __enter__(self) -> Run:
        check_alone()
        run_dir = self._choose_folder()
        inside = ProcessRecording(run_dir, shown=self._shown)
        problem = inside.start()
        if problem is None:
            self._inside = inside
            note_run(run_dir, self._name or _name_process())
        else:
            _warn(
                f"not recorded: {problem}. The block runs anyway. fuelline.record(DIR) "
                "records to another place."
            )
        return Run(run_dir)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        inside, self._inside = self._inside, None
        if inside is not None:
            problem = inside.stop(_exit_code(error))
            if problem is not None:
                _warn(
                    f"{inside.run_dir} lacks the end of its recording: {problem}. What was "
                    "recorded before is kept. run.diagnose() reads what there is."
                )

    def _choose_folder(self) -> Path:
        if self._path is not None:
            if is_there(self._path):
                raise UsageError(
                    f"{self._path} already exists. Nothing was started, so that nothing is "
                    "overwritten. Name a new folder, or none."
                )
            return self._path
        first = new_run_dir(self._name or _name_process())
        more = (first.with_name(f"{first.name}-{number}") for number in range(2, 10_000))
        return next(folder for folder in (first, *more) if not is_there(folder))


def _name_process() -> str:
    """The script; a notebook has none."""
    if "ipykernel" in sys.modules:
        return "notebook"
    return Path(sys.argv[0]).stem if sys.argv and not sys.argv[0].startswith("-") else "python"


def _exit_code(error: BaseException | None) -> int:
    """What the block would have been as a job."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def _warn(words: str) -> None:
    warnings.warn(words, RuntimeWarning, stacklevel=3)
