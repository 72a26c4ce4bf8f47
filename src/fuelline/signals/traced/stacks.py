"""Where in Python the host was while its device was idle, from the stacks that a profiler recorded.

Moments are spread evenly over the idle time of a cause, so that their shares are shares of time. Of
the functions that are on at least half of the stacks, the innermost is the one to look at; what a
framework or the standard library does within itself is not, because nobody can change it there.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from fuelline.schema.parts import HOST_CAUSES
from fuelline.schema.run.trace import HostFrame, HostKind
from fuelline.signals.traced.kernels.names import find_cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fuelline.schema.parts import IdleCause
    from fuelline.timeline.trace import Trace

_MOMENTS = 400
"""Per cause: a share of one half is then known to 5 %."""
_MOSTLY = 0.5
_NEARLY = 0.9
_ASKED = frozenset({*HOST_CAUSES, "python between steps", "one-off"})
_FRAME = re.compile(r"^(?P<file>[^$].*)\((?P<line>\d+)\): (?P<function>.+)$")
_JAX_FRAME = re.compile(r"^\$(?P<file>[^:]+):(?P<line>\d+) (?P<function>.+)$")
_INSTALLED = re.compile(r"^.*/(?:site|dist)-packages/|^.*/lib(?:64)?/python\d[\d.]*/")
_NOTEBOOK = "<ipython-input"
_FRAMEWORKS = frozenset(
    word
    for words in ("torch functorch jax jaxlib flax tensorflow tensorflow_core keras triton tqdm",)
    for word in words.split()
)
"""Packages within which nobody looks for the cause."""
_LIBRARIES = frozenset(
    word
    for words in (
        "transformers diffusers tokenizers datasets accelerate peft trl evaluate timm",
        "numpy scipy pandas sklearn skimage PIL cv2 imageio torchvision torchaudio torchcodec av",
        "torchtext librosa soundfile decord albumentations kornia monai nibabel pyarrow h5py",
        "zarr webdataset litdata lightning pytorch_lightning deepspeed megatron fairseq apex aiter",
        "flash_attn xformers vllm sglang xfuser einops nltk spacy networkx fsspec s3fs",
        "boto3 requests aiohttp optax orbax grain tensorflow_datasets yaml tensordict torchrec",
        "polars torchao bitsandbytes matplotlib tiktoken sentencepiece",
    )
    for word in words.split()
)
"""Packages that somebody else wrote, whose paths profilers shorten to the package."""
_JAX_FILES = frozenset(
    word
    for words in (
        "api api_util array array_methods batching compiler config core dispatch",
        "functions interpreters lax lax_numpy linear_util mesh mlir partial_eval pjit pxla",
        "custom_derivatives profiler reductions sharding traceback_util tree_util ufunc_api",
        "ufuncs util xla_bridge",
    )
    for word in words.split()
)
"""JAX writes the names of files without their folders."""
_WRAPPERS = frozenset(
    ("wrapper", "wrapped", "inner", "_wrapped", "__call__", "<lambda>", "decorate_context")
)
"""Functions that only call another one."""


class PythonFrame(NamedTuple):
    """A function of Python."""

    file: str
    line: int
    function: str
    owner: str
    """`user`, `library` or `framework`: whose code it is."""

    @property
    def key(self) -> tuple[str, str]:
        """Without the line, which for a generator is where it goes on."""
        return self.file, self.function

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


@lru_cache(100_000)
def read_frame(text: str) -> PythonFrame | None:
    """The frame that an event's name stands for; None for built-ins and modules of a model."""
    jax = _JAX_FRAME.match(text)
    found = jax or _FRAME.match(text)
    if found is None or (text.startswith("<") and not text.startswith(_NOTEBOOK)):
        return None
    path = found["file"].replace("\\", "/")
    file = _INSTALLED.sub("", path)
    top = file.lstrip("/").partition("/")[0].removesuffix(".py")
    if jax is not None:
        owner = "framework" if top in _JAX_FILES else "user"
    elif path.startswith("/") and file == path:
        owner = "library" if _LIBRARIES.intersection(path.split("/")) else "user"
    elif top in _FRAMEWORKS or top in sys.stdlib_module_names:
        owner = "framework"
    else:
        owner = "library" if file != path or top in _LIBRARIES else "user"
    return PythonFrame(file, int(found["line"]), found["function"], owner)


def find_frames(
    trace: Trace, rank: int, threads: tuple[int, ...], idle: pl.DataFrame
) -> dict[IdleCause, HostFrame]:
    """For each cause of idle time | start_ns | end_ns | cause | where Python mostly was."""
    by_cause = idle.with_columns(pl.col("cause").cast(pl.String)).partition_by(
        "cause", as_dict=True
    )
    asked = [
        _spread(own).with_columns(cause=pl.lit(cause))
        for (cause,), own in by_cause.items()
        if cause in _ASKED
    ]
    if not asked:
        return {}
    moments = pl.concat(asked).sort("at_ns").with_row_index("moment")
    stacks = _read_stacks(trace, rank, threads, moments["at_ns"])
    found: dict[IdleCause, HostFrame] = {}
    for (cause,), own in moments.partition_by("cause", as_dict=True).items():
        frame = _choose([stacks.get(number, []) for number in own["moment"]], cause)
        if frame is not None:
            found[cause] = frame
    return found


