"""Defaults from a file of the user: the environment and the command line count before it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from fuelline.cli import fill_defaults, main
from fuelline.cli.parser import parse
from fuelline.schema.errors import UsageError
from fuelline.store import config
from fuelline.store.home import home_folder
from tests.unit.ingest.remains import write_run

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("FUELLINE_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    path = tmp_path / "config" / "fuelline" / "config.toml"
    path.parent.mkdir(parents=True)
    config._read.cache_clear()
    return path


def test_without_a_file_nothing_is_set(written: Path) -> None:
    assert config.read_config() == config.Config()
    written.parent.rmdir()
    assert config.read_config() == config.Config()


def test_the_price_of_the_file_counts_unless_the_command_line_has_one(
    written: Path, store: Path, capsys: Capture
) -> None:
    written.write_text("price = 3")
    write_run(store / "runs" / "20260412-093015-train-1")
    assert main(["diagnose", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["price_usd_per_hour"] == 3
    assert main(["diagnose", "--json", "--price", "2.5"]) == 0
    assert json.loads(capsys.readouterr().out)["price_usd_per_hour"] == 2.5


def test_the_store_of_the_file_counts_unless_the_environment_names_one(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.write_text(f'store = "{tmp_path}/mine"')
    assert home_folder() == tmp_path / "mine"
    monkeypatch.setenv("FUELLINE_HOME", str(tmp_path / "named"))
    assert home_folder() == tmp_path / "named"


def test_the_cache_of_the_file_counts_unless_the_command_line_says_otherwise(
    written: Path, tmp_path: Path
) -> None:
    written.write_text(f'cache = "{tmp_path}/cache"')
    for words, expected in [
        (["run", "train.py"], tmp_path / "cache"),
        (["run", "--cache", str(tmp_path), "train.py"], tmp_path),
        (["run", "--no-cache", "train.py"], None),
    ]:
        options = parse(words)
        fill_defaults(options)
        assert options.cache == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("prise = 3", "'prise'"),
        ("price = 0", "price = 0"),
        ("price = true", "price = True"),
        ("price = nan", "price = nan"),
        ('price = "3"', "price = '3'"),
        ("store = 3", "store = 3"),
        ('cache = "here"', "cache = 'here'"),
        ('cache = "~nobody-of-that-name/x"', "cache"),
        ("price = ", "TOML"),
        ("a = " + "[" * 5000, "TOML"),
        ("#" * 70_000, "bytes"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_file_and_the_key(
    written: Path, capsys: Capture, text: str, named: str
) -> None:
    written.write_text(text)
    assert main(["diagnose"]) == 2
    message = capsys.readouterr().err
    assert str(written) in message
    assert named in message
    assert "Nothing was done" in message


def test_a_file_that_others_can_write_is_refused(written: Path) -> None:
    written.write_text("price = 3")
    written.chmod(0o666)
    with pytest.raises(UsageError, match="chmod"):
        config.read_config()


def test_a_fifo_in_its_place_is_no_file(written: Path) -> None:
    os.mkfifo(written)
    assert config.read_config() == config.Config()
