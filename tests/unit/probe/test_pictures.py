"""The user's own pictures: every decoder's rate comes with how far its pixels are from Pillow's."""

from __future__ import annotations

import io
import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from fuelline.probe import pictures, probe_pictures
from fuelline.schema.readings import Missing, Reading

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.diagnosis.ceilings import Ceiling


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chance = np.random.default_rng(0)
    inner = tmp_path / "train" / "cat"
    inner.mkdir(parents=True)
    for number, size in enumerate([(41, 30), (64, 48)]):
        rough = Image.fromarray(chance.integers(0, 255, (6, 8, 3), dtype=np.uint8))
        rough.resize(size).save(inner / f"{number}.JPG")
    (inner / "notes.txt").write_text("no picture")
    return tmp_path


def probed(folder: Path) -> dict[str, Ceiling]:
    return {each.name: each for each in probe_pictures(folder, 0.02)}


def test_a_folder_without_pictures_tells_nothing(tmp_path: Path) -> None:
    assert probe_pictures(tmp_path, 0.02) == []


def test_decoding_at_half_size_is_compared_with_resizing(folder: Path) -> None:
    told = probed(folder)
    assert isinstance(told["own_pillow_1"].signal, Reading)
    draft = told["own_draft_1"]
    assert isinstance(draft.signal, Reading)
    assert draft.mean_difference is not None
    assert draft.most_difference is not None
    assert 0 < draft.mean_difference < draft.most_difference < 128


def test_a_decoder_that_is_not_here_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    told = probed(folder)["own_simplejpeg_1"]
    assert isinstance(told.signal, Missing)
    assert "simplejpeg" in told.signal.reason
    assert told.mean_difference is None


def test_the_difference_is_that_of_the_pixels(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode_jpeg(content: bytes, colorspace: str) -> Any:
        assert colorspace == "RGB"
        picture = np.array(Image.open(io.BytesIO(content)).convert("RGB")).astype(np.int16)
        return np.where(picture > 127, picture - 3, picture + 3).astype(np.uint8)

    monkeypatch.setitem(sys.modules, "simplejpeg", SimpleNamespace(decode_jpeg=decode_jpeg))
    told = probed(folder)["own_simplejpeg_1"]
    assert (told.mean_difference, told.most_difference) == (3.0, 3.0)


def test_a_picture_that_a_decoder_refuses_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode_jpeg(content: bytes, colorspace: str) -> Any:
        raise ValueError("progressive")

    monkeypatch.setitem(sys.modules, "simplejpeg", SimpleNamespace(decode_jpeg=decode_jpeg))
    told = probed(folder)["own_simplejpeg_1"].signal
    assert isinstance(told, Missing)
    assert "progressive" in told.reason


def test_all_pictures_together_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = sorted(path.stat().st_size for path in folder.rglob("*.JPG"))
    monkeypatch.setattr(pictures, "MOST_BYTES", sum(sizes))
    assert len(list(pictures._find(folder))) == 2
    monkeypatch.setattr(pictures, "MOST_BYTES", sum(sizes) - 1)
    assert len(list(pictures._find(folder))) == 1


def test_a_picture_of_too_many_pixels_is_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (5001, 5000)).save(tmp_path / "large.jpg")
    monkeypatch.setattr(pictures._Pillow, "whole", lambda *_: pytest.fail("it was decoded"))
    (told,) = probe_pictures(tmp_path, 0.02)
    assert isinstance(told.signal, Missing)


def test_what_is_no_picture_is_passed_over(folder: Path) -> None:
    """A pipe, a device, a file of a terabyte, one that was cut, a picture that is a bomb."""
    inner = folder / "train" / "cat"
    os.mkfifo(inner / "-pipe.jpg")
    (inner / "-device.jpg").symlink_to("/dev/zero")
    (inner / "-gone.jpg").symlink_to("/nowhere")
    with (inner / "-huge.jpg").open("wb") as file:
        file.truncate(1 << 40)
    (inner / "-cut.jpg").write_bytes((inner / "1.JPG").read_bytes()[:300])
    (inner / "-text.jpg").write_text("no picture")
    bomb = bytearray((inner / "1.JPG").read_bytes())
    sides = bomb.index(b"\xff\xc0") + 5
    bomb[sides : sides + 4] = b"\xff\xff\xff\xff"
    (inner / "-bomb.jpg").write_bytes(bomb)
    assert isinstance(probed(folder)["own_pillow_1"].signal, Reading)


def test_a_file_of_another_format_is_no_jpeg_whatever_its_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For EPS Pillow would start Ghostscript, which runs the program in the file."""
    gs, ran = tmp_path / "bin" / "gs", tmp_path / "ran"
    gs.parent.mkdir()
    gs.write_text(f"#!/bin/sh\ntouch {ran}\necho 10\n")
    gs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gs.parent}:{os.environ['PATH']}")
    (folder / "eps.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EOF\n")
    for name in ("PNG", "TIFF", "GIF", "BMP"):
        Image.new("RGB", (20, 20)).save(folder / f"{name}.jpg", name)
    assert {Image.open(io.BytesIO(each)).format for each in pictures._find(folder)} > {"EPS", "PNG"}
    probed(folder)
    assert not ran.exists()
    for path in folder.rglob("*.JPG"):
        path.unlink()
    found = probed(folder)["own_pillow_1"].signal
    assert isinstance(found, Missing)
    assert "none of the 5" in found.reason


def test_a_camera_s_file_of_several_jpegs_is_a_jpeg(tmp_path: Path) -> None:
    more = [Image.new("RGB", (20, 20))]
    Image.new("RGB", (20, 20)).save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=more)
    assert isinstance(probed(tmp_path)["own_pillow_1"].signal, Reading)


@pytest.mark.parametrize("error", [NotImplementedError, KeyError, ZeroDivisionError, MemoryError])
def test_whatever_a_decoder_raises_for_a_damaged_file_is_no_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise error("several\n lines")

    monkeypatch.setitem(sys.modules, "simplejpeg", SimpleNamespace(decode_jpeg=refuse))
    found = probed(folder)["own_simplejpeg_1"].signal
    assert isinstance(found, Missing)
    assert "\n" not in found.reason
    monkeypatch.setattr(pictures._Pillow, "whole", refuse)
    assert isinstance(probed(folder)["own_pillow_1"].signal, Missing)


def test_a_folder_of_which_no_picture_can_be_decoded_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("no picture")
    told = probed(tmp_path)["own_pillow_1"]
    assert isinstance(told.signal, Missing)
    assert "none of the 1" in told.signal.reason
