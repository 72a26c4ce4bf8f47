"""The way into the job is not noticed: paths, imports, other sitecustomizes, other environments."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from fuelline.fix.job_site import SITE_DIR as FIX_SITE_DIR
from fuelline.record.hooks import SITE_DIR
from fuelline.schema import wire
from tests.integration.harness import environment, read_spools

pytestmark = pytest.mark.torch

FAKE_TORCH = "VALUE = 42\n"


def python(
    *arguments: str, run_dir: Path | None, path: Path | None = None, program: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    env = environment(run_dir)
    folders = [env.get("PYTHONPATH"), str(path) if path else None]
    env["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder)
    command = [program, *arguments]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=120
    )


def both(
    *arguments: str, run_dir: Path, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Assert that all that can be seen is the same with and without us."""
    plain = python(*arguments, run_dir=None, path=path)
    hooked = python(*arguments, run_dir=run_dir, path=path)
    seen = (hooked.returncode, hooked.stdout, hooked.stderr)
    assert seen == (plain.returncode, plain.stdout, plain.stderr)
    return hooked


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of the job's on PYTHONPATH."""
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def test_the_site_folder_holds_the_entry() -> None:
    assert (Path(SITE_DIR) / "sitecustomize.py").is_file()


def test_the_path_is_as_without_us_and_children_inherit_the_entry(run_dir: Path) -> None:
    script = "import sys; print(sys.path)"
    both("-c", script, run_dir=run_dir)
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}])"
    both("-c", nested, run_dir=run_dir)
    child = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import fuelline_watch'])"
    )
    assert python("-c", child, run_dir=run_dir).stderr == ""
    assert "ModuleNotFoundError" in python("-c", child, run_dir=None).stderr


def test_a_python_without_torch_loads_one_small_module_and_leaves_nothing(run_dir: Path) -> None:
    script = "import sys; print(sorted(sys.modules))"
    plain = python("-c", script, run_dir=None).stdout
    hooked = python("-c", script, run_dir=run_dir).stdout
    assert set(eval(hooked)) - set(eval(plain)) == {"fuelline_watch", "sitecustomize"}
    assert list(run_dir.iterdir()) == []


def test_the_shadowed_sitecustomize_runs(run_dir: Path, folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import sys; sys.marked = __file__\n")
    script = "import sys, sitecustomize; print(sys.marked, sitecustomize.__file__)"
    assert str(folder) in both("-c", script, run_dir=run_dir, path=folder).stdout


@pytest.mark.parametrize(
    "line", ["1 / 0", "import not_there", "raise SystemExit(3)", "import os; os._exit(4)"]
)
def test_its_errors_are_python_s_as_without_us(run_dir: Path, folder: Path, line: str) -> None:
    (folder / "sitecustomize.py").write_text(line + "\n")
    plain = python("-c", "print('on')", run_dir=None, path=folder)
    hooked = python("-c", "print('on')", run_dir=run_dir, path=folder)
    assert (hooked.returncode, hooked.stdout) == (plain.returncode, plain.stdout)
    assert hooked.stderr.splitlines()[:2] == plain.stderr.splitlines()[:2]


def test_without_a_run_folder_nothing_is_watched() -> None:
    hooked = python("-c", "import sys; print(sys.meta_path)", run_dir=None, path=Path(SITE_DIR))
    assert "Watcher" not in hooked.stdout
    assert hooked.stderr == ""


def test_modules_and_zip_files_run_as_programs(run_dir: Path, folder: Path) -> None:
    (folder / "torch.py").write_text("import sys\nprint(__name__, __spec__.name, sys.argv[1:])\n")
    both("-m", "torch", "a", run_dir=run_dir, path=folder)
    archive = folder / "job.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("torch.py", FAKE_TORCH)
        file.writestr("__main__.py", "import torch; print(torch.VALUE, torch.__loader__)")
    both(str(archive), run_dir=run_dir)


IMPORTS = """
import importlib, importlib.util, sys, pkgutil, inspect
spec = importlib.util.find_spec("torch")
print(spec.name, spec.origin, type(spec.loader).__name__)
loader = importlib.util.LazyLoader(spec.loader)
spec.loader = loader
lazy = importlib.util.module_from_spec(spec)
sys.modules["torch"] = lazy
loader.exec_module(lazy)
print(lazy.VALUE)
del sys.modules["torch"]
import torch
print(torch.VALUE, vars(torch.__loader__), inspect.getsource(torch), importlib.reload(torch).VALUE)
print(pkgutil.get_data("torch", "torch.py"))
"""


def test_every_way_to_import_works_and_leaves_the_loader_as_it_was(
    run_dir: Path, folder: Path
) -> None:
    (folder / "torch.py").write_text(FAKE_TORCH)
    both("-c", IMPORTS, run_dir=run_dir, path=folder)


def test_a_torch_that_fails_to_import_fails_the_same_way(run_dir: Path, folder: Path) -> None:
    (folder / "torch.py").write_text("raise ImportError('no libcuda here')\n")
    for program in ("import torch", "try: import torch\nexcept ImportError as e: print(e)"):
        plain = python("-c", program, run_dir=None, path=folder)
        hooked = python("-c", program, run_dir=run_dir, path=folder)
        assert (hooked.returncode, hooked.stdout) == (plain.returncode, plain.stdout)
        assert hooked.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]
    assert list(run_dir.iterdir()) == []


def test_a_torch_that_is_none_leaves_a_note_and_the_job_goes_on(
    run_dir: Path, folder: Path
) -> None:
    (folder / "torch.py").write_text(FAKE_TORCH)
    both("-c", "import torch; print(torch.VALUE)", run_dir=run_dir, path=folder)
    (note,) = run_dir.iterdir()
    assert note.name.startswith("hooks-failed-")
    assert note.read_text().startswith("torch: ")


