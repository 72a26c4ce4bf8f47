"""Secrets of every form given to jobs and traces: which of them can be found in the run's folder?

Every form has a secret of its own, and is a command line of a recorded job, a name or a fact of an
imported trace, or what a training job does with one: opens a path, saves to it, names a range of
the profiler, has it in a line of source, in its environment, or fails with it. All names and
contents below the store are searched, tables and packed files unpacked, and so is what was
printed. Two minutes on two busy cores.

    python -m bench.secrets_kept
"""

from __future__ import annotations

import gzip
import json
import os
import random
import sqlite3
import string
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from bench import results
from bench.zoo.record import FUELLINE

ON_COMMAND_LINES = (
    "--api-key {}",
    "--api-key={}",
    "--apikey {}",
    "--apiKey={}",
    "--token {}",
    "--auth {}",
    "--auth-token {}",
    "--use_auth_token {}",
    "--bearer {}",
    "--pass {}",
    "--pwd {}",
    "--password={}",
    "--passphrase {}",
    "--client-secret {}",
    "--access-key {}",
    "--wandb-key {}",
    "--api-keys {} b",
    "--credentials {}",
    "--otp {}",
    "HF_TOKEN={}",
    "PGPASSWORD={}",
    "AWS_SECRET_ACCESS_KEY={}",
    "db.password={}",
    "++env.HF_TOKEN={}",
    "--env=TOKEN={}",
    "-Dpassword={}",
    "-H Authorization:~Bearer~{}",
    "-H Authorization: Bearer {}",
    "--header=Proxy-Authorization:~Basic~{}",
    "-H X-Api-Key:~{}",
    "-H Cookie:~a=1;~session={}",
    "-u me:{}",
    '--config {{"api_key":~"{}"}}',
    '--config {{"a":~{{"credentials":~{{"v":~"{}"}}}}}}',
    "--config {{'password':~'{}'}}",
    "--config {{api_key:~{},~lr:~1}}",
    '--config {{\\"token\\":~\\"{}\\"}}',
    '--env [{{"name":~"HF_TOKEN","value":~"{}"}}]',
    "--storage AccountName=a;AccountKey={}==;x=1",
    "--then export~TOKEN={};~run~--api-key~{}",
    "hf_{}aB3aB3aB3",
    "sk-proj-{}aB3aB3aB3",
    "ghp_{}aB3aB3aB3",
    "eyJ{}.eyJzdWIiOiIxIn0.aB3aB3",
    "-----BEGIN~PRIVATE~KEY-----~{}~-----END~PRIVATE~KEY-----",
)
"""A space begins the next word, `~` is a space within one."""
IN_URLS = (
    "s3://me:{}@host/x",
    "redis://:{}@host/0",
    "postgres://me:a@{}@host/x",
    "https://{}@sentry.example/1",
    "me:{}@host:5432",
    "https://b.example/o?a=1&X-Amz-Signature={}",
    "https://b.example/o?X-Amz-Security-Token={}&a=1",
    "https://b.example/o?X-Goog-Credential={}",
    "https://b.example/o?sv=1&sig={}",
    "https://b.example/o?AWSAccessKeyId={}&Signature={}",
    "https://b.example/o#access_token={}",
    "https://b.example/o?key={}",
    "u=https%3A%2F%2Fb.example%2F%3Ftoken%3D{}",
    "https://hooks.slack.com/services/T0/B0/{}",
)
IN_TRACES = (
    "kineto: annotation",
    "kineto: operator",
    "kineto: host name",
    "kineto: metadata",
    "kineto: file name",
    "nsys: range",
    "nsys: environment",
    "nsys: host name",
    "nsys: diagnostics",
    "dcgm: host name",
    "dcgm: label",
)
IN_JOBS = ("path", "source line", "checkpoint", "profiler range", "environment", "exception")

JOB = """\
import os, sys, threading, time, torch
from torch.profiler import record_function
from torch.utils.data import DataLoader

def login(token):
    until = time.monotonic() + 0.02
    while time.monotonic() < until:
        sum(range(1000))

class Items(torch.utils.data.Dataset):
    def __len__(self): return 4096
    def __getitem__(self, at):
        login(token="hf_{source}aB3aB3aB3")
        return torch.randn(8)

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
until = time.monotonic() + 7
for step, batch in enumerate(DataLoader(Items(), batch_size=4)):
    with record_function("get?token={range}"):
        model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 3:
        torch.save(model.state_dict(), "{folder}/password={save}.pt")
    if time.monotonic() > until:
        break
raise RuntimeError("refused: https://b.example/?sig={exception}")
"""


