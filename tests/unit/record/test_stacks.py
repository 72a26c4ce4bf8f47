"""py-spy's raw lines, and what happens where there is no py-spy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fuelline.record.samplers.stacks import (
    FIRST_DELAY_NS,
    Sources,
    Stacks,
    is_at_work,
    parse_raw,
    parse_stays,
)
from fuelline.schema.run.samples import Blind, StackSample

if TYPE_CHECKING:
    from pathlib import Path


def parse(text: str) -> list[tuple[int, list[str], int]]:
    return [(row.tid, row.frames, row.count) for row in parse_raw(text, 7, 1, 2)]


def test_frames_come_outermost_first_with_their_count() -> None:
    assert parse("thread (12): MainThread;main (/a.py:3);load (/b.py:7) 5\n") == [
        (12, ["main (/a.py:3)", "load (/b.py:7)"], 5)
    ]


def test_spaces_and_semicolons_in_names_stay_within_their_frame() -> None:
    text = "thread (1): a b;f (/my data/x;y.py:3);<lambda> (/z (1).py:4) 2"
    assert parse(text) == [(1, ["f (/my data/x;y.py:3)", "<lambda> (/z (1).py:4)"], 2)]


def test_a_line_break_in_a_name_does_not_split_the_record() -> None:
    text = "thread (1): odd\nname;f (/a\nb.py:3) 2\nthread (2): n;g (/c.py:1) 1\n"
    assert parse(text) == [(1, ["f (/a\nb.py:3)"], 2), (2, ["g (/c.py:1)"], 1)]


def test_a_thread_without_a_kernel_id_is_unknown_not_guessed() -> None:
    assert parse("thread (0x7F12): n;f (/a.py:3) 2") == [(0, ["f (/a.py:3)"], 2)]


def test_the_main_thread_has_its_process_id_also_where_only_addresses_are_known() -> None:
    """py-spy tells no kernel ids of Python 3.10."""
    text = "thread (0x7F12): MainThread;f (/a.py:3) 2\nthread (0x7F13): MainThread 2;g (/a.py:4) 1"
    assert parse(text) == [(7, ["f (/a.py:3)"], 2), (0, ["g (/a.py:4)"], 1)]


def test_lines_that_are_not_stacks_are_left_out() -> None:
    assert parse("py-spy> Sampling process\n\nthread (3): n;f (/a.py:3) x\n") == []


def test_a_missing_py_spy_is_told_once_and_not_tried_again() -> None:
    stacks = Stacks(None)
    told = []
    for turn in range(5):
        now_ns = turn * FIRST_DELAY_NS
        stacks.start_if_due(now_ns, [1], [])
        told += stacks.collect(now_ns)
    assert len(told) == 1
    assert isinstance(told[0], Blind)
    assert "py-spy" in told[0].why


def test_no_burst_starts_before_there_is_something_to_look_at() -> None:
    stacks = Stacks("/bin/false")
    stacks.start_if_due(10 * FIRST_DELAY_NS, [], [])
    stacks.start_if_due(11 * FIRST_DELAY_NS, [1], [])
    assert stacks.pids == frozenset()


MONTH_NS = 30 * 24 * 3600 * 10**9


def test_a_py_spy_that_fails_again_and_again_is_given_up() -> None:
    stacks = Stacks("/bin/false")
    told: list[object] = []
    for turn in range(50):
        now_ns = turn * MONTH_NS  # whatever a burst has cost, the next one is due by then
        stacks.start_if_due(now_ns, [1, 2, 3, 4], [])
        told += stacks.stop(now_ns)
    assert len(told) == 1
    assert stacks.pids == frozenset()


def test_a_slow_start_does_not_use_up_the_budget_of_the_training() -> None:
    stacks = Stacks(None)
    stacks._spent_s = stacks._price_s = 0.2
    stacks.start_if_due(0, [1], [])
    stacks.start_if_due(3 * 10**9, [1], [])
    assert not stacks.collect(4 * 10**9)  # it could not afford a burst
    stacks.begin_training(5 * 10**9)
    stacks._price_s = 0.1
    stacks.start_if_due(8 * 10**9, [1], [])
    assert stacks.collect(9 * 10**9)  # it tried, and told that there is no py-spy


def _stack(pid: int, *frames: str) -> StackSample:
    return StackSample(1, 2, pid, pid, list(frames), 1)


def _texts(sources: Sources, *frames: str) -> dict[tuple[str, int], str]:
    rows = sources.read([_stack(os.getpid(), *frames)])
    return {(row.file, row.line): row.text for row in rows}


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.chdir(tmp_path)
    found = Sources()
    found.meet(os.getpid())
    return found


def test_a_line_of_source_is_read_once_also_by_a_name_relative_to_the_job(
    sources: Sources, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import torch\n  step()  # caf\u00e9\n")
    assert _texts(sources, "main (train.py:2)") == {("train.py", 2): "step()  # caf\u00e9"}
    assert _texts(sources, "main (train.py:2)", "main (train.py:9)") == {}


def test_only_regular_files_of_python_source_are_read(sources: Sources, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root:x:0:0")
    (tmp_path / "link.py").symlink_to(tmp_path / "secret")
    (tmp_path / "compiled.py").write_bytes(b"a\0b\n")
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "fifo.py")
    with (tmp_path / "huge.py").open("wb") as file:
        file.truncate(100 << 30)
    names = ("secret", "link.py", "compiled.py", "folder.py", "fifo.py", "huge.py")
    frames = [f"f ({tmp_path / name}:1)" for name in names]
    assert _texts(sources, *frames, "f (/proc/self/environ:1)", "f (/etc/passwd:1)") == {}


def test_lines_of_a_file_that_was_edited_since_are_not_those_that_run(
    sources: Sources, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("one\ntwo\n")
    assert len(_texts(sources, "f (train.py:1)")) == 1
    (tmp_path / "train.py").write_text("another\nfile\n")
    assert _texts(sources, "f (train.py:2)") == {}


SCOPE = {
    "shared": {
        "frames": [
            {"name": "thread (7): MainThread", "file": "", "line": 0},
            {"name": "main", "file": "/a.py", "line": 3},
            {"name": "load", "file": "/b.py", "line": 7},
        ]
    },
    "profiles": [
        {"name": 'Thread 7 "MainThread"', "samples": [[0, 1], [0, 1], [0, 1, 2], [0, 1]]},
        {"name": "what is this", "samples": [[0, 1]]},
    ],
}


def stays(until_ns: int, scope: object = SCOPE) -> list[tuple[int, int, int, str]]:
    rows = parse_stays(json.dumps(scope), 7, 0, until_ns)
    return [(row.from_ns, row.until_ns, row.count, row.frames[-1]) for row in rows]


def test_looks_in_order_are_stays_that_fill_the_burst() -> None:
    main, load = "main (/a.py:3)", "load (/b.py:7)"
    assert stays(400) == [(0, 200, 2, main), (200, 300, 1, load), (300, 400, 1, main)]
    assert [row[1] for row in stays(4000)] == [2000, 3000, 4000]


@pytest.mark.parametrize("scope", [{}, {"shared": {}}, {"shared": {"frames": [1]}, "profiles": []}])
def test_a_file_that_is_no_profile_shows_nothing(scope: object) -> None:
    assert stays(400, scope) == []


def test_a_job_that_does_not_train_gets_its_stacks_taken_at_once() -> None:
    stacks = Stacks(None)
    stacks.start_early(0, [1])
    assert len(stacks.collect(1)) == 1  # it tried


def test_bursts_before_the_training_keep_to_their_own_budget() -> None:
    stacks = Stacks(None)
    stacks._price_s = 0.6
    stacks.start_early(0, [1])
    assert not stacks.collect(1)
    stacks.start_early(60 * 10**9, [1])
    assert stacks.collect(61 * 10**9)


def test_what_the_observer_starts_can_be_interrupted_though_its_launcher_holds_signals_back() -> (
    None
):
    """py-spy inherits the mask, and a burst that never ends early leaves training without one."""
    code = (
        "import os, signal, subprocess, sys, time\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})\n"
        "from fuelline.record.observer import Alarm\n"
        "alarm = Alarm(os.getpid())\n"
        "loop = 'import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL);'\n"
        "loop += 'print(1, flush=True); time.sleep(60)'\n"
        "child = subprocess.Popen([sys.executable, '-c', loop], stdout=subprocess.PIPE)\n"
        "child.stdout.read(1)\n"
        "child.send_signal(signal.SIGINT)\n"
        "sys.exit(0 if child.wait(30) == -signal.SIGINT else 1)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("last", "works"),
    [
        ("load (/home/me/data.py:3)", True),
        ("Condition.wait (/usr/lib/python3.11/threading.py:331)", False),
        ("Connection.recv (/usr/lib/python3.11/multiprocessing/connection.py:250)", False),
    ],
)
def test_a_thread_works_unless_its_stack_ends_in_a_wait_for_another(
    last: str, *, works: bool
) -> None:
    assert is_at_work(StackSample(1, 2, 7, 8, ["main (/a.py:3)", last], 4)) is works
