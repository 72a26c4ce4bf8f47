"""The command line: one message on standard error, the right exit code, no traceback."""

import argparse
import errno
import importlib.util
import json
import os
import pathlib
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fuelline.cli import main
from fuelline.cli.record import run
from fuelline.record import capabilities
from fuelline.record.launch import JobOutcome
from fuelline.schema.run.capabilities import Capability
from fuelline.schema.run.recording import MANIFEST_FILE, RUN_FILE
from fuelline.store.listing import SeenVerdict, keep_verdict
from fuelline.store.runs import find_run, name_run, runs_folder
from tests.unit.ingest.remains import RUN, snapshot, write_run

Capture = pytest.CaptureFixture[str]


def refuse(capsys: Capture, *words: str) -> tuple[int, str]:
    """Run a command that must fail; returns its exit code and what it said."""
    try:
        code = main(list(words))
    except SystemExit as left:  # argparse leaves this way
        code = int(left.code or 0)
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    return code, said.err


def is_next_step(message: str) -> bool:
    return "`fuelline " in message or "--" in message


@pytest.fixture
def recorded(store: Path) -> Path:
    """A finished run in the store."""
    return write_run(store / "runs" / RUN.run_id)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "missing.py"], 3, "missing.py does not exist"),
        (["run", "no-such-command-here"], 3, "neither a script here nor a command"),
        (["run"], 2, "no job to run"),
        (["run", "--"], 2, "no job to run"),
        (["diagnose", "no-such-run"], 3, "neither a folder nor a recorded run"),
        (["diagnose"], 3, "No run was recorded yet"),
        (["fly"], 2, "has no command 'fly'"),
        ([], 2, "fuelline run train.py"),
        (["diagnose", "x" * 300], 3, "neither a folder nor a recorded run"),
        (["run", "x" * 300], 3, "neither a script here nor a command"),
        (["run", "x" * 300 + ".py"], 3, "does not exist"),
        (["import", "x" * 300], 4, "File name too long"),
        (["run", "--price", "cheap", "train.py"], 2, "cheap"),
        (["run", "--fix", "--allow", "all", "train.py"], 2, "all"),
        (["run", "--allow", "random", sys.executable], 2, "--fix was not given"),
        (["run", "--price", "-1", "train.py"], 2, "price"),
        (["run", "--price", "nan", "train.py"], 2, "nan"),
        (["diagnose", "--price", "inf"], 2, "inf"),
        (["diagnose", "--price", "0"], 2, "not a price"),
        (["diagnose", "--colour"], 2, "--colour"),
    ],
)
@pytest.mark.usefixtures("store")
def test_a_command_that_makes_no_sense_says_so(
    capsys: Capture, words: list[str], code: int, said: str
) -> None:
    found, message = refuse(capsys, *words)
    assert found == code
    assert said in message


NO_STORE = [["runs"], ["diagnose"], ["diagnose", "some-run"], ["watch", "--once"], ["whatif"]]


