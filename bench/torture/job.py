"""A small job that says what it has computed after each step, and can be told to misbehave.

    python job.py '{"kind": "torch", "folder": "data", "steps": 20, "workers": 2, ...}'

Whatever it does at a step it does with and without a recorder: it looks for processes of the
recorder and finds none in the plain run. At its end it leaves a digest of the weights in a file.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import signal
import stat
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = {"observer": "fuelline.record.observer", "report": "fuelline.cli.record.reporting"}


def main(told: dict[str, Any]) -> None:
    if told.get("catches"):
        signal.signal(signal.SIGTERM, catch)
        signal.signal(signal.SIGINT, catch)
    digest = hashlib.sha256()
    kinds = {"plain": count, "torch": train, "ranks": train_ranks}
    for step, value in enumerate(kinds[told["kind"]](told)):
        digest.update(value)
        say(f"step {step} {digest.hexdigest()[:16]}")
        if step == told.get("at", -1):
            misbehave(told)
    Path(told["result"]).write_text(digest.hexdigest())
    status = Path("/proc/self/status").read_text()
    Path(f"{told['result']}.kib").write_text(status.partition("VmPeak:")[2].split()[0])
    say("done")
    end(told)


is_silent = False


def say(words: str) -> None:
    if is_silent:
        return
    try:
        os.write(1, f"{words}\n".encode())
    except OSError:
        pass  # closed or full: part of what is tried


def catch(number: int, _: object) -> None:
    say(f"caught {signal.Signals(number).name}")
    os._exit(7)


def count(told: dict[str, Any]) -> Iterator[bytes]:
    for step in range(told["steps"]):
        time.sleep(told["pause_s"])
        yield step.to_bytes(4, "little")


def train(told: dict[str, Any], rank: int = 0, ranks: int = 1) -> Iterator[bytes]:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    files = sorted(Path(told["folder"]).iterdir())[rank::ranks]

    class Files(Dataset[Any]):
        def __len__(self) -> int:
            return len(files) * 64

        def __getitem__(self, at: int) -> torch.Tensor:
            # A digest, so that every byte of the file shows in the weights and in the output.
            content = hashlib.sha256(files[at % len(files)].read_bytes()).digest()
            return torch.tensor(list(content[:16]), dtype=torch.float32) / 256

    torch.manual_seed(rank)
    torch.set_num_threads(1)
    model: Any = nn.Linear(16, 1)
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Files(), batch_size=4, shuffle=True, num_workers=told["workers"])
    for step, batch in enumerate(loader):
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        weights = [each.detach().numpy().tobytes() for each in model.parameters()]
        yield b"".join(weights)
        if step + 1 == told["steps"]:
            return


def train_ranks(told: dict[str, Any]) -> Iterator[bytes]:
    import torch.distributed as dist

    if told.get("whom") == "torchrun" and os.environ["RANK"] == "0":
        send(os.getppid(), signal.SIGKILL)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    told["result"] += f".{rank}"
    if rank != told.get("rank", 0):
        told.pop("at", None)
        told["end"] = ""
    global is_silent  # noqa: PLW0603 - one rank speaks
    is_silent = rank != 0
    yield from train(told, rank, dist.get_world_size())
    dist.destroy_process_group()
    wait_for_threads()


def wait_for_threads() -> None:
    """Until gloo's have come to rest.

    They drop their last tensors with Python's lock, and if the interpreter is ending at that moment
    the process is aborted: two of 35 plain runs on busy cores.
    """
    until, resting = time.monotonic() + 2, 0
    while resting < 3 and time.monotonic() < until:
        time.sleep(0.01)
        me = str(threading.get_native_id())
        stats = [each / "stat" for each in Path("/proc/self/task").iterdir() if each.name != me]
        states = [each.read_text().rpartition(")")[2].split()[0] for each in stats]
        resting = resting + 1 if set(states) <= {"S"} else 0


def misbehave(told: dict[str, Any]) -> None:
    act, whom = told.get("act", ""), told.get("whom", "")
    if act == "kill":
        for pid in find(whom):
            send(pid, told["signal"])
    elif act == "stop":
        pids = find(whom)
        for pid in pids:
            send(pid, signal.SIGSTOP)
        time.sleep(0.3)
        for pid in pids:
            send(pid, signal.SIGCONT)
    elif act == "folder":
        spoil(whom)
    elif act == "self":
        STRAINS[whom](told)


def find(whom: str) -> list[int]:
    """Processes of the recorder, or workers of this one; none of the recorder in a plain run."""
    if whom == "self":
        return [os.getpid()]
    if whom == "worker":
        return children(os.getpid())[:1]
    launcher = int(os.environ.get("FUELLINE_OBSERVER_PID", "0"))
    if not launcher or launcher == os.getpid():
        return []
    if whom == "launcher":
        return [launcher]
    beside = [pid for pid in children(launcher) if OURS.get(whom, "-") in read(pid)]
    if whom == "py-spy":
        observers = [pid for pid in children(launcher) if OURS["observer"] in read(pid)]
        beside = [child for pid in observers for child in children(pid)]
    return beside


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def read(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def spoil(how: str) -> None:
    """Do something to the run's folder."""
    name = os.environ.get("FUELLINE_RUN_DIR")
    if name is not None and Path(name).is_dir():
        SPOILED[how](Path(name))


