"""Rules and importers of other packages: used by the command line and the API, failures told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fuelline.plugins
from fuelline.store.entry_points import load_plugins
from tests.unit.ingest.remains import write_run

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
STEPLOG = "# steplog 1\n" + "".join(
    f"0,7,{at},{at + 800},gemm\n0,7,{at + 850},{at + 900},softmax\n"
    for at in range(1000, 60_000, 1000)
)
FROZEN = {
    "LISTED_SHARE", "ChipFacts", "CopyDirection", "DeviceKind", "Evidence", "Facts", "Finding",
    "HostKind", "Imported", "Importer", "InputError", "Missing", "PartWriter", "Quality",
    "RankFacts", "Reading", "Remedy", "Rule", "SourceFacts", "fact", "found", "value_of",
}  # fmt: skip


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed into a folder of its own."""
    target = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--target", target, EXAMPLE],
        capture_output=True,
        text=True,
        check=False,
        cwd=target,
    )
    assert done.returncode == 0, done.stderr
    return target


def announce(target: Path, name: str, module: str, points: str) -> None:
    """A package as pip would leave it, with one module."""
    info = target / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    (target / f"{name}.py").write_text(module)


def call(target: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(target), "FUELLINE_HOME": str(home)}
    command = (
        [sys.executable, *words] if words[0] == "-c" else [sys.executable, "-m", "fuelline", *words]
    )
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=home
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with one recorded run in which training waits for input."""
    write_run(tmp_path / "runs" / "a-run")
    return tmp_path


def test_the_names_that_plugins_use_are_the_frozen_ones() -> None:
    assert set(fuelline.plugins.__all__) == FROZEN


@pytest.mark.integration
def test_an_installed_rule_and_importer_are_used(example: Path, home: Path) -> None:
    done = call(example, home, "diagnose", "a-run", "--json")
    answer = json.loads(done.stdout)
    assert "EX101" in [finding["code"] for finding in answer["findings"]]
    plain = json.loads(call(home / "none", home, "diagnose", "a-run", "--json").stdout)
    assert answer["verdict"] == plain["verdict"], "a finding of low confidence is a hint"
    (home / "trace.log").write_text(STEPLOG)
    done = call(example, home, "import", "trace.log", "-o", str(home / "imported"))
    assert done.returncode == 0, done.stderr
    script = (
        "import fuelline; run = fuelline.import_traces('trace.log', output='again'); "
        "print(run.tables['device'].height, sorted(run.tables['names']['text'])); "
        "print(fuelline.load('imported').diagnose().trace.formats); "
        "print([f.code for f in fuelline.diagnose('a-run').findings])"
    )
    lines = call(example, home, "-c", script).stdout.splitlines()
    assert lines[:2] == ["118 ['gemm', 'softmax']", "['steplog']"]
    assert "EX101" in lines[2]


@pytest.mark.integration
def test_without_it_neither_is_known(home: Path) -> None:
    answer = json.loads(call(home / "none", home, "diagnose", "a-run", "--json").stdout)
    assert "EX101" not in [finding["code"] for finding in answer["findings"]]
    (home / "trace.log").write_text(STEPLOG)
    done = call(home / "none", home, "import", "trace.log")
    assert done.returncode == 3
    assert "no format that can be imported" in done.stderr


RULE = """
class Rule:
    code, name, stage, limit = "{code}", "x", "read", "latency"
    def check(self, facts):
        {body}
"""
FAILING = {
    "fails to load": ("raise RuntimeError('no licence')", "could not be loaded: RuntimeError: no"),
    "exits": ("raise SystemExit(3)", "could not be loaded: SystemExit: 3"),
    "has no class": ("", "could not be loaded: AttributeError"),
    "is no rule": ("class Rule: code = 'ZZ1'", "has no name"),
    "raises": (RULE.format(code="ZZ1", body="1 / 0"), "it failed: ZeroDivisionError"),
    "answers nonsense": (RULE.format(code="ZZ1", body="return 5"), "int, which is not a Finding"),
    "takes a code": (RULE.format(code="PR201", body="return None"), "PR201 is another rule's"),
}


@pytest.mark.parametrize("how", FAILING)
@pytest.mark.integration
def test_a_rule_that_fails_is_a_blindspot_and_the_others_speak(home: Path, how: str) -> None:
    module, why = FAILING[how]
    announce(home / "bad", "badrule", module, "[fuelline.rules]\nbad = badrule:Rule\n")
    with_it = json.loads(call(home / "bad", home, "diagnose", "a-run", "--json").stdout)
    without = json.loads(call(home / "none", home, "diagnose", "a-run", "--json").stdout)
    (spot,) = [each for each in with_it["blindspots"] if each not in without["blindspots"]]
    assert spot["what"] == "the plug-in badrule: bad"
    assert why in spot["why"]
    assert spot["forbids"]
    assert {**with_it, "blindspots": []} == {**without, "blindspots": []}
    report = call(home / "bad", home, "diagnose", "a-run")
    assert "the plug-in badrule: bad" in " ".join(report.stdout.split())
    assert report.stderr == ""


IMPORTER = """
class Importer:
    format = "odd"
    def recognises(self, head):
        {looks}
    def read(self, path, rank, writer, *, partial, advance):
        raise KeyError("row")
"""


@pytest.mark.integration
def test_an_importer_that_fails_is_told_and_nothing_crashes(home: Path) -> None:
    points = "[fuelline.importers]\nodd = oddlog:Importer\n"
    (home / "trace.log").write_text("odd\n")
    announce(home / "reads", "oddlog", IMPORTER.format(looks="return head[:3] == b'odd'"), points)
    done = call(home / "reads", home, "import", "trace.log")
    assert done.returncode == 3
    assert "could not be read by the plug-in oddlog: odd: it failed: KeyError" in done.stderr
    assert "Traceback" not in done.stderr
    announce(home / "looks", "oddlog", IMPORTER.format(looks="raise ValueError('x')"), points)
    done = call(home / "looks", home, "import", "trace.log")
    assert "The plug-in oddlog: odd: it failed: ValueError: x." in done.stderr
    folder = home / "mixed"
    folder.mkdir()
    (folder / "other.log").write_text("odd\n")
    (folder / "rank0.json").write_text(
        '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, '
        '"dur": 2, "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}]}'
    )
    done = call(home / "looks", home, "import", "mixed", "-o", "run")
    assert done.returncode == 0, done.stderr
    answer = json.loads(call(home / "looks", home, "diagnose", "run", "--json").stdout)
    assert "plug-in" in [each["code"] for each in answer["quality"]]


@pytest.mark.integration
def test_nothing_is_loaded_from_the_folder_that_one_stands_in(home: Path) -> None:
    announce(home, "planted", "open('loaded', 'w')", "[fuelline.rules]\nbad = planted:Rule\n")
    assert call(home / "none", home, "diagnose", "a-run").returncode == 0
    assert not (home / "loaded").exists()


def test_looking_for_plugins_costs_next_to_nothing() -> None:
    times_s = []
    for _ in range(9):
        load_plugins.cache_clear()
        start_s = time.process_time()
        assert load_plugins("fuelline.rules").plugins == ()
        times_s.append(time.process_time() - start_s)
    assert min(times_s) < 0.010
