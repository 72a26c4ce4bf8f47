"""What the layer serves is what the file system would give: behind links, and after a change."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuelline.fix.files import changed_paths, packing
from fuelline.fix.files.caching import open_cache
from fuelline.fix.files.changed_paths import ChangedPaths
from fuelline.fix.files.local_cache import RACY_S
from fuelline.fix.job_site import PATHS_VARIABLE, SITE_DIR

pytestmark = pytest.mark.integration


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (tmp_path / "other" / "deep").mkdir(parents=True)
    (tmp_path / "other" / "file").write_bytes(b"of the other")
    (root / "a" / "b").mkdir(parents=True)
    for name in ("file", "a/file", "a/b/file", "a/b/two"):
        (root / name).write_bytes(name.encode())
    (root / "link").symlink_to(tmp_path / "other" / "deep")
    return root


@pytest.fixture
def plan(source: Path, tmp_path: Path) -> dict[str, Any]:
    packing.pack(source, tmp_path / "pack", lambda _done, _of: None)
    return {"packed": [str(tmp_path / "pack")], "cache": None}


def run(job: str, source: Path, plan: dict[str, Any]) -> list[str]:
    env = {**os.environ, PATHS_VARIABLE: json.dumps(plan), "PYTHONPATH": SITE_DIR}
    job = f"import os, sys, pathlib\nos.chdir(sys.argv[1])\n{job}"
    command = [sys.executable, "-c", job, str(source)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


READ = "print(open({path!r}).read())"


PLAIN = """
plain = os.{function}.__wrapped__
cell = os.{function}.__closure__[[*os.{function}.__code__.co_freevars].index('plain')]
"""
"""To put something in the place of the original, below the layer."""


def spoil(source: Path, *names: str) -> None:
    """Other bytes at the source tell who served a file."""
    for name in names:
        (source / name).write_bytes(b"the disk's")


def test_behind_a_link_dots_lead_to_where_the_link_points(
    source: Path, plan: dict[str, Any]
) -> None:
    for path in ("link/../file", f"{source}/link/../file", f"{source}/a/../link/.//../file"):
        assert run(READ.format(path=path), source, plan) == ["of the other"]
    job = "print(os.stat('link/../file').st_size, sorted(os.listdir('link/..')))"
    assert run(job, source, plan) == ["12 ['deep', 'file']"]


def test_behind_a_link_the_cache_leaves_dots_to_the_mount(source: Path, tmp_path: Path) -> None:
    for path in (source / "file", tmp_path / "other" / "file"):
        os.utime(path, (1, 1))
    with open_cache(tmp_path / "cache", 64 << 20):
        cache = {"folder": str(tmp_path / "cache"), "budget_bytes": 1 << 26, "roots": [str(source)]}
        job = f"import time; time.sleep({RACY_S + 0.2})\n"
        job += READ.format(path="file") + "\n" + READ.format(path="link/../file")
        assert run(job, source, {"packed": [], "cache": cache}) == ["file", "of the other"]


def test_behind_folders_dots_are_served(source: Path, plan: dict[str, Any]) -> None:
    spoil(source, "file", "a/file", "a/b/file")
    for path, name in (
        ("a/../file", "file"),
        ("a/b/../../file", "file"),
        ("../source/a/./file", "a/file"),
        ("a//b/.././b/file", "a/b/file"),
    ):
        assert run(READ.format(path=path), source, plan) == [name]


@pytest.mark.parametrize("path", ["none/../file", "file/../a/file"])
def test_dots_behind_no_folder_are_refused_as_ever(
    source: Path, plan: dict[str, Any], path: str
) -> None:
    job = f"try: open({path!r})\nexcept OSError as refusal: print(type(refusal).__name__)"
    expected = "FileNotFoundError" if path.startswith("none") else "NotADirectoryError"
    assert run(job, source, plan) == [expected]


CHANGES = {
    "open": "open('a/b/file', 'w').write('new')",
    "pathlib": "pathlib.Path('a/b/file').write_text('new')",
    "append": "open('a/b/file', 'r+').write('new'); os.truncate('a/b/file', 3)",
    "os.open": "os.write(os.open('a/b/file', os.O_WRONLY | os.O_TRUNC), b'new')",
    "dir_fd": "d = os.open('a/b', os.O_RDONLY | os.O_DIRECTORY)\n"
    "os.write(os.open('file', os.O_WRONLY | os.O_TRUNC, dir_fd=d), b'new')",
    "replace": "open('draft', 'w').write('new'); os.replace('draft', 'a/b/file')",
    "rename": "open('draft', 'w').write('new'); pathlib.Path('draft').rename('a/b/file')",
    "folder": "os.mkdir('new'); open('new/file', 'w').write('new')\n"
    "open('new/two', 'w').write('new')\nos.rename('a/b', 'old'); os.rename('new', 'a/b')",
    "keywords": "open('draft', 'w').write('new'); os.replace(src='draft', dst='a/b/file')",
    "tree": "os.remove('a/b/two'); os.remove('a/b/file'); os.rmdir('a/b'); os.mkdir('a/b')\n"
    "open('a/b/two', 'w'); open('a/b/file', 'w').write('new')",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_job_reads_what_it_wrote(source: Path, plan: dict[str, Any], change: str) -> None:
    spoil(source, "file")
    job = f"""
