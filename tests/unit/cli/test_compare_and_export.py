"""compare and export from the command line, on made runs and, where they are, on real traces."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

import fuelline
from fuelline import pipeline
from fuelline.cli import main
from fuelline.schema.diagnosis.comparison import RunComparison
from fuelline.schema.errors import InputError
from tests.unit.ingest.foreign.reading import TRACES, real
from tests.unit.ingest.remains import training_records, write_run
from tests.unit.report.test_perfetto import check_nesting

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]


def kineto(path: Path, kernel_us: int = 400, steps: int = 6) -> Path:
    """Steps of a millisecond and more: a call, a kernel, a copy."""
    events: list[dict[str, Any]] = []
    at = 1000
    for step in range(steps):
        length = 600 + kernel_us + step % 3
        events += [
            _event("user_annotation", f"ProfilerStep#{step}", at, length, tid=1),
            _event("cpu_op", "aten::mm", at + 10, 50, tid=1),
            _event("cuda_runtime", "cudaLaunchKernel", at + 20, 10, tid=1, correlation=step + 1),
            _event(
                "kernel",
                "gemm_kernel",
                at + 100,
                kernel_us + step % 3,
                tid=7,
                device=0,
                stream=7,
                correlation=step + 1,
                grid=[80, 1, 1],
                block=[128, 1, 1],
            ),
            _event(
                "gpu_memcpy",
                "Memcpy HtoD (Pinned -> Device)",
                at + 110 + kernel_us,
                30,
                tid=7,
                device=0,
                stream=7,
                bytes=4096,
            ),
        ]
        at += length
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def _event(cat: str, name: str, ts: int, dur: int, tid: int, **args: object) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def kineto_at(path: Path, start_s: int, host: str = "") -> Path:
    """The same steps, on a wall clock."""
    kineto(path)
    content = json.loads(path.read_text())
    for event in content["traceEvents"]:
        event["ts"] += start_s * 1_000_000
    path.write_text(json.dumps({**content, "hostname": host} if host else content))
    return path


NOW_S = 1_776_000_000


def test_files_of_different_times_are_runs_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times_s = {"late": NOW_S + 7200, "first": NOW_S, "same": NOW_S}
    files = [str(kineto_at(tmp_path / f"{name}.json", at)) for name, at in times_s.items()]
    assert main(["import", *files, "-o", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not ranks of one job. They are 2 runs" in said
    assert "different times that do not overlap" in said
    assert "formats" not in said
    assert f"fuelline compare {tmp_path}/run {tmp_path}/run-2" in said
    manifests = [
        json.loads((tmp_path / run / "manifest.json").read_text()) for run in ("run", "run-2")
    ]
    assert [len(each["trace"]["ranks"]) for each in manifests] == [2, 1]
    assert [each["run"]["run_id"] for each in manifests] == ["run", "run-2"]


def test_files_of_hosts_whose_clocks_differ_a_little_are_one_job(tmp_path: Path) -> None:
    files = [str(kineto_at(tmp_path / f"{at}.json", NOW_S + at)) for at in (0, 20)]
    assert main(["import", *files, "-o", str(tmp_path / "run")]) == 0
    assert not (tmp_path / "run-2").exists()


def test_files_on_clocks_that_cannot_be_compared_are_one_job(tmp_path: Path) -> None:
    files = [str(kineto_at(tmp_path / f"{at}.json", at)) for at in (1000, 900_000)]
    assert main(["import", *files, "-o", str(tmp_path / "run")]) == 0
    assert not (tmp_path / "run-2").exists()


def test_the_api_refuses_files_of_different_times(tmp_path: Path) -> None:
    files = [kineto_at(tmp_path / f"{at}.json", NOW_S + at) for at in (0, 7200)]
    with pytest.raises(InputError, match="not ranks of one job"):
        fuelline.import_traces(files, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_import_is_diagnosed_at_once_unless_a_script_asks_for_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(kineto(tmp_path / "a.json"))
    assert main(["import", trace, "-o", str(tmp_path / "one")]) == 0
    assert "Where the time went" in capsys.readouterr().out
    assert main(["import", trace, "-o", str(tmp_path / "two"), "--no-diagnose"]) == 0
    out = capsys.readouterr().out
    assert "Where the time went" not in out
    assert out.endswith(f"Next: fuelline diagnose {tmp_path}/two\n")


def imported(folder: Path, name: str, **shape: int) -> Path:
    main(["import", str(kineto(folder / f"{name}.json", **shape)), "-o", str(folder / name)])
    return folder / name


def recorded(folder: Path, name: str) -> Path:
    return write_run(folder / name, records=training_records(steps=12))


def told(capsys: Capture, *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(list(words))
    return code, capsys.readouterr().out


def test_a_longer_kernel_is_over_the_threshold(tmp_path: Path, capsys: Capture) -> None:
    before, after = imported(tmp_path, "a"), imported(tmp_path, "b", kernel_us=600)
    code, text = told(capsys, "compare", str(before), str(after), "--threshold", "5")
    assert code == 1
    assert "Steps are 20 % longer" in text
    assert "over the limit of 5.0 %" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    code, _ = told(capsys, "compare", str(after), str(before), "--threshold", "5")
    assert code == 0


def test_a_run_of_one_step_did_not_change_against_itself(tmp_path: Path, capsys: Capture) -> None:
    run = str(imported(tmp_path, "a", steps=1))
    code, text = told(capsys, "compare", run, run, "--threshold", "0")
    assert code == 0
    assert "the devices' time is spent as before" in " ".join(text.split())
    assert "Where the devices' time went" in text
    assert "longer by" not in text


def test_json_is_the_contract(tmp_path: Path, capsys: Capture) -> None:
    before, after = imported(tmp_path, "a"), imported(tmp_path, "b", kernel_us=600)
    code, text = told(capsys, "compare", str(before), str(after), "--json")
    assert code == 0
    answer = json.loads(text)
    assert set(answer) == set(RunComparison.__struct_fields__)
    assert answer["parts"][0]["name"] == "useful compute"
    assert answer["parts"][0]["change"] == pytest.approx(200e-6)
    assert {change["name"]: change["change"] for change in answer["kernels"]} == {
        "gemm": pytest.approx(200e-6),
        "copy": pytest.approx(0),
    }


def test_markdown_has_a_table(tmp_path: Path, capsys: Capture) -> None:
    before, after = imported(tmp_path, "a"), imported(tmp_path, "b", kernel_us=600)
    _, text = told(capsys, "compare", str(before), str(after), "--markdown")
    assert "| useful compute | 401 us | 601 us | +200 us | +20.0 % | more |" in text


def test_trace_files_are_compared_as_they_are(tmp_path: Path, capsys: Capture) -> None:
    before = kineto(tmp_path / "a.json")
    after = kineto(tmp_path / "b.json", kernel_us=600)
    code, text = told(capsys, "compare", str(before), str(after), "--threshold", "5")
    assert code == 1
    assert "Steps are 20 % longer" in text


def test_two_recorded_runs_are_compared_by_budget(tmp_path: Path, capsys: Capture) -> None:
    code, text = told(capsys, "compare", str(recorded(tmp_path, "a")), str(recorded(tmp_path, "b")))
    assert code == 0
    assert "No change beyond the noise" in text


def test_several_recordings_of_a_side_are_given_with_before_and_after(
    tmp_path: Path, capsys: Capture
) -> None:
    one, two, three, four = (str(recorded(tmp_path, name)) for name in "abcd")
    more = ["--before", two, "--after", three, four]
    code, text = told(capsys, "compare", one, four, *more)
    assert code == 0
    words = " ".join(text.split())  # long paths are wrapped
    assert "2 recordings" in words
    assert "3 recordings" in words
    _, text = told(capsys, "compare", one, four, *more, "--json")
    answer = json.loads(text)
    assert (answer["before"]["recordings"], answer["after"]["recordings"]) == (2, 3)
    capsys.readouterr()
    assert main(["compare", one, two, "--after", str(imported(tmp_path, "e"))]) == 2


def test_recorded_and_imported_are_not_compared(tmp_path: Path, capsys: Capture) -> None:
    one, other = recorded(tmp_path, "a"), imported(tmp_path, "b")
    capsys.readouterr()
    assert main(["compare", str(one), str(other)]) == 2
    assert "Compare two of a kind" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["-1", "many", "1e9"])
def test_a_threshold_that_is_no_percentage_is_refused(word: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        main(["compare", "a", "b", f"--threshold={word}"])
    assert left.value.code == 2
    assert "--threshold" in capsys.readouterr().err


def test_an_exported_trace_can_be_imported_again_and_is_the_same(
    tmp_path: Path, capsys: Capture
) -> None:
    run = imported(tmp_path, "a")
    out = tmp_path / "out.json.gz"
    assert main(["export", str(run), "--perfetto", str(out)]) == 0
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    check_nesting(events)
    tracks = {each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert {"steps", "gpu0: where the time went", "verdict"} <= tracks
    assert main(["import", str(out), "-o", str(tmp_path / "again")]) == 0
    once, again = (
        pipeline.diagnose_run(folder).devices[0].ledger for folder in (run, tmp_path / "again")
    )
    assert once == again
    capsys.readouterr()


def test_a_recorded_run_is_drawn_with_its_budget(tmp_path: Path, capsys: Capture) -> None:
    run = recorded(tmp_path, "a")
    out = tmp_path / "out.json"
    code, text = told(capsys, "export", str(run), "--perfetto", str(out))
    assert code == 0
    assert "ui.perfetto.dev" in text
    events = json.loads(out.read_bytes())["traceEvents"]
    check_nesting(events)
    budget = pipeline.diagnose_run(run).budget
    line = next(
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "where the time went"
    )
    spent: dict[str, float] = {}
    for each in events:
        if each["ph"] == "X" and (each["pid"], each["tid"]) == line:
            spent[each["name"]] = spent.get(each["name"], 0.0) + each["dur"] / 1e6
    assert spent == pytest.approx({part.part: part.seconds for part in budget if part.seconds})


def test_an_export_that_cannot_be_written_leaves_nothing(tmp_path: Path, capsys: Capture) -> None:
    run = imported(tmp_path, "a")
    assert main(["export", str(run), "--perfetto", str(tmp_path / "no" / "out.json")]) == 4
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.integration
def test_the_real_pair_differs_by_its_data_wait(tmp_path: Path, capsys: Capture) -> None:
    for workers in (0, 4):
        source = real(f"kineto/tb_resnet50/num_workers_{workers}.json.gz")
        main(["import", str(source), "-o", str(tmp_path / str(workers))])
    folders = (str(tmp_path / "4"), str(tmp_path / "0"))
    code, text = told(capsys, "compare", *folders, "--json", "--threshold", "10")
    answer = json.loads(text)
    assert code == 1
    assert answer["step"]["judgement"] == "slower"
    assert answer["parts"][0]["name"] == "data wait"
    assert answer["parts"][0]["judgement"] == "slower"
    assert all(change["judgement"] == "same" for change in answer["kernels"])


@pytest.mark.integration
def test_the_real_control_and_test_differ_in_chip_and_compute(
    tmp_path: Path, capsys: Capture
) -> None:
    for name in ("control", "test"):
        source = real(f"kineto/hta/trace_diff/{name}/{name}.json.gz")
        main(["import", str(source), "-o", str(tmp_path / name)])
    code, text = told(
        capsys,
        "compare",
        str(tmp_path / "control"),
        str(tmp_path / "test"),
        "--json",
        "--threshold",
        "10",
    )
    answer = json.loads(text)
    assert code == 1
    assert answer["parts"][0]["name"] == "useful compute"
    assert "A100" in answer["notes"][0]
    assert "V100" in answer["notes"][0]


@pytest.mark.integration
def test_a_real_trace_keeps_its_ledger_through_export(tmp_path: Path, capsys: Capture) -> None:
    if not TRACES.exists():
        pytest.skip(f"no real traces at {TRACES}")
    source = real("kineto/tb_resnet50/num_workers_0.json.gz")
    main(["import", str(source), "-o", str(tmp_path / "a")])
    main(["export", str(tmp_path / "a"), "--perfetto", str(tmp_path / "out.json")])
    check_nesting(json.loads((tmp_path / "out.json").read_bytes())["traceEvents"])
    main(["import", str(tmp_path / "out.json"), "-o", str(tmp_path / "b")])
    once, again = (pipeline.diagnose_run(tmp_path / name).devices[0].ledger for name in ("a", "b"))
    assert once == pytest.approx(again, abs=1e-6)
    capsys.readouterr()


@pytest.mark.parametrize("order", [("before", "after"), ("after", "before")])
def test_real_traces_whose_steps_have_other_marks_are_not_judged(
    capsys: Capture, order: tuple[str, str]
) -> None:
    files = [str(real(f"labelled/mfu_2gpu_{each}.sqlite")) for each in order]
    code, text = told(capsys, "compare", *files, "--threshold", "5")
    said = " ".join(text.split())
    assert code == 0
    assert "Cannot tell which is faster" in said
    assert "last 1.00 times as long" in said
    assert "shorter" not in said
    assert "longer" not in said
