"""What a kernel's or a host event's name says: class, library, tensor cores, what the host does.

A kernel's own words decide (`kernel_names`); its template's arguments do for a wrapper only.
Patterns are ordered, the first that fits speaks. Names are looked at once each, not once per event.
A name that says nothing is `other`: whether such a kernel communicates then follows from how it
behaves across ranks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from fuelline.signals.traced.kernels.parsed import snake, take_apart

if TYPE_CHECKING:
    from fuelline.schema.parts import HostCause

COMMUNICATION: Final = "communication"
_LIBRARIES: Final = (
    ("DeepEP", r"deep_?ep_|(?<![a-z])ep_(dispatch|combine)|(inter|intra)_?node_|cached_notify"),
    ("NVSHMEM", r"nvshmem|barrier_on_stream_kernel|on_stream_kernel"),
    ("MSCCL", r"msccl"),
    ("RCCL", r"rccl_"),
    ("NCCL", r"(?<![a-z])nccl"),
    ("oneCCL", r"oneccl|(?<![a-z])ccl_kernel"),
    ("HCCL", r"(?<![a-z])hcom_|hccl|(?<![a-z])lccl"),
    ("pplx", r"a2_?a_(dispatch|combine|kernels)"),
    (
        "XLA",
        (
            r"^(all_reduce|all_gather|reduce_scatter|(ragged_)?all_to_all|collective_permute"
            r"|collective_broadcast|send|recv)(_start|_done)?(_\d+)?$"
        ),
    ),
    (
        "custom all-reduce",
        (
            r"cross_device_reduce|cross_device_store|multimem_(all|one|reduce)|lamport"
            r"|(?<!block_)(?<!warp_)all_?reduce|(?<![a-z])quick_?reduce|symm_?mem|symmetric_memory|user_?buffers"
            r"|reduce_?scatter|all_?gather|all_?to_?all"
        ),
    ),
)
"""Who moves data between devices, by kernel names in their sources and XLA's operation semantics
(https://openxla.org/xla/operation_semantics)."""
_INDUCTOR: Final = (
    ("elementwise", r"^triton_(poi|for)_fused"),
    ("reduce", r"^triton_(red|per|spl|mix)_fused"),
    ("other", r"^triton_(unk_|_*\d)"),
)
"""Kernels that TorchInductor wrote: behind their heuristic stand the operators that were fused
(torch/_inductor/codegen/triton.py); of a template (`tem`) that is what it computes."""
_CLASSES: Final = (
    ("attention", r"batch_?(prefill|decode)|single_?(prefill|decode)"),
    (
        "copy",
        (
            r"(store|append|reshape_and|concat_and|write|update|copy|set)_.*cache|set_(\w+_)?kv_buffer|mem_?set"
            r"|cat_array|copy_(out|kernel|async)"
        ),
    ),
    ("embedding", r"index_elementwise|scatter_gather|embedding_renorm|(get|set)_rows"),
    (
        "norm",
        (
            r"norm(?!al)|welford|bn_?(fw|bw|training|infer)|gamma_beta|rowwise_moments|(^|_)ln_(fwd|bwd)"
            r"|cu_compute_(part_)?grad|compute_(backward_)?fused_params|compute_internal_gradients"
        ),
    ),
    (
        "elementwise",
        (
            r"rotary|(^|_)rope(_|$)|act_and_mul|(silu|gelu)_(and_)?mul|swi_?glu_(for|back)ward"
            r"|elementwise|pointwise|philox|random"
        ),
    ),
    (
        "attention",
        (
            r"flash|fmha|sdpa|attention|attn|paged_kv|(^|_)mm?ha(_|$)|(^|_)mla|(^|_)fa[23]_"
            r"|merge_(attn_)?states|delta_rule|^fwd_(grouped_)?kernel(_stage\d)?$"
        ),
    ),
    (
        "convolution",
        (
            r"conv(?!ert)|winograd|fprop|dgrad|wgrad|bprop|cudnn_(fp16|half)|\dcudnn|scudnn|im2d?2?_?col"
            r"|col2_?im|igemm_(fwd|bwd|wrw)|fft2d|depthwise"
        ),
    ),
    (
        "reduce",
        (
            r"top_?k|sort|(^|_)radix|moe_(align|sum|sorting)|routing|bitmatrix|sampling|histogram"
            r"|device_(select|compact|scan|reduce)"
        ),
    ),
    (
        "gemm",
        (
            r"gemm|gemv|mat_?mul|mul_mat|nvjet|cijk_|xmma|hmma|wgmma|(^|_)(add|b|badd)?mm(_|$)|marlin"
            r"|fused_moe|fmoe|trsm|wv_?split|(^|_)dot(_|$)|split_?k_?reduce|cutlass_?\d"
        ),
    ),
    ("optimizer", r"multi_tensor|adam|(^|_)lamb_|(^|_)sgd|optimizer|(^|_)fused_?opt"),
    ("pooling", r"pool(ing)?(\d|_|$)|adaptive_average|averpool|upsample|interpolate"),
    (
        "embedding",
        (
            r"embedding|lookup|index_(select|func|elementwise|put|add)|indexing|gather|scatter|(^|_)embs_"
            r"|bounds_check_indices|linearize_index|compute_grad_weight|bucketize|offsets_range"
        ),
    ),
    (
        "reduce",
        (
            r"reduc|soft_?max|arg_?(max|min)|scan(_|$)|(nll|cross_entropy|ctc)_?|criterion|cum_?sum"
            r"|(^|_)(sum|mean|var|prod)(_|$)"
        ),
    ),
    (
        "elementwise",
        (
            r"vectorized|unrolled|distribution|dropout|activ(ation|e)|gelu|relu|silu|swi_?glu|sigmoid|quant"
            r"|eigen_meta|parallel_for|tri[ul]_|_?axpy|clamp|masked_(fill|scale)|tensor_?op|op(_?\d?d)?_tensor"
            r"|scale_|bernoulli|(^|_)bias_|cast(_|$)|convert(?!_tensor)"
            r"|(^|_)(add|addcmul|addcdiv|real_div|mul|multiply|sub|subtract|div|divide|muls|adds|sqrt|rsqrt|exp|exponential|log|pow"
            r"|power|tanh|neg|negate|abs|maximum|minimum|compare|select|where|and|or|not|sign|cos|sin|cosine"
            r"|sine|equal|less|greater)(v\d)?(_|$)"
        ),
    ),
    (
        "copy",
        (
            r"copy|memcpy|memset|transpose|permute|(^|_)(chunk_)?cat_|concat|nchw_?to_?nhwc|nhwc_?to_?nchw"
            r"|convert_tensor|trans_data|fill|(^|_)pad(_|$)|slice|(^|_)split_|broadcast|reshape"
            r"|tensor_move|(zeros|ones)_like|iota|reverse|bitcast|(^|_)(roll|cpy|swap|shuffle|flip|tile|repeat)(_|$)"
        ),
    ),
)
"""By a kernel's own words. In this order: a part of a library's work is that work (a normalisation
that quantises, a reduction of split products), and what only moves data comes last."""
_PATHS: Final = (
    ("attention", r"flash_?(attn|infer|mla)?_|fmha|attention"),
    ("convolution", r"cask_cudnn|cudnn_cnn|winograd"),
    ("gemm", r"cublas|(?<!fb)gemm|gemv"),
    ("norm", r"norm(?!al)"),
    ("embedding", r"fbgemm|embedding"),
    ("reduce", r"sampling|topk|sort"),
    ("elementwise", r"activation"),
)
"""By where a function lies, if its own words say nothing."""
_WRAPPERS = re.compile(
    r"^(kernel\d?|device_kernel|kernel_entry|kentry|trampoline_kernel|kernel_agent|global_kernel"
    r"|cuda_kernel|generic_kernel|launch_kernel)$"
)
"""Functions that run what their arguments name (cutlass/device_kernel.h, ck_tile's kentry, rocPRIM,
thrust)."""
_FUSIONS: Final = {"Loop": "elementwise", "Input": "reduce", "Output": "convolution"}
"""What XLA's kind of a fusion says where its name does not."""
CLASSES: Final = tuple(dict.fromkeys((COMMUNICATION, *(name for name, _ in _CLASSES), "other")))
LIBRARIES: Final = tuple(name for name, _ in _LIBRARIES)
Patterns = tuple[tuple[str, re.Pattern[str]], ...]
_LIBRARY_PATTERNS, _INDUCTOR_PATTERNS, _CLASS_PATTERNS, _PATH_PATTERNS = (
    tuple((name, re.compile(words)) for name, words in table)
    for table in (_LIBRARIES, _INDUCTOR, _CLASSES, _PATHS)
)
_MATH = ("attention", "convolution", "gemm")
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
    return _find(_LIBRARY_PATTERNS, take_apart(name).path)


def classify(name: str) -> str:
    """The class of a kernel."""
    said = take_apart(name)
    if _find(_LIBRARY_PATTERNS, said.path) is not None:
        return COMMUNICATION
    if _WRAPPERS.match(said.own):
        words = (snake(word) for word in said.arguments[:_MOST_ARGUMENTS])
        return next((kind for word in words if (kind := _find_class(word, word))), None) or "other"
    fusion = _FUSIONS.get(said.arguments[0]) if said.arguments[:1] else None
    return _find_class(said.own, said.path) or fusion or "other"


_MOST_ARGUMENTS = 40
"""Of a wrapper; what it runs is among the first."""


def _find_class(own: str, path: str) -> str | None:
    return (
        _find(_INDUCTOR_PATTERNS, own) or _find(_CLASS_PATTERNS, own) or _find(_PATH_PATTERNS, path)
    )


def _find(patterns: Patterns, words: str) -> str | None:
    return next((name for name, pattern in patterns if pattern.search(words)), None)


def uses_tensor_cores(name: str) -> bool:
    """Whether the name says that matrix units do the work; False also where it does not say."""
    is_said = _TENSOR.search(name) is not None and _NOT_TENSOR.search(name) is None
    return is_said and classify(name) in _MATH


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
            r"|(?i:^\W*(data[ _-]?load(er|ing)?|(get|next|load)[ _-]?(batch|data))\W*$)"
        ),
    ),
    (
        "synchronise",
        (
            r"(cuda|hip|cu)\w*Synchronize|aclrtSynchronize|^aten::(item|_local_scalar_dense|is_nonzero)$"
            r"|StreamSync|BlockHostUntilDone|xpu.*wait"
        ),
    ),
    ("memcpy", r"(cuda|hip|cu|aclrt)(Memcpy|MemcpyWithStream)"),
    (
        "allocator",
        (
            r"(cuda|hip|cu)(Malloc|Free|HostAlloc|HostMalloc|HostFree|MallocAsync|FreeAsync|MemMap|MemCreate"
            r"|MemAlloc|MallocHost|FreeHost|HostRegister|MemUnmap)|aclrt(Malloc|Free)"
        ),
    ),
    ("garbage collection", r"\bgc\.collect|built-in function collect|^gc$|garbage.?collect"),
    (
        "kernel launches",
        (
            r"Node@launch|AscendCL@acl(nn|op)|LaunchKernel|GraphLaunch|LaunchCooperative|MemsetAsync|(cuda|hip)Memset|StreamWaitEvent"
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
