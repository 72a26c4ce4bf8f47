"""Other users of a shared filesystem: `storm FOLDER CLIENTS` asks for metadata without a pause."""

import os
import random
import sys
import threading
from pathlib import Path


def ask_forever(files: list[Path], seed: int) -> None:
    """Open, look, close: what an indexer or a backup does to a metadata server."""
    rng = random.Random(seed)
    while True:
        path = rng.choice(files)
        os.close(os.open(path, os.O_RDONLY))
        path.stat()


def main() -> None:
    folder, clients = Path(sys.argv[1]), int(sys.argv[2])
    files = list(folder.iterdir())
    threads = [threading.Thread(target=ask_forever, args=(files, n)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
