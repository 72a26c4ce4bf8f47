"""A run is named after its script or module; an argument, which may be a secret, never names it."""

from pathlib import Path

import pytest

from fuelline.cli.record.run import resolve_command
from fuelline.schema.errors import InputError
from fuelline.store.runs import name_job, new_run_dir


@pytest.mark.parametrize(
    ("job", "name"),
    [
        ("job.py --api-key sk-live-aaa", "job"),
        ("-- job.py x", "job"),
        ("sub/deep.py --lr 1", "deep"),
        ("-m pkg.train --password x", "pkg.train"),
        ("-- -m pkg.__main__", "pkg"),
        ("python -u job.py x", "job"),
        ("python3.11 -m pkg.train x", "pkg.train"),
        ("torchrun --nproc-per-node 2 job.py --lr 1", "job"),
        ("torchrun --nproc-per-node 2 -m pkg.train x", "pkg.train"),
        ("python -m torch.distributed.run --nproc-per-node 2 job.py", "job"),
        ("accelerate launch --mixed_precision bf16 job.py", "job"),
        ("env HF_TOKEN=x python job.py", "job"),
        ("srun -n 2 --account secret python job.py", "job"),
        ("bash start.sh --token x", "start"),
        ("bash -c secret-command", "bash"),
        ("./simulate --key x -m secret", "simulate"),
        ("python -c print(1)", "python"),
        ("gone.py secret", "gone"),
        ("torchrun --no-python ./train -m hunter2", "torchrun"),
        ("torchrun --standalone train -m hunter2", "torchrun"),
        ("torchrun --standalone --nproc_per_node=gpu -m pkg.train -m hunter2", "pkg.train"),
        ("torchrun --rdzv-endpoint host:29500 --module pkg.train", "pkg.train"),
        ("python -X importtime train -m hunter2", "python"),
        ("python -X importtime -Wignore -um pkg.train -m hunter2", "pkg.train"),
        ("python -mpkg.train -m hunter2", "pkg.train"),
        ("python -c pass -m hunter2", "python"),
        ("python -m torch.distributed.run --nproc-per-node 2 -m pkg.train", "pkg.train"),
        ("python -m torch.distributed.run ./train -m hunter2", "python"),
        ("docker run img python /app/t -m hunter2", "docker"),
        ("docker run img python /app/t --in python -m hunter2", "docker"),
        ("env A=1 python -m pkg.train", "pkg.train"),
        ("./simulate --lang python -m hunter2", "simulate"),
        ("python -m sk-live-123", "python"),
        ("-m ../secret", "python"),
    ],
)
def test_a_job_is_called_after_its_script(
    job: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for script in ("job.py", "sub/deep.py", "start.sh"):
        (tmp_path / script).touch()
    assert name_job(job.split()) == name


def test_a_token_in_a_scripts_own_name_does_not_name_the_run(store: Path) -> None:
    assert "aB3aB3" not in new_run_dir("hf_" + "aB3" * 12).name


def test_a_run_without_a_usable_name_has_one_all_the_same(store: Path) -> None:
    assert "-run-" in new_run_dir("../..").name
    assert "-run-" in new_run_dir("").name


@pytest.mark.parametrize(
    ("name", "content", "instead"),
    [
        ("start.sh", "#!/bin/bash\necho", "fuelline run bash ./start.sh"),
        ("start.sh", "echo", "fuelline run bash ./start.sh"),
        ("start", "#!/usr/bin/env -S perl -w", "fuelline run perl ./start"),
        ("with space", "", "fuelline run python './with space'"),
    ],
)
def test_a_script_without_its_x_bit_is_not_given_to_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, instead: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match="no x bit") as refused:
        resolve_command([f"./{name}"])
    assert instead in str(refused.value)
    assert "chmod +x" in str(refused.value)
    assert "Nothing was started" in str(refused.value)


@pytest.mark.parametrize(
    "first", ["#!/usr/bin/env python3", "#!/usr/bin/python", "#! /opt/pypy3 -u"]
)
def test_a_script_whose_first_line_asks_for_python_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").write_text(f"{first}\nprint()")
    assert resolve_command(["./train", "x"])[1:] == ["./train", "x"]