@pytest.fixture(params=["refused", "too long"])
def no_store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    """A store that cannot be looked into; of root nothing can be refused, so that is pretended."""
    folder = tmp_path / ("private" if request.param == "refused" else "x" * 300)
    (tmp_path / "private").mkdir()
    monkeypatch.setenv("FUELLINE_HOME", str(folder))
    real = os.stat, os.listdir, os.scandir, os.mkdir

    def refusing(call: Callable[..., object]) -> Callable[..., object]:
        def refuse_some(path: object, *words: object, **options: object) -> object:
            if str(path).startswith(f"{tmp_path}/private/"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return call(path, *words, **options)

        return refuse_some

    for name, call in zip(("stat", "listdir", "scandir", "mkdir"), real, strict=True):
        monkeypatch.setattr(os, name, refusing(call))
        if sys.version_info < (3, 11):  # where pathlib has copies of its own
            accessor = vars(pathlib)["_NormalAccessor"]
            monkeypatch.setattr(accessor, name, staticmethod(getattr(os, name)))
    return folder


@pytest.mark.parametrize("words", NO_STORE)
def test_a_store_that_cannot_be_looked_into_is_said_in_one_message(
    capsys: Capture, no_store: Path, words: list[str]
) -> None:
    code, message = refuse(capsys, *words)
    assert code == 4
    assert f"{no_store}/runs cannot be read" in message
    assert "FUELLINE_HOME" in message


def test_doctor_looks_for_room_where_it_may(no_store: Path) -> None:
    assert str(no_store) in capabilities.find_disk_space(no_store / "runs").detail


@pytest.mark.usefixtures("no_store")
def test_a_run_is_found_by_its_folder_whatever_the_store_is(
    capsys: Capture, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run")
    assert main(["diagnose", "--json", str(folder)]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["path"] == str(folder)


@pytest.mark.usefixtures("no_store")
def test_a_job_runs_without_a_store(capsys: Capture) -> None:
    assert main(["run", "sh", "-c", "exit 5"]) == 5
    assert "not recorded" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_a_job_runs_with_a_folder_that_cannot_be_made(capsys: Capture) -> None:
    assert main(["run", "--run-dir", "x" * 300, "sh", "-c", "exit 5"]) == 5
    assert "not recorded" in capsys.readouterr().err


def test_a_user_without_a_home_has_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FUELLINE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert runs_folder() == Path(f"/tmp/fuelline-{os.getuid()}/runs")


def test_a_missing_script_starts_nothing_and_leaves_nothing(capsys: Capture, store: Path) -> None:
    refuse(capsys, "run", "missing.py")
    assert not store.exists()


def test_an_existing_run_dir_is_never_written_to(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "launch", lambda *_, **__: pytest.fail("the job was started"))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "precious").write_text("data")
    (tmp_path / "train.py").write_text("")
    before = snapshot(tmp_path)
    folder = str(tmp_path / "old")
    code, message = refuse(capsys, "run", "--run-dir", folder, str(tmp_path / "train.py"))
    assert code == 2
    assert folder in message
    assert "--run-dir" in message
    assert snapshot(tmp_path) == before


def test_a_folder_that_is_no_recording_is_named(capsys: Capture, tmp_path: Path) -> None:
    code, message = refuse(capsys, "diagnose", str(tmp_path))
    assert code == 3
    assert str(tmp_path) in message
    assert is_next_step(message)


def test_a_newer_recording_is_refused(capsys: Capture, recorded: Path) -> None:
    newer = msgspec.json.decode((recorded / RUN_FILE).read_bytes()) | {"version": 99}
    (recorded / RUN_FILE).write_bytes(msgspec.json.encode(newer))
    code, message = refuse(capsys, "diagnose", str(recorded))
    assert code == 3
    assert "99" in message
    assert "pip install -U fuelline" in message


def test_a_damaged_recording_is_refused_and_left_as_it_is(capsys: Capture, recorded: Path) -> None:
    assert main(["diagnose", str(recorded)]) == 0
    capsys.readouterr()
    (recorded / "events.parquet").write_bytes(b"PAR1")
    before = snapshot(recorded)
    for words in (["diagnose"], ["diagnose", "--json"]):
        code, message = refuse(capsys, *words)
        assert code == 3
        assert "events.parquet" in message
    assert snapshot(recorded) == before


@pytest.mark.usefixtures("store")
def test_debug_shows_the_traceback() -> None:
    with pytest.raises(Exception, match="No run was recorded"):
        main(["--debug", "diagnose"])


def test_diagnose_prints_json_for_scripts(capsys: Capture, recorded: Path) -> None:
    assert main(["diagnose", "--json", "--price", "2.5"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    assert answer["run"]["path"] == str(recorded)
    assert answer["steps"]["count"] == 7
    assert answer["price_usd_per_hour"] == 2.5
    assert sum(part["share"] for part in answer["budget"]) == pytest.approx(1)


def test_diagnose_prints_a_report_for_people(capsys: Capture, recorded: Path) -> None:
    assert main(["diagnose"]) == 0
    output = capsys.readouterr().out
    assert "Where the time went" in output
    assert output.splitlines()[-1].startswith("Next: fuelline ")


def test_a_run_is_named_by_the_shortest_word_that_finds_it(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = write_run(tmp_path / "deep" / "down" / "run")
    away = tmp_path / "away"
    away.mkdir()
    for here, path, word in [
        (away, recorded, RUN.run_id),
        (recorded.parent, recorded, RUN.run_id),
        (outside.parent, outside, "run"),
        (outside.parent, Path("run"), "run"),
        (away, outside, str(outside)),
        (away, Path("../deep/down/run"), "../deep/down/run"),
        (Path("/"), outside, str(outside)[1:]),
    ]:
        monkeypatch.chdir(here)
        assert name_run(path) == word
        assert find_run(word).samefile(path)


def test_a_folder_here_that_is_named_like_a_run_is_not_taken_for_it(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / recorded.name).mkdir()
    assert find_run(name_run(recorded)).samefile(recorded)


def test_a_name_like_an_option_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "--json")
    monkeypatch.chdir(tmp_path)
    assert name_run(tmp_path / "--json") == "./--json"


@pytest.mark.parametrize("word", [RUN.run_id, RUN.run_id[:12]])
def test_a_run_is_found_by_its_id_or_the_beginning_of_it(
    capsys: Capture, recorded: Path, word: str
) -> None:
    assert main(["diagnose", "--json", word]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["path"] == str(recorded)


def test_a_word_that_fits_two_runs_is_refused(capsys: Capture, recorded: Path) -> None:
    write_run(recorded.with_name(f"{RUN.run_id}2"))
    code, message = refuse(capsys, "diagnose", RUN.run_id[:5])
    assert code == 3
    assert "fits 2 runs" in message


def test_the_last_run_is_the_default(capsys: Capture, recorded: Path) -> None:
    later = write_run(recorded.with_name("20270101-000000-train-2"))
    assert main(["diagnose", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["path"] == str(later)


def test_runs_with_none_says_how_to_make_one(capsys: Capture, store: Path) -> None:
    assert main(["runs"]) == 0
    output = capsys.readouterr().out
    assert str(store) in output
    assert "fuelline run" in output


def test_runs_lists_finished_unfinished_and_unreadable_ones(
    capsys: Capture, recorded: Path
) -> None:
    unfinished = msgspec.structs.replace(RUN, ended_ns=None, exit_code=None)
    write_run(recorded.with_name("20260102-unfinished"), run=unfinished)
    broken = recorded.with_name("20260103-broken")
    broken.mkdir()
    (broken / MANIFEST_FILE).write_text("{")
    recorded.with_name("not-a-run").mkdir()
    assert main(["runs"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:4]]
    took = {row[0]: " ".join(row[1:3]) for row in rows}
    assert took[RUN.run_id].startswith("1 min")
    assert took["20260102-unfinished"].startswith("unfinished")
    assert took[broken.name].startswith("unreadable")


def test_names_of_runs_are_shown_without_their_control_characters(
    capsys: Capture, recorded: Path
) -> None:
    write_run(recorded.with_name("20280101-\x1b[2J\x07evil"))
    assert main(["runs"]) == 0
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert "evil" in output
    _, message = refuse(capsys, "diagnose", "\x1b]0;owned\x07")
    assert "\x1b" not in message


@pytest.mark.parametrize(
    ("words", "job"),
    [
        (["run", "-m", "pkg.train", "-v"], ["-m", "pkg.train", "-v"]),
        (["run", "--quiet", "-m", "pkg"], ["-m", "pkg"]),
        (["run", "--fix", "--allow", "random", "-m", "pkg"], ["-m", "pkg"]),
        (["run", "--price", "2", "-m", "pkg"], ["-m", "pkg"]),
        (["run", "--run-dir", "new", "-m", "pkg"], ["-m", "pkg"]),
        (["run", "--quiet", "--", "-m", "pkg"], ["-m", "pkg"]),
    ],
)
def test_a_module_is_run_by_python(
    monkeypatch: pytest.MonkeyPatch, words: list[str], job: list[str]
) -> None:
    assert started_by(monkeypatch, words)[1:] == job


def started_by(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> list[str]:
    """The command that `fuelline run` would start."""
    commands: list[list[str]] = []

    def catch(command: list[str], *_: object, **__: object) -> JobOutcome:
        commands.append(command)
        return JobOutcome(returncode=0, problem="not started")

    monkeypatch.setattr(run, "launch", catch)
    assert main(words) == 0
    return commands[0]


@pytest.mark.usefixtures("store")
def test_fix_reaches_the_job_by_its_environment_and_says_when_it_had_nothing_to_do(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def catch(*_: object, more: object, **__: object) -> JobOutcome:
        seen.append(more)
        return JobOutcome(returncode=0)

    monkeypatch.setattr(run, "launch", catch)
    main(["run", "--quiet", sys.executable])
    main(["run", "--quiet", "--fix", "--allow", "order", sys.executable])
    assert seen[0] == {}
    assert dict(seen[1])["FUELLINE_FIX"] == "safe,order"  # type: ignore[call-overload]
    assert capsys.readouterr().err.count("nothing to do: the job iterated no") == 1


@pytest.mark.usefixtures("store")
def test_words_after_the_script_are_the_scripts_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    own = ["--quiet", "--price", "x", "-m", "--", "--run-dir"]
    assert started_by(monkeypatch, ["run", str(script), *own])[1:] == [str(script), *own]


@pytest.mark.usefixtures("store")
def test_a_script_that_is_not_executable_gets_a_python_and_a_command_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train"
    script.write_text("#!/usr/bin/env python3\n")
    assert started_by(monkeypatch, ["run", str(script)])[1:] == [str(script)]
    assert started_by(monkeypatch, ["run", "--", "env", "A=1"]) == ["env", "A=1"]


@pytest.mark.usefixtures("store")
def test_the_python_of_the_active_environment_runs_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    assert started_by(monkeypatch, ["run", "-m", "pkg"])[0] == str(python)


def test_help_fits_the_screen_and_names_every_command(capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    output = capsys.readouterr().out
    for command in ("demo", "run", "diagnose", "runs", "doctor"):
        assert command in output


def test_doctor_says_what_is_missing_and_how_to_get_it(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Capability(name="clocks", ok=True, detail="fine", enables="e", how_to_enable="h")
    unseen = Capability(
        name="system calls", ok=False, detail="refused", enables="IN101", how_to_enable="be root"
    )
    monkeypatch.setattr(capabilities, "find_capabilities", lambda _: [seen, unseen])
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    assert "ok  clocks: fine" in output
    assert "NO  system calls: refused" in output
    assert "it gives:  IN101" in output
    assert "to get it: be root" in output


def test_doctor_fits_the_screen_and_cuts_no_path(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/mnt/with-a-hyphen" + "/deep" * 8
    words = f"words {path} " * 3
    unseen = Capability(name="x", ok=False, detail=words, enables=words, how_to_enable=words)
    monkeypatch.setattr(capabilities, "find_capabilities", lambda _: [unseen])
    main(["doctor"])
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    assert output.count(path) == 9


@pytest.mark.usefixtures("store")
@pytest.mark.torch
def test_the_demo_runs_the_job_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = started_by(monkeypatch, ["demo"])[1:]
    assert Path(script).name == "starved.py"
    assert Path(script).is_file()


@pytest.mark.usefixtures("store")
@pytest.mark.torch
@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((100.0, 180.0), "1.80x as fast"),
        ((100.0, 90.0), "No gain"),
        ((100.0, None), "not recorded"),
    ],
)
def test_the_demo_ends_with_before_and_after(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    rates: tuple[float | None, ...],
    said: str,
) -> None:
    left, options = list(rates), []

    def record(chosen: argparse.Namespace) -> int:
        rate = left.pop(0)
        options.append(chosen.fix)
        if rate is not None:
            chosen.run_dir.mkdir(parents=True, mode=0o700)
            facts = dict.fromkeys(("code", "stage", "limit", "share_of_wall"))
            keep_verdict(
                chosen.run_dir,
                SeenVerdict(words="", samples_per_s=rate, fuelline_version="", **facts),
            )
        return 0

    monkeypatch.setattr(run, "act", record)
    assert main(["demo"]) == 0
    assert options == [False, True]
    out = capsys.readouterr().out
    assert "$ fuelline run --fix starved.py" in out
    assert said in out


def test_the_demo_without_torch_says_what_to_install(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    code, message = refuse(capsys, "demo")
    assert code == 4
    assert "pip install torch" in message


@pytest.mark.integration
def test_the_number_of_a_task_is_found_where_its_launcher_put_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    for name in run.TASK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    words = ["run", "--quiet", "--node-rank", "auto", "--run-dir", str(tmp_path / "run"), "true"]
    code, said = refuse(capsys, *words)
    assert code == 2
    assert "SLURM_PROCID" in said
    monkeypatch.setenv("SLURM_PROCID", "3")
    assert main(words) == 0
    assert (tmp_path / "run" / "node-0003").is_dir()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_a_part_is_not_put_into_a_folder_of_another_user(capsys: Capture, tmp_path: Path) -> None:
    os.chown(tmp_path, 61234, 61234)
    code, said = refuse(capsys, "run", "--node-rank", "1", "--run-dir", str(tmp_path), "true")
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "belongs to another user" in said
