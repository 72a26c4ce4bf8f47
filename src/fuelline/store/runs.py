"""Where runs are kept, and how the user's word for one becomes a folder."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fuelline.schema.errors import NotARecordingError, RefusedError
from fuelline.schema.files import is_below, list_below
from fuelline.schema.redaction import redact
from fuelline.schema.run.run_folder import MANIFEST_FILE, PART_PREFIX, RUN_FILE
from fuelline.store.elsewhere import list_elsewhere, note_elsewhere
from fuelline.store.home import HOME_VARIABLE, home_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RUN_HELP = (
    "a run's folder or id, or a job's name for its newest run (default: the run started last)"
)
"""What `find_run` takes, as help says it."""
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|(?:ba|da|z|k|fi)?sh")
"""What is followed by a script."""
_WRAPPER = re.compile(
    "apptainer|chrt|conda|docker|env|horovodrun|ionice|mamba|micromamba|mpiexec|mpirun|nice|nohup"
    "|numactl|pdm|pipenv|pixi|podman|poetry|rye|setsid|singularity|srun|stdbuf|strace|sudo|taskset"
    "|time|timeout|uv|xvfb-run"
)
"""What runs the command that follows; of any other program, `python` may be an argument."""
_FLAGS = "-[bBdEhiIOPqRsSuvVx?]"
_TAKES_MODULE = {
    re.compile(r"(?:python|pypy)[\d.]*"): re.compile(
        rf"(?:{_FLAGS}+\0|{_FLAGS}*[XW]\0?[^\0]+\0)*{_FLAGS}*m\0?(?P<module>[^\0]+)\0(?P<rest>.*)",
        re.DOTALL,
    ),
    re.compile(r"torchrun|accelerate|deepspeed"): re.compile(
        r"(?:launch\0)?"
        r"(?:--?(?!no[-_]python\0|m\0|module\0)[^\0]+\0(?:(?:(?:[\w.-]+:)?[\d.:]+|c10d|static|auto|gpu|cpu"
        r"|no|bf16|fp16|fp8)\0)?)*"
        r"(?:-m|--module)\0(?P<module>[^\0]+)\0(?P<rest>.*)",
        re.DOTALL,
    ),
}
"""Programs, and their own options up to a module, each word ended by a zero byte.

What might be the program's script ends the search: all behind it are arguments of the job.
"""
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_LAUNCHING_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
)
"""Modules that are followed by the script that counts."""
_ID = re.compile(r"\d{8}-\d{6}-(?P<job>.+?)-\d+(?:-\d+)?")


def is_there(path: Path) -> bool:
    """Whether there is something at a path; what we may not look at is not there for us.

    `exists` raises for folders that we may not enter and for names that are too long.
    """
    try:
        return path.exists()
    except OSError:
        return False


def runs_folder() -> Path:
    """Where runs are kept."""
    return home_folder() / "runs"


def undo_folder() -> Path:
    """Where originals of changed scripts are kept, beside the runs."""
    return runs_folder().parent / "undo"


def new_run_dir(what: str) -> Path:
    """A fresh folder name that sorts by time and says what ran: `20260412-093015-train-4711`."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return runs_folder() / f"{stamp}-{_shorten(redact(what)) or 'run'}-{os.getpid()}"


def _shorten(what: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "_", what)[:40].strip("_.")


def note_run(run_dir: Path, what: str) -> None:
    """Let commands find a run outside the store: by `what` ran, and as the last one.

    Not if there is no store: whoever records elsewhere has the folder's path.
    """
    try:
        if not _is_in_store(run_dir):
            note_elsewhere(new_run_dir(what).name, run_dir)
    except (RefusedError, OSError):  # no store, or no room in it
        return


def name_job(job: Sequence[str]) -> str:
    """What a job is called: its script or its module, else its command; never an argument.

    `torchrun --nproc-per-node 2 train.py --lr 1` -> `train`, `-m pkg.train` -> `pkg.train`,
    `bash start.sh` -> `start`, `env TOKEN=x ./simulate --key y` -> `env`.
    """
    words = list(job[1:] if job[:1] == ["--"] else job)
    words = ["python", *words] if words[:1] == ["-m"] else words
    runs_others = words[:1] != [] and _WRAPPER.fullmatch(Path(words[0]).name) is not None
    for at, word in enumerate(words):
        program, rest = Path(word).name, words[at + 1 :]
        if at == 0 or runs_others:
            module = _find_module(program, rest)
            if module:
                return module
            runs_others &= module is None
        if word.endswith(".py") and is_there(Path(word)):
            return Path(word).stem
        if _INTERPRETER.fullmatch(program):
            script = Path(next((each for each in rest if not each.startswith("-")), ""))
            if is_there(script) and script.is_file():
                return script.stem
    return Path(words[0]).stem if words else ""


def _find_module(program: str, words: Sequence[str]) -> str | None:
    """The module that a program is asked to run, "" if none; None if it is no such program."""
    fitting = (each for programs, each in _TAKES_MODULE.items() if programs.fullmatch(program))
    options = next(fitting, None)
    if options is None:
        return None
    found = options.match("".join(f"{word}\0" for word in words))
    if found is None:
        return ""
    if found["module"] in _LAUNCHING_MODULES:
        return _find_module("torchrun", found["rest"].split("\0")[:-1])
    is_name = _MODULE.fullmatch(found["module"]) is not None
    return found["module"].removesuffix(".__main__") if is_name else ""


