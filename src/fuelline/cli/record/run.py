"""`fuelline run`: record an unmodified job and say what it waited for."""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.pages import add_page, check_page
from fuelline.cli.quantities import parse_duration
from fuelline.cli.record.reporting import Reporter
from fuelline.cli.record.serving import add_serving, serve_files
from fuelline.cli.saying import flush_streams, say
from fuelline.fix.job_site import PRICE_VARIABLE, RAY_VARIABLE, put_on_path
from fuelline.record.headroom import LEAST_DESCRIPTORS, find_extent
from fuelline.record.launch import become, find_python, hold_signals, launch
from fuelline.schema.errors import InputError, RefusedError, UsageError
from fuelline.schema.mounts import is_slow_here
from fuelline.schema.run.run_folder import ALLOWED, FIX_DIR, FIX_VARIABLE, PART_PREFIX
from fuelline.store.config import check_store, read_config
from fuelline.store.runs import is_there, name_job, name_run, new_run_dir, note_run
from fuelline.tools import TRACKERS, check_tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.record.headroom import Extent
    from fuelline.record.launch import JobOutcome, Mask

MOST_HOSTS = 500
"""Pids of several hosts are kept apart by their numbers in 32 bits."""

TASK_VARIABLES = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
"""How srun and the launchers of MPI number the tasks that they start, over all hosts."""

_NOBODY = 65534
"""The owner of files whose owners a network file system does not reveal."""

