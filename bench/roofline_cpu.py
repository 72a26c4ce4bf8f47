"""This machine: a model predicted from `fuelline roofline` alone, against its clock.

347 million random weights in plain torch, fp32 and bf16, batch 1 to 16, prefill and decode. Every
pass measures the device and then every case; what is compared is the median prediction with the
median time. About 6 minutes on 2 quiet cores without half-precision units. On a shared machine
`--cpu-clock` runs one thread and reads its CPU time, which others cannot stretch (they still take
bandwidth and cache).

    python -m bench.roofline_cpu [--cpu-clock] [--passes 3] [--rounds 9]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from bench import llama_shape as shape
from bench import results
from fuelline.predict.adapters.torch_device import measure_device
from fuelline.predict.adapters.torch_probes import PRECISIONS
from fuelline.predict.planner.physics.constants import shipped_constants
from fuelline.predict.planner.physics.deployment import Deployment
from fuelline.predict.roofline.measured import make_chip, make_matmuls, with_entries
from fuelline.schema.models import Model
from fuelline.schema.plans import Parallelism
from fuelline.schema.precision import parse_precision

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.schema.roofline import Roofline

BAR = 0.20
BATCHES = (1, 4, 16)
PROMPT, CONTEXT = 32, 256
REPEATS = 2
MODEL = Model(
    name="llama-shaped-347m",
    hidden=shape.HIDDEN,
    layers=shape.LAYERS,
    heads=shape.HEADS,
    kv_heads=shape.HEADS,
    ffn=shape.FFN,
    vocab=shape.VOCAB,
)


class Case(NamedTuple):
    precision: str
    kind: str
    batch: int


CASES = [
    Case(precision, kind, batch)
    for precision in ("fp32", "bf16")
    for kind in ("decode", "prefill")
    for batch in BATCHES
]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = _parse(arguments)
    clock = time.process_time if options.cpu_clock else time.perf_counter
    if options.cpu_clock:
        torch.set_num_threads(1)
    torch.manual_seed(1)
    model = shape.Llama().eval()
    predicted: dict[Case, list[float]] = {case: [] for case in CASES}
    measured: dict[Case, list[float]] = {case: [] for case in CASES}
    for number, precision in itertools.product(range(options.passes), ("fp32", "bf16")):
        print(f"pass {number + 1}: the device in {precision}", flush=True)
        roofline = measure_device("cpu", (precision,), options.rounds, clock)
        model = model.to(PRECISIONS[precision])
        for case in (case for case in CASES if case.precision == precision):
            predicted[case].append(predict(case, roofline))
            measured[case].append(measure(case, model, clock))
            print(f"  {tuple(case)}: {predicted[case][-1]:.4f} s, took {measured[case][-1]:.4f}")
    return _tell(predicted, measured, options)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu-clock", action="store_true")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args([] if arguments is None else arguments)


def predict(case: Case, roofline: Roofline) -> float:
    """Seconds, by the planner's step model with this machine as the chip."""
    bits = 32.0 if case.precision == "fp32" else 16.0
    replica = Deployment(
        model=MODEL,
        chip=make_chip(roofline, "here"),
        precision=parse_precision(case.precision, bits),
        spread=Parallelism(),
        constants=with_entries(shipped_constants(), make_matmuls(roofline, "here")),
    )
    if case.kind == "decode":
        return replica.decode(case.batch, CONTEXT - 1).seconds
    return replica.prefill(case.batch, PROMPT).seconds


def measure(case: Case, model: shape.Llama, clock: Callable[[], float]) -> float:
    length = 1 if case.kind == "decode" else PROMPT
    at = CONTEXT - 1 if case.kind == "decode" else 0
    tokens = torch.randint(0, shape.VOCAB, (case.batch, length))
    caches = shape.make_caches(case.batch, at + length, PRECISIONS[case.precision])
    times = []
    with torch.inference_mode():
        for _ in range(REPEATS + 1):
            start = clock()
            model(tokens, caches, at)
            times.append(clock() - start)
    return statistics.median(times[1:])  # the first pass allocates


def _tell(
    predicted: dict[Case, list[float]],
    measured: dict[Case, list[float]],
    options: argparse.Namespace,
) -> dict[str, Any]:
    rows, errors = [], {}
    for case in CASES:
        guess, took = statistics.median(predicted[case]), statistics.median(measured[case])
        errors[case] = guess / took - 1
        spread = (max(measured[case]) - min(measured[case])) / took
        rows.append(
            f"| {case.precision} | {case.kind} | {case.batch} | {guess * 1e3:,.0f} | "
            f"{took * 1e3:,.0f} "
            f"| {spread:.0%} | {errors[case]:+.1%} |"
        )
    worst = max(errors, key=lambda case: abs(errors[case]))
    mean = statistics.mean(abs(each) for each in errors.values())
    clock = "CPU time of one thread" if options.cpu_clock else "wall clock"
    flag = " --cpu-clock" if options.cpu_clock else ""
    intro = (
        f"`python -m bench.roofline_cpu{flag}`, {results.machine()}, torch {torch.__version__}, "
        f"{clock}, {options.passes} passes interleaved. {MODEL.params / 1e6:.0f}M random weights; "
        f"prompt {PROMPT}, context {CONTEXT}. Bar: every row within {BAR:.0%}. Mean error "
        f"{mean:.1%}, worst {errors[worst]:+.1%} ({' '.join(map(str, worst))})."
    )
    head = (
        "| precision | step | batch | predicted ms | measured ms | spread of passes | error |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
    )
    title = "## This machine, predicted from `fuelline roofline` alone"
    body = f"{title}\n\n{intro}\n\n{head}" + "\n".join(rows)
    print(body, flush=True)
    results.write_section("roofline_cpu", body)
    return {
        "passed": abs(errors[worst]) <= BAR,
        "mean_error": round(mean, 3),
        "worst_error": round(errors[worst], 3),
    }


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
