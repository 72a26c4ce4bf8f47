"""`datasets.map` before training: tokenising, packing, cleaning; with and without processes."""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven"]
WORDS += ["wizards", "mix", "grey", "potions"]


def clean(row: dict[str, Any]) -> dict[str, Any]:
    """Python on one text."""
    text = row["text"]
    for _ in range(8):
        text = re.sub(r"\s+", " ", text.replace("fox", "cat").lower())
    return {"length": len(text), "words": [hash(word) % 50_000 for word in text.split()]}


def clean_many(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The same on many."""
    done = [clean({"text": text}) for text in rows["text"]]
    return {name: [row[name] for row in done] for name in ("length", "words")}


def pack(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Texts joined and cut into pieces of equal length."""
    ids = [hash(word) % 50_000 for text in rows["text"] for word in text.split()]
    return {"ids": [ids[at : at + 512] for at in range(0, len(ids), 512)]}


def read_blob(row: dict[str, Any]) -> dict[str, Any]:
    """A file for each row."""
    content = Path(row["path"]).read_bytes()
    return {"size": len(content), "first": content[0] if content else 0}


def main() -> None:
    """Map until the time is over, then give the account."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument(
        "--function", choices=("clean", "clean_many", "pack", "read"), default="clean"
    )
    parser.add_argument("--num-proc", type=int, default=0)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--seconds", type=float, default=16.0)
    args = parser.parse_args()
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = folder
        from datasets import Dataset, disable_caching

        disable_caching()
        if args.function == "read":
            paths = sorted(str(path) for path in args.data.rglob("*") if path.is_file())
            rows: dict[str, list[Any]] = {"path": paths[: args.rows]}
        else:
            rows = {
                "text": [
                    " ".join(WORDS[(n * k) % 16 % len(WORDS)] for k in range(120))
                    for n in range(args.rows)
                ]
            }
        source = Dataset.from_dict(rows)
        more: dict[str, Any] = {"num_proc": args.num_proc} if args.num_proc else {}
        if args.function in ("clean_many", "pack"):
            more |= {"batched": True, "remove_columns": ["text"]}
        function = {"clean": clean, "clean_many": clean_many, "pack": pack, "read": read_blob}
        begin, count = time.monotonic(), 0
        while time.monotonic() - begin < args.seconds:
            source.map(function[args.function], **more)
            count += args.rows
        wall_s = time.monotonic() - begin
    told = {"steps": count, "samples_per_s": count / wall_s, "busy_frac": -1.0, "wait_frac": None}
    sys.stdout.write(json.dumps({"zoo": told}) + "\n")


if __name__ == "__main__":
    main()
