"""Document ingestion and other work without a training step: parse, chunk, tokenise, embed, write.

Documents are PDFs that the job makes itself beforehand, or those in --data. Its last line is its
own account, with the share of the time that the little model took.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven"]
WORDS += ["wizards", "mix", "grey", "potions"]


def make_pdfs(folder: Path, count: int, pages: int) -> None:
    """Real PDFs, by reportlab."""
    from reportlab.pdfgen import canvas

    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = folder / f"{number:04}.pdf"
        if path.exists():
            continue
        page = canvas.Canvas(str(path))
        for _ in range(pages):
            for line in range(40):
                text = " ".join(WORDS[(number + line * at) % len(WORDS)] for at in range(14))
                page.drawString(50, 800 - 18 * line, text)
            page.showPage()
        page.save()


def parse(path: Path, parser: str) -> str:
    """The text of a document."""
    if parser == "pypdf":
        from pypdf import PdfReader

        return "\n".join(page.extract_text() for page in PdfReader(path).pages)
    if parser == "pymupdf":
        import pymupdf

        with pymupdf.open(path) as document:
            return "\n".join(page.get_text() for page in document)
    return path.read_bytes().decode("latin-1")


def chunk(text: str, size: int = 400) -> list[str]:
    """Pieces of so many letters."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def tokenise(text: str) -> list[int]:
    """A tokeniser in Python: words and signs, hashed."""
    return [hash(word) % 30_000 for word in re.findall(r"\w+|[^\w\s]", text)]


def prepare(path: Path, parser: str, times: int) -> list[list[int]]:
    """All that is done to a document before the model."""
    pieces = chunk(parse(path, parser))
    found: list[list[int]] = []
    for _ in range(times):
        found = [tokenise(piece) for piece in pieces]
    return found


class Embedder:
    """A model that takes a known time for a batch: on the CPU, as a device would."""

    def __init__(self, width: int, layers: int) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch = torch
        self.model = torch.nn.Sequential(
            *(torch.nn.Linear(width, width) for _ in range(layers))
        ).eval()
        self.width = width
        self.spent_s = 0.0

    def embed(self, pieces: list[list[int]]) -> list[float]:
        """One number for each piece."""
        begin = time.monotonic()
        with self.torch.inference_mode():
            rows = self.torch.zeros(max(1, len(pieces)), self.width)
            out = self.model(rows).mean(dim=1)
        self.spent_s += time.monotonic() - begin
        return [float(value) for value in out]


class Store:
    """Where results go."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.number = 0
        self.log = (folder / "results.jsonl").open("w") if kind == "log" else None

    def write(self, name: str, values: list[float]) -> None:
        """Keep the results of one document."""
        if self.kind == "none":
            return
        text = json.dumps([name, *values])
        if self.log is not None:
            self.log.write(text + "\n")
            self.log.flush()
            return
        self.number += 1
        (self.folder / f"{self.number:07}.json").write_text(text)


def serve(port_of: "multiprocessing.Queue[int]", answer_s: float) -> None:
    """A service that takes its time for an answer."""
    listener = socket.create_server(("127.0.0.1", 0))
    port_of.put(listener.getsockname()[1])

    def answer(client: socket.socket) -> None:
        while client.recv(64):
            time.sleep(answer_s)
            client.sendall(b"x" * 64)

    while True:
        client, _ = listener.accept()
        threading.Thread(target=answer, args=(client,), daemon=True).start()


def ask(client: socket.socket) -> None:
    """One question to the service."""
    client.sendall(b"question")
    client.recv(64)


def documents(args: argparse.Namespace, until: float) -> Iterator[Path]:
    """Again and again, until the time is over."""
    paths = sorted(path for path in args.data.rglob("*") if path.is_file())
    while time.monotonic() < until:
        for path in paths:
            if time.monotonic() >= until:
                return
            yield path


def run(args: argparse.Namespace) -> tuple[int, float]:
    """Documents done, and seconds in the model."""
    until = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory(dir=args.out, ignore_cleanup_errors=True) as folder:
        store = Store(args.store, Path(folder))
        embedder = Embedder(args.width, args.layers) if args.layers else None
        client = None
        if args.service_ms:
            port_of: multiprocessing.Queue[int] = multiprocessing.Queue()
            server = multiprocessing.Process(
                target=serve, args=(port_of, args.service_ms / 1e3), daemon=True
            )
            server.start()
            client = socket.create_connection(("127.0.0.1", port_of.get()))
        count = 0
        for path, pieces in prepared(args, until):
            if client is not None:
                ask(client)
            values = embedder.embed(pieces) if embedder else [1.0] * min(len(pieces), 20)
            store.write(path.name, values)
            count += 1
        return count, embedder.spent_s if embedder else -1.0


def _one(task: tuple[Path, str, int]) -> tuple[Path, list[list[int]]]:
    path, parser, times = task
    return path, prepare(path, parser, times)


def prepared(args: argparse.Namespace, until: float) -> Iterator[tuple[Path, list[list[int]]]]:
    """Documents that are parsed, cut and tokenised: here, by threads, or by processes."""
    tasks = ((path, args.parser, args.times) for path in documents(args, until))
    if args.pool == "none":
        for task in tasks:
            yield _one(task)
    elif args.pool == "threads":
        with concurrent.futures.ThreadPoolExecutor(args.workers) as threads:
            waiting: list[concurrent.futures.Future[tuple[Path, list[list[int]]]]] = []
            for task in tasks:
                waiting.append(threads.submit(_one, task))
                if len(waiting) >= 2 * args.workers:
                    yield waiting.pop(0).result()
            yield from (each.result() for each in waiting)
    else:
        with multiprocessing.Pool(args.workers) as pool:
            some = iter(tasks)
            while group := [task for task, _ in zip(some, range(8 * args.workers), strict=False)]:
                yield from pool.imap(_one, group)


def main() -> None:
    """Work for the set time, then give the account."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=os.environ.get("ZOO_OUT"))
    parser.add_argument("--pdfs", type=int, default=0, help="make as many documents first")
    parser.add_argument("--pages", type=int, default=3)
    parser.add_argument("--parser", choices=("pypdf", "pymupdf", "bytes"), default="pypdf")
    parser.add_argument("--times", type=int, default=1, help="tokenise so often")
    parser.add_argument("--pool", choices=("none", "threads", "processes"), default="none")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", choices=("none", "files", "log"), default="none")
    parser.add_argument("--service-ms", type=float, default=0.0)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=16.0)
    args = parser.parse_args()
    if args.pdfs:
        args.data = Path(tempfile.gettempdir()) / f"fuelline-zoo-pdfs-{args.pdfs}-{args.pages}"
        make_pdfs(args.data, args.pdfs, args.pages)
    begin = time.monotonic()
    count, spent_s = run(args)
    wall_s = time.monotonic() - begin
    busy = spent_s / wall_s if spent_s >= 0 else -1.0
    told = {"steps": count, "samples_per_s": count / wall_s, "busy_frac": busy, "wait_frac": None}
    sys.stdout.write(json.dumps({"zoo": told}) + "\n")


if __name__ == "__main__":
    main()
