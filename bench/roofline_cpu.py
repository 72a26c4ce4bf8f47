"""This machine: a model predicted from `fuelline roofline` alone, against its clock.

347 million random weights in plain torch, fp32 and bf16, batch 1 to 16, prefill and decode. The
device is measured in rounds and the model's steps run between them: round, steps, round, steps.
Each step is predicted from the round before it and the one after it, so that both saw the same
machine; a row's error is the median over its steps. About 7 minutes on 2 quiet cores without
half-precision units. `--cpu-clock` runs one thread and reads its CPU time, which others cannot
stretch (they still take bandwidth and cache).

    python -m bench.roofline_cpu [--cpu-clock] [--turns 24]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from bench import llama_shape as shape
from bench import results
from fuelline.plan.physics.constants import shipped_constants
from fuelline.plan.physics.deployment import Deployment
from fuelline.plan.roofline.measured import make_chip, make_matmuls, with_entries
from fuelline.plan.roofline.torch_device import DeviceRounds
from fuelline.plan.roofline.torch_probes import PRECISIONS
from fuelline.schema.plan.estimates import Parallelism
from fuelline.schema.plan.models import Model
from fuelline.schema.plan.precision import parse_precision

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.schema.plan.roofline import Roofline

BAR = 0.20
PRECISION_NAMES = ("fp32", "bf16")
BATCHES = (1, 4, 16)
PROMPT, CONTEXT = 32, 256
SAMPLE_S = 0.3
"""Short steps run again and again for so long in every turn."""
LONG_S, LONG_EVERY = 5.0, 4
"""A longer step runs in every fourth turn only: it is an average over seconds by itself."""
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
    for precision in PRECISION_NAMES
    for kind in ("decode", "prefill")
    for batch in BATCHES
]


class Turn(NamedTuple):
    """One case between two rounds."""

    predicted_s: float
    measured_s: float


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = _parse(arguments)
    clock = time.process_time if options.cpu_clock else time.perf_counter
    if options.cpu_clock:
        torch.set_num_threads(1)
    sides = [Side(precision, clock) for precision in PRECISION_NAMES]
    for number in range(options.turns):
        print(f"turn {number + 1} of {options.turns}", flush=True)
        for side in sides:
            side.take(number)
    return _tell({case: turns for side in sides for case, turns in side.turns().items()}, options)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu-clock", action="store_true")
    parser.add_argument("--turns", type=int, default=24)
    return parser.parse_args([] if arguments is None else arguments)


class Side:
    """One precision: its model, its rounds, and its steps between them."""

    def __init__(self, precision: str, clock: Callable[[], float]) -> None:
        print(f"the model and the probes in {precision}", flush=True)
        torch.manual_seed(1)
        self._clock = clock
        self._model = shape.Llama().eval().to(PRECISIONS[precision])
        self._rounds = DeviceRounds("cpu", (precision,), clock)
        self._inputs = {case: _make_input(case) for case in CASES if case.precision == precision}
        # The first step of a case allocates.
        self._first_s = {case: self._step(case) for case in self._inputs}
        self._took: dict[Case, dict[int, float]] = {case: {} for case in self._inputs}
        self._rounds.take()

    def take(self, number: int) -> None:
        """Every case, and a round after them."""
        for case, took in self._took.items():
            if self._first_s[case] < LONG_S or number % LONG_EVERY == 0:
                took[number] = self._sample(case)
        self._rounds.take()

    def turns(self) -> dict[Case, list[Turn]]:
        """Each step with what the rounds on both sides of it say."""
        return {
            case: [
                Turn(predict(case, self._rounds.roofline(number, number + 2)), took_s)
                for number, took_s in took.items()
            ]
            for case, took in self._took.items()
        }

    def _sample(self, case: Case) -> float:
        times = [self._step(case)]
        while sum(times) < SAMPLE_S:
            times.append(self._step(case))
        return statistics.median(times)

    def _step(self, case: Case) -> float:
        tokens, caches = self._inputs[case]
        with torch.inference_mode():
            start = self._clock()
            self._model(tokens, caches, CONTEXT - 1 if case.kind == "decode" else 0)
            return self._clock() - start


def _make_input(case: Case) -> tuple[torch.Tensor, list[torch.Tensor]]:
    length, context = (1, CONTEXT) if case.kind == "decode" else (PROMPT, PROMPT)
    tokens = torch.randint(0, shape.VOCAB, (case.batch, length))
    return tokens, shape.make_caches(case.batch, context, PRECISIONS[case.precision])


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


def _tell(turns: dict[Case, list[Turn]], options: argparse.Namespace) -> dict[str, Any]:
    errors = {
        case: statistics.median(each.predicted_s / each.measured_s for each in turns[case]) - 1
        for case in CASES
    }
    worst = max(errors, key=lambda case: abs(errors[case]))
    mean = statistics.mean(abs(each) for each in errors.values())
    clock = "CPU time of one thread" if options.cpu_clock else "wall clock"
    flag = " --cpu-clock" if options.cpu_clock else ""
    intro = (
        f"`python -m bench.roofline_cpu{flag}`, {results.machine()}, torch {torch.__version__}, "
        f"{clock}, {options.turns} turns of round and steps, load {os.getloadavg()[0]:.1f} at the "
        f"end. {MODEL.params / 1e6:.0f}M random "
        f"weights; prompt {PROMPT}, context {CONTEXT}. Bar: every row within {BAR:.0%}. Mean error "
        f"{mean:.1%}, worst {errors[worst]:+.1%} ({' '.join(map(str, worst))}). Error: median over "
        "the turns, each predicted from the rounds before and after it; spread: middle half of "
        "the measured steps, against their median."
    )
    head = (
        "| precision | step | batch | predicted ms | measured ms | spread | turns | error |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    title = "## This machine, predicted from `fuelline roofline` alone"
    rows = "\n".join(_row(case, turns[case], errors[case]) for case in CASES)
    body = f"{title}\n\n{intro}\n\n{head}{rows}"
    print(body, flush=True)
    results.write_section("roofline_cpu", body)
    return {
        "passed": abs(errors[worst]) <= BAR,
        "mean_error": round(mean, 3),
        "worst_error": round(errors[worst], 3),
    }


def _row(case: Case, turns: list[Turn], error: float) -> str:
    predicted = statistics.median(each.predicted_s for each in turns)
    measured = sorted(each.measured_s for each in turns)
    middle = statistics.median(measured)
    spread = (measured[3 * len(measured) // 4] - measured[len(measured) // 4]) / middle
    return (
        f"| {case.precision} | {case.kind} | {case.batch} | {predicted * 1e3:,.0f} | "
        f"{middle * 1e3:,.0f} | {spread:.0%} | {len(turns)} | {error:+.1%} |"
    )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