def main() -> dict[str, Any]:
    """How many forms there are, and which of their secrets were found."""
    chance = random.Random(1)
    secrets: dict[str, str] = {}

    def new(form: str) -> str:
        drawn = (chance.choice(string.ascii_letters + string.digits) for _ in range(16))
        secrets[form] = "Q7" + "".join(drawn)
        return secrets[form]

    with tempfile.TemporaryDirectory(prefix="fuelline-bench-") as name:
        folder = Path(name)
        said = [_record(folder, form, new(form)) for form in (*ON_COMMAND_LINES, *IN_URLS)]
        said.append(_train(folder, {form: new(form) for form in IN_JOBS}))
        said.append(_import(folder, {form: new(form) for form in IN_TRACES}))
        there = [*_search(folder / "home"), *said]
        found = {form for form, each in secrets.items() if any(each in text for text in there)}
        loose = [
            str(path.relative_to(folder))
            for path in (folder / "home").rglob("*")
            if path.lstat().st_mode & 0o077
        ]
    figures = {
        "forms": len(secrets),
        "runs": len(ON_COMMAND_LINES) + len(IN_URLS) + 2,
        "found": sorted(found),
        "readable_by_others": sorted(loose),
        "passed": not found and not loose and len(secrets) >= 60,
    }
    results.write_section("secrets_kept", markdown(figures))
    return figures


def _fuelline(folder: Path, *words: str, **more: str) -> str:
    environment = {**os.environ, "FUELLINE_HOME": str(folder / "home"), **more}
    done = subprocess.run(
        [*FUELLINE, *words], env=environment, capture_output=True, text=True, check=False
    )
    if "Traceback" in done.stderr and "RuntimeError: refused" not in done.stderr:
        raise RuntimeError(done.stderr)
    return done.stdout + done.stderr


def _record(folder: Path, form: str, secret: str) -> str:
    """Record a job of a moment with one form on its command line; what was printed."""
    script = folder / "job.py"
    script.write_text("pass\n")
    words = [word.replace("~", " ") for word in form.replace("{}", secret).split(" ")]
    words = [word.replace("{{", "{").replace("}}", "}") for word in words]
    return _fuelline(folder, "run", str(script), *words)


def _train(folder: Path, secrets: dict[str, str]) -> str:
    """A training job that comes across secrets; its own last words are not ours."""
    home = folder / f"hf_{secrets['path']}aB3aB3aB3"
    home.mkdir()
    text = JOB
    for place, form in (
        ("{source}", "source line"),
        ("{range}", "profiler range"),
        ("{save}", "checkpoint"),
        ("{exception}", "exception"),
    ):
        text = text.replace(place, secrets[form])
    script = home / "train.py"
    script.write_text(text.replace("{folder}", str(home)))
    said = _fuelline(
        folder, "run", "--fix", "--zoom", "2@5", str(script), MY_TOKEN=secrets["environment"]
    )
    return said.partition("RuntimeError: refused")[2].partition("\n")[2]


def _import(folder: Path, secrets: dict[str, str]) -> str:
    """Traces of three formats, and then their diagnosis."""
    kineto = folder / f"rank0-hf_{secrets['kineto: file name']}aB3aB3aB3.json"
    kineto.write_text(json.dumps(_kineto(secrets)))
    nsys = folder / "report.sqlite"
    _write_nsys(nsys, secrets)
    dcgm = folder / "scrape.prom"
    labels = f'gpu="0",UUID="GPU-1",Hostname="me:{secrets["dcgm: host name"]}@n1"'
    labels += f',modelName="Tesla T4 token={secrets["dcgm: label"]}"'
    dcgm.write_text(
        f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 91\nDCGM_FI_PROF_SM_ACTIVE{{{labels}}} 0.1\n"
    )
    said = []
    for path in (kineto, nsys, dcgm):
        told = _fuelline(folder, "import", str(path))
        if "Imported into" not in told:
            raise RuntimeError(told)
        said += [told, _fuelline(folder, "diagnose"), _fuelline(folder, "diagnose", "--json")]
    return "\n".join(said)


