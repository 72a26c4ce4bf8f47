"""Training scripts for `feed`, each with its own way of meeting or missing the loader."""

import atexit
import subprocess
import sys
from pathlib import Path

WAY, FOLDER = sys.argv[1], Path(sys.argv[2])
if WAY == "raises":
    raise OSError("there is no such data set")
if WAY == "none":
    sys.exit()

import torch  # noqa: E402 - not needed by those above
from torch.utils.data import DataLoader, Dataset  # noqa: E402


class Rows(Dataset[torch.Tensor]):
    def __init__(self, size: int = 100_000) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if WAY == "broken":
            raise KeyError("no label for sample")
        return torch.full((4,), float(index))


class Held(Rows):
    def __init__(self) -> None:
        super().__init__()
        self.decode = lambda row: row


def train(loader: DataLoader[torch.Tensor]) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in loader:
        (FOLDER / "forward").touch()
        model(batch).mean().backward()
        (FOLDER / "trained").touch()
        optimizer.step()


def loader_of(way: str) -> DataLoader[torch.Tensor]:
    if way == "unpicklable":
        return DataLoader(Held(), 8, shuffle=True, num_workers=1, multiprocessing_context="spawn")
    if way in ("ordered", "broken"):
        return DataLoader(Rows(), 8)
    return DataLoader(
        Rows(), 8, shuffle=True, num_workers=1, drop_last=True, multiprocessing_context="fork"
    )


def main() -> None:
    atexit.register((FOLDER / "left").touch)
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)", str(FOLDER)]
    subprocess.Popen(sleeper, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if WAY == "another torch":
        del torch.utils.data.dataloader._MultiProcessingDataLoaderIter._shutdown_workers
    if WAY == "tensors":
        torch.nn.Linear(4, 1)(torch.zeros(2, 4)).mean().backward()
        (FOLDER / "trained").touch()
    with torch.no_grad():
        for _ in DataLoader(Rows(16), 8):
            pass
    if WAY == "evaluates":
        return
    try:
        train(loader_of(WAY))
    finally:
        (FOLDER / "checkpoint").write_text("a model that was never trained")


if __name__ == "__main__":
    main()
