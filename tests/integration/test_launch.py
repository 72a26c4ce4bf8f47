"""`fuelline run` around tiny jobs without torch: what the job does and gets is its own.

A job that must be caught in the middle writes a line when it is ready and is signalled only then;
nothing here depends on how long anything takes.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.torch

LIMIT_S = 120


@dataclass
class Launcher:
    """Starts `fuelline run` in a folder of its own, with a run store of its own."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
        return {**kept, "FUELLINE_HOME": str(self.folder / "home")}

    def script(self, source: str, name: str = "job.py") -> str:
        (self.folder / name).write_text(textwrap.dedent(source))
        return name

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "fuelline", "run", *words]

    def run(self, *words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        """To its end."""
        settings = {"env": self.environment, "cwd": self.folder, "timeout": LIMIT_S} | options
        return subprocess.run(self.command(*words), capture_output=True, check=False, **settings)

    def start(self, *words: str, **options: object) -> subprocess.Popen[bytes]:
        """As the leader of a new session, so that its group can be signalled alone."""
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        process = subprocess.Popen(
            self.command(*words),
            env=self.environment,
            cwd=self.folder,
            start_new_session=True,
            **settings,
        )
        self.started.append(process)
        return process

    def shell(self, command: str) -> subprocess.CompletedProcess[bytes]:
        """To its end, by way of a shell that may limit it first."""
        return subprocess.run(
            ["bash", "-c", command],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            check=False,
            timeout=LIMIT_S,
        )

    def diagnosis(self, run: str) -> dict:
        """`diagnose --json` of a run in a folder of this test."""
        words = [sys.executable, "-m", "fuelline", "diagnose", "--json", run]
        done = subprocess.run(
            words, env=self.environment, cwd=self.folder, capture_output=True, check=True
        )
        return json.loads(done.stdout)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path)
    yield made
    made.close()


def wait_until_ready(stream: IO[bytes] | None) -> None:
    assert stream is not None
    assert stream.readline() == b"ready\n"


PATIENT = """
    import os, signal, sys, time

    caught = []
    def note(number, _):
        caught.append(number)
        os.write(1, f"caught {{signal.Signals(number).name}}\\n".encode())
    for name in {names}:
        signal.signal(getattr(signal, name), note)
    print("ready", flush=True)
    while not caught:
        time.sleep(0.01)
    sys.exit(7)
"""
"""Notes signals and leaves with code 7 after the first."""


@pytest.mark.parametrize("code", [0, 1, 3, 77, 255])
def test_the_exit_code_is_the_jobs(launcher: Launcher, code: int) -> None:
    job = launcher.script(f"import sys; sys.exit({code})")
    assert launcher.run("--quiet", job).returncode == code


@pytest.mark.parametrize("stderr", ["full", "closed", "nobody reads it"])
@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit(5)", "os.kill(os.getpid(), 15)"])
def test_the_exit_code_is_the_jobs_wherever_our_words_go(
    launcher: Launcher, stderr: str, end: str
) -> None:
    job = launcher.script(f"import os, sys; print('fine', flush=True); {end}")
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"full": "2>/dev/full", "closed": "2>&-", "nobody reads it": f"2>&{writer}"}
    command = f"exec {' '.join(launcher.command(job))} {streams[stderr]}"
    recorded = subprocess.run(
        ["bash", "-c", command],
        env=launcher.environment,
        cwd=launcher.folder,
        stdout=subprocess.PIPE,
        pass_fds=(writer,),
        check=False,
    )
    os.close(writer)
    plain = subprocess.run([sys.executable, job], cwd=launcher.folder, check=False)
    assert (recorded.returncode, recorded.stdout) == (plain.returncode, b"fine\n")


