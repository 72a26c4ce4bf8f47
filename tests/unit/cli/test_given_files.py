"""Files that the user names may come from anybody: each is refused in words, and never hangs us."""

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
