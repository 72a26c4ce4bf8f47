"""What the zoo's jobs share: options, the loader, the training loop and its own account.

The loop is an ordinary one and knows nothing of any recorder. Its last line of output is the truth
as the job saw it: steps, rate, the busy share of the emulated device, and with ZOO_MEASURE=1 the
time spent in `next()`. Under ZOO_TRACER=traceml it has the two lines that this peer asks for.
"""

import argparse
import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from examples.emulated import Device, Net
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

PRINT_EVERY = 25
AfterStep = Callable[[int, nn.Module], None]


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that every job has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--fixed-ms", type=float, default=2.0, help="device time per step")
    parser.add_argument("--sample-ms", type=float, default=1.0, help="device time per sample")
    return parser


def make_loader(dataset: Dataset[Any], args: argparse.Namespace, **more: Any) -> DataLoader[Any]:
    """A stock DataLoader; options that torch refuses without workers are left out then."""
    if args.workers:
        more = {"prefetch_factor": args.prefetch, "persistent_workers": args.persistent, **more}
    torch.manual_seed(0)
    return DataLoader(dataset, batch_size=args.batch, num_workers=args.workers, **more)


def train(
    loader: Iterable[Any], args: argparse.Namespace, after_step: AfterStep | None = None
) -> None:
    """Train on the emulated device for the set time, epoch after epoch."""
    torch.set_num_threads(1)  # the little net is there to be real, not to keep cores busy
    factor = float(os.environ.get("ZOO_DEVICE_TIME", "1"))
    times_ms = args.fixed_ms * factor, args.sample_ms * factor
    if os.environ.get("ZOO_DEVICE") == "emu":
        from on_emu import EmuDevice, EmuNet

        emulated = EmuDevice(*times_ms)
        run(EmuNet(emulated), loader, args.seconds, after_step, emulated.busy_frac)
        return
    device = Device(*times_ms)
    run(Net(device), loader, args.seconds, after_step, device.busy_frac)


def run(
    model: nn.Module,
    loader: Iterable[Any],
    seconds: float,
    after_step: AfterStep | None = None,
    busy_frac: Callable[[], float] = lambda: -1.0,
) -> None:
    """The loop: forward, backward, step, and a loss line now and then."""
    account = _Account()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trace_step = tracer()
    place = next(model.parameters()).device
    batches = _batches(loader, account)  # kept: what a source does when it is closed is no training
    for step, (inputs, labels) in enumerate(batches, start=1):
        with trace_step(model):
            loss = functional.cross_entropy(model(_to(inputs, place)), _to(labels, place))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if step % PRINT_EVERY == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if after_step is not None:
            after_step(step, model)
        if account.count(inputs) > seconds:
            break
    account.print(busy_frac())


def _to(part: Any, place: torch.device) -> Any:
    """As scripts do it; what is no tensor, and what is there already, is left as it is."""
    is_elsewhere = isinstance(part, Tensor) and part.device != place
    return part.to(place) if is_elsewhere else part


def _batches(loader: Iterable[Any], account: "_Account") -> Iterator[tuple[Tensor, Tensor]]:
    for _epoch in itertools.count():
        yield from account.timed(loader) if account.measures else loader


def tracer() -> Callable[[nn.Module], contextlib.AbstractContextManager[Any]]:
    """The peer's context around a step, if it is asked for."""
    if os.environ.get("ZOO_TRACER") != "traceml":
        return lambda _model: contextlib.nullcontext()
    import traceml_ai as traceml  # type: ignore[import-not-found]

    traceml.init()
    step: Callable[[nn.Module], contextlib.AbstractContextManager[Any]] = traceml.trace_step
    return step


class _Account:
    """Steps, samples and waits from the end of the first step on: start-up is not training."""

    def __init__(self) -> None:
        self.measures = os.environ.get("ZOO_MEASURE") == "1"
        self._start_s = 0.0
        self._wait_s = 0.0
        self._steps = 0
        self._samples = 0

    def count(self, inputs: Tensor) -> float:
        """Count a step; seconds since the first one."""
        now_s = time.perf_counter()
        if not self._start_s:
            self._start_s, self._wait_s = now_s, 0.0
        else:
            self._steps += 1
            self._samples += len(inputs)
        return now_s - self._start_s

    def timed(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches, with the time that each was waited for."""
        asked_s = time.perf_counter()
        for batch in loader:
            self._wait_s += time.perf_counter() - asked_s
            yield batch
            asked_s = time.perf_counter()

    def print(self, busy_frac: float) -> None:
        """The last line of the job's output."""
        wall_s = time.perf_counter() - self._start_s
        truth = {
            "steps": self._steps,
            "samples_per_s": round(self._samples / wall_s, 2),
            "busy_frac": round(busy_frac, 4),
            "wait_frac": round(self._wait_s / wall_s, 4) if self.measures else None,
        }
        print(json.dumps({"zoo": truth}), flush=True)
