"""What a chip reaches in practice: shares of its sheet, launch cost, floors of its exchanges.

Measured constants by chip and precision come from `catalogue/constants.toml`; a chip that nobody
measured gets the middle of what its kind reaches, with a doubt as wide as the spread over that kind.
"""

from __future__ import annotations

from functools import cache, lru_cache

from msgspec import Struct
from msgspec.structs import replace

from fuelline.schema.catalogue import read_shipped
from fuelline.schema.chips import TERA, Chip

BEST_TO_USUAL = 0.93
"""What products of a model reach against the best product found by a search over sizes (A100 0.89, H100 1.0,
B200 0.90 of the achieved rates in the catalogue)."""


class Matmul(Struct, frozen=True, kw_only=True):
    """How large matrix products run on a chip at one precision."""

    math: str
    launch_us: float
    memory_share: float
    math_share: float
    chips: tuple[str, ...] = ()
    kind: str = ""
    """Of a default: for chips of this kind that have no entry of their own."""
    attention_share: float = 0.0
    """Of the half-precision peak, in prefill attention; 0: as a matmul."""
    unpack8_share: float = 0.85
    """Bandwidth of 8-bit weights that are unpacked to half precision on the way."""
    unpack4_share: float = 0.75
    """The same for 4-bit weights."""
    train_share: float = 0.85
    """Math of training against that of serving: backward kernels, clocks under sustained power."""
    doubt_frac: float = 0.08
    source: str = ""


class Exchange(Struct, frozen=True, kw_only=True):
    """Floors and bandwidth of exchanges inside a scale-up domain."""

    chips: tuple[str, ...] = ()
    kind: str = ""
    custom_us: tuple[float, float, float] = (4.0, 5.0, 6.0)
    """Small all-reduce by an engine's own kernel, 2/4/8 chips."""
    nccl_us: tuple[float, float, float] = (10.0, 14.0, 22.0)
    bus_share: float = 0.72
    """Bus bandwidth of large messages as a share of the link."""
    source: str = ""


class Engine(Struct, frozen=True, kw_only=True):
    """What serving software adds to the physics."""

    name: str
    words: tuple[str, ...] = ()
    """How a description names it; the first engine with a word in the text is taken."""
    also: tuple[str, ...] = ()
    """One of these must be in the text too."""
    nccl: bool = False
    """Exchanges by the collectives library instead of the engine's own kernels."""
    launch_us: float = 0.0
    """Above 0: the host launches kernels one by one, at this cost each."""
    fused: bool = False
    """A compiler has merged the small kernels into their neighbours."""
    step_us: float = 0.0
    """Host work between steps that the device waits for."""
    sequence_us: float = 0.0
    """The same for every running sequence: sampling, scheduling, answering."""
    overlapped: bool = False
    """The host prepares a step while the device runs the one before: only the longer counts."""
    first_token_ms: float = 0.0
    """Fixed cost of a request before its first token: network, tokeniser, scheduler."""
    cache_bits: float = 16.0
    """Cache of an 8- or 4-bit model unless told otherwise."""
    most_sequences: int = 2048
    """Sequences that one replica runs at once by default."""
    source: str = ""


BARE = Engine(name="bare")


class Shares(Struct, frozen=True, kw_only=True):
    """Constants that belong to no chip."""

    move_share: float = 0.80
    """Bandwidth that norms and activations reach."""
    small_launch_share: float = 0.7
    """An elementwise kernel's fixed cost against a matmul's."""
    route_launches: float = 10.0
    """Small kernels of one layer's routing: top-k, sort, scatter, gather, sum."""
    short_sum_bytes: float = 512.0
    """Length of a sum at which a product reaches half of what a long one does."""
    cache_read_share: float = 1.0
    """Bandwidth of decode attention against that of a matmul."""
    floor_scale: float = 1.5
    """Small exchanges inside a model against the bare collective: members never arrive together."""
    scatter_share: float = 0.3
    """Of the link that exchanges between experts reach (DeepEP: 98 to 127 GB/s inside a host of H800)."""
    lockstep_share: float = 0.25
    """Attention replicas that share experts step together: one that prefills holds up the others."""
    grouped_share: float = 0.8
    """Math that many small expert products reach against one large product."""
    eager_moves: float = 2.2
    """Traffic of norms and activations that no compiler merged, against merged ones."""
    score_moves: float = 6.0
    """How often attention scores go through memory where attention is no single kernel."""
    logit_bytes: float = 14.0
    """Traffic of the loss for every logit: half and single precision, forward and back."""
    older_attention_share: float = 0.65
    """FlashAttention 2 against kernels made for Hopper (arXiv 2407.08608: 350 against 540 to 660 TFLOP/s)."""
    expert_exposed_share: float = 0.5
    """Of the exchanges between experts in training that do not hide."""
    exposed_share: float = 0.7
    """Of tensor-parallel exchanges in training that do not hide behind math."""
    wave_share: float = 0.35
    """Of the requests running at once, the share that arrives together in a closed loop."""