def _kineto(secrets: dict[str, str]) -> dict[str, Any]:
    def event(cat: str, name: str, at: int, **args: Any) -> dict[str, Any]:
        event = {"ph": "X", "cat": cat, "name": name, "ts": at, "dur": 50, "args": args}
        return {"pid": 1, "tid": 1, **event}

    return {
        "schemaVersion": 1,
        "host_name": f"https://me:{secrets['kineto: host name']}@h",
        "command": f"train.py --api-key {secrets['kineto: metadata']}",
        "distributedInfo": {"rank": 0, "world_size": 1, "token": secrets["kineto: metadata"]},
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100", "numSms": 108}],
        "traceEvents": [
            event("user_annotation", f"fetch?sig={secrets['kineto: annotation']}", 1),
            event("cpu_op", f"load password={secrets['kineto: operator']}", 2),
            event("kernel", "gemm", 10, device=0, stream=7, correlation=1),
            event("kernel", "gemm", 100, device=0, stream=7, correlation=2),
        ],
    }


def _write_nsys(path: Path, secrets: dict[str, str]) -> None:
    owner = (1 << 48) + (111 << 24)
    times = "start INTEGER, end INTEGER"
    owned = "globalPid INTEGER, demangledName INTEGER, shortName INTEGER"
    connection = sqlite3.connect(path)
    tables: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
        "META_DATA_EXPORT": ("name TEXT, value TEXT", [("EXPORT_PRODUCT_VERSION", "2026.2")]),
        "StringIds": ("id INTEGER PRIMARY KEY, value TEXT", [(1, "gemm")]),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            f"{times}, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, {owned}",
            [(100, 200, 0, 7, 11, owner, 1, 1), (300, 400, 0, 7, 12, owner, 1, 1)],
        ),
        "NVTX_EVENTS": (
            f"{times}, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER",
            [(50, 500, 59, f"upload --token {secrets['nsys: range']}", owner + 5, None)],
        ),
        "TARGET_INFO_SYSTEM_ENV": (
            "name TEXT, value TEXT",
            [
                ("Hostname", f"me:{secrets['nsys: host name']}@node"),
                ("Environment", f"HF_TOKEN={secrets['nsys: environment']}"),
            ],
        ),
        "DIAGNOSTIC_EVENT": (
            "timestamp INTEGER, text TEXT",
            [(1, f"events were lost: password={secrets['nsys: diagnostics']}")],
        ),
    }
    for name, (columns, rows) in tables.items():
        connection.execute(f'CREATE TABLE "{name}" ({columns})')
        marks = ", ".join("?" * len(columns.split(",")))
        connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
    connection.commit()
    connection.close()


def _search(folder: Path) -> list[str]:
    """All names and contents below a folder as text, unpacked."""
    texts = []
    for path in folder.rglob("*"):
        texts.append(path.name)
        if not path.is_file():
            continue
        data = path.read_bytes()
        texts.append(data.decode("latin-1"))
        if path.suffix == ".parquet":
            texts.append(pl.read_parquet(data).write_ndjson())
        elif data.startswith(b"\x1f\x8b"):
            texts.append(gzip.decompress(data).decode("latin-1"))
    return texts


def markdown(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    found = ", ".join(f"`{form}`" for form in figures["found"]) or "none"
    return f"""## Secrets that a run keeps

`python -m bench.secrets_kept`, {results.machine()}. {len(ON_COMMAND_LINES)} forms on command lines,
{len(IN_URLS)} in URLs, {len(IN_TRACES)} in traces, {len(IN_JOBS)} that a training job comes across;
{figures["runs"]} runs, searched with their tables and packed files unpacked, and what was printed.

| figure | measured | bar |
| --- | --- | --- |
| forms of secrets | {figures["forms"]} | 60 |
| found anywhere, names included | {len(figures["found"])} ({found}) | 0 |
| files and folders that others can read | {len(figures["readable_by_others"])} | 0 |"""


if __name__ == "__main__":
    measured = main()
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
