"""The report in a process of its own: whatever becomes of it, the job's exit code stays."""

import os
import signal
import sys
from pathlib import Path

import pytest

from fuelline import pipeline
from fuelline.cli import main
from fuelline.cli.record import reporting, run
from fuelline.cli.record.reporting import Reporter
from fuelline.record import launch
from fuelline.record.headroom import Extent
from fuelline.record.launch import JobOutcome, hold_signals

Capture = pytest.CaptureFixture[str]

BROKEN = """
import os, signal, sys, time

def show_report(run_dir, **_):
    tries = os.path.join(run_dir, "tries")
    with open(tries, "a") as file:
        file.write("x")
    if os.path.getsize(tries) > {good_after}:
        sys.stderr.write("THE REPORT\\n")
        return
    {act}
"""
"""A pipeline whose report does something dreadful, until it was tried so many times."""


@pytest.fixture
def no_job(monkeypatch: pytest.MonkeyPatch, store: Path, tmp_path: Path) -> Path:
    """A job that ends with 7 at once, and has left a run's folder behind."""
    run_dir = tmp_path / "rec"

    def launch(*_: object, **__: object) -> JobOutcome:
        run_dir.mkdir()
        return JobOutcome(returncode=7)

    assert store
    monkeypatch.setattr(run, "launch", launch)
    return run_dir


def break_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, act: str, good_after: int = 9
) -> None:
    """Let the report's process find this pipeline instead of ours."""
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "broken_pipeline.py").write_text(BROKEN.format(act=act, good_after=good_after))
    start = "import sys; sys.path[:] = sys.argv.pop(1).split(chr(10)); import broken_pipeline; "
    start += "from fuelline import pipeline; pipeline.show_report = broken_pipeline.show_report; "
    start += "from fuelline.cli.record.reporting import main; sys.exit(main(sys.argv[1:]))"
    path = "\n".join([str(folder), *sys.path])
    monkeypatch.setattr(
        reporting, "own_python", lambda _, words: [sys.executable, "-c", start, path, *words]
    )


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("os.kill(os.getpid(), 9)", "killed by signal 9, most likely because memory ran out"),
        ("os.abort()", "killed by signal 6, most likely because memory ran out"),
        ("os._exit(3)", "failed with code 3"),
        ("raise MemoryError", "most likely because memory ran out"),
        ("raise ZeroDivisionError('a bug of ours')", "a bug of ours"),
        ("raise BaseException('a panic')", "a panic"),
        ("raise SystemExit(1)", "no report: 1"),
        ("os.kill(os.getpid(), 2)", "it was interrupted"),
    ],
)
@pytest.mark.bare
def test_whatever_the_report_dies_of_the_exit_code_is_the_jobs(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, no_job: Path, act: str, said: str
) -> None:
    break_report(monkeypatch, no_job.parent, act)
    assert main(["run", "--run-dir", str(no_job), sys.executable]) == 7
    told = " ".join(capfd.readouterr().err.split())
    assert said in told
    assert told.count("fuelline: ") == 1
    assert "recording is kept" in told
    assert "diagnose" in told


def test_a_report_that_was_killed_is_tried_once_more(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_job: Path
) -> None:
    break_report(monkeypatch, tmp_path, "os.kill(os.getpid(), 9)", good_after=1)
    assert main(["run", "--run-dir", str(no_job), sys.executable]) == 7
    assert capfd.readouterr().err == "THE REPORT\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_launcher_ends_a_report_that_hangs(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_job: Path, number: int
) -> None:
    break_report(monkeypatch, tmp_path, f"os.kill(os.getppid(), {number}); time.sleep(600)")
    assert main(["run", "--run-dir", str(no_job), sys.executable]) == 7
    assert "it was interrupted" in capfd.readouterr().err


def test_libraries_do_not_write_between_our_words(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_job: Path
) -> None:
    noise = "os.write(2, b'<jemalloc>: background thread creation failed (11)' * 9)"
    break_report(monkeypatch, tmp_path, f"{noise}; print('THE REPORT', file=sys.stderr)")
    assert main(["run", "--run-dir", str(no_job), sys.executable]) == 7
    assert capfd.readouterr().err == "THE REPORT\n"


def test_a_report_that_takes_too_long_is_given_up(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_job: Path
) -> None:
    break_report(monkeypatch, tmp_path, "time.sleep(600)")
    monkeypatch.setattr(reporting, "LONGEST_S", 0)
    assert main(["run", "--run-dir", str(no_job), sys.executable]) == 7
    assert "it took over" in capfd.readouterr().err


