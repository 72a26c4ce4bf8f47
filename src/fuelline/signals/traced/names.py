"""What a kernel's or a host event's name says: class, library, tensor cores, what the host does.

Patterns are ordered, the first that fits speaks. Names are looked at once each, not once per event.
A name that says nothing is `other`: whether such a kernel communicates then follows from how it
behaves across ranks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fuelline.schema.parts import HostCause

COMMUNICATION: Final = "communication"
_LIBRARIES: Final = (
    ("DeepEP", r"deep_?ep\b|deep_ep::"),
    ("NVSHMEM", r"nvshmem"),
    ("MSCCL", r"msccl"),
    ("RCCL", r"rccl"),
    ("NCCL", r"\bnccl|nccl(dev)?kernel|_nccl_"),
    ("oneCCL", r"oneccl|ccl_kernel"),
    (
        "custom all-reduce",
        (
            r"cross_device_reduce|(one|two)_?shot_?all_?reduce|multimem_(all|one)|lamport.*reduce"
            r"|all_?reduce_?(fusion|kernel|residual)|quick_?reduce|symm_mem|userbuffers|ub_.*allreduce"
            r"|(reduce_?scatter|all_?gather|all_?to_?all|alltoall)\w*kernel|ep_(dispatch|combine)"
        ),
    ),
)
"""Who moves data between devices, by kernel names in their sources."""
_CLASSES: Final = (
    ("attention", r"flash|fmha|attention|\battn|_attn_|paged_|mha_|softmax_warp.*mask|fa[23]_"),
    ("convolution", r"conv|winograd|cudnn.*(fprop|dgrad|wgrad)|scudnn|fprop|dgrad|wgrad|im2col"),
    (
        "gemm",
        (
            r"gemm|gemv|cutlass|cublas|\bxmma|hmma|wgmma|cijk_|_mm_|matmul|dot_kernel|nvjet"
            r"|sgemm|hgemm|splitk|triton_.*mm\b"
        ),
    ),
    ("norm", r"norm|welford|rms_|layer_?norm|bn_(fw|bw)"),
    ("optimizer", r"multi_tensor|adam|fused_?lamb|lamb_|sgd|optimizer|fused_?opt|_foreach_"),
    ("embedding", r"embedding|lookup|indexselect|index_select|gather|scatter"),
    ("reduce", r"reduce|softmax|logsoftmax|argmax|topk|sort|scan|nll_loss|cross_entropy|cumsum"),
    ("pooling", r"pool"),
    ("copy", r"copy|memcpy|transpose|permute|cat(array|_)|nchwtonhwc|nhwctonchw|fill"),
    (
        "elementwise",
        (
            r"elementwise|vectorized|unrolled|pointwise|_poi_|triton_|activation|dropout|gelu|relu|silu"
            r"|\bmul|\badd|subtensor|optensor|op_tensor|distribution"
        ),
    ),
)
CLASSES: Final = (COMMUNICATION, *(name for name, _ in _CLASSES), "other")
LIBRARIES: Final = tuple(name for name, _ in _LIBRARIES)
_LIBRARY_PATTERNS = tuple((name, re.compile(words, re.IGNORECASE)) for name, words in _LIBRARIES)
_CLASS_PATTERNS = tuple((name, re.compile(words, re.IGNORECASE)) for name, words in _CLASSES)
_TENSOR = re.compile(
    (
        r"(?<![a-z])[hi]?(?:884|1688|16816|16832|161616)(?:gemm|cudnn)?|tensorop|hmma|imma|wgmma"
        r"|_wmma|mfma|sm(80|90|100)_xmma|xmma_(gemm|fprop|dgrad|wgrad)|nvjet|cijk_.*_MI\d|flash"
        r"|fmha|mma_|gtcx|xdlops|tf32f32|bf16gemm|_s\d*gemm_(bf16|f16|fp16)|ampere_(fp16|bf16)"
        r"|_matmul_ogs_"
    ),
    re.IGNORECASE,
)
_NOT_TENSOR = re.compile(r"ffma|simt", re.IGNORECASE)
"""By the instruction shapes that kernel libraries put into names: Volta 884, Turing 1688, Ampere
16816, Hopper wgmma and nvjet, AMD mfma and MI16x16. Triton's matmul_ogs is made of `tl.dot` and
`tl.dot_scaled` (triton_kernels/matmul_ogs_details), which are matrix instructions."""


def find_library(name: str) -> str | None:
    """The communication library that a kernel belongs to; None for any other kernel."""
    return next((lib for lib, pattern in _LIBRARY_PATTERNS if pattern.search(name)), None)


def classify(name: str) -> str:
    """The class of a kernel."""
    if find_library(name) is not None:
        return COMMUNICATION
    return next((kind for kind, pattern in _CLASS_PATTERNS if pattern.search(name)), "other")


def uses_tensor_cores(name: str) -> bool:
    """Whether the name says that matrix units do the work; False also where it does not say."""
    return _TENSOR.search(name) is not None and _NOT_TENSOR.search(name) is None


_CAUSES: Final[tuple[tuple[HostCause, str], ...]] = (
    (
        "profiler",
        (
            r"^(Activity Buffer|Buffer Flush|Instrumentation|Resource|Iteration|Unrecogni[sz]ed)"
            r"|CUPTI|cupti|Lazy Function Loading|profiler.*(flush|overhead)"
        ),
    ),
    ("start-up", r"^(cuda|hip|cu)(GraphInstantiate|ModuleLoad|LibraryLoad)"),
    (
        "data loader",
        (
            r"DataLoader|dataloader.*(next|fetch)|_next_data|load_batch|wait_for_batch"
            r"|IteratorGetNext|data_loading|fetch_batch|dequeue_batch"
        ),
    ),
    (
        "synchronise",
        (
            r"(cuda|hip|cu)\w*Synchronize|^aten::(item|_local_scalar_dense|is_nonzero)$|StreamSync"
            r"|BlockHostUntilDone|xpu.*wait"
        ),
    ),
    ("memcpy", r"(cuda|hip|cu)(Memcpy|MemcpyWithStream)"),
    (
        "allocator",
        (
            r"(cuda|hip|cu)(Malloc|Free|HostAlloc|HostMalloc|HostFree|MallocAsync|FreeAsync|MemMap|MemCreate"
            r"|MemAlloc|MallocHost|FreeHost|HostRegister|MemUnmap)"
        ),
    ),
    ("garbage collection", r"\bgc\.collect|built-in function collect|^gc$|garbage.?collect"),
    (
        "kernel launches",
        (
            r"LaunchKernel|GraphLaunch|LaunchCooperative|MemsetAsync|(cuda|hip)Memset|StreamWaitEvent"
            r"|EventRecord|(cuda|hip|cu)(Func|Occupancy|Device|Stream|Get|Set|Event|Peek|Driver|Pointer)"
        ),
    ),
    ("synchronise", r"block_until_ready|BlockUntilReady|np\.asarray\(jax"),
    ("operators", r"^PjitFunction|^ExecuteReplicated"),
)
_COMMUNICATING = re.compile(
    r"nccl:|c10d|record_param_comms|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all",
    re.IGNORECASE,
)
_CAUSE_PATTERNS = tuple((cause, re.compile(words)) for cause, words in _CAUSES)


def find_cause(name: str) -> HostCause | None:
    """What the host does in an event of this name; None if the name does not tell."""
    return next((cause for cause, pattern in _CAUSE_PATTERNS if pattern.search(name)), None)


def is_communicating(name: str) -> bool:
    """Whether an operator of this name moves data between ranks."""
    return _COMMUNICATING.search(name) is not None
