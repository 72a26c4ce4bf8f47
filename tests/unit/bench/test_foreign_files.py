"""The bench of foreign files sees what a command does to them."""

from __future__ import annotations

import subprocess

import pytest
from bench import foreign_files
from bench.foreign_files import Case, Place, try_case


def test_what_a_command_deletes_overwrites_or_writes_through_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def harm(self: Place, *_: str) -> subprocess.CompletedProcess[str]:
        (self.mine / "journal").unlink()
        (self.mine / "link").write_bytes(b"through")
        (self.mine / "index").chmod(0o777)
        (self.mine / "shard-00000").write_bytes(b"ours in a folder of ours")
        (self.mine / "new").write_bytes(b"may be added")
        return subprocess.CompletedProcess([], 0, "", "Traceback")

    monkeypatch.setattr(foreign_files.Place, "call", harm)
    found = try_case(Case("harm", (), None, r"shard-\d+"))
    assert sorted(found.changed) == ["../victims/0", "index", "journal"]
    assert found.has_traceback


@pytest.mark.integration
def test_a_command_that_refuses_leaves_everything() -> None:
    found = try_case(Case("run", ("run", "--cache", "{mine}", "true")))
    assert (found.code, found.changed, found.has_traceback) == (4, (), False)
    assert found.planted > len(foreign_files.NAMES)
