"""Jobs that end badly, or that are crowded: the first argument says how."""

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset[int]):
    def __init__(self, size: int, kills_at: int = -1) -> None:
        self.size = size
        self.kills_at = kills_at

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index == self.kills_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def train(batches: int) -> str:
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for batch in DataLoader(Numbers(batches)):
        model(batch[:, None].float()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return float(model.weight.item()).hex()


def killed_worker() -> None:
    total = 0
    try:
        for batch in DataLoader(Numbers(40, kills_at=25), num_workers=2):
            total += int(batch)
    except Exception:  # noqa: BLE001 - see below
        # Torch has many ways to notice: a signal, half a batch, half a pickle, a lost descriptor.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else it may notice a second time, outside
        say("a worker died")


def killed_trainer() -> None:
    say(train(50))
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted_trainer() -> None:
    train(5)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        while True:
            train(100)
    except KeyboardInterrupt:
        say("interrupted")
        raise


def long_trainer() -> None:
    say(train(400))


def cut_spools() -> None:
    """Somebody tidies up with `truncate -s 0` while the job runs."""
    first = train(2000)
    for spool in Path(os.environ.get("FUELLINE_RUN_DIR", "/nonexistent")).glob("spool/*"):
        os.truncate(spool, 0)
    say([first, train(2000)])


def short_lived_workers() -> None:
    seen = 0
    for _ in range(150):
        seen += sum(int(batch) for batch in DataLoader(Numbers(4), num_workers=2))
    say(seen)


def crowd() -> None:
    """Many threads take batches and run backward at once."""
    gate, sums = threading.Barrier(500), []

    def work(number: int) -> None:
        gate.wait()
        weight = torch.ones(1, requires_grad=True)
        for batch in DataLoader(Numbers(3)):
            (weight * (batch + number)).sum().backward()
        sums.append(int(weight.grad) if weight.grad is not None else -1)

    threading.stack_size(256 * 1024)
    torch.set_num_threads(1)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say((sum(sums), len([*Path("/proc/self/fd").iterdir()]) < 60))


def daemonised() -> None:
    """Closes descriptors that it did not open, as daemons do, and uses their numbers itself."""
    first = train(40)
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    ends = [os.pipe() for _ in range(8)]
    second = train(3000)
    for reader, writer in ends:
        os.write(writer, b"x")
        assert os.read(reader, 1) == b"x"
    say((first, second))


def forking_trainer() -> None:
    """A trained parent forks children that train themselves."""
    say(train(10))
    for _ in range(2):
        child = os.fork()
        if not child:
            say(train(20))
            os._exit(0)
        os.waitpid(child, 0)
    say(train(30))


ENDINGS: dict[str, Callable[[], None]] = {
    ending.__name__: ending
    for ending in (
        killed_worker,
        killed_trainer,
        interrupted_trainer,
        long_trainer,
        cut_spools,
        short_lived_workers,
        crowd,
        daemonised,
        forking_trainer,
    )
}

if __name__ == "__main__":
    ENDINGS[sys.argv[1]]()
