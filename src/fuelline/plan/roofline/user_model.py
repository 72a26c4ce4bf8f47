"""The user's model from `model.py:build`, and inputs of the shapes asked for.

What stands after the colon may be a module, a function or class that makes one, or any callable to
be timed.
A builder may return `(model, inputs)`. Whatever goes wrong in the user's code is reported in their
words, with the line.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from fuelline.schema.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from fuelline.plan.roofline.inputs import InputShape


class ModelCall(Struct, frozen=True):
    """A model with what it is called with."""

    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self) -> Any:
        """One forward pass."""
        return self.model(*self.args, **self.kwargs)

    def tensors(self) -> list[Any]:
        """All inputs that are tensors."""
        found = [*self.args, *self.kwargs.values()]
        return [each for each in found if isinstance(each, torch.Tensor)]


def load_call(target: str, inputs: Sequence[InputShape], dtype: Any, device: str) -> ModelCall:
    """The model on its device, in the precision asked for, with inputs."""
    path, name = _split(target)
    module = _import(path)
    made = _make(path, module, name)
    model, given = made if _is_pair(made) else (made, None)
    if not callable(model):
        raise InputError(
            f"{target} gave a {type(model).__name__}, which cannot be called. Return a torch "
            "module or "
            "a function."
        )
    if isinstance(model, torch.nn.Module):
        model = model.eval().to(device)
        model = model.to(dtype) if dtype is not None else model
    args, kwargs = _inputs(target, inputs, given, _float_of(model, dtype), device)
    return ModelCall(model, args, kwargs)


def _split(target: str) -> tuple[Path, str]:
    file, colon, name = target.rpartition(":")
    if not colon or not file or not name:
        raise UsageError(
            f"'{target}' names no function. Write FILE.py:FUNCTION, such as model.py:build."
        )
    path = Path(file)
    if not path.is_file():
        raise InputError(f"there is no file {file}. Nothing was measured; check the path.")
    return path, name


def _import(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fuelline_target_{path.stem}", path.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file. Nothing was measured.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(_explain(f"{path} cannot be imported", error, path)) from error
    finally:
        sys.path.pop(0)
    return module


def _make(path: Path, module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each, value in vars(module).items() if callable(value)]
            own = ", ".join(each for each in known if not each.startswith("_")) or "none"
            raise InputError(f"{path} has no '{name}'. It has: {own}.")
        found = getattr(found, part)
    if isinstance(found, torch.nn.Module) or not callable(found):
        return found
    try:
        return found()
    except (Exception, SystemExit) as error:
        if isinstance(error, TypeError) and _needs_arguments(error):
            return found  # a function to be timed itself
        raise InputError(_explain(f"{name}() of {path} failed", error, path)) from error


def _needs_arguments(error: TypeError) -> bool:
    """Our own call failed, not one inside."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def _is_pair(made: Any) -> bool:
    return isinstance(made, tuple) and len(made) == 2 and callable(made[0])


def _float_of(model: Any, dtype: Any) -> Any:
    """The precision of inputs that do not say theirs: the model's own."""
    if dtype is not None:
        return dtype
    if isinstance(model, torch.nn.Module):
        for parameter in model.parameters():
            if parameter.is_floating_point():
                return parameter.dtype
    return torch.float32


def _inputs(
    target: str, shapes: Sequence[InputShape], given: Any, default: Any, device: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if shapes:
        tensors = [(each.name, _tensor(each, default, device)) for each in shapes]
        return (
            tuple(tensor for name, tensor in tensors if not name),
            {name: tensor for name, tensor in tensors if name},
        )
    if given is None:
        raise UsageError(
            f"{target} says nothing of its inputs. Give their shapes: --input 1x3x224x224, or "
            "--input 1x128:int64 for tokens."
        )
    moved = _moved(given, device)
    if isinstance(moved, dict):
        return (), moved
    return (tuple(moved) if isinstance(moved, (tuple, list)) else (moved,)), {}


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(each, device) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [_moved(each, device) for each in value]
    return value


def _tensor(shape: InputShape, default: Any, device: str) -> Any:
    dtype = getattr(torch, shape.dtype) if shape.dtype else default
    if dtype.is_floating_point:
        return torch.randn(shape.dims, device=device).to(dtype)
    # Zeros and ones are valid in every vocabulary, segment or mask.
    return torch.randint(0, 2, shape.dims, device=device).to(dtype)


def try_call(target: str, call: ModelCall, shown: str) -> None:
    """Once, to see that the inputs fit."""
    try:
        call.run()
    except (Exception, SystemExit) as error:
        raise InputError(
            _explain(
                f"{target} does not take {shown or 'its own inputs'}",
                error,
                Path(target.rpartition(":")[0]),
            )
        ) from error


def _explain(what: str, error: BaseException, path: Path) -> str:
    """The error in the user's words, with the last line of their own file that it passed."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == path.name
    ]
    place = f" (line {lines[-1]})" if lines else ""
    words = str(error).strip().partition("\n")[0][:300]
    said = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return f"{what}: {said}{place}. Nothing was measured."