_EPILOG = """\
examples:
  fuelline run train.py --epochs 2
  fuelline run -m pkg.train --config base.yaml
  fuelline run torchrun --nproc-per-node 2 train.py
  fuelline run --node-rank 1 --run-dir /shared/r42 torchrun --nnodes 2 train.py
  srun fuelline run --node-rank auto --run-dir /shared/r42 train.py
  fuelline run --price 2.5 -- bash start.sh
  fuelline run --fix train.py

The job keeps its own output, exit code, signals and standard input. The report
goes to standard error when the job has ended.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "run",
        help="record an unmodified job and diagnose it at the end",
        description="Record an unmodified job, then say what training waited for.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fuelline run [options] SCRIPT.py | -m MODULE | COMMAND ...",
    )
    parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="folder for this recording; must not exist yet (default: a new one in the run store)",
    )
    parser.add_argument(
        "--node-rank",
        type=_node_rank,
        metavar="N",
        help="this host's number in a job on several hosts: each host writes its part of one "
        "--run-dir that all can reach; `auto` under srun or mpirun, which start a recorder for "
        "each task (default: the job runs on this host alone)",
    )
    parser.add_argument(
        "--no-staging",
        action="store_true",
        help="write to a --run-dir on network storage while the job runs, so that other hosts can "
        "watch it (default: record on a local disk and move it there at the end)",
    )
    parser.add_argument(
        "--zoom",
        type=_zoom,
        metavar="N@STEP",
        help="profile N steps from STEP on with the framework's profiler and keep the trace with "
        "the recording, e.g. 3@100 (default: none)",
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="apply safe remedies while the job runs: loader workers and prefetch follow demand, "
        "same batches, same order (default: only record)",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=ALLOWED,
        help="with --fix: `random` allows changing workers in mid-epoch although the dataset draws "
        "random numbers in them; `order` allows changing those of iterable datasets between "
        "epochs (default: neither)",
    )
    parser.add_argument(
        "--ray",
        type=_ray,
        metavar="ADDRESS",
        help="with --fix: where this host's cores cannot feed training, have batches prepared on "
        "other nodes of this Ray cluster, `auto` for the one that runs here, HOST:PORT or "
        "ray://HOST:PORT (default: on this host only)",
    )
    parser.add_argument(
        "--core-price",
        type=_price,
        metavar="USD",
        help="with --ray: price of one core-hour on those nodes in USD (default: no money is "
        "shown for them)",
    )
    add_serving(parser)
    add_price(parser)
    add_no_command(parser)
    add_page(parser)
    parser.add_argument(
        "--store",
        metavar="STORE",
        help="when the job has ended, leave a row of what it came to in this folder or bucket "
        "(s3://, gs://, az://) for `fuelline fleet` (default: that of the configuration file, "
        "`fleet`; else none)",
    )
    parser.add_argument(
        "--store-wait",
        type=_wait,
        default=20.0,
        metavar="TIME",
        help="how long the store may delay the end of this command; what has not arrived by then "
        "is sent with the next run (default: 20s)",
    )
    parser.add_argument(
        "--report-to",
        action="append",
        default=[],
        choices=sorted(TRACKERS),
        help="when the job has ended, attach figures, verdict and page to the run that it has "
        "there; repeatable (default: none)",
    )
    parser.add_argument("--quiet", action="store_true", help="no report at the end (default: off)")
    parser.add_argument("job", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(act=act)


def add_no_command(parser: argparse.ArgumentParser) -> None:
    """`--no-command`, for every command that keeps a recording of a job."""
    parser.add_argument(
        "--no-command",
        action="store_true",
        help="do not record the command line (default: recorded, with *** for what looks like a "
        "secret)",
    )


def add_price(parser: argparse.ArgumentParser) -> None:
    """`--price`, the same in every command that states a loss."""
    parser.add_argument(
        "--price",
        type=_price,
        metavar="USD",
        help="price of one accelerator-hour in USD (default: that of the configuration file; "
        "without one, losses are shown in time only)",
    )
    parser.set_defaults(priced=True)


def _price(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{word!r} is not a price in USD between 0 and 1,000,000")
    return value


def act(options: argparse.Namespace) -> int:
    """Run the job, then report; leave exactly as the job left."""
    command = resolve_command(options.job)
    check_page(options.html)
    _check_store(options)
    _check_trackers(options)
    try:
        run_dir = _choose_folder(options)
    except RefusedError as error:
        say(f"{error} The job runs anyway, unchanged and not recorded.")
        flush_streams()
        os.execvp(command[0], command)
    if is_there(run_dir):
        raise UsageError(
            f"{run_dir} already exists. Nothing was started, so that nothing is overwritten. "
            "Name a new folder with --run-dir, or leave it out."
        )
    fixing, extent = _fix_variables(options), find_extent()
    if options.run_dir is not None and not options.node_rank:  # one note for all hosts
        note_run(options.run_dir, name_job(options.job))
    shown: list[str] | None = [] if options.no_command else None
    problems: list[str] = []

    def note(problem: str) -> None:
        problems.append(problem)
        _say_unrecorded(problem, "The job runs as it would without us.")

    with serve_files(options) as serving:
        if extent.kind != "whole":
            fixing = {}  # more workers are more of what is short
            say_less = partial(_say_less, extent, options, run_dir)
            if not serving:
                become(command, run_dir, options.zoom, extent=extent, say=say_less, shown=shown)
            say_less(None)
        # From here on no signal ends this process: it leaves as the job left.
        mask = hold_signals()
        reporter = _make_reporter(options, run_dir, mask)
        outcome = launch(
            command,
            run_dir,
            options.zoom,
            more={**serving, **fixing},
            extent=extent,
            mask=mask,
            meanwhile=reporter.start if reporter is not None and extent.is_roomy else None,
            shown=shown,
            say=note,
            stages=not options.no_staging,
        )
    if extent.kind != "nothing":
        _conclude(outcome, options, run_dir, reporter, is_explained=outcome.problem in problems)
    if fixing and outcome.problem is None and not (run_dir / FIX_DIR).is_dir():
        say(
            "--fix had nothing to do: the job iterated no torch DataLoader and no tf.data "
            f"pipeline. It ran unchanged. `fuelline diagnose {name_run(run_dir)}` shows what was "
            "seen."
        )
    return _leave_like(outcome)


def _check_store(options: argparse.Namespace) -> None:
    """A row is of a whole run; where it goes is no typing error."""
    if options.store is None:
        return
    if options.node_rank is not None:
        raise UsageError(
            "--store takes a row of the whole run, and --node-rank records a part of it. Nothing "
            f"was started. When all hosts have ended: `fuelline fleet {options.store} --add "
            f"{options.run_dir or 'DIR'}`."
        )
    check_store(options.store, "--store")


def _check_trackers(options: argparse.Namespace) -> None:
    for tool in options.report_to:
        check_tool(tool)
    if options.report_to and options.node_rank is not None:
        raise UsageError(
            f"--report-to {options.report_to[0]} needs the whole run, and with --node-rank each "
            "host has a part of it. Nothing was started. When all have ended: `fuelline export "
            f"{options.run_dir} --{options.report_to[0]} ...`."
        )


def _make_reporter(options: argparse.Namespace, run_dir: Path, mask: Mask) -> Reporter | None:
    part_of = options.run_dir if options.node_rank is not None else None
    store = options.store or read_config().fleet or ""
    asks_none = options.html is None and not options.report_to and not store
    if options.quiet and part_of is None and asks_none:
        return None
    return Reporter(
        run_dir,
        name_run(run_dir),
        mask,
        price=options.price,
        part_of=part_of,
        page=options.html,
        is_quiet=options.quiet,
        store=store,
        store_wait_s=options.store_wait,
        trackers=options.report_to,
    )


def _conclude(
    outcome: JobOutcome,
    options: argparse.Namespace,
    run_dir: Path,
    reporter: Reporter | None,
    *,
    is_explained: bool,
) -> None:
    """What became of the recording, and the report; `is_explained`: why there is none was said."""
    if outcome.problem is not None:
        if reporter is not None:
            reporter.stop()
        if not is_explained:
            _say_unrecorded(outcome.problem, "The job itself was not affected.")
        return
    if outcome.left_in is not None:
        where, why = outcome.left_in
        say(
            f"the recording is still in {where}: it could not be moved to {run_dir} ({why}). "
            f"`fuelline diagnose {name_run(run_dir)}` on this host reads it there."
        )
    if outcome.lacking is not None:
        say(
            f"the end of the job could not be written to {run_dir} ({outcome.lacking}). "
            "What was recorded before that is kept. Make room there before the next run; "
            f"`fuelline diagnose {name_run(run_dir)}` reads what there is."
        )
    if reporter is not None:
        reporter.finish()
    if options.node_rank is not None:
        more = "" if options.html is None else f" --html {shlex.quote(str(options.html))}"
        say(
            f"this host's part is in {run_dir}. When all hosts have ended: "
            f"fuelline diagnose {options.run_dir}{more}"
        )


def _say_unrecorded(problem: str, job: str) -> None:
    say(
        f"not recorded: {problem}. {job} `fuelline run --run-dir DIR ...` records to another place."
    )


def _say_less(
    extent: Extent, options: argparse.Namespace, run_dir: Path, problem: str | None
) -> None:
    """Before a job that is recorded less than was asked for, or not at all."""
    unfixed = " --fix is left out: it would start more workers." if options.fix else ""
    if problem is not None:
        _say_unrecorded(problem, "The job runs as it would without us.")
    elif extent.kind == "nothing":
        say(
            f"not recorded: {extent.why}, and the job may need them all. It runs as it would "
            f"without Fuelline.{unfixed} Recording needs {LEAST_DESCRIPTORS}: `ulimit -n 1024` "
            "first."
        )
    else:
        say(
            f"recorded from inside the job only: {extent.why}, and it may need them all. No "
            f"observer, and no report at the end.{unfixed} `fuelline diagnose "
            f"{name_run(run_dir)}` shows what was recorded."
        )


def _fix_variables(options: argparse.Namespace) -> dict[str, str]:
    """What brings the elastic loader into the job; nothing without --fix."""
    if options.core_price is not None and not options.ray:
        raise UsageError(
            f"--core-price {options.core_price:g} is what --ray costs, but --ray was not given. "
            "Nothing was started. Try `fuelline run --fix --ray auto train.py`."
        )
    if not options.fix:
        if options.ray:
            raise UsageError(
                f"--ray {options.ray} says where --fix may have batches prepared, but --fix was "
                f"not given. Nothing was started. Try `fuelline run --fix --ray {options.ray} "
                "train.py`."
            )
        if options.allow:
            raise UsageError(
                f"--allow {options.allow[0]} says how far --fix may go, but --fix was not given. "
                "Nothing was started. Try `fuelline run --fix --allow random train.py`."
            )
        return {}
    elsewhere = {RAY_VARIABLE: options.ray} if options.ray else {}
    if options.core_price is not None:
        elsewhere[PRICE_VARIABLE] = str(options.core_price)
    return {FIX_VARIABLE: ",".join(["safe", *options.allow]), **elsewhere, **put_on_path()}


def _choose_folder(options: argparse.Namespace) -> Path:
    """Where this recording goes; a host of several gets its own folder inside."""
    if options.node_rank is None:
        return options.run_dir or new_run_dir(name_job(options.job))
    if options.run_dir is None:
        raise UsageError(
            f"--node-rank {options.node_rank} needs --run-dir: one folder that all hosts can "
            "reach. Nothing was started. "
            "Try `fuelline run --node-rank 1 --run-dir /shared/run42 ...`."
        )
    folder = Path(options.run_dir)
    if is_there(folder) and not _is_trusted(folder):
        raise UsageError(
            f"{folder} belongs to another user, who could put a folder of their own in place of "
            "this host's part. Nothing was started. Name a folder of yours, or a new one."
        )
    return folder / f"{PART_PREFIX}{options.node_rank:04d}"


def _is_trusted(folder: Path) -> bool:
    """Ours; or nobody's on a server that calls all users that."""
    owner = folder.stat().st_uid
    return owner == os.geteuid() or (owner == _NOBODY and is_slow_here(str(folder)))


