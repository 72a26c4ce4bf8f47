"""Loaders side by side on one image pipeline: `python -m bench.loaders_peers`, 10 minutes.

Each peer runs bench/peer_job.py in an environment of its own (made under FUELLINE_BENCH_VENVS, or a
temporary folder) that sees this one's torch, so that none replaces it. In turns, medians of three.
Ours is the plain DataLoader with one worker, under the elastic loader; it and the others get 12
seconds to settle. A peer that cannot be installed is named with the reason. DALI and its libraries
take 1 GB, tensorflow 0.7 GB.
"""

from __future__ import annotations

import json
import os
import site
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from bench import results
from bench.peer_job import PEERS
from fuelline.fix.job_site import SITE_DIR
from fuelline.schema.diagnosis.fixes import FIX_VARIABLE
from fuelline.schema.wire import RUN_DIR_VARIABLE

OURS = "run --fix, from 1 worker"
# fmt: off
PACKAGES = {
    "SPDL": ["spdl_core"],
    "WebDataset": ["webdataset", "braceexpand", "pyyaml"],
    "litdata": [
        "litdata", "boto3", "botocore", "jmespath", "s3transfer", "python-dateutil", "six",
        "filelock", "lightning-utilities", "obstore", "requests", "tifffile", "urllib3",
        "charset-normalizer", "idna", "certifi", "packaging", "typing_extensions",
    ],
    "DALI (CPU)": [
        "nvidia-dali-cuda120", "nvidia-libnvcomp-cu12", "nvidia-nvimgcodec-cu12", "astunparse",
        "gast", "libcst", "makefun", "nvtx", "optree", "packaging", "six", "pyyaml",
        "typing_extensions", "wheel",
    ],
    "tf.data AUTOTUNE": ["tensorflow-cpu"],
}
# fmt: on
"""Without their dependencies, so that none brings a torch of its own; but tensorflow, which needs
none."""
ROUNDS = 3
SECONDS, SETTLE_S = 6.0, 12.0
IMAGES = 400
_JOB = Path(__file__).with_name("peer_job.py")


def make_images(folder: Path) -> None:
    """JPEGs of 500 x 375 with some structure, as photographs have."""
    import numpy as np
    from PIL import Image

    chance = np.random.default_rng(0)
    for number in range(IMAGES):
        small = chance.integers(0, 255, (24, 32, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC)
        image.save(folder / f"{number:04d}.jpg", quality=90)


def make_environment(folder: Path, packages: list[str]) -> Path | str:
    """The python of an environment with these packages; the reason if there can be none."""
    python = folder / "bin" / "python"
    if python.exists():
        return python
    venv.create(folder, with_pip=True)
    is_whole = packages == PACKAGES["tf.data AUTOTUNE"]
    command = [str(python), "-m", "pip", "install", "-q", *([] if is_whole else ["--no-deps"])]
    done = subprocess.run([*command, *packages], capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:200]
    if not is_whole:
        (target,) = folder.glob("lib/python*/site-packages")
        (target / "bench.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return python


def run_once(name: str, python: Path, images: Path, folder: Path) -> dict[str, float]:
    environment = dict(os.environ)
    job = name
    if name == OURS:
        job = "DataLoader, 1 worker"
        path = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = f"{SITE_DIR}{os.pathsep}{path}" if path else str(SITE_DIR)
        environment |= {FIX_VARIABLE: "safe", RUN_DIR_VARIABLE: str(folder)}
    command = [str(python), "-W", "ignore", str(_JOB), job, str(images), str(SECONDS)]
    done = subprocess.run(
        [*command, str(SETTLE_S)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(done.stderr.strip()[-300:])
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def measure(venvs: Path) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Medians by name, and why some are missing."""
    pythons: dict[str, Path] = {OURS: Path(sys.executable)}
    missing: dict[str, str] = {}
    for name in PEERS:
        if name not in PACKAGES:
            pythons[name] = Path(sys.executable)
            continue
        made = make_environment(venvs / name.split()[0].lower(), PACKAGES[name])
        if isinstance(made, str):
            missing[name] = made
        else:
            pythons[name] = made
    told: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        images.mkdir()
        make_images(images)
        for number in range(ROUNDS):
            for name in pythons if number % 2 == 0 else reversed(pythons):
                try:
                    told[name].append(run_once(name, pythons[name], images, Path(folder)))
                except (RuntimeError, ValueError) as failure:  # noqa: PERF203
                    missing[name] = str(failure)[-200:]
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in told.items()
        if runs
    }
    return medians, missing


def main() -> dict[str, Any]:
    """Measure, write the section."""
    kept = os.environ.get("FUELLINE_BENCH_VENVS")
    with tempfile.TemporaryDirectory() as temporary:
        medians, missing = measure(Path(kept or temporary))
    results.write_section("loaders_peers", _section(medians, missing))
    best = max(medians, key=lambda name: medians[name]["images_per_s"])
    return {**medians, "missing": missing, "first": best, "passed": OURS in medians}


def _section(medians: dict[str, dict[str, float]], missing: dict[str, str]) -> str:
    ranked = sorted(medians, key=lambda name: -medians[name]["images_per_s"])
    rows = "\n".join(
        f"| {name} | {medians[name]['images_per_s']:.0f} "
        f"| {medians[name]['images_per_cpu_s']:.0f} | {medians[name]['at_first']:.0f} |"
        for name in ranked
    )
    place = ranked.index(OURS) + 1 if OURS in ranked else 0
    absent = "\n".join(f"- {name}: not measured: {why}" for name, why in missing.items())
    return f"""## Loaders side by side

`python -m bench loaders_peers`, {results.machine()}. JPEG 500 x 375, decoded and resized to
224 x 224, batches of 32, no training: images a second, and for each CPU second. Pillow decodes for
all but tf.data and DALI. Ours is number {place} of {len(ranked)}.

| loader | images/s | images per CPU second | images/s in the first {SETTLE_S:.0f} s |
| --- | --- | --- | --- |
{rows}

{absent}"""


if __name__ == "__main__":
    print(main())
