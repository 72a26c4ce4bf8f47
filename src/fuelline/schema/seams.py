"""Parts of a framework that it does not promise to keep: looked up by name before they are used.

    torch.utils.data._utils.pin_memory                              a module
    torch.utils.data.dataloader:DataLoader._get_iterator            a name in a module
    torch.utils.data.dataloader:_BaseDataLoaderIter#_num_yielded    an attribute of its objects
    torch.utils.data._utils.worker:_worker_loop#index_queue         a parameter

Each feature that reaches into a framework lists such paths in one file. Where a release has renamed
one, the feature stays off and says which. Standard library only: used inside the user's job.
"""

from collections.abc import Iterable
from importlib import import_module
from types import FunctionType
from typing import Any

__all__ = ["MissingPartError", "find_missing", "find_part"]


class MissingPartError(ImportError):
    """The framework that is installed has no such part."""


def find_part(path: str) -> Any:
    """The part itself; of an attribute or parameter its name. MissingPartError if there is none."""
    place, _, attribute = path.partition("#")
    module, _, names = place.partition(":")
    try:
        found: Any = import_module(module)
        for name in names.split(".") if names else ():
            found = getattr(found, name)
    except (ImportError, AttributeError):
        raise MissingPartError(path) from None
    if attribute and not _is_used(found, attribute):
        raise MissingPartError(path)
    return attribute or found


def find_missing(paths: Iterable[str]) -> str:
    """Which of these parts of one framework are not there, in words; empty if none is missing."""
    missing = []
    for path in paths:
        try:
            find_part(path)
        except MissingPartError as error:  # noqa: PERF203 - a few, once
            missing.append(str(error).replace(":", ".").replace("#", "."))
    if not missing:
        return ""
    framework = missing[0].partition(".")[0]
    version = getattr(import_module(framework), "__version__", "of an unknown version")
    return f"{framework} {version} has no {', '.join(missing)}"


def _is_used(owner: Any, name: str) -> bool:
    """Whether a function has this parameter, or methods of a class set or read this attribute.

    An object that could be asked for its attributes is not there yet.
    """
    if isinstance(owner, FunctionType):
        return name in owner.__code__.co_varnames
    members = [getattr(each, "fget", each) for each in vars(owner).values()]
    methods = (each for each in members if isinstance(each, FunctionType))
    return any(name in method.__code__.co_names for method in methods)