class Benchmark(Struct, frozen=True, kw_only=True):
    """Mean lengths of a public benchmark's requests."""

    words: tuple[str, ...]
    model: str
    input_len: float
    output_len: float
    source: str = ""


class Convention(Struct, frozen=True, kw_only=True):
    """How a source counts FLOPs and cuts a training step, where a row does not say so."""

    words: tuple[str, ...]
    counts_recompute: bool = False
    counts_causal: bool = False
    """Only the pairs that a causal mask leaves count as work."""
    recompute: str = ""
    flash: bool = True
    eager: bool = False
    """Norms and activations are kernels of their own that read and write everything."""
    older_attention: bool = False
    """Attention kernels of the generation before the chip (FlashAttention 2 on Hopper)."""
    microbatches_are_stages: bool = False
    source: str = ""


class Constants(Struct, frozen=True, kw_only=True):
    """The whole table."""

    matmul: tuple[Matmul, ...]
    exchange: tuple[Exchange, ...] = ()
    engine: tuple[Engine, ...] = ()
    shares: Shares = Shares()
    workload: tuple[Benchmark, ...] = ()
    convention: tuple[Convention, ...] = ()


@cache
def shipped_constants() -> Constants:
    """As they come with the package."""
    return read_shipped("constants.toml", Constants)


@lru_cache(maxsize=4096)
def find_matmul(chip: Chip, math: str, constants: Constants) -> Matmul:
    """This chip's own entry, or that of its kind with what this chip's large products reached."""
    own = [each for each in constants.matmul if chip.name in each.chips]
    kind = [each for each in constants.matmul if each.kind == chip.kind]
    for entries, wanted in ((own, math), (kind, math), (own, "bf16"), (kind, "bf16")):
        for entry in entries:
            if entry.math == wanted:
                return entry if entry.chips else _with_measured_peak(entry, chip, math)
    raise LookupError(chip.kind)


def _with_measured_peak(entry: Matmul, chip: Chip, math: str) -> Matmul:
    """The catalogue knows the best product that somebody measured on some of the chips."""
    best = {"bf16": chip.achieved_bf16_tflops, "fp8": chip.achieved_fp8_tflops}.get(math)
    peak = chip.peak_flops(math)
    if best is None or peak is None:
        return entry
    return replace(entry, math_share=min(BEST_TO_USUAL * best * TERA / peak, 1.0))


@lru_cache(maxsize=4096)
def find_exchange(chip: Chip, constants: Constants) -> Exchange:
    """This chip's own entry, or that of its kind."""
    for entry in constants.exchange:
        if chip.name in entry.chips:
            return entry
    for entry in constants.exchange:
        if entry.kind == chip.kind:
            return entry
    return Exchange()


def usable_math(chip: Chip, math: str) -> str:
    """The unit that multiplies: a chip without 8- or 4-bit math unpacks to what it has."""
    if math == "mxfp4":  # 4-bit weights times 8-bit activations where a chip can, else unpacked
        return "fp8" if chip.peak_flops("fp4") is not None else "bf16"
    for candidate in {"fp4": ("fp4", "fp8"), "fp8": ("fp8",), "int8": ("int8", "fp8")}.get(math, ()):
        if chip.peak_flops(candidate) is not None:
            return candidate
    return math if math == "fp32" and chip.peak_flops("fp32") is not None else "bf16"



def find_engine(text: str, constants: Constants) -> Engine:
    """The engine that a description names, or none's overhead at all."""
    words = text.lower()
    for engine in constants.engine:
        if any(word in words for word in engine.words) and (
            not engine.also or any(word in words for word in engine.also)
        ):
            return engine
    return BARE


def find_convention(text: str, constants: Constants) -> Convention:
    """What the source of these words is known to do; nothing special for an unknown one."""
    words = text.lower()
    for convention in constants.convention:
        if any(word in words for word in convention.words):
            return convention
    return Convention(words=())