def _ray(word: str) -> str:
    if word != "auto" and not re.fullmatch(r"(ray://)?[A-Za-z0-9_.-]+:\d{1,5}", word):
        raise argparse.ArgumentTypeError(f"{word!r} is not auto, HOST:PORT or ray://HOST:PORT")
    return word


def _wait(word: str) -> float:
    return parse_duration(word, "--store-wait", 0.0, 600.0)


def _zoom(word: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,2}@\d{1,9}", word):
        raise argparse.ArgumentTypeError(f"{word!r} is not N@STEP, such as 3@100 (N up to 999)")
    return word


def _node_rank(word: str) -> int:
    if word == "auto":
        word = next((os.environ[name] for name in TASK_VARIABLES if name in os.environ), "auto")
        if word == "auto":
            names = ", ".join(TASK_VARIABLES)
            raise argparse.ArgumentTypeError(f"auto needs one of {names}, and none is set here")
    if not word.isdecimal() or int(word) > MOST_HOSTS:
        raise argparse.ArgumentTypeError(f"{word!r} is not a host's number from 0 to {MOST_HOSTS}")
    return int(word)


def resolve_command(job: Sequence[str]) -> list[str]:
    """Turn what the user typed into a command: scripts and modules get a python."""
    words = list(job[1:] if job[:1] == ["--"] else job)
    if not words:
        raise UsageError("There is no job to run. Try `fuelline run train.py`.")
    if words[0] == "-m":
        return [find_python(), *words]
    path = Path(words[0])
    is_file = is_there(path) and path.is_file()
    if path.suffix == ".py":
        if not is_file:
            raise InputError(
                f"{path} does not exist. Nothing was started. Check the path from {Path.cwd()}."
            )
        return [find_python(), *words]
    if is_file and not os.access(path, os.X_OK):
        return _read_script(path, words)
    if shutil.which(words[0]) is None:
        raise InputError(
            f"{words[0]} is neither a script here nor a command on PATH. Nothing was started. "
            "`fuelline run --help` shows the forms that work."
        )
    return words


