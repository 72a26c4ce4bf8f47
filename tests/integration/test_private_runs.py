"""What a run leaves behind: for its owner alone, and without the secrets of its command line."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuelline.cli import main
from tests.integration.harness import JOBS

pytestmark = pytest.mark.torch

KEY = "Xq7Lr2Vw9Kp4Zt8B"


def record(store: Path, *options: str, key: str = KEY) -> Path:
    command = [sys.executable, "-m", "fuelline", "run", *options, str(JOBS / "tiny.py")]
    environment = {**os.environ, "FUELLINE_HOME": str(store), "FUELLINE_KEY_OF_TEST": KEY}
    previous = os.umask(0o022)
    try:
        subprocess.run(
            [*command, "--api-key", key], env=environment, check=True, capture_output=True
        )
    finally:
        os.umask(previous)
    (run,) = (store / "runs").iterdir()
    return run


def modes(folder: Path) -> Iterator[tuple[str, int]]:
    for path in (folder, *folder.rglob("*")):
        yield str(path.relative_to(folder)), stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("options", [(), ("--quiet",), ("--fix",), ("--zoom", "2@5")])
def test_a_run_is_for_its_owner_alone_and_holds_no_secret(
    store: Path, options: tuple[str, ...]
) -> None:
    run = record(store, *options)
    assert KEY not in run.name
    loose = {name: oct(mode) for name, mode in modes(store) if mode & 0o077}
    assert {name: mode for name, mode in loose.items() if not name.endswith(".spool")} == {}
    for path in run.rglob("*"):
        assert KEY not in path.name
        if path.is_file():
            assert KEY.encode() not in path.read_bytes()


def test_a_run_without_its_command_is_named_by_its_id(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = record(store, "--no-command")
    assert b"--api-key" not in (run / "manifest.json").read_bytes()
    assert b"tiny.py" not in (run / "run.json").read_bytes()
    assert main(["diagnose", str(run)]) == 0
    assert main(["runs"]) == 0
    assert run.name in capsys.readouterr().out


def test_nothing_is_loaded_from_the_folder_that_one_stands_in(store: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("fuelline", "msgspec", "multiprocessing", "select"):
        (here / f"{name}.py").write_text(f"open({str(here / 'loaded')!r}, 'a').write({name!r})\n")
    events = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2},' * 40_000
    traces = [tmp_path / f"rank{number}.json" for number in range(2)]
    for path in traces:
        path.write_text(f'{{"schemaVersion":1,"traceEvents":[{events.rstrip(",")}]}}')
    console = "import sys; del sys.path[0]; from fuelline.cli import main; sys.exit(main())"
    environment = {**os.environ, "FUELLINE_HOME": str(store)}
    for words in (["run", str(JOBS / "tiny.py")], ["import", "--jobs", "2", *map(str, traces)]):
        command = [sys.executable, "-c", console, *words]
        subprocess.run(command, cwd=here, env=environment, check=True, capture_output=True)
    if sys.version_info < (3, 11):
        pytest.skip("Python itself starts its processes with the working directory in front")
    assert not (here / "loaded").exists()