def replace(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("a file")


def truncate(folder: Path) -> None:
    for spool in folder.glob("spool/*"):
        os.truncate(spool, 0)


def garble(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file() and file.suffix != ".spool":
            file.write_bytes(b"\xff\x00{" * 50)


def fill(folder: Path) -> None:
    try:
        with (folder.parent / "else").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError:
        return


SPOILED = {
    "removed": lambda folder: shutil.rmtree(folder, ignore_errors=True),
    "replaced": replace,
    "closed": lambda folder: folder.chmod(0),
    "read-only": lambda folder: folder.chmod(stat.S_IRUSR | stat.S_IXUSR),
    "truncated": truncate,
    "garbled": garble,
    "filled": fill,
}


def fork_often(_: dict[str, Any]) -> None:
    for _turn in range(60):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def start_threads(_: dict[str, Any]) -> None:
    threads = [threading.Thread(target=time.sleep, args=(0.05,)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def go_elsewhere(_: dict[str, Any]) -> None:
    """The first process waits and leaves with 3; its child goes on in a session of its own."""
    if os.fork():
        os.wait()
        os._exit(3)
    os.setsid()


def begin_again(_: dict[str, Any]) -> None:
    if "TORTURED" not in os.environ:
        os.environ["TORTURED"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])


def open_files(told: dict[str, Any]) -> None:
    """As many as the limit allows beside what a job has open anyway."""
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(told["count"])]
    time.sleep(0.2)
    for each in opened:
        os.close(each)


def be_many(told: dict[str, Any]) -> None:
    """As many processes at a time as the limit allows."""
    reader, writer = os.pipe()
    pids = []
    for _ in range(told["count"]):
        pids.append(os.fork())
        if not pids[-1]:
            os.close(writer)
            os.read(reader, 1)  # until the last is there
            os._exit(0)
    os.close(reader)
    os.close(writer)
    for pid in pids:
        os.waitpid(pid, 0)


STRAINS = {
    "a crowd": be_many,
    "opens files": open_files,
    "closes descriptors": lambda _: os.closerange(3, 256),
    "forks": fork_often,
    "threads": start_threads,
    "new session": go_elsewhere,
    "executes itself": begin_again,
}


def end(told: dict[str, Any]) -> None:
    how, _, value = told.get("end", "").partition(" ")
    if how == "raise":
        raise RuntimeError(value)
    if how == "exit":
        sys.exit(int(value))
    if how == "_exit":
        os._exit(int(value))
    if how == "atexit":
        atexit.register(os._exit, int(value))
    if how == "signal":
        if int(value) != signal.SIGKILL:
            signal.signal(int(value), signal.SIG_DFL)
        os.kill(os.getpid(), int(value))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