def test_a_process_on_another_host_is_left_alone_and_says_so(
    run_dir: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUELLINE_BOOT_ID", "the boot of another host")
    (folder / "torch.py").write_text(FAKE_TORCH)
    both("-c", "import torch; print(torch.VALUE)", run_dir=run_dir, path=folder)
    (note,) = run_dir.iterdir()
    assert "--node-rank auto" in note.read_text()


def test_a_job_with_another_fuelline_keeps_it(run_dir: Path, folder: Path) -> None:
    (folder / "torch.py").write_text(FAKE_TORCH)
    (folder / "fuelline.py").write_text("VALUE = 'theirs'\n")
    script = "import fuelline, torch; print(fuelline.VALUE, torch.VALUE)"
    both("-c", script, run_dir=run_dir, path=folder)
    (note,) = run_dir.iterdir()
    assert "another fuelline" in note.read_text()


def test_an_environment_that_has_torch_but_not_fuelline_is_recorded(
    run_dir: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    script = """
import importlib.util, sys
print(importlib.util.find_spec("fuelline"))
import torch
torch.ones(1, requires_grad=True).sum().backward()
print("msgspec" in sys.modules, [entry for entry in sys.path if "fuelline" in entry])
"""
    program = str(tmp_path / "venv/bin/python")
    hooked = python("-c", script, run_dir=run_dir, program=program)
    assert (hooked.stdout, hooked.stderr) == ("None\nFalse []\n", "")
    (left,) = read_spools(run_dir)
    assert left.of(wire.Kind.BACKWARD)


def test_the_observer_is_named_to_yama_where_it_must_be(run_dir: Path, tmp_path: Path) -> None:
    scope = tmp_path / "ptrace_scope"
    scope.write_text("1\n")
    script = f"""
import os, sys
sys.path.insert(0, {SITE_DIR!r})
import fuelline_watch, fuelline_ptrace
asked = []
fuelline_ptrace.allow = asked.append
fuelline_watch._allow_observer()
fuelline_watch.YAMA = {str(scope)!r}
fuelline_watch._allow_observer()
os.environ["{wire.OBSERVER_PID_VARIABLE}"] = "77"
fuelline_watch._allow_observer()
print(asked)
"""
    assert python("-c", script, run_dir=run_dir).stdout == "[77]\n"
    real = f"import sys; sys.path.insert(0, {SITE_DIR!r}); import fuelline_ptrace as p; p.allow(1)"
    assert python("-c", real, run_dir=None).stderr == ""


def test_a_watcher_that_cannot_start_leaves_a_note_and_the_process_goes_on(tmp_path: Path) -> None:
    broken = (Path(SITE_DIR) / "fuelline_watch.py").read_text()
    broken += "\n\ndef start(run_dir: str) -> None:\n    raise OSError('no')\n"
    (tmp_path / "fuelline_watch.py").write_text(broken)
    path = os.pathsep.join([str(tmp_path), str(SITE_DIR)])
    done = subprocess.run(
        [sys.executable, "-c", "print('still here')"],
        env={**os.environ, "PYTHONPATH": path, "FUELLINE_RUN_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "still here\n"
    assert "this process is not recorded" in done.stderr
    (note,) = tmp_path.glob("hooks-failed-*.txt")
    assert "OSError" in note.read_text()


def test_a_watcher_that_cannot_start_nor_tell_lets_the_process_go_on(tmp_path: Path) -> None:
    (tmp_path / "fuelline_watch.py").write_text("raise OSError('no')\n")
    for folder in (SITE_DIR, FIX_SITE_DIR):
        path = os.pathsep.join([str(tmp_path), str(folder)])
        command = f"exec {sys.executable} -c 'print(1)' 2>&-"
        env = {"FUELLINE_RUN_DIR": str(tmp_path), "FUELLINE_FIX": "auto", "PYTHONPATH": path}
        done = subprocess.run(
            ["sh", "-c", command], env={**os.environ, **env}, capture_output=True, check=True
        )
        assert done.stdout == b"1\n"


@pytest.mark.parametrize("broken", ["raise TypeError", "def redact(text): raise KeyError", None])
def test_a_note_that_cannot_be_redacted_is_cut_at_what_may_be_secret(
    tmp_path: Path, broken: str | None
) -> None:
    (tmp_path / "schema").mkdir()
    if broken is not None:
        (tmp_path / "schema" / "redaction.py").write_text(broken)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import fuelline_watch as watch;"
        "watch.PACKAGE = sys.argv[2]; watch.leave_note(sys.argv[2], 'torch: Error(secret)')"
    )
    subprocess.run([sys.executable, "-c", code, str(SITE_DIR), str(tmp_path)], check=True)
    (note,) = tmp_path.glob("hooks-failed-*.txt")
    assert note.read_text() == "torch: Error\n"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_note_goes_to_nothing_that_others_put_in_its_place(tmp_path: Path, kind: str) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_text("theirs")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import fuelline_watch as watch;"
        "name = f'{sys.argv[2]}/hooks-failed-{os.getpid()}.txt';"
        f"{'os.symlink(sys.argv[3], name)' if kind == 'link' else 'os.mkfifo(name)'};"
        "watch.leave_note(sys.argv[2], 'ours')"
    )
    command = [sys.executable, "-c", code, str(SITE_DIR), str(run_dir), str(foreign)]
    subprocess.run(command, check=True, timeout=60)
    assert foreign.read_text() == "theirs"
