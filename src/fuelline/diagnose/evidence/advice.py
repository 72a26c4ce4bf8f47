"""Remedies for imported traces, by what the job is written in and by what it has already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.trials import risk_of_workers
from fuelline.schema.run.trace import CopyDirection, DeviceKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.schema.diagnosis.facts import TraceSignals
    from fuelline.schema.run.trace import CopyFacts, Framework

_BATCH = Remedy(
    setting="a larger batch",
    why="longer kernels hide their launches",
    applicability="unsafe",
    risk="training behaves differently with another batch size",
)
_BATCH_SERVED = Remedy(
    setting="a larger batch",
    why="longer kernels hide their launches",
    applicability="unsafe",
    risk="takes more memory, and a single answer takes longer",
)
_LARGER = Remedy(
    setting="more work in each kernel: larger inputs, several kernels made one",
    why="longer kernels hide their launches",
    applicability="display",
)
_GRAPH = Remedy(
    setting="capture what repeats in a CUDA or HIP graph",
    why="one call then launches all of it",
    applicability="display",
)
_COMPILE = Remedy(
    setting='model = torch.compile(model, mode="reduce-overhead")',
    why="fewer kernels, launched together as a graph",
    applicability="unsafe",
    risk="results may differ in the last bits; graphs need fixed shapes",
)
_GRAPHS = Remedy(
    setting='torch.compile(model, mode="reduce-overhead") instead of its default mode',
    why="its kernels are compiled already; graphs then launch many of them with one call",
    applicability="unsafe",
    risk="graphs need fixed shapes and keep their memory",
)
_MORE_GRAPHS = Remedy(
    setting="put what still runs outside of the graphs into them",
    why="graphs are in use already; what is launched one by one beside them is what costs",
    applicability="display",
)
_FUSED = Remedy(
    setting="fused=True in the optimizer",
    why="one kernel for all parameters instead of several for each",
    applicability="unsafe",
    risk="results may differ in the last bits",
)
_COLLECTOR = Remedy(
    setting="gc.freeze() before the loop and gc.disable() in it; gc.collect() every 1000 steps",
    why="the collector then does not stop the thread that launches",
    applicability="unsafe",
    risk="cycles of objects are kept until then",
)
_FEWER_LAUNCHES: Mapping[Framework, tuple[Remedy, ...]] = {
    "jax": (
        Remedy(
            setting="@jax.jit on the function of the whole step, not on its parts",
            why="one call then runs what is now dispatched operation by operation",
            applicability="unsafe",
            risk="its shapes must be fixed; it is compiled once for each of them",
        ),
        Remedy(
            setting="several steps in one call with jax.lax.scan",
            why="the host then dispatches once for many steps",
            applicability="unsafe",
            risk="their inputs must be on the device together",
        ),
    ),
    "tensorflow": (
        Remedy(
            setting="@tf.function(jit_compile=True) on the step",
            why="XLA makes fewer kernels of it, and one call runs them",
            applicability="unsafe",
            risk="results may differ in the last bits; each new shape is compiled",
        ),
        Remedy(
            setting="model.compile(..., steps_per_execution=10)",
            why="the host then starts ten steps at a time",
            applicability="unsafe",
            risk="callbacks are called every ten steps",
        ),
    ),
    "torch_npu": (
        Remedy(
            setting="TASK_QUEUE_ENABLE=2 and CPU_AFFINITY_CONF=1 in the environment",
            why="a thread of its own hands operators to the device, on cores near to it",
            applicability="safe",
        ),
        Remedy(
            setting="model = torch.compile(model, backend=torchair.get_npu_backend())",
            why="the device then runs a graph, not operator by operator",
            applicability="unsafe",
            risk="results may differ in the last bits; each new shape is compiled",
        ),
        Remedy(
            setting="a larger batch",
            why="longer kernels hide their launches",
            applicability="unsafe",
            risk="results or latencies change with the batch size",
        ),
    ),
    "vllm": (
        Remedy(
            setting="no --enforce-eager",
            why="graphs launch a whole step with one call",
            applicability="unsafe",
            risk="graphs take memory from the cache",
        ),
        Remedy(
            setting="a larger --max-num-seqs and --max-num-batched-tokens",
            why="larger batches make a step longer than its launches",
            applicability="unsafe",
            risk="single requests may take longer",
        ),
    ),
    "sglang": (
        Remedy(
            setting="no --disable-cuda-graph; --cuda-graph-max-bs as large as batches are",
            why="graphs launch a whole step with one call",
            applicability="unsafe",
            risk="graphs take memory from the cache",
        ),
        Remedy(
            setting="a larger --max-running-requests",
            why="larger batches make a step longer than its launches",
            applicability="unsafe",
            risk="single requests may take longer",
        ),
    ),
    "xla": (
        Remedy(
            setting="compile the whole step as one program",
            why="one call then runs what is now dispatched piece by piece",
            applicability="unsafe",
            risk="its shapes must be fixed",
        ),
    ),
}
"""Of frameworks other than torch."""


_PREBUILT = Remedy(
    setting="torch.npu.set_compile_mode(jit_compile=False) before the model is made",
    why="operators that are built already are then used, not compiled when they are called",
    applicability="unsafe",
    risk="single operators may be slower than those compiled for their shapes",
)
_FUSED_NPU = Remedy(
    setting="torch_npu.optim.NpuFusedAdamW (or the fused class of the optimizer at hand)",
    why="one kernel for all parameters instead of several for each",
    applicability="unsafe",
    risk="results may differ in the last bits",
)


def fewer_launches(trace: TraceSignals) -> list[Remedy]:
    """For a host that is slower than its device."""
    software = trace.software
    if trace.largest == "garbage collection":
        return [_COLLECTOR]
    if software.framework == "torch_npu":
        found = _FEWER_LAUNCHES["torch_npu"]
        is_fusable = software.is_training and not software.is_fused
        built = [_PREBUILT] if software.builds_operators else []
        return [*built, *found, *([_FUSED_NPU] if is_fusable else [])][:_MOST_REMEDIES]
    if software.framework in _FEWER_LAUNCHES:
        found = _FEWER_LAUNCHES[software.framework]
        is_done = software.is_compiled if software.framework == "jax" else software.has_graphs
        return list(found[1:] if is_done and len(found) > 1 else found)
    if software.framework != "torch":
        return [_LARGER, _GRAPH]
    first = _COMPILE
    if software.has_graphs:
        first = _MORE_GRAPHS
    elif software.is_compiled:
        first = _GRAPHS
    if not software.is_training:
        return [first, _BATCH_SERVED]
    return [first, _BATCH, *([] if software.is_fused else [_FUSED])]


_MOST_REMEDIES = 4


_READ_RARELY: Mapping[Framework, str] = {
    "jax": "read results every 100 steps; no block_until_ready(), float() or np.asarray() in the "
    "loop",
    "tensorflow": "read the loss every 100 steps; no .numpy() in the loop",
    "torch": "read the loss every 100 steps; no .item() or .cpu() in the loop",
    "torch_npu": "read the loss every 100 steps; no .item() or .cpu() in the loop",
    "vllm": "--async-scheduling",
    "sglang": "no --disable-overlap-schedule",
}


def read_rarely(trace: TraceSignals) -> Remedy:
    """For a host that waits for its device and lets it run dry."""
    loop = "wait for the device once for many kernels, not after each; events where order matters"
    return Remedy(
        setting=_READ_RARELY.get(trace.software.framework, loop),
        why="the host then runs ahead and the device always has work queued",
        applicability="display",
    )


_KEEP_MEMORY: Mapping[Framework, str] = {
    "jax": "unset XLA_PYTHON_CLIENT_PREALLOCATE and XLA_PYTHON_CLIENT_ALLOCATOR",
    "tensorflow": "unset TF_FORCE_GPU_ALLOW_GROWTH; set TF_GPU_ALLOCATOR=cuda_malloc_async",
    "torch": "unset PYTORCH_NO_CUDA_MEMORY_CACHING; no torch.cuda.empty_cache() in "
    "the loop; set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "torch_npu": "unset PYTORCH_NO_NPU_MEMORY_CACHING; no torch.npu.empty_cache() in the loop; set "
    "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True",
}
_KEEP_MEMORY_ROCM = (
    "unset PYTORCH_NO_HIP_MEMORY_CACHING; no torch.cuda.empty_cache() in the loop; "
    "torch.backends.cudnn.benchmark = False where MIOpen's searches are what frees"
)


def keep_memory(trace: TraceSignals) -> Remedy:
    """For memory that is requested and given back again and again."""
    software = trace.software
    is_hip = software.is_rocm and software.framework == "torch"
    return Remedy(
        setting=_KEEP_MEMORY_ROCM
        if is_hip
        else _KEEP_MEMORY.get(
            software.framework,
            "allocate before the loop and use the memory again, or allocate from a pool "
            "(cudaMallocAsync)",
        ),
        why="memory that is kept need not be requested again, and the queue stays full",
        applicability="safe",
    )


_LOADERS: Mapping[Framework, str] = {
    "torch": "DataLoader(..., num_workers=4, prefetch_factor=4)",
    "torch_npu": "DataLoader(..., num_workers=4, prefetch_factor=4)",
    "jax": "grain.DataLoader(..., worker_count=4)",
    "tensorflow": "dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE)"
    ".prefetch(tf.data.AUTOTUNE)",
}


def prepare_beside(trace: TraceSignals) -> Remedy:
    """For inputs that the training process prepares itself."""
    loader = _LOADERS.get(trace.software.framework)
    if loader is None:
        return Remedy(
            setting="prepare the next input in another thread or process while the device works",
            why="inputs are then ready when the device is",
            applicability="display",
        )
    return Remedy(
        setting=loader,
        why="batches are then prepared while the device computes",
        applicability="unsafe",
        risk=risk_of_workers(None, 4) if trace.software.is_training else "each worker needs memory",
    )


_PIN = Remedy(
    setting='DataLoader(..., pin_memory=True); batch.to("cuda", non_blocking=True)',
    why="copies from pinned memory can run alongside kernels",
    applicability="unsafe",
    risk="the batch must not be changed before the copy is done",
)
_PIN_BY_HAND = Remedy(
    setting="copy from pinned memory (cudaMallocHost) with an asynchronous call on another stream",
    why="copies from pinned memory can run alongside kernels",
    applicability="display",
)
_BESIDE = Remedy(
    setting="copy on a stream of its own, one batch ahead, with non_blocking=True",
    why="the memory is pinned already; on another stream the copy can run alongside kernels",
    applicability="unsafe",
    risk="the batch must not be changed before the copy is done",
)
_BESIDE_BY_HAND = Remedy(
    setting="copy on a stream of its own, one step ahead, with an asynchronous call",
    why="the memory is pinned already; on another stream the copy can run alongside kernels",
    applicability="display",
)
_STAY = Remedy(
    setting="keep on the device what is copied again and again: weights, caches, constants",
    why="memory of the device is 20 to 100 times as fast as its link to the host",
    applicability="display",
)
_OFFLOAD = Remedy(
    setting="keep in device memory what is offloaded to the host, or offload less of it: "
    "jax.checkpoint without offloading, memory kind device instead of pinned_host, more shards",
    why="the device waits for copies between its own memory and the host's",
    applicability="unsafe",
    risk="it must fit into the device's memory",
)
_XLA_PREFETCH = Remedy(
    setting="jax.device_put of the next batch before the step, not after it",
    why="the copy then runs while the device computes",
    applicability="unsafe",
    risk="two batches are on the device at a time",
)
_READ_LATER = Remedy(
    setting="copy results back in one piece, into pinned memory, with non_blocking=True",
    why="copies into pinned memory can run alongside kernels",
    applicability="unsafe",
    risk="the values may not be read before the copy is done",
)
_IN_PLACE = Remedy(
    setting="avoid copies within the device: views instead of .contiguous() and .clone(), results "
    "written in place, memory that needs no clearing",
    why="each of them reads and writes the device's memory once more",
    applicability="display",
)


def copy_less(trace: TraceSignals) -> list[Remedy]:
    """For copies without compute: by where most of them go, and from which memory."""
    top = max(trace.copies, key=lambda copies: copies.seconds, default=None)
    is_xla = trace.software.is_tpu or trace.software.framework in ("jax", "xla", "tensorflow")
    if top is None:
        return [_XLA_PREFETCH if is_xla else _PIN]
    if top.kind == DeviceKind.SET or top.direction == CopyDirection.DEVICE_TO_DEVICE:
        return [_IN_PLACE]
    if is_xla:
        return [_OFFLOAD if trace.software.is_tpu else _XLA_PREFETCH, _STAY]
    if top.direction == CopyDirection.DEVICE_TO_HOST:
        return [_READ_LATER]
    is_torch = trace.software.framework in ("torch", "torch_npu")
    if top.memory == "pinned":
        return [_BESIDE if is_torch else _BESIDE_BY_HAND, _STAY]
    return [_PIN if is_torch else _PIN_BY_HAND]


def describe_copies(copies: CopyFacts) -> str:
    """`from the host (pageable memory)`."""
    if copies.kind == DeviceKind.SET:
        return "clearing memory"
    words = {
        CopyDirection.HOST_TO_DEVICE: "from the host to the device",
        CopyDirection.DEVICE_TO_HOST: "from the device to the host",
        CopyDirection.DEVICE_TO_DEVICE: "within the device",
        CopyDirection.PEER: "between devices",
    }
    memory = f", {copies.memory} memory" if copies.memory else ""
    return words.get(copies.direction, "in an unknown direction") + memory


_OVERLAP: Mapping[Framework, str] = {
    "torch": "overlap communication with backward (DDP buckets, FSDP prefetch, tensor-parallel "
    "overlap)",
    "torch_npu": "overlap communication with backward (DDP buckets, FSDP prefetch); "
    "HCCL_OP_EXPANSION_MODE=AIV",
    "jax": "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true; more compute between what "
    "depends on each other",
    "tensorflow": "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true; gradients reduced in "
    "fewer, larger pieces",
    "vllm": "fewer devices per replica (--tensor-parallel-size), or --enable-expert-parallel",
    "sglang": "fewer devices per replica (--tp-size), or --enable-two-batch-overlap",
}


def overlap_exchange(trace: TraceSignals) -> Remedy:
    """For communication without compute."""
    return Remedy(
        setting=_OVERLAP.get(trace.software.framework, "exchange one part while another computes"),
        why="an exchange that runs during compute costs nothing",
        applicability="display",
    )


_WARM: Mapping[Framework, str] = {
    "torch": "record after the warm-up: torch.profiler.schedule(wait=1, warmup=3, active=5)",
    "torch_npu": "record after the warm-up: "
    "torch_npu.profiler.schedule(wait=1, warmup=3, active=5)",
    "jax": "call jax.profiler.start_trace() after the first few steps",
    "tensorflow": "call tf.profiler.experimental.start() after the first few steps",
    "vllm": "start the profiler after some requests have been answered",
    "sglang": "start the profiler after some requests have been answered",
}


_STACKS: Mapping[Framework, str] = {
    "torch": "record it again with Python stacks (with_stack=True)",
    "torch_npu": "record it again with Python stacks (with_stack=True)",
    "jax": "record it again with Python's tracer on: jax.profiler.ProfileOptions() with "
    "python_tracer_level = 1",
    "tensorflow": "record it again with tf.profiler.experimental.ProfilerOptions("
    "host_tracer_level=2, python_tracer_level=1)",
    "vllm": "VLLM_TORCH_PROFILER_WITH_STACK=1, and record it again",
    "sglang": '"with_stack": true in the request to /start_profile, and record it again',
}


def record_stacks(trace: TraceSignals) -> Remedy:
    """For host code of which nothing is known."""
    return Remedy(
        setting=_STACKS.get(
            trace.software.framework,
            "record it again with what the host does: nsys profile --sample=process-tree "
            "--trace=cuda,nvtx,osrt,mpi (--python-sampling=true for Python), or perf beside it",
        ),
        why="it shows which function the device waits for",
        applicability="display",
    )


_LONGER = Remedy(
    setting="mark the steps (a profiler's schedule with step(), or an annotation round each), and "
    "record several of them",
    why="it then shows whether each step has such a stretch",
    applicability="display",
)


def record_longer(trace: TraceSignals) -> Remedy:
    """For a trace in which most of the time went to something that happened once."""
    framework = trace.software.framework
    if framework in ("vllm", "sglang"):
        return record_warm(trace)
    return _LONGER


def record_warm(trace: TraceSignals) -> Remedy:
    """For a trace of a start."""
    return Remedy(
        setting=_WARM.get(trace.software.framework, "record after the first few steps"),
        why="what is paid once hides how the job runs",
        applicability="display",
    )