def _read_script(path: Path, words: list[str]) -> list[str]:
    """Of a file that may not be executed: Python's if its first line says so, else refused."""
    try:
        with path.open("rb") as file:
            first = file.readline(_SHEBANG_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}). Nothing was started. Check its permissions."
        ) from None
    asked = first[2:].split() if first.startswith("#!") else []
    name = next((Path(word).name for word in asked if Path(word).name not in ("env", "-S")), "")
    if re.fullmatch(r"(?:python|pypy)[\d.]*", name):
        return [find_python(), *words]
    runner = name or ("bash" if path.suffix == ".sh" else "python")
    said = f"its first line asks for {name}" if name else "its first line names no program"
    file_word = shlex.quote(words[0])
    raise InputError(
        f"{path} is not executable (it has no x bit), and {said}. Nothing was started. "
        f"`chmod +x {file_word}` first, or `fuelline run {runner} {file_word}`."
    )


_SHEBANG_BYTES = 256
"""Of a first line that the kernel looks at (BINPRM_BUF_SIZE)."""


def _leave_like(outcome: JobOutcome) -> int:
    """Give the caller what the job gave us: its exit code, or death by the same signal."""
    if outcome.returncode >= 0:
        return outcome.returncode
    number = -outcome.returncode
    flush_streams()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the job's core dump is the one that counts
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    return 128 + number
