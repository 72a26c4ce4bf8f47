"""Measured constants of chips and software, as structs of `catalogue/constants.toml`.

The table holds what microbenchmarks and papers state. `catalogue/fitted.toml` holds what
whole-model runs on these chips shift it to (one number per chip and precision, made by `python -m
bench.plan_accuracy --write`, shrunk towards the table). Everything that predicts gets its
constants as an argument: nothing is global.
"""

from __future__ import annotations

import math
from functools import cache

import msgspec
from msgspec import Struct

from fuelline.schema.plan.catalogue import read_shipped


class Matmul(Struct, frozen=True, kw_only=True):
    """How matrix products run on a chip at one precision."""

    math: str
    launch_us: float
    memory_share: float
    """Of the sheet's memory bandwidth, when weights are streamed: what limits decoding."""
    math_share: float
    """Of the sheet's rate, for long sums."""
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
    by_rows: tuple[tuple[float, float], ...] = ()
    """Measured: share of the peak that a product with this many rows reaches, weights read from
    memory. A
    device that was measured itself has it instead of the two shares."""

    move_share: float = 0.0
    """Measured: of the bandwidth, in norms and gates whose values are counted at half precision;
    0: as `Shares`."""
    cache_share: float = 0.0
    """Measured: of the bandwidth, in decode attention; 0: as a product, times
    `Shares.cache_read_share`."""
    small_us: float = 0.0
    """Measured: an elementwise operator on one token; 0: from `launch_us`."""
    wide_by_rows: tuple[tuple[float, float], ...] = ()
    """Measured: as `by_rows`, of products that give more values than they take."""
    narrow_by_rows: tuple[tuple[float, float], ...] = ()

    def peak_share_at(self, rows: float, widening: float | None = None) -> float:
        """Straight in logarithms between measured numbers of rows; as at the ends beyond.

        `widening`: values that a product gives for each that it takes.
        """
        curve = self.by_rows
        if widening is not None:
            curve = (self.wide_by_rows if widening > 1 else self.narrow_by_rows) or curve
        after = next((at for at, (count, _) in enumerate(curve) if count >= rows), None)
        if after is None or after == 0:
            return curve[-1 if after is None else 0][1]
        (left, low), (right, high) = curve[after - 1], curve[after]
        place = math.log(rows / left) / math.log(right / left)
        return float(low * (high / low) ** place)

    @property
    def label(self) -> str:
        """How an adjustment names this entry."""
        return f"{self.chips[0] if self.chips else self.kind} {self.math}"


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
    """Cache of an 8- or 4-bit model by default."""
    most_sequences: int = 2048
    """Sequences that one replica runs at once by default."""
    source: str = ""

    @property
    def label(self) -> str:
        """How an adjustment names this entry."""
        return self.name


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
    scatter_share: float = 0.5
    """Of the link that exchanges between experts reach (DeepEP: 98 to 127 of 200 GB/s in a host of
    H800)."""
    imbalance: float = 0.06
    """Experts are not chosen evenly: the fullest chip has this much more for every doubling of
    chips."""
    unpacked_share: float = 0.85
    """Math of products whose 4-bit weights are unpacked by the same kernel, against plain ones."""
    lockstep_share: float = 0.2
    """Replicas that share experts, and the batches of a pipeline, step together: one that prefills
    holds up all."""
    grouped_share: float = 0.8
    """Math that many small expert products reach against one large product."""
    eager_moves: float = 2.2
    """Traffic of norms and activations that no compiler merged, against merged ones."""
    score_moves: float = 6.0
    """How often attention scores go through memory where attention is no single kernel."""
    logit_bytes: float = 14.0
    """Traffic of the loss for every logit: half and single precision, forward and back."""
    older_attention_share: float = 0.58
    """FlashAttention 2 against kernels made for Hopper, causal, heads of 128: about 340 against 590
    TFLOP/s forward (arXiv 2407.08608, figure 5)."""
    expert_exposed_share: float = 0.5
    """Of the exchanges between experts in training that do not hide."""
    exposed_share: float = 0.7
    """Of tensor-parallel exchanges in training that do not hide behind math, where software cuts
    them into pieces for that."""
    wave_share: float = 0.25
    """Of the requests in a closed loop of equal lengths, the share that stays together: those that
    start in one step end in one step."""


class Benchmark(Struct, frozen=True, kw_only=True):
    """Mean lengths of a public benchmark's requests."""

    words: tuple[str, ...]
    model: str
    input_len: float
    output_len: float
    source: str = ""


class Loop(Struct, frozen=True, kw_only=True):
    """How a load generator keeps a number of requests in flight: each is replaced when it ends."""

    words: tuple[str, ...] = ()
    rounds: float = 10.0
    """Requests for every place in the loop; the first of each starts with all others at once."""
    shortest_share: float = 1.0
    """Lengths are drawn evenly between this share of the stated ones and the stated ones."""
    source: str = ""

    @property
    def mean_share(self) -> float:
        """Mean length against the stated one."""
        return (1 + self.shortest_share) / 2


EQUAL_LENGTHS = Loop(
    source="genai-perf and aiperf as people call them: ten requests a place, no spread of lengths"
)


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
    blocking: bool = False
    """Tensor-parallel exchanges do not hide behind products, unless a row says `async`."""
    interleave: int = 0
    """Chunks of layers a stage holds; 0: as usual."""
    source: str = ""


class Doubt(Struct, frozen=True, kw_only=True):
    """One standard deviation of a group's answers, measured by leaving sources out."""

    group: str
    frac: float


class Adjustment(Struct, frozen=True, kw_only=True):
    """A constant as whole-model runs have it."""

    table: str
    """`matmul`, `engine` or `shares`."""
    name: str
    key: str
    value: float
    stated: float
    """What the table says."""


class Constants(Struct, frozen=True, kw_only=True, eq=False):
    """The whole table. Compared by identity: look-ups are cached by it."""

    matmul: tuple[Matmul, ...]
    exchange: tuple[Exchange, ...] = ()
    engine: tuple[Engine, ...] = ()
    shares: Shares = Shares()
    workload: tuple[Benchmark, ...] = ()
    convention: tuple[Convention, ...] = ()
    loop: tuple[Loop, ...] = ()
    doubt: tuple[Doubt, ...] = ()


class Fitted(Struct, frozen=True, kw_only=True):
    """The second file."""

    adjust: tuple[Adjustment, ...] = ()
    doubt: tuple[Doubt, ...] = ()


def adjusted(constants: Constants, changes: tuple[Adjustment, ...]) -> Constants:
    """The same table with some numbers replaced."""
    by_entry: dict[tuple[str, str], dict[str, float]] = {}
    for change in changes:
        by_entry.setdefault((change.table, change.name), {})[change.key] = change.value
    replace = msgspec.structs.replace
    return replace(
        constants,
        matmul=tuple(
            replace(each, **by_entry.get(("matmul", each.label), {})) for each in constants.matmul
        ),
        engine=tuple(
            replace(each, **by_entry.get(("engine", each.label), {})) for each in constants.engine
        ),
        shares=replace(constants.shares, **by_entry.get(("shares", ""), {})),
    )


@cache
def stated_constants() -> Constants:
    """As microbenchmarks and papers state them."""
    return read_shipped("constants.toml", Constants)


@cache
def shipped_constants() -> Constants:
    """As whole-model runs have them: what every command uses."""
    fitted = read_shipped("fitted.toml", Fitted)
    return msgspec.structs.replace(adjusted(stated_constants(), fitted.adjust), doubt=fitted.doubt)