open('a/b/file').read()
{CHANGES[change]}
print(open('a/b/file').read(), os.stat('a/b/file').st_size, open('file').read())
print(sorted(os.listdir('a/b')))
child = os.fork()
if not child:
    os.write(1, open('a/b/file', 'rb').read())
    os._exit(0)
os.waitpid(child, 0)
"""
    expected = {"new 3 file", "['file', 'two']", "new"}
    assert {*run(job, source, plan)} == expected


IN_C = """
import _io  # whose `open` is none of those that are replaced

def {name}(*args, **kwargs):
    with _io.open([*args, *kwargs.values()][{position}], "w") as file:
        file.write("new")
    if kwargs.get("fails") or "fails" in args:
        raise RuntimeError("disk full")
"""
WRITES = {
    "cv2": "import cv2; cv2.imwrite({path}, 0)",
    "by name": "import cv2; cv2.imwrite(filename={path}, img=0)",
    "safetensors": "import safetensors.torch as save; save.save_file(0, {path})",
    "torchvision": "from torchvision.io import image; image.write_file({path}, 0)",
    "failing": "import cv2\ntry: cv2.imwrite({path}, 'fails')\nexcept RuntimeError: pass",
}


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """Stand-ins for those that are not installed here, with the arguments that theirs have."""
    contents = {
        "cv2.py": IN_C.format(name="imwrite", position=0) + "imread = imwrite\n",
        "safetensors/__init__.py": IN_C.format(name="serialize_file", position=1),
        "safetensors/torch.py": "from safetensors import serialize_file\n"
        "def save_file(tensors, filename): serialize_file(tensors, filename, metadata=None)\n",
        "torchvision/io/image.py": IN_C.format(name="write_file", position=0),
    }
    for name, content in contents.items():
        path = tmp_path / "libraries" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "libraries"


@pytest.mark.parametrize("path", ["'a/b/file'", "pathlib.Path('a/b/file').absolute()"])
@pytest.mark.parametrize("write", WRITES)
def test_a_job_reads_what_a_library_wrote_in_c(
    source: Path, plan: dict[str, Any], libraries: Path, write: str, path: str
) -> None:
    spoil(source, "file")
    job = f"sys.path.append({str(libraries)!r})\nopen('a/b/file').read()\n"
    job += WRITES[write].format(path=path) + "\nprint(open('a/b/file').read(), open('file').read())"
    assert run(job, source, plan) == ["new file"]


@pytest.mark.torch
def test_a_job_loads_what_torch_saved(source: Path, plan: dict[str, Any]) -> None:
    """torch writes in C++ and reads by `open`."""
    job = """
import io, torch
from torch import save
from torch.serialization import save as same
for number, act in enumerate((torch.save, save, same)):
    act(torch.full((3,), number), 'a/b/file')
    print(torch.load('a/b/file').tolist())
torch.save(torch.ones(1), f=pathlib.Path('a/b/two'))
print(torch.load('a/b/two').tolist(), torch.load('a/b/two', mmap=True).tolist())
held = io.BytesIO()
torch.save(torch.ones(2), held)
torch.jit.save(torch.jit.script(torch.nn.Identity()), 'a/file')
print(len(held.getvalue()) > 0, open('a/file', 'rb').read(2), open('file').read())
"""
    spoil(source, "file")
    expected = ["[0, 0, 0]", "[1, 1, 1]", "[2, 2, 2]", "[1.0] [1.0]", "True b'PK' file"]
    assert run(job, source, plan) == expected


@pytest.mark.parametrize(
    "change",
    ["os.remove('a/b/file')", "os.unlink(path='a/b/file')", "pathlib.Path('a/b/file').unlink()"],
)
def test_what_a_job_removed_is_gone(source: Path, plan: dict[str, Any], change: str) -> None:
    job = f"{change}\nprint(os.path.exists('a/b/file'), os.listdir('a/b'))\n"
    job += "print([entry.name for entry in os.scandir('a/b')])"
    assert run(job, source, plan) == ["False ['two']", "['two']"]


def test_a_change_that_is_refused_changes_nothing(source: Path, plan: dict[str, Any]) -> None:
    source.rename(source.with_name("elsewhere"))
    path = f"{source}/file"
    job = "for act in (lambda: os.remove({0!r}), lambda: open({0!r}, 'r+')):\n"
    job += "    try: act()\n    except FileNotFoundError: print('refused')\n"
    job = (job + READ.format(path=path)).format(path)
    assert run(job, source.with_name("elsewhere"), plan) == ["refused", "refused", "file"]


def test_of_two_threads_that_remove_a_file_the_loser_does_not_bring_it_back(
    source: Path, plan: dict[str, Any]
) -> None:
    job = f"""
import threading
{PLAIN.format(function="remove")}
inside = threading.Barrier(2)
refused = []

