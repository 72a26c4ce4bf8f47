"""What a process does outside of its steps, by one stack: importing, listing files, compiling ...

The innermost frame that says so decides: an import in the middle of loading a model is an import.

    <module> (train.py:3) > _find_and_load (<frozen importlib._bootstrap>) > <module> (torch/..)
        imports, torch
    main (train.py:40) > __init__ (data.py:12) > _walk (<frozen os>)
        data set index, data.py:12
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from fuelline.signals.recorded.fetching.stack_samples import LIBRARY, OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.schema.diagnosis.start_up import StartPart
    from fuelline.signals.recorded.fetching.stack_samples import Frame

_PACKAGE = re.compile(r"/(?:site|dist)-packages/([^/]+?)(?:\.py)?(?:/|$)")
_STANDARD = re.compile(r"/lib(?:64)?/python3[^/]*/([^/]+?)(?:\.py)?(?:/|$)|^<frozen ([\w.]+)>")
_IMPORTER = "<frozen importlib."
_MODULE = "<module>"
_IMPORT_TEXT = re.compile(r"^\s*(?:from|import)\s+([A-Za-z_]\w*)|import_module\(\W*([A-Za-z_]\w*)")
_FRAMES: tuple[tuple[StartPart, re.Pattern[str]], ...] = (
    (
        "tracking",
        re.compile(r"/(wandb|mlflow|comet_ml|neptune|clearml|aim|trackio|swanlab)/"),
    ),
    (
        "download",
        re.compile(
            r"/(huggingface_hub/(file_download|_snapshot_download|hf_api|hf_file_system)\.py|"
            r"torch/hub\.py|urllib/request\.py|requests/|urllib3/|httpx/|http/client\.py|botocore/|"
            r"boto3/|aiohttp/|gcsfs/|s3fs/|gdown/|modelscope/hub/)"
        ),
    ),
    (
        "compile",
        re.compile(
            r"/torch/_dynamo/(convert_frame|symbolic_convert|output_graph|variables/)|"
            r"/torch/_inductor/(compile_fx|graph|scheduler|codecache|async_compile|codegen/|lowering|"
            r"cpp_builder|fx_passes/|compile_worker/)|/torch/_functorch/(aot_autograd|_aot_autograd/)|"
            r"/torch/utils/cpp_extension\.py|/torch/onnx/|/torch/export/|/triton/(compiler|backends)/|"
            r"/jax/_src/(compiler|interpreters/(mlir|partial_eval)|linear_util|core)\.py|"
            r"/jax/_src/stages\.py|/tensorflow/python/eager/polymorphic_function/(tracing_|"
            r"autograph_util|function_type_utils|atomic_function)|/tensorflow/python/autograph/|"
            r"/tensorflow/python/framework/func_graph\.py|/numba/core/|/tensorrt/|/vllm/compilation/"
        ),
    ),
    (
        "process group",
        re.compile(
            r"/torch/distributed/(distributed_c10d|rendezvous|elastic/)|/jax/_src/distributed\.py|"
            r"/mpi4py/|/deepspeed/comm/"
        ),
    ),
    (
        "worker start",
        re.compile(
            r"/multiprocessing/(popen_\w+|spawn|forkserver|util)\.py|/torch/multiprocessing/spawn\.py"
        ),
    ),
)
_CALLS: tuple[tuple[StartPart, re.Pattern[str]], ...] = (
    (
        "to device",
        re.compile(
            r"/torch/nn/modules/module\.py:(Module\.)?(to|cuda|_apply|half|bfloat16)$|"
            r"/torch/cuda/__init__\.py:_lazy_init$|/jax/_src/(api|dispatch)\.py:(_?device_put\w*)$|"
            r"/jax/_src/xla_bridge\.py:"
        ),
    ),
    (
        "model load",
        re.compile(
            r":(\w+\.)*_?(from_pretrained|from_single_file|load_checkpoint\w*|load_weights|"
            r"load_model|load_state_dict|load_pretrained_model)$|/torch/serialization\.py:|"
            r"/safetensors/|/orbax/|/flax/(serialization|training/checkpoints)\.py:|"
            r"/keras/src/saving/|/transformers/modeling_utils\.py:|/transformers/core_model_loading\.py:"
        ),
    ),
    (
        "model build",
        re.compile(
            r"/torch/nn/modules/\w+\.py:(\w+\.)*(__init__|reset_parameters)$|/torch/nn/init\.py:|"
            r"/keras/src/(layers|initializers|models)/.*:(\w+\.)*(__init__|build|__call__)$|"
            r"/flax/.*:(\w+\.)*init\w*$"
        ),
    ),
    (
        "data set index",
        re.compile(
            r"(^<frozen os>|/os\.py|/glob\.py|/fnmatch\.py|/pathlib\.py|/pathlib/\w+\.py):|"
            r"/(json|csv)(/\w+)?\.py:|/(pandas|pyarrow|datasets|webdataset|h5py|lmdb|zarr|litdata|"
            r"streaming|sqlite3|tensorflow_datasets|array_record)/|/(tarfile|zipfile|pickle)\.py:|"
            r"/zipfile/|/torchvision/datasets/|/torchdata/|/PIL/|/numpy/lib/_?npyio"
        ),
    ),
)
_WITHIN_LOADING = ("model build", "data set index")
"""What loading a model does as well, with its own files."""
_INDEX_TEXT = re.compile(
    r"\b(listdir|scandir|walk|glob|rglob|iterdir|is_file|exists|getsize|json\.loads?|csv\.|"
    r"read_(csv|json|parquet|table|text|bytes)|np\.load|memmap|pickle\.load|open|splitlines|"
    r"readlines?|load_dataset|load_from_disk)\("
)
_DEVICE_TEXT = re.compile(r"\.(to|cuda)\(")
_LOAD_TEXT = re.compile(r"torch\.load\(|load_file\(|load_state_dict\(|from_pretrained\(")


class Doing(NamedTuple):
    """What a stack shows."""

    part: StartPart
    name: str
    """The package that is imported or called, or the function of the user's code."""
    line: str | None
    """`file:line` of the deepest line of the user's code; None if there is none."""


