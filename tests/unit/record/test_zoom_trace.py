"""The profiler's trace is written for its owner alone, and without the secrets in its names."""

import gzip
import json
import stat
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("torch", reason="needs torch")

from fuelline.record.hooks.torch.zoom import _export


class Profiler:
    """Leaves a file as the real one does: of its own making, as the umask says."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.modes: list[int] = []

    def export_chrome_trace(self, path: str) -> None:
        """Also sees who could read the file meanwhile."""
        draft = Path(f"{path}.tmp")
        draft.write_text(
            '{\n"hf_token": "tulip",\n"traceEvents": [\n{"name": "api_key: [abc",\n"ts": 1}\n]}\n'
        )
        draft.replace(path)
        self.modes.append(stat.S_IMODE(Path(path).parent.stat().st_mode))
        if self.error is not None:
            raise self.error


def export(profiler: Profiler, path: Path) -> None:
    _export(cast("Any", profiler), str(path))


def test_a_trace_is_private_all_along_and_stays_json_without_its_secrets(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "zoom-1.json.gz"
    profiler = Profiler()
    export(profiler, path)
    assert profiler.modes == [0o700]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    shown = json.loads(gzip.decompress(path.read_bytes()))
    assert shown == {"hf_token": "***", "traceEvents": [{"name": "api_key: ***", "ts": 1}]}


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"):
        export(Profiler(OSError("full")), tmp_path / "zoom-1.json.gz")
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_deleted_does_not_come_back(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        export(Profiler(), tmp_path / "gone" / "zoom-1.json.gz")
    assert not list(tmp_path.iterdir())
