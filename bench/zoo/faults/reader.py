"""Reads past the page cache without a pause: `reader FILE THREADS REQUEST_BYTES [PER_SECOND]`."""

import mmap
import os
import random
import sys
import threading
import time
from pathlib import Path


def read_forever(path: Path, request_bytes: int, pause_s: float, seed: int) -> None:
    """Random direct reads; a buffer from mmap is aligned as O_DIRECT wants it."""
    rng = random.Random(seed)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    requests = path.stat().st_size // request_bytes
    buffer = mmap.mmap(-1, request_bytes)
    while True:
        os.preadv(file, [buffer], rng.randrange(requests) * request_bytes)
        time.sleep(pause_s)


def main() -> None:
    path, threads, request_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    pause_s = 1 / float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    readers = [
        threading.Thread(target=read_forever, args=(path, request_bytes, pause_s, seed))
        for seed in range(threads)
    ]
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join()


if __name__ == "__main__":
    main()
