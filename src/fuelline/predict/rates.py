"""What a chip reaches in practice: shares of its sheet, launch cost, floors of its exchanges.

Measured constants by chip and precision come from `catalogue/constants.toml`; a chip that nobody
measured gets the middle of what its kind reaches, with a doubt as wide as the spread over that kind.
"""

from __future__ import annotations

from functools import cache, lru_cache

from msgspec import Struct

from fuelline.schema.catalogue import read_shipped
from fuelline.schema.chips import Chip


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
    cache_share: float = 0.0
    """Of the bandwidth, in decode attention; 0: as a matmul."""
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
    grouped_share: float = 0.8
    """Math that many small expert products reach against one large product."""
    exposed_share: float = 0.7
    """Of tensor-parallel exchanges in training that do not hide behind math."""
    unpack8_share: float = 0.85
    """Bandwidth of 8-bit weights that are unpacked to half precision on the way."""
    unpack4_share: float = 0.75
    """The same for 4-bit weights."""
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
    recompute: str = ""
    flash: bool = True
    eager: bool = False
    """Norms and activations are kernels of their own that read and write everything."""
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
    """This chip's own entry, or that of its kind."""
    own = [each for each in constants.matmul if chip.name in each.chips]
    kind = [each for each in constants.matmul if each.kind == chip.kind]
    for entries, wanted in ((own, math), (kind, math), (own, "bf16"), (kind, "bf16")):
        for entry in entries:
            if entry.math == wanted:
                return entry
    raise LookupError(chip.kind)


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
    for candidate in {"fp4": ("fp4", "fp8"), "fp8": ("fp8",), "int8": ("int8", "fp8")}.get(math, ()):
        if chip.peak_flops(candidate) is not None:
            return candidate
    return math if math == "fp32" and chip.peak_flops("fp32") is not None else "bf16"



def find_engine(text: str, constants: Constants) -> Engine:
    """The engine that a description names, or none's overhead at all."""
    words = text.lower()
    for engine in constants.engine:
        if any(word in words for word in engine.words):
            return engine
    return BARE


def find_convention(text: str, constants: Constants) -> Convention:
    """What the source of these words is known to do; nothing special for an unknown one."""
    words = text.lower()
    for convention in constants.convention:
        if any(word in words for word in convention.words):
            return convention
    return Convention(words=())
