"""Compiles models, steps and optimizers, and prints results and what the compiler did."""

import contextlib
import json
import sys
import warnings
from typing import Any

import torch
import torch._dynamo
from torch.utils.data import DataLoader

warnings.simplefilter("ignore")


def fresh() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def weights(model: torch.nn.Module) -> list[str]:
    return [value.item().hex() for weight in model.parameters() for value in weight.flatten()]


def compiled_model(backend: str) -> list[str]:
    model, optimizer = fresh()
    run = torch.compile(model, backend=backend)
    for batch in DataLoader(torch.arange(48.0).reshape(12, 4) / 48, batch_size=4):
        run(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


def compiled_step(*, fullgraph: bool) -> list[str]:
    """The optimizer in the graph; torch's own loop over its step hooks is traced with it."""
    model, optimizer = fresh()

    @torch.compile(backend="eager", fullgraph=fullgraph)
    def step() -> None:
        optimizer.step()

    for _ in range(5):
        model(torch.ones(2, 4)).square().mean().backward()
        step()
        optimizer.zero_grad()
    return weights(model)


def backward_in_compiled_function(how: str) -> list[str]:
    """The graph breaks at backward, and dynamo goes on in the frames that are called there."""
    model, optimizer = fresh()

    @torch.compile(backend="eager")
    def train(batch: torch.Tensor) -> None:
        loss = model(batch).square().mean()
        if how == "method":
            loss.backward()
        else:
            torch.autograd.backward([loss])

    for size in range(1, 14):
        train(torch.ones(size, 4))
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


def moved_in_graph(where: str) -> Any:
    """Methods that our device hooks stand in for, called in one whole graph."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    @torch.compile(backend="eager", fullgraph=True)
    def move(batch: torch.Tensor) -> torch.Tensor:
        moved = torch.Tensor.to(batch.to(torch.float64), "cpu").cpu()
        return torch.zeros_like(moved).copy_(moved).sum()

    with {"plain": contextlib.nullcontext(), "mode": Passing(), "device": torch.device("cpu")}[
        where
    ]:
        answers = [move(torch.ones(size)).item() for size in (2, 3, 4)]
    return [answers, dict(torch._dynamo.utils.counters["stats"])]


class Passing(torch.overrides.TorchFunctionMode):
    """A function mode of the job's."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def pretend_accelerator() -> None:
    """Let the device hooks, if there are any, believe that the weights are on a device."""
    training = sys.modules.get("fuelline.record.hooks.torch.training")
    if training is None:
        return
    vars(training)["find_device"] = lambda optimizer: torch.device("privateuseone", 0)
    vars(torch)["Event"] = Event
    torch.accelerator.current_stream = lambda device: "stream"
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).step()
    assert "to" in vars(torch.Tensor)


class Event:
    """An event that the device has passed at once."""

    def __init__(self, **settings: Any) -> None:
        assert settings["enable_timing"]

    def record(self, stream: Any) -> None:
        """Queue it."""

    def query(self) -> bool:
        """Whether it was passed."""
        return True

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds between the two."""
        return 0.1


def attempt(action: Any, *args: Any, **kwargs: Any) -> Any:
    torch._dynamo.utils.clear_compilation_metrics()
    try:
        answer = action(*args, **kwargs)
    except Exception as error:  # noqa: BLE001
        answer = type(error).__name__
    compiled = torch._dynamo.utils.get_compilation_metrics()
    frames = {f"{frame.co_filename}:{frame.co_name}" for frame in compiled}
    return {"answer": answer, "frames": sorted(frames)}


if __name__ == "__main__":
    if "accelerated" in sys.argv:
        pretend_accelerator()
    answers = {
        "model-eager": attempt(compiled_model, "eager"),
        "model-aot": attempt(compiled_model, "aot_eager"),
        "step": attempt(compiled_step, fullgraph=False),
        "step-fullgraph": attempt(compiled_step, fullgraph=True),
        "backward-method": attempt(backward_in_compiled_function, "method"),
        "backward-function": attempt(backward_in_compiled_function, "function"),
        "move-plain": attempt(moved_in_graph, "plain"),
        "move-mode": attempt(moved_in_graph, "mode"),
        "move-device": attempt(moved_in_graph, "device"),
    }
    sys.stdout.write(json.dumps(answers) + "\n")
