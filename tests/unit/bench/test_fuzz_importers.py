"""A fuzzer that finds nothing must be able to find something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench import fuzz_importers

from fuelline.ingest import formats

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = {kind: [fuzz_importers._made(kind)] for kind in fuzz_importers.SOURCES}


class Broken:
    """An importer with a mistake in it."""

    format = "broken"

    def recognises(self, head: bytes) -> bool:
        return bool(head) or True

    def read(self, path: Path, *_: object, **__: object) -> None:
        (path.parent / "rubbish").write_text("left behind")
        raise ZeroDivisionError("by mistake")


def test_an_exception_that_is_not_ours_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "IMPORTERS", (Broken(),))
    said = fuzz_importers.try_case("kineto", 1, SEEDS, tmp_path)
    assert said is not None
    assert "ZeroDivisionError: by mistake" in said


def test_a_case_is_the_same_whenever_it_is_made() -> None:
    for kind in fuzz_importers.SOURCES:
        first = fuzz_importers.make_case(kind, 7, SEEDS)
        assert first == fuzz_importers.make_case(kind, 7, SEEDS)
        assert first[0] != fuzz_importers.make_case(kind, 8, SEEDS)[0]


@pytest.mark.parametrize("kind", fuzz_importers.SOURCES)
def test_sound_importers_are_found_nothing_on(kind: str, tmp_path: Path) -> None:
    for seed in range(5):
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert fuzz_importers.try_case(kind, seed, SEEDS, folder) is None