def name_stack(frames: Sequence[Frame], sources: Mapping[str, str]) -> Doing:
    """What the process is doing; frames stand outermost first."""
    own = next((at for at in reversed(range(len(frames))) if is_own(frames[at])), -1)
    line = frames[own].place if own >= 0 else None
    inner = frames[own + 1 :]
    importing = [
        at
        for at, frame in enumerate(inner)
        if frame.file.startswith(_IMPORTER) or (frame.function == _MODULE and at + own >= 0)
    ]
    for at in reversed(range(len(inner))):
        part = _part_of(inner[at])
        # Compilers register what they can lower while they are imported: nothing is compiled yet.
        if at in importing or (part == "compile" and importing and importing[0] < at):
            text = sources.get(line or "", "")
            return Doing("imports", _imported(inner, text), line)
        if part in _WITHIN_LOADING and any(_is_loading(each) for each in frames):
            part = "model load"
        if part == "download" and any(_part_of(each) == "tracking" for each in frames):
            part = "tracking"
        if part is not None:
            return Doing(part, _name_of(frames, own), line)
    if own < 0:
        return Doing("code", _name_of(frames, own), None)
    text = sources.get(frames[own].place, "")
    return Doing(_part_of_text(text, has_callee=bool(inner)), _name_of(frames, own), line)


def is_own(frame: Frame) -> bool:
    """Whether it is a line of the user's code."""
    return LIBRARY.search(frame.file) is None


def name_package(file: str) -> str:
    """`torch` of /x/site-packages/torch/nn/init.py; a standard module; else the file's name."""
    if OURS.search(file):
        return "fuelline"
    found = _PACKAGE.search(file) or _STANDARD.search(file)
    if found is None:
        return file.rpartition("/")[2]
    return next((name for name in found.groups() if name), file)


def _part_of(frame: Frame) -> StartPart | None:
    for part, pattern in _FRAMES:
        if pattern.search(frame.file):
            return part
    call = f"{frame.file}:{frame.function}"
    return next((part for part, pattern in _CALLS if pattern.search(call)), None)


def _is_loading(frame: Frame) -> bool:
    return _part_of(frame) == "model load"


def _part_of_text(text: str, *, has_callee: bool) -> StartPart:
    """Of a call into a compiled function, which leaves no frame, the line itself must tell."""
    if _LOAD_TEXT.search(text):
        return "model load"
    if _INDEX_TEXT.search(text):
        return "data set index"
    if _DEVICE_TEXT.search(text) and not has_callee:
        return "to device"
    return "code"


def _imported(inner: Sequence[Frame], text: str) -> str:
    """The package that the user's code imports, whatever that imports in turn."""
    modules = [each for each in inner if each.function == _MODULE]
    if modules:
        return name_package(modules[0].file)
    found = _IMPORT_TEXT.search(text)
    return next((name for name in found.groups() if name), "") if found else ""


def _name_of(frames: Sequence[Frame], own: int) -> str:
    if own >= 0:
        return frames[own].function
    return name_package(frames[0].file) if frames else ""