def test_a_reader_of_recordings_that_is_broken_costs_only_the_report(launcher: Launcher) -> None:
    broken = launcher.folder / "broken" / "polars"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ValueError('a build for another processor')")
    path = os.pathsep.join([str(broken.parent), os.environ.get("PYTHONPATH", "")])
    job = launcher.script("import time; time.sleep(1); print('trained'); raise SystemExit(5)")
    done = launcher.run(job, env=launcher.environment | {"PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (5, b"trained\n")
    assert b"no report: a build for another processor" in done.stderr
    assert b"Traceback" not in done.stderr


def test_output_is_exactly_the_jobs_and_the_report_goes_elsewhere(launcher: Launcher) -> None:
    job = launcher.script(
        r"""
        import os, sys
        os.write(1, b"bytes \xff\x00 as they are\n")
        print("words without an end", end="")
        print("trouble", file=sys.stderr)
        """
    )
    done = launcher.run(job)
    assert done.returncode == 0
    assert done.stdout == b"bytes \xff\x00 as they are\nwords without an end"
    assert done.stderr.startswith(b"trouble\n")
    assert b"Cannot tell" in done.stderr


def test_a_quiet_run_says_nothing_of_its_own(launcher: Launcher) -> None:
    done = launcher.run("--quiet", launcher.script("print('hello')"))
    assert (done.stdout, done.stderr) == (b"hello\n", b"")


def test_standard_input_reaches_the_job(launcher: Launcher) -> None:
    job = launcher.script("import sys; print(sys.stdin.read().upper(), end='')")
    assert launcher.run("--quiet", job, input=b"from a pipe\n").stdout == b"FROM A PIPE\n"


def test_arguments_folder_and_streams_are_the_jobs_own(launcher: Launcher) -> None:
    job = launcher.script("import os, sys; print(sys.argv[1:], os.getcwd(), os.isatty(0))")
    own = ["--quiet", "-m", "--", "--price", "two words", "", "a=b"]
    done = launcher.run("--quiet", job, *own, stdin=subprocess.DEVNULL)
    assert done.stdout.decode().strip() == f"{own} {launcher.folder} False"


def test_a_descriptor_that_was_passed_down_stays_open(launcher: Launcher) -> None:
    reader, writer = os.pipe()
    job = launcher.script(f"import os; os.write({writer}, b'through')")
    launcher.run("--quiet", job, pass_fds=(writer,))
    os.close(writer)
    assert os.read(reader, 100) == b"through"
    os.close(reader)


def test_a_module_is_run(launcher: Launcher) -> None:
    (launcher.folder / "pkg").mkdir()
    launcher.script("import sys; print(__name__, __package__, sys.argv[1:])", "pkg/train.py")
    done = launcher.run("--quiet", "-m", "pkg.train", "--epochs", "2")
    assert done.stdout == b"__main__ pkg ['--epochs', '2']\n"


@pytest.mark.parametrize("separator", [["--"], []])
def test_any_command_is_run(launcher: Launcher, separator: list[str]) -> None:
    done = launcher.run("--quiet", *separator, "bash", "-c", "echo $0 $1; exit 4", "a", "b")
    assert (done.returncode, done.stdout) == (4, b"a b\n")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM"])
def test_death_by_a_signal_is_passed_on_as_death_by_the_same_signal(
    launcher: Launcher, name: str
) -> None:
    number = signal.Signals[name]
    job = launcher.script(f"import os; os.kill(os.getpid(), {int(number)})")
    done = launcher.run("--run-dir", "rec", job)
    assert done.returncode == -number
    assert f"signal {int(number)}".encode() in done.stderr
    assert launcher.diagnosis("rec")["run"]["exit_code"] == -number


def test_a_shell_sees_what_it_would_see_without_us(launcher: Launcher) -> None:
    job = launcher.script("import os; os.kill(os.getpid(), 9)")
    shell = f"{' '.join(launcher.command('--quiet', job))}; echo $?"
    done = subprocess.run(
        ["bash", "-c", shell],
        env=launcher.environment,
        cwd=launcher.folder,
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"137\n"


def test_an_interrupt_of_the_group_is_handled_by_the_job_and_still_reported(
    launcher: Launcher,
) -> None:
    job = launcher.script(PATIENT.format(names=["SIGINT"]))
    process = launcher.start("--run-dir", "rec", job)
    wait_until_ready(process.stdout)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 7
    assert output.startswith(b"caught SIGINT\n")
    assert b"Cannot tell" in errors
    assert b"Traceback" not in errors
    assert launcher.diagnosis("rec")["run"]["exit_code"] == 7


def test_ctrl_c_reaches_the_job_once(launcher: Launcher) -> None:
    # The terminal sends it to the whole foreground group, so the launcher must not send another.
    source = PATIENT.format(names=["SIGINT"]).replace("sys.exit(7)", "time.sleep(1); sys.exit(7)")
    job = launcher.script(source)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(launcher.folder)
        words = launcher.command("--quiet", "--run-dir", "rec", job)
        os.execve(sys.executable, words, launcher.environment)
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        shown = read_until(screen, b"ready")
        os.write(terminal, b"\x03")
        shown += read_until(screen, None)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert shown.count(b"caught SIGINT") == 1
    assert b"observer" not in json.dumps(launcher.diagnosis("rec")["blindspots"]).encode()


def read_until(screen: IO[bytes], end: bytes | None) -> bytes:
    """What a terminal shows, up to a word or to its end (which Linux calls an error)."""
    shown = b""
    while end is None or end not in shown:
        try:
            part = screen.read(1024)
        except OSError:
            return shown
        if not part:
            return shown
        shown += part
    return shown


def test_an_interrupt_that_the_job_does_not_handle_ends_both_the_same_way(
    launcher: Launcher,
) -> None:
    job = launcher.script("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    process = launcher.start("--quiet", job)
    wait_until_ready(process.stdout)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == -signal.SIGINT
    assert errors.count(b"KeyboardInterrupt") >= 1


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT"])
def test_a_signal_to_the_launcher_alone_is_passed_on(launcher: Launcher, name: str) -> None:
    job = launcher.script(PATIENT.format(names=[name]))
    process = launcher.start("--quiet", job)
    wait_until_ready(process.stdout)
    process.send_signal(signal.Signals[name])
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 7, errors
    assert output == f"caught {name}\n".encode()


def test_the_job_starts_with_the_signals_that_we_were_given(launcher: Launcher) -> None:
    source = """
        import signal
        blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        print(blocked, signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE))
        """
    job = launcher.script(source)
    plain = subprocess.run(
        [sys.executable, job], cwd=launcher.folder, capture_output=True, check=True
    )
    assert launcher.run("--quiet", job).stdout == plain.stdout


def test_a_store_that_cannot_be_written_costs_only_the_recording(launcher: Launcher) -> None:
    (launcher.folder / "home").write_text("a file where the store should be")
    job = launcher.script("print('trained'); raise SystemExit(5)")
    done = launcher.run(job)
    assert (done.returncode, done.stdout) == (5, b"trained\n")
    assert b"not recorded" in done.stderr
    assert b"--run-dir" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_job_without_torch_gets_an_honest_answer(launcher: Launcher) -> None:
    done = launcher.run("--run-dir", "rec", launcher.script("print('hello')"))
    assert done.returncode == 0
    answer = launcher.diagnosis("rec")
    assert answer["verdict"]["code"] is None
    assert "PyTorch" in answer["verdict"]["reason"]
    assert (answer["budget"], answer["findings"], answer["steps"]["count"]) == ([], [], 0)


def test_secrets_are_not_in_the_recording(launcher: Launcher) -> None:
    job = launcher.script("import sys; print(sys.argv[1:])")
    words = ["--api-key", "hunter2", "--token=hunter3", "--epochs", "2"]
    done = launcher.run("--run-dir", "rec", job, *words)
    assert b"hunter2" in done.stdout, "the job itself gets its arguments unchanged"
    assert b"hunter" not in done.stderr
    for path in (launcher.folder / "rec").rglob("*"):
        assert path.is_dir() or b"hunter" not in path.read_bytes(), path
    assert launcher.diagnosis("rec")["run"]["command"][-4:] == [
        "***",
        "--token=***",
        "--epochs",
        "2",
    ]


def test_environment_variables_are_not_in_the_recording(launcher: Launcher) -> None:
    job = launcher.script("import os; print(os.environ['MY_VARIABLE'])")
    environment = launcher.environment | {"MY_VARIABLE": "not-for-others"}
    done = launcher.run("--run-dir", "rec", job, env=environment)
    assert done.stdout == b"not-for-others\n"
    for path in (launcher.folder / "rec").rglob("*"):
        assert path.is_dir() or b"not-for-others" not in path.read_bytes(), path


def test_arguments_that_are_no_utf8_reach_the_job(launcher: Launcher) -> None:
    job = launcher.script("import os, sys; os.write(1, os.fsencode(sys.argv[1]))")
    done = launcher.run("--run-dir", "rec", job, os.fsdecode(b"caf\xe9"))
    assert (done.returncode, done.stdout) == (0, b"caf\xe9"), done.stderr
    assert launcher.diagnosis("rec")["run"]["command"][-1] == r"caf\udce9"


def test_a_command_that_cannot_be_started_leaves_no_run_behind(launcher: Launcher) -> None:
    job = launcher.folder / "job"
    job.write_bytes(b"\x7fELF but not really")
    job.chmod(0o755)
    done = launcher.run("./job")
    assert done.returncode == 3
    assert b"could not be started" in done.stderr
    assert b"Traceback" not in done.stderr
    assert not list((launcher.folder / "home").rglob("run.json"))


@pytest.mark.parametrize("limit", ["-n 24", "-v 300000", "-v 120000", "-f 64"])
@pytest.mark.bare
def test_a_job_under_a_limit_ends_as_without_us(launcher: Launcher, limit: str) -> None:
    job = launcher.script("print('trained'); raise SystemExit(5)")
    command = f"ulimit {limit}; exec {' '.join(launcher.command('--run-dir', 'rec', job))}"
    recorded = launcher.shell(command)
    assert (recorded.returncode, recorded.stdout) == (5, b"trained\n"), recorded.stderr
    assert b"Traceback" not in recorded.stderr
    assert b"jemalloc" not in recorded.stderr


FULL_UP = """
    import subprocess, sys
    others = [subprocess.Popen(["sleep", "1"]) for _ in range(int(sys.argv[1]))]
    print([other.wait() for other in others])
"""


@pytest.mark.root
def test_a_job_that_uses_all_the_processes_it_may_have_gets_them(launcher: Launcher) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become a user that has no other process")
    launcher.folder.chmod(0o777)
    caps = "-all,+dac_override"  # the interpreter may lie in a folder of root's
    user = f"setpriv --reuid=54321 --clear-groups --inh-caps={caps} --ambient-caps={caps}"
    words = " ".join(launcher.command("--run-dir", "rec", launcher.script(FULL_UP), "11"))
    recorded = launcher.shell(f"exec {user} --bounding-set={caps} bash -c 'ulimit -u 12; {words}'")
    assert (recorded.returncode, recorded.stdout) == (0, b"[" + b", ".join([b"0"] * 11) + b"]\n")
    assert b"recorded from inside the job only: only 1" in recorded.stderr
    assert "ulimit -u 12" in json.dumps(launcher.diagnosis("rec")["blindspots"])


@pytest.fixture
def memory_group(launcher: Launcher) -> Iterator[Path]:
    """A control group of either version for this test alone."""
    root = Path("/sys/fs/cgroup/memory")
    group = (root if root.is_dir() else root.parent) / f"fuelline-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as refusal:
        pytest.skip(f"no control group can be made here: {refusal.strerror}")
    if not (group / "memory.max").exists() and not (group / "memory.limit_in_bytes").exists():
        group.rmdir()
        pytest.skip("control groups do not limit memory here")
    yield group
    launcher.close()
    group.rmdir()


@pytest.mark.root
@pytest.mark.parametrize("mib", [40, 80, 230])
@pytest.mark.parametrize("end", ["raise SystemExit(5)", "import os; os.kill(os.getpid(), 15)"])
@pytest.mark.bare
def test_a_report_for_which_there_is_no_memory_leaves_the_exit_code(
    launcher: Launcher, memory_group: Path, mib: int, end: str
) -> None:
    # The job holds all but 10 MB of what is allowed beside us, also while the report is made: in a
    # file in memory, which is charged to the group that wrote it.
    limit = "memory.max" if (memory_group / "memory.max").exists() else "memory.limit_in_bytes"
    (memory_group / limit).write_text(str(mib << 20))
    folder = tempfile.mkdtemp(dir="/dev/shm")
    filled = max(mib - 70, 0) if mib < 200 else mib - 30
    job = launcher.script(
        f"""
        with open("{folder}/held", "wb") as file:
            for _ in range({filled}):
                file.write(bytes(1 << 20))
        print("trained", flush=True)
        {end}
        """
    )
    words = " ".join(launcher.command("--run-dir", "rec", job))
    try:
        recorded = launcher.shell(f"echo $$ > {memory_group}/cgroup.procs; exec {words}")
    finally:
        shutil.rmtree(folder)
    assert recorded.returncode == (5 if "Exit" in end else -15), recorded.stderr
    assert recorded.stdout == b"trained\n"
    assert b"Traceback" not in recorded.stderr
    inside = b"recorded from inside the job only" in recorded.stderr
    assert inside == (mib < 200)
    if not inside:
        assert b"most likely because memory ran out" in recorded.stderr
        assert launcher.diagnosis("rec")["run"]["exit_code"] == recorded.returncode


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "fuelline-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a small filesystem cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.root
def test_what_was_recorded_before_a_disk_was_full_is_kept_and_read(
    launcher: Launcher, tiny_disk: Path
) -> None:
    job = launcher.script(
        f"""
        import time
        with open("{tiny_disk}/else", "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                print("full")
        raise SystemExit(5)
        """
    )
    done = launcher.run("--run-dir", str(tiny_disk / "rec"), job)
    assert (done.returncode, done.stdout) == (5, b"full\n")
    assert b"not recorded" not in done.stderr
    assert launcher.diagnosis(str(tiny_disk / "rec"))["run"]["exit_code"] == 5


def test_a_run_that_is_deleted_meanwhile_is_told_so_and_stays_deleted(launcher: Launcher) -> None:
    source = "import shutil; shutil.rmtree('rec'); print('gone'); raise SystemExit(5)"
    done = launcher.run("--run-dir", "rec", launcher.script(source))
    assert (done.returncode, done.stdout) == (5, b"gone\n")
    assert b"not recorded: rec was removed while the job ran" in done.stderr
    assert not (launcher.folder / "rec").exists()


def test_the_jobs_own_standing_with_the_kernel_is_as_without_us(launcher: Launcher) -> None:
    job = launcher.script("print(open('/proc/self/oom_score_adj').read())")
    own = Path("/proc/self/oom_score_adj").read_text()
    assert launcher.run("--quiet", job).stdout.decode() == own + "\n"


def test_nothing_is_left_running(launcher: Launcher) -> None:
    process = launcher.start("--quiet", launcher.script("pass"))
    process.communicate(timeout=LIMIT_S)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
