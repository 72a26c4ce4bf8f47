"""How much of start-up has a name, and whether a part that was planted has its length: ten jobs.

Each job spends some seconds on one thing before its steps, and says itself how long that took by
its own clock. The bar: at least 95 % named in each. Also stated: by how much of start-up the
planted part is off.

    python -m bench.start_up [--only NAME]
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.results import machine, write_section
from fuelline.pipeline.diagnosed import diagnose_run
from fuelline.record.launch import launch

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.start_up import StartLedger, StartPart

BAR = 0.95
HEAD = """
import json, os, sys, time
def told(begin, key="planted"):
    with open(os.environ["BENCH_TRUTH"], "w") as file:
        json.dump(time.monotonic() - begin, file)
"""
LOOP = """
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
class Samples(torch.utils.data.Dataset):
    def __len__(self): return 4096
    def __getitem__(self, index): return torch.zeros(64)
def train(loader):
    for step, batch in enumerate(loader):
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.02)
        if step == 60: break
"""
JOBS: dict[str, tuple[StartPart, str]] = {
    "imports": (
        "imports",
        "begin = time.monotonic()\nimport torch\nimport torch.distributed, sympy\ntold(begin)\n"
        + LOOP
        + "train(torch.utils.data.DataLoader(Samples(), 16))",
    ),
    "index": (
        "data set index",
        "import torch\n"
        + LOOP
        + """
def index(root):
    found = []
    while time.monotonic() - begin < 4:
        for folder, _, names in os.walk(root):
            found += [os.path.join(folder, name) for name in names]
            if time.monotonic() - begin > 4: break
    return found
begin = time.monotonic()
index("/usr/lib")
told(begin)
train(torch.utils.data.DataLoader(Samples(), 16))""",
    ),
    "code": (
        "code",
        "import torch\n"
        + LOOP
        + """
def merge_pairs():
    counts = {}
    while time.monotonic() - begin < 4:
        for number in range(10000): counts[number % 97] = counts.get(number % 97, 0) + 1
begin = time.monotonic()
merge_pairs()
told(begin)
train(torch.utils.data.DataLoader(Samples(), 16))""",
    ),
    "model load": (
        "model load",
        "import torch\n"
        + LOOP
        + """
path = os.environ["BENCH_TRUTH"] + ".pt"
torch.save([torch.zeros(3) for _ in range(20000)], path)
begin = time.monotonic()
for _ in range(4): torch.load(path, weights_only=False)
told(begin)
os.remove(path)
train(torch.utils.data.DataLoader(Samples(), 16))""",
    ),
    "download": (
        "download",
        "import torch, urllib.request\n"
        + LOOP
        + """
begin = time.monotonic()
urllib.request.urlopen(os.environ["BENCH_URL"]).read()
told(begin)
train(torch.utils.data.DataLoader(Samples(), 16))""",
    ),
    "first batch": (
        "first batch",
        "import torch\n"
        + LOOP
        + """
class Slow(Samples):
    def __getitem__(self, index):
        if index < 16: time.sleep(0.2)
        return super().__getitem__(index)
loader = iter(torch.utils.data.DataLoader(Slow(), 16))
begin = time.monotonic()
first = next(loader)
told(begin)
train([first])
train(loader)""",
    ),
    "worker start": (
        "worker start",
        "import torch\n"
        + LOOP
        + """
if __name__ == "__main__":
    begin = time.monotonic()
    loader = torch.utils.data.DataLoader(Samples(), 16, num_workers=2,
                                         multiprocessing_context="spawn")
    batches = iter(loader)
    train([next(batches)])
    told(begin)
    train(batches)""",
    ),
    "model build": (
        "model build",
        "import torch\n"
        + LOOP
        + """
begin = time.monotonic()
big = [torch.nn.Linear(1024, 1024) for _ in range(400)]
told(begin)
del big
train(torch.utils.data.DataLoader(Samples(), 16))""",
    ),
    "compile": (
        "compile",
        "import torch\n"
        + LOOP
        + """
