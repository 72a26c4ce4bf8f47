"""A fuzzer that finds nothing must be able to find something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench import fuzz_importers

from fuelline.ingest import formats

if TYPE_CHECKING:
    from pathlib import Path

Seeds = dict[str, list[bytes]]


@pytest.fixture(scope="module")
def seeds() -> Seeds:
    return {kind: [fuzz_importers._made(kind)] for kind in fuzz_importers.SOURCES}


class Broken:
    """An importer with a mistake in it."""

    format = "broken"

    def recognises(self, head: bytes) -> bool:
        return bool(head) or True

    def read(self, path: Path, *_: object, **__: object) -> None:
        (path.parent / "rubbish").write_text("left behind")
        raise ZeroDivisionError("by mistake")


def test_an_exception_that_is_not_ours_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: Seeds
) -> None:
    monkeypatch.setattr(formats, "IMPORTERS", (Broken(),))
    said = fuzz_importers.try_case("kineto", 1, seeds, tmp_path)
    assert said is not None
    assert "ZeroDivisionError: by mistake" in said


def test_a_case_is_the_same_whenever_it_is_made(seeds: Seeds) -> None:
    for kind in fuzz_importers.SOURCES:
        first = fuzz_importers.make_case(kind, 7, seeds)
        assert first == fuzz_importers.make_case(kind, 7, seeds)
        assert first[0] != fuzz_importers.make_case(kind, 8, seeds)[0]


@pytest.mark.parametrize("kind", fuzz_importers.SOURCES)
def test_sound_importers_are_found_nothing_on(kind: str, tmp_path: Path, seeds: Seeds) -> None:
    for seed in range(5):
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert fuzz_importers.try_case(kind, seed, seeds, folder) is None