class KnownRun(NamedTuple):
    """A run that commands find without its path."""

    path: Path
    run_id: str
    """`20260412-093015-train-4711`: of its folder, or of the note about it."""

    @property
    def job(self) -> str:
        """What ran, as the id says; the whole id if it is none of ours."""
        return job_of(self.run_id)


def job_of(run_id: str) -> str:
    """`train` of `20260412-093015-train-4711`; a whole id that is none of ours."""
    found = _ID.fullmatch(run_id)
    return found["job"] if found is not None else run_id


def list_known(start_of: Callable[[Path], int] | None = None) -> list[KnownRun]:
    """Runs of the store and noted ones elsewhere, in the order in which they were started.

    `start_of` is for those who ask again and again, and remember.
    """
    from fuelline.store.listing import find_start_ns  # noqa: PLC0415 - loads msgspec

    start_of = start_of or find_start_ns
    in_store = [KnownRun(path, path.name) for path in _list_store()]
    elsewhere = [KnownRun(*each) for each in list_elsewhere() if is_run(each[0])]
    return sorted([*in_store, *elsewhere], key=lambda run: (start_of(run.path), run.path.name))


def list_runs() -> list[Path]:
    """The folders of all known runs, the first that was started first."""
    return [run.path for run in list_known()]


def _list_store() -> list[Path]:
    folder = runs_folder()
    try:
        return [path for path in folder.iterdir() if is_run(path)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RefusedError(
            f"The run store {folder} cannot be read ({error.strerror}). No run is found there. "
            f"Set {HOME_VARIABLE} to a folder of yours, or name a run's folder as in "
            "`fuelline diagnose DIR`."
        ) from None


def find_run(word: str | None) -> Path:
    """The run that a word means; the one that was started last without a word.

    A folder that is a run, a file, an id, a job's name (of its runs the newest), or a beginning
    that only one id has. A folder of data may well be called as the job is: it is no run.
    """
    if word is None:
        runs = list_runs()
        if runs:
            return runs[-1]
        raise NotARecordingError(
            f"No run was recorded yet in {runs_folder()}. There is nothing to show. "
            "`fuelline run train.py` records one, `fuelline demo` shows one."
        )
    path = Path(word)
    if is_there(path) and (is_run(path.resolve()) or (path.is_file() and path.suffix != ".py")):
        return path
    matches = _match(word)
    if len(matches) == 1:
        return matches[0].path
    if not matches and is_there(path):
        return path  # whoever reads it says what it is instead
    what = f"fits {len(matches)} runs" if matches else "is neither a folder nor a recorded run"
    raise NotARecordingError(
        f"{word!r} {what}. Nothing was read. `fuelline runs` lists the runs there are."
    )


def find_stored(word: str) -> KnownRun:
    """The one known run that a word means; not the newest of several, as for what is deleted."""
    path = Path(word).absolute()
    runs = list_known()
    job = _shorten(word)
    found = (
        [run for run in runs if run.run_id == word or run.path.absolute() == path]
        or [run for run in runs if run.job == job]
        or [run for run in runs if run.run_id.startswith(word)]
    )
    if len(found) == 1:
        return found[0]
    what = f"fits {len(found)} runs" if found else "is no run that was recorded here"
    raise NotARecordingError(
        f"{word!r} {what}. Nothing was deleted. `fuelline runs` lists the ids of all runs."
    )


def _match(word: str) -> list[KnownRun]:
    """The run that is meant, or those that may be."""
    runs = list_known()
    job = _shorten(Path(word).stem if word.endswith(".py") else word)
    exact = [run for run in runs if run.run_id == word] or [run for run in runs if run.job == job]
    return exact[-1:] or [run for run in runs if run.run_id.startswith(word)]


def name_run(path: Path) -> str:
    """The shortest word by which `find_run`, called from here, finds this folder again.

    The id of a run in the store, unless something of that name is here; else a path, from here if
    it goes down only.
    """
    if _is_in_store(path) and not is_there(Path(path.name)):
        return path.name
    try:
        word = str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, OSError):  # not below here, or we stand in no folder
        word = str(path)
    return f"./{word}" if word.startswith("-") else word  # not an option


def _is_in_store(path: Path) -> bool:
    try:
        return path.parent == runs_folder()
    except RefusedError:  # there is none
        return False


def is_run(path: Path) -> bool:
    """Whether a folder, which is no link, has what every run has."""
    try:
        names = list_below(path.parent, path.name)
    except OSError:  # no folder, a link, or not ours to enter
        return False
    parts = (name for name in names if name.startswith(PART_PREFIX))
    return (
        RUN_FILE in names
        or MANIFEST_FILE in names
        or any(is_below(path, f"{part}/{RUN_FILE}") for part in parts)
    )


def is_alive(pid: int) -> bool:
    """Whether a process of this host works yet: a zombie only waits for its parent to look."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    state, *_, threads = stat.rpartition(b")")[2].split()[:18]
    return state not in (b"Z", b"X") or threads != b"1"