torch._inductor.config.fx_graph_cache = False
model = torch.compile(model)
begin = time.monotonic()
model(torch.zeros(16, 64)).sum().backward()
told(begin)
train(torch.utils.data.DataLoader(Samples(), 16))""",
    ),
    "launch": (
        "launch",
        "import torch\n" + LOOP + "train(torch.utils.data.DataLoader(Samples(), 16))",
    ),
}
SHELL_SECONDS = 3.0


class _Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """A file of which a byte comes every tenth of a second."""
        self.send_response(200)
        self.send_header("Content-Length", "40")
        self.end_headers()
        for _ in range(40):
            self.wfile.write(b"x")
            time.sleep(0.1)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name
        """Say nothing."""


@dataclass(frozen=True)
class Row:
    """One job."""

    name: str
    ledger: StartLedger
    truth_s: float
    found_s: float

    @property
    def off(self) -> float:
        """By how much of start-up the planted part is off."""
        return abs(self.found_s - self.truth_s) / self.ledger.seconds


def measure(name: str, folder: Path) -> Row:
    """Record one job and read its ledger."""
    part, text = JOBS[name]
    script, truth = folder / f"{part.replace(' ', '_')}.py", folder / "truth.json"
    script.write_text(HEAD + text)
    command = [sys.executable, "-W", "ignore", str(script)]
    if part == "launch":
        command = ["/bin/sh", "-c", f"sleep {SHELL_SECONDS}; {' '.join(command)}; true"]
        truth.write_text(str(SHELL_SECONDS))
    server = http.server.HTTPServer(("127.0.0.1", 0), _Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    more = {
        "BENCH_TRUTH": str(truth),
        "BENCH_URL": f"http://127.0.0.1:{server.server_port}/",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    run_dir = folder / f"run-{name.replace(' ', '-')}"
    outcome = launch(command, run_dir, more=more)
    server.shutdown()
    if outcome.returncode or outcome.problem:
        raise RuntimeError(f"{name}: the job was not recorded: {outcome}")
    ledger = diagnose_run(run_dir).start_up
    if ledger is None:
        raise RuntimeError(f"{name}: there is no ledger")
    found = sum(each.seconds for each in ledger.parts if each.part == part)
    return Row(name, ledger, float(json.loads(truth.read_text())), found)


def describe(rows: list[Row], load: str) -> str:
    """The section of the results page."""
    lines = [
        "## Start-up ledger",
        "",
        f"`python -m bench.start_up`, {machine()}; load average before and after: {load}.",
        "Planted: what the job's own clock says; found: the ledger's part; off: of start-up.",
        "",
        "| job | start-up | named | planted part | planted | found | off |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.name} | {row.ledger.seconds:.1f} s | {100 * row.ledger.named_frac:.1f} % | "
        f"{JOBS[row.name][0]} | {row.truth_s:.1f} s | {row.found_s:.1f} s | "
        f"{100 * row.off:.0f} % |"
        for row in rows
    ]
    passed = sum(row.ledger.named_frac >= BAR for row in rows)
    lines += ["", f"At least 95 % named: {passed} of {len(rows)} (bar: all)."]
    return "\n".join(lines)


def main() -> int:
    """Measure all jobs; 1 if one is below the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=JOBS, help="one job, and leave the results page alone")
    only = parser.parse_args().only
    before = os.getloadavg()[0]
    rows = []
    for name in [only] if only else JOBS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, Path(folder)))
        row = rows[-1]
        parts = ", ".join(f"{each.part} {each.seconds:.1f}" for each in row.ledger.parts)
        sys.stdout.write(f"{name}: {100 * row.ledger.named_frac:.1f} % named; {parts}\n")
        sys.stdout.flush()
    text = describe(rows, f"{before:.1f}, {os.getloadavg()[0]:.1f}")
    sys.stdout.write(text + "\n")
    if not only:
        write_section("start_up", text)
    return int(any(row.ledger.named_frac < BAR for row in rows))


if __name__ == "__main__":
    sys.exit(main())
