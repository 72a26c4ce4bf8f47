"""Files that the user names may come from anybody: each is refused in words, and never hangs us."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fuelline.cli import main

DEEP = "[" * 100_000 + "]" * 100_000
LONG = "9" * 5_000
"""More digits than Python converts."""
SERVE = ["plan", "serve", "llama-3.1-8b", "--chip", "h100"]


@pytest.mark.parametrize("value", [DEEP, LONG])
@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (["plan", "serve", "{}.json", "--chip", "h100"], '{{"hidden_size": {}}}'),
        (["plan", "serve", "{}.toml", "--chip", "h100"], "model = {}"),
        ([*SERVE, "--catalogue", "{}.toml"], "chip = {}"),
        ([*SERVE, "--trace", "{}.jsonl"], '{{"timestamp": {}}}'),
        (["plan", "check", "{}.csv"], "{}"),
    ],
)
def test_a_file_that_parsers_give_up_on_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], shape: str, value: str
) -> None:
    typed = [word.format(tmp_path / "given") for word in words]
    (path,) = (word for word in typed if word.startswith(str(tmp_path)))
    Path(path).write_text(shape.format(value))
    assert main(typed) == 3
    assert path in capsys.readouterr().err


@pytest.mark.integration
def test_a_file_that_takes_too_much_memory_is_stopped_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_text("id,model,hardware,metric,value\n" + ",,,,\n" * 4_000_000)
    done = subprocess.run(
        [sys.executable, "-m", "fuelline", "plan", "check", str(path)],
        env={**os.environ, "FUELLINE_HOME": str(tmp_path), "FUELLINE_MEMORY_MB": "150"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert str(path) in done.stderr
    assert "more than 150 MB of memory" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_configuration_of_many_megabytes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text("[" + "1," * (2 << 20) + "1]")
    assert main(["plan", "serve", str(path), "--chip", "h100"]) == 3
    assert "it has more than 4194304 bytes" in capsys.readouterr().err


def test_a_catalogue_of_megabytes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("a = [" + "{}," * (1 << 19) + "]\n")
    assert main([*SERVE, "--catalogue", str(path)]) == 3
    assert "it has more than 1048576 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["a.", "a . ", "'a'.", r'"\"".'])
@pytest.mark.parametrize("around", ["[{}b]\n", "{}b = 1\n", "a = {{{}b = 1}}\n"])
@pytest.mark.parametrize("words", [[*SERVE, "--catalogue"], ["plan", "serve", "--chip", "h100"]])
def test_a_key_of_very_many_parts_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str, around: str, words: list[str]
) -> None:
    """Python's parser takes a time that grows with the square of their number."""
    path = tmp_path / "mine.toml"
    path.write_text(around.format(part * 80_000))
    began_s = time.process_time()
    assert main([*words, str(path)]) == 3
    assert time.process_time() - began_s < 2
    assert "a key of more than 32 parts" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.parametrize("value", [DEEP, LONG])
def test_a_saved_roofline_or_probe_that_parsers_give_up_on_is_refused_in_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    value: str,
) -> None:
    monkeypatch.setenv("FUELLINE_HOME", str(tmp_path))
    (tmp_path / "chips").mkdir()
    (tmp_path / "chips" / "given.json").write_text(f'{{"device": {value}}}')
    assert main(["roofline", "--on", "given"]) == 3
    assert "given.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [[*SERVE, "--catalogue", "/dev/zero"], ["plan", "check", "/dev/zero"]]
)
def test_a_file_that_never_ends_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 3
    assert "it is not a regular file" in capsys.readouterr().err