def _spread(pieces: pl.DataFrame) -> pl.DataFrame:
    """| at_ns |: moments spread evenly over intervals, as if these lay end to end."""
    length = pieces["end_ns"] - pieces["start_ns"]
    reach = length.cum_sum()
    whole = int(reach[-1])
    steps = pl.int_range(min(_MOMENTS, whole), eager=True)
    targets = (steps * whole + whole // 2) // max(1, min(_MOMENTS, whole))
    place = reach.search_sorted(targets, side="right")
    before = reach.gather(place) - length.gather(place)
    moments: pl.Series = pieces["start_ns"].gather(place) + targets - before
    return moments.rename("at_ns").to_frame()


_COLUMNS = ("start_ns", "end_ns", "name", "thread", "kind")


def _read_stacks(
    trace: Trace, rank: int, threads: tuple[int, ...], moments: pl.Series
) -> dict[int, list[str]]:
    """By moment the names of the functions that were open, outermost first."""
    over = []
    for part in trace.parts("host", rank, _COLUMNS):
        calls = part.filter(pl.col("kind") == int(HostKind.PYTHON))
        first = moments.search_sorted(calls["start_ns"], side="left")
        until = moments.search_sorted(calls["end_ns"], side="left")
        over.append(calls.with_columns(first.alias("first"), until.alias("until")))
        over[-1] = over[-1].filter(pl.col("until") > pl.col("first"))
    calls = pl.concat(over) if over else pl.DataFrame()
    if not calls.height:
        return {}
    texts = trace.texts(rank)
    stacks: dict[int, list[str]] = {}
    own = calls.filter(pl.col("thread") == _choose_thread(calls, threads))
    pairs = (
        own.with_columns(pl.int_ranges("first", "until").alias("moment"))
        .explode("moment")
        .sort("moment", "start_ns", -pl.col("end_ns"))
    )
    for moment, name in pairs.select("moment", "name").iter_rows():
        stacks.setdefault(moment, []).append(texts[name])
    return stacks


def _choose_thread(calls: pl.DataFrame, threads: tuple[int, ...]) -> int:
    """Of those that launch the one with most calls; some profilers number them differently."""
    launching = calls.filter(pl.col("thread").is_in(list(threads)))
    counts = (launching if launching.height else calls).group_by("thread").len()
    return int(counts.sort("len", "thread")["thread"][-1])


@dataclass
class _Seen:
    """A function on the stacks of a cause."""

    frame: PythonFrame
    stack: list[PythonFrame]
    place: int
    moments: int = 0
    depth: int = 0


def _choose(stacks: Sequence[Sequence[str]], cause: IdleCause) -> HostFrame | None:
    """The innermost function of most stacks, who called it, and the user's own function."""
    seen: dict[tuple[str, str], _Seen] = {}
    for texts in stacks:
        stack = [frame for text in texts if (frame := read_frame(text)) is not None]
        first = _below_loader(texts) if cause == "data loader" else 0
        for depth, frame in {each.key: (n, each) for n, each in enumerate(stack)}.values():
            if frame.owner != "framework" and depth >= first:
                known = seen.setdefault(frame.key, _Seen(frame, stack, depth))
                known.moments += 1
                known.depth += depth
    top = _innermost(seen.values(), _MOSTLY * len(stacks))
    if top is None:
        return None
    caller = _caller(top)
    users = [each for each in seen.values() if each.frame.owner == "user"]
    told: list[PythonFrame | None] = [top.frame, caller]
    for outer in (
        _innermost(seen.values(), _NEARLY * len(stacks)),
        _innermost(users, _MOSTLY * len(stacks)),
    ):
        keys = {each.key for each in told if each is not None}
        is_new = outer is not None and outer.frame.key not in keys
        told.append(outer.frame if outer is not None and is_new else None)
    within, own = told[2:]
    return HostFrame(
        function=top.frame.function,
        file=top.frame.file,
        line=top.frame.line,
        share=top.moments / len(stacks),
        moments=len(stacks),
        caller="" if caller is None else str(caller),
        within="" if within is None else str(within),
        user="" if own is None else str(own),
    )


def _innermost(seen: Iterable[_Seen], moments: float) -> _Seen | None:
    """Of the functions that are on so many stacks; one that only calls another is not asked."""
    most = [each for each in seen if each.moments >= moments]
    named = [each for each in most if each.frame.function not in _WRAPPERS]
    return max(named or most, key=lambda each: each.depth / each.moments, default=None)


def _below_loader(texts: Sequence[str]) -> int:
    """How many frames there are down to the last one of the data loader itself."""
    last = max((n for n, text in enumerate(texts) if find_cause(text) == "data loader"), default=-1)
    if last < 0:
        return len(texts)
    return sum(read_frame(text) is not None for text in texts[: last + 1])


def _caller(top: _Seen) -> PythonFrame | None:
    """The nearest one above that is of another file and no framework's."""
    above = reversed(top.stack[: top.place])
    return next(
        (
            each
            for each in above
            if each.owner != "framework"
            and each.file != top.frame.file
            and each.function not in _WRAPPERS
        ),
        None,
    )