def remove():
    try: os.remove('file')
    except FileNotFoundError: refused.append(1)

def wait_and_remove(path):
    inside.wait()
    plain(path)

cell.cell_contents = wait_and_remove
threads = [threading.Thread(target=remove) for _ in range(2)]
[each.start() for each in threads], [each.join() for each in threads]
print(len(refused), os.path.exists('file'), 'file' in os.listdir())
"""
    assert run(job, source, plan) == ["1 False False"]


@pytest.mark.parametrize(
    "change",
    [
        "open('file', 'w', encoding='none')",  # which is found out when the file is empty already
        "os.truncate('file', 0)",
    ],
)
def test_a_change_that_ends_in_another_exception_was_made(
    source: Path, plan: dict[str, Any], change: str
) -> None:
    job = f"""
import signal
def give_up(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, give_up)
{PLAIN.format(function="truncate")}
def truncate_and_be_interrupted(*given):
    plain(*given)
    signal.raise_signal(signal.SIGALRM)
cell.cell_contents = truncate_and_be_interrupted
try:
    {change}
except (LookupError, TimeoutError) as error:
    print(type(error).__name__)
print(repr(open('file').read()))
"""
    assert run(job, source, plan)[1:] == ["''"]


def test_a_folder_above_the_packed_one_that_is_renamed_takes_it_along(
    source: Path, plan: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "new" / "source").mkdir(parents=True)
    (tmp_path / "new" / "source" / "file").write_bytes(b"of the other")
    top = str(tmp_path)
    job = f"os.rename({top!r}, {top + '.old'!r}); os.rename({top + '.old/new'!r}, {top!r})\n"
    assert run(job + READ.format(path=str(source / "file")), source, plan) == ["of the other"]


def test_folders_and_names_are_as_the_file_system_has_them(
    source: Path, plan: dict[str, Any]
) -> None:
    job = """
os.fsync(os.open('a', os.O_RDONLY))
print([name for _, _, names, _ in os.fwalk('a') for name in names])
print(os.path.samefile('.', 'a'), os.path.ismount('a'), os.path.samefile('a', 'a/b/..'))
print(os.path.ismount('file'), os.stat('file').st_dev == os.stat('a').st_dev)
try: open('file/')
except NotADirectoryError: print('no folder')
print(os.stat('a/').st_size >= 0, os.listdir('a/'))
"""
    expected = ["['file', 'file', 'two']", "False False True", "False True"]
    expected += ["no folder", "True ['b', 'file']"]
    assert run(job, source, plan) == expected


def test_a_temporary_file_in_a_packed_folder_leaves_the_others_served(
    source: Path, plan: dict[str, Any]
) -> None:
    spoil(source, "file")
    job = "import tempfile\nwith tempfile.NamedTemporaryFile(dir='.'): pass\n"
    assert run(job + READ.format(path="file"), source, plan) == ["file"]


def test_two_packs_have_files_of_their_own(
    source: Path, plan: dict[str, Any], tmp_path: Path
) -> None:
    twin = tmp_path / "twin"
    (twin / "a").mkdir(parents=True)
    (twin / "a" / "file").write_bytes(b"a/file")
    packing.pack(twin, tmp_path / "pack2", lambda _done, _of: None)
    both = {**plan, "packed": [*plan["packed"], str(tmp_path / "pack2")]}
    job = f"print(os.path.samefile('a/file', {str(twin / 'a' / 'file')!r}))"
    assert run(job, source, both) == ["False"]


def test_the_position_is_shared_with_a_descriptor(source: Path, plan: dict[str, Any]) -> None:
    job = "f = open('a/b/file', 'rb'); print(os.read(f.fileno(), 4), f.read(2), f.tell())\n"
    job += "f.seek(1); print(f.read())\n"
    job += "t = open('a/b/file'); os.lseek(t.fileno(), 4, 0); print(t.read())"
    assert run(job, source, plan) == ["b'a/b/' b'fi' 6", "b'/b/file'", "file"]


def test_a_tree_is_removed_as_ever(source: Path, plan: dict[str, Any]) -> None:
    job = "import shutil; shutil.rmtree('a'); print(os.path.exists('a'), os.listdir())"
    assert run(job, source, plan) == ["False ['file', 'link']"]


def test_a_listing_has_what_the_job_made(source: Path, plan: dict[str, Any]) -> None:
    (source / "a/b/two").unlink()
    job = "open('a/b/made', 'w'); print(sorted(os.listdir('a/b')))"
    assert run(job, source, plan) == ["['file', 'made', 'two']"]


def test_many_changes_are_noted_as_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_paths, "MOST_NOTED", 3)
    changed = ChangedPaths()
    for number in range(9):
        with changed.noting([f"/data/out/{number}"]):
            pass
    assert changed.has("/data/out/0")
    assert changed.find_names("/data") == ["out"]
    assert not changed.has("/data/in/0")
    for number in range(9):
        with changed.noting([f"/data/deep/{number}/file"]):
            pass
    assert all(changed.has(f"/data/deep/{number}/file") for number in range(9))
    assert not changed.has("/data/in/0")
