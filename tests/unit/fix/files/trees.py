"""Folders to pack, and the job that tells what a Python sees of one. For tests."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fuelline.fix.job_site import PATHS_VARIABLE, SITE_DIR

LARGE = 5 << 20


def plant(root: Path) -> dict[str, bytes]:
    """A tree with the oddities that trees have; its files by name."""
    files = {
        "a/1.bin": b"one",
        "a/empty": b"",
        "a-b/2.txt": b"zwei\r\nzeilen\n",
        "a/deep/er/3.bin": os.urandom(70_000),
        "large.bin": os.urandom(LARGE),
        "name with spaces and ü.txt": b"x",
        "zeta": b"last",
    }
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (root / "nothing-in-it").mkdir()
    (root / "link").symlink_to("a/1.bin")
    (root / "loop").symlink_to(".")
    return {**files, "link": b"one"}


LOOK = r"""
import glob, io, json, mmap, os, pathlib, stat, sys
root = sys.argv[1]
told = {"walk": sorted([os.path.relpath(top, root), sorted({*below} - {"loop"}), sorted(names)]
                       for top, below, names in os.walk(root) if "loop" not in top)}
def look(path):
    s = os.stat(path)
    with open(path, "rb") as file:
        whole = file.read()
        file.seek(1); tail = file.read(5)
        about = [file.name == path, type(file).__name__, file.fileno() > 2, file.mode]
        size = os.fstat(file.fileno()).st_size
    fd = os.open(path, os.O_RDONLY)
    by_fd = os.read(fd, 1 << 24); os.close(fd)
    with open(path, encoding="latin-1") as text:
        lines = len(text.readlines())
    mapped = b""
    if whole:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as m:
            mapped = bytes(m)
    return [len(whole), hash_of(whole), hash_of(tail), about, size, hash_of(by_fd), lines,
            hash_of(mapped), s.st_size, s.st_mtime_ns, stat.S_ISREG(s.st_mode),
            os.path.getsize(path), pathlib.Path(path).read_bytes() == whole,
            os.path.isfile(path), os.access(path, os.R_OK)]
def hash_of(data):
    import hashlib
    return hashlib.sha1(data).hexdigest()
def failing(act):
    try:
        act(); return "nothing"
    except OSError as error:
        return [type(error).__name__, error.errno, error.filename]
told["files"] = {os.path.relpath(p, root): look(p)
                 for p in sorted(glob.glob(root + "/**", recursive=True))
                 if os.path.isfile(p) and "loop" not in p}
told["glob"] = sorted(os.path.relpath(p, root) for p in glob.glob(root + "/*/*.bin")
                      if "loop" not in p)
told["rglob"] = sorted(str(p.relative_to(root)) for p in pathlib.Path(root).glob("a/*"))
told["iterdir"] = sorted(p.name for p in pathlib.Path(root).iterdir() if p.name != "loop")
told["listdir"] = sorted(n for n in os.listdir(root) if n != "loop")
told["bytes"] = sorted(n.decode() for n in os.listdir(os.fsencode(root)) if n != b"loop")
told["entries"] = sorted([e.name, e.is_dir(), e.is_file(), e.stat().st_size if e.is_file() else 0]
                         for e in os.scandir(root) if e.name != "loop")
os.chdir("/")
told["relative"] = open(os.path.relpath(root, "/") + "/zeta").read()
told["dots"] = open(root + "/a/../zeta").read()
told["errors"] = [failing(lambda: open(root + "/none")), failing(lambda: open(root + "/a", "rb")),
                  failing(lambda: os.stat(root + "/none")),
                  failing(lambda: os.listdir(root + "/zeta")),
                  failing(lambda: open(root + "/none/deeper")), os.path.exists(root + "/none")]
try:
    open(root + "/zeta", "bad mode")
except ValueError as error:
    told["value"] = str(error)
import pickle, shutil
told["pickle"] = pickle.loads(pickle.dumps(open)) is open
told["able"] = [os.stat in os.supports_dir_fd, os.stat in os.supports_follow_symlinks,
                os.scandir in os.supports_fd, os.open in os.supports_dir_fd,
                shutil.rmtree.avoids_symlink_attacks]
told["name"] = pathlib.Path(root, "zeta").open("rb").name == root + "/zeta"
with open(root + "/zeta", "rb", buffering=0) as raw:
    told["raw"] = [type(raw).__name__, raw.read(2).decode()]
print(json.dumps(told))
"""


def look(root: Path, plan: dict[str, Any] | None) -> dict[str, Any]:
    """What a Python sees of the tree, through the layer or without it."""
    env = {name: value for name, value in os.environ.items() if name != PATHS_VARIABLE}
    if plan is not None:
        env |= {PATHS_VARIABLE: json.dumps(plan), "PYTHONPATH": SITE_DIR}
    command = [sys.executable, "-c", LOOK, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return dict(json.loads(done.stdout))