def test_a_report_that_waits_hears_no_signal_that_was_for_the_job(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    break_report(monkeypatch, tmp_path, "pass", good_after=0)
    reporter = Reporter(tmp_path, "rec", hold_signals(), price=None, part_of=None)
    reporter.start()
    assert reporter._child is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        reporter._child.send_signal(number)
    reporter.finish()
    assert capfd.readouterr().err == "THE REPORT\n"


def test_a_report_that_was_killed_while_it_waited_is_made_anew(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    break_report(monkeypatch, tmp_path, "pass", good_after=0)
    reporter = Reporter(tmp_path, "rec", hold_signals(), price=None, part_of=None)
    reporter.start()
    assert reporter._child is not None
    reporter._child.kill()
    reporter._child.wait()
    reporter.finish()
    assert capfd.readouterr().err == "THE REPORT\n"


class ShrinkingRoom:
    """Memory that is there at first and short at the n-th look."""

    def __init__(self, left_bytes: int, looks: int = 0) -> None:
        self.left_bytes = left_bytes
        self.looks = looks

    def is_short(self, wanted_bytes: int = 0) -> bool:
        if wanted_bytes:
            return self.left_bytes < wanted_bytes
        self.looks -= 1
        return self.looks < 0


@pytest.mark.parametrize(
    ("room", "tries"), [(ShrinkingRoom(100 << 20), 0), (ShrinkingRoom(1 << 30, 400), 1)]
)
def test_where_a_whole_group_is_killed_a_report_ends_before_memory_does(
    capfd: Capture,
    monkeypatch: pytest.MonkeyPatch,
    no_job: Path,
    room: ShrinkingRoom,
    tries: int,
) -> None:
    break_report(monkeypatch, no_job.parent, "time.sleep(60)")
    monkeypatch.setattr(reporting.MemoryRoom, "find", lambda: room)
    assert main(["run", "--run-dir", str(no_job), sys.executable]) == 7
    said = capfd.readouterr().err
    assert "no report: too little memory is left in a control group" in said
    assert "`fuelline diagnose" in said
    assert len(list(no_job.glob("tries"))) <= tries


def test_a_report_for_which_there_is_room_is_made(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, no_job: Path
) -> None:
    break_report(monkeypatch, no_job.parent, "pass", good_after=0)
    monkeypatch.setattr(reporting.MemoryRoom, "find", lambda: ShrinkingRoom(1 << 30, 10**6))
    assert main(["run", "--run-dir", str(no_job), sys.executable]) == 7
    assert capfd.readouterr().err == "THE REPORT\n"


@pytest.mark.parametrize("is_marked", [False, True])
def test_only_the_reports_process_is_ended_first_and_none_where_all_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_marked: bool
) -> None:
    monkeypatch.setattr(launch, "ends_all_together", lambda: is_marked)
    own = Path("/proc/self/oom_score_adj").read_text()
    reporter = Reporter(tmp_path, "rec", hold_signals(), price=None, part_of=None)
    reporter.start()
    assert reporter._child is not None
    assert Path(f"/proc/{reporter._child.pid}/oom_score_adj").read_text() == (
        own if is_marked else "1000\n"
    )
    assert Path("/proc/self/oom_score_adj").read_text() == own
    reporter.stop()


def test_a_report_whose_launcher_is_gone_leaves(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, "rec", hold_signals(), price=None, part_of=None)
    reporter.start()
    assert reporter._child is not None
    assert reporter._child.stdin is not None
    reporter._child.stdin.close()
    assert reporter._child.wait(60) == 0


def test_a_panic_of_polars_is_said_and_no_failure(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BaseException("a panic")  # noqa: TRY002 - as PyO3's is

    monkeypatch.setattr(pipeline, "show_report", fail)
    assert reporting.report(tmp_path, "rec", None) == 0
    assert "no report: a panic" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_a_job_under_tight_limits_takes_our_place(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class LeftError(Exception):
        """The job would run now."""

    seen: list[dict[str, str]] = []

    def execute(_: str, __: list[str], environment: dict[str, str]) -> None:
        seen.append(environment)
        raise LeftError

    monkeypatch.setattr(os, "execvpe", execute)
    for kind in ("inside", "nothing"):
        extent = Extent(kind, "only 7 of them", is_roomy=False)
        monkeypatch.setattr(run, "find_extent", lambda extent=extent: extent)
        words = ["run", "--fix", "--run-dir", str(tmp_path / kind), sys.executable]
        with pytest.raises(LeftError):
            main(words)
    inside, nothing = capsys.readouterr().err.splitlines()
    assert "recorded from inside the job only: only 7 of them" in inside
    assert "not recorded: only 7 of them" in nothing
    assert "--fix is left out" in inside
    assert [("FUELLINE_RUN_DIR" in each, "FUELLINE_FIX" in each) for each in seen] == [
        (True, False),
        (False, False),
    ]
    assert (tmp_path / "inside" / "run.json").exists()
    assert not (tmp_path / "nothing").exists()
