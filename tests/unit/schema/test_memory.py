"""Files in memory, also in a Python that was built without them."""

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuelline.fix.files.held_file import open_held
from fuelline.record.samplers.stacks import FIRST_DELAY_NS, Stacks
from fuelline.schema.memory import make_memory, seal_size

OLD_PYTHON = """
import fcntl, os, sys
for owner in fcntl, os:
    for name in list(vars(owner)):
        if name.startswith(("F_SEAL", "F_ADD_SEAL", "F_GET_SEAL", "MFD_", "memfd_")):
            delattr(owner, name)
from fuelline.record.spool import Spool
from fuelline.schema import wire
spool = Spool(sys.argv[1])
spool.set_trainer(4711)
number = wire.NOTES.unpack_from(open(spool.path, "rb").read(), wire.NOTES_OFFSET)[3]
wire.open_live(os.getpid(), number - 1)
"""


def test_a_python_without_them_shares_its_phase_all_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OLD_PYTHON, str(tmp_path / "spool")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.fixture
def old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")


@pytest.fixture
def old_host(old_python: None, monkeypatch: pytest.MonkeyPatch) -> None:
    del old_python
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())


@pytest.mark.usefixtures("old_python")
def test_the_library_of_the_host_is_asked_where_python_offers_none() -> None:
    descriptor = make_memory("x")
    os.write(descriptor, b"abc")
    seal_size(descriptor)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


@pytest.mark.usefixtures("old_python")
def test_what_the_library_refuses_is_an_error_with_its_reason() -> None:
    with pytest.raises(OSError, match="Invalid argument") as refusal:
        make_memory("x" * 300)
    assert refusal.value.errno == errno.EINVAL


@pytest.mark.usefixtures("old_host")
def test_a_host_without_them_is_an_ordinary_refusal() -> None:
    with pytest.raises(OSError, match="cannot be made here"):
        make_memory("x")


@pytest.mark.usefixtures("old_host")
def test_a_held_file_has_the_descriptor_of_its_source_if_there_is_no_other(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"content")
    with open_held(b"content", "source", "rb", -1, None, None, None, str(source)) as file:
        assert os.pread(file.fileno(), 100, 0) == b"content"
    with open_held(b"changed", "source", "rb", -1, None, None, None, str(source)) as file:
        with pytest.raises(OSError, match="cannot be made here"):
            file.fileno()
        assert file.read() == b"changed"


@pytest.mark.usefixtures("old_host")
def test_stacks_are_given_up_where_they_have_no_place() -> None:
    stacks = Stacks("/bin/true")
    stacks.begin_training(0)
    stacks.start_if_due(FIRST_DELAY_NS, [os.getpid()], [])
    (blind,) = stacks.collect(FIRST_DELAY_NS)
    assert "cannot be made here" in repr(blind)
