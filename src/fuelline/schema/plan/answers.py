"""What `plan` answers, one struct a command: the JSON of `--json`, and what `report` draws.

Money and energy are None where a price or a power limit is not known. Times are seconds, sizes
bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from fuelline.schema.plan.estimates import Estimate, Parallelism, TermLimit
from fuelline.schema.plan.simulated import FleetAnswer, FleetOption  # noqa: TC001 - msgspec does

PLAN_VERSION = 1
"""Of every answer here; raised when a key changes its meaning."""


class Floor(Struct, frozen=True, kw_only=True):
    """What no software can go below: every token reads the active weights and the cache."""

    seconds: float
    """A token for one user."""
    tokens_per_s: float
    weight_bytes: float
    """Active weights, all chips of the group together."""
    cache_bytes: float
    bandwidth_bytes_per_s: float
    """All these bytes over the floor: of the chips that read at the same time, together."""
    measured_per_s: float | None = None
    measured_share: float | None = None
    """Of the floor's rate that a measured rate reaches. Above 1: several tokens come from one
    step, or the figures do not belong together."""
    chips: int = 1
    """That read attention, dense layers and the cache at the same time."""
    expert_bytes: float = 0.0
    """Of `weight_bytes`: the experts that a token is routed to."""
    expert_chips: int = 0
    """That read those at the same time: each expert is on one chip where they are spread."""
    origin: Literal["data sheet", "measured", "catalogue"] = "data sheet"
    """Of the bandwidth: the maker's sheet, `fuelline roofline` here, or a user's entry."""


class ExpertLoad(Struct, frozen=True, kw_only=True):
    """What a step does with the experts of a layer; in training tokens are of a micro-batch."""

    tokens: float
    """Of all chips that share the experts."""
    touched_share: float
    """Of a layer's experts that at least one token goes to: this many weights are read."""
    tokens_per_expert: float
    """In the mean."""
    all_to_all_bytes: float
    """Sent and brought back by all chips in a step; 0 where experts are cut, not spread."""
    all_to_all_s: float
    """Of a step, what of it shows."""
    imbalance_frac: float
    """Tokens of the fullest chip beyond the mean's."""
    imbalance_s: float
    """Of a step that waits for it."""


class ServeOption(Struct, frozen=True, kw_only=True):
    """One way to serve."""

    chip: str
    spread: Parallelism
    """Of one replica."""
    replicas: int
    chips: int
    sequences: int
    """At once in a replica."""
    most_sequences: int
    """That its memory holds."""
    critical_batch: float | None
    """Sequences in a replica from which math, not bandwidth, limits the products of a decode step;
    None if no number does."""
    rate_tokens_per_s: Estimate
    """Output of one replica at this load."""
    tpot_s: Estimate
    ttft_s: Estimate
    prefill_s: float
    """One prompt alone."""
    exchange_share: float
    """Of a decode step that is spent between chips: the interconnect tax."""
    usd_per_mtoken: float | None
    usd_per_hour: float | None
    joule_per_token: float | None
    weight_bytes_per_chip: float
    cache_bytes_per_sequence: float
    meets: bool
    """The limits asked for, in the middle of the interval."""
    usd_per_mtoken_range: Estimate | None = None
    """The same as `usd_per_mtoken`, with its interval and limit."""
    joule_per_token_range: Estimate | None = None
    """The same as `joule_per_token`, with its interval and limit."""
    precision: str = ""
    """That this chip is planned with."""
    products_limit: TermLimit = "unknown"
    """Of the products of a decode step at `sequences`: `math` from the critical batch on."""
    batch: float = 0.0
    """Sequences in one step: stages and attention replicas of a replica hold different ones."""
    experts: ExpertLoad | None = None
    """Of a decode step; None for a dense model."""
    host_share: float = 0.0
    """Of the weights that are in host memory."""
    short: bool = False
    """The rate asked for needs more chips than were allowed."""
    needed_chips: int | None = None
    """Of this way for the rate with headroom and spares, however many are allowed; None without a
    rate."""
    carries_per_s: float | None = None
    """Requests that all replicas serve in a steady state, with nothing to spare."""
    critical_batch_range: Estimate | None = None


class Pools(Struct, frozen=True, kw_only=True):
    """Prefill and decode on chips of their own."""

    prefill_chips: float
    decode_chips: float
    together_chips: float
    """What the same load needs when both share chips."""
    ratio: float
    """Prefill chips for one decode chip."""
    transfer_bytes: float
    """Cache that a request moves from one pool to the other."""
    transfer_s: float
    pays: bool
    why: str
    together_range: Estimate | None = None
    apart_range: Estimate | None = None
    """Both pools. As sure as a replica's rate; which is less is surer, since both err alike."""
    rate_per_s: float = 1.0
    """Requests that these chips are for."""


class SweepPoint(Struct, frozen=True, kw_only=True):
    """One line of a range."""

    at: float
    option: ServeOption | None
    why_not: str = ""
    fleet: FleetOption | None = None
    """Where there is a rate: the cheapest fleet that meets the limits in a simulation."""
    floor: Floor | None = None
    """At this value, with how far a measured rate is from it."""


class ServeAnswer(Struct, frozen=True, kw_only=True):
    """`plan serve`."""

    model: str
    params: float
    active_params: float
    precision: str
    prompt: float
    output: float
    rate_per_s: float | None
    ttft_limit_s: float | None
    tpot_limit_s: float | None
    floor: Floor
    options: tuple[ServeOption, ...]
    """Best first: meets the limits, then cost, then chips."""
    pools: Pools | None
    swept: str = ""
    sweep: tuple[SweepPoint, ...] = ()
    advice: tuple[str, ...] = ()
    searched: int = 0
    schema_version: int = PLAN_VERSION
    fleet: FleetAnswer | None = None
    """Queueing included, by simulation; None where no rate was asked for. The first option is how
    many its first option says to buy."""
    precision_note: str = ""
    """Why this precision, where it was not asked for."""
    most_chips: int | None = None
    """That there may be, in all."""


class ChipLine(Struct, frozen=True, kw_only=True):
    """One chip of the catalogue for one model."""

    chip: str
    chips: int | None
    """Of the smallest group that holds the model."""
    floor_s: float | None
    user_tokens_per_s: Estimate | None
    tokens_per_s_per_chip: Estimate | None
    usd_per_mtoken: float | None
    joule_per_token: float | None
    mfu_frac: float | None = None
    why_not: str = ""
    usd_per_mtoken_range: Estimate | None = None
    joule_per_token_range: Estimate | None = None
    mfu_range: Estimate | None = None
    precision: str = ""
    """That this chip is planned with."""
    spread: Parallelism | None = None
    """The layout that all figures are of: `plan serve` says the same of it."""
    sequences: int | None = None
    """At once, at the full load."""


class ChipsAnswer(Struct, frozen=True, kw_only=True):
    """`plan chips`."""

    model: str
    purpose: str
    precision: str
    lines: tuple[ChipLine, ...]
    schema_version: int = PLAN_VERSION
    precision_note: str = ""
    sorted_by: Literal["rate", "usd", "floor", "joules"] = "rate"
    """What the lines are sorted by, the best first; chips that do not fit come last."""
    left_out: int = 0
    """Chips that would fit and are not among the lines, because of `--top`."""


class TrainMemory(Struct, frozen=True, kw_only=True):
    """On one chip."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    total_bytes: float
    room_bytes: float | None
    fits: bool


class Goodput(Struct, frozen=True, kw_only=True):
    """What failures leave of a run."""

    failure_every_s: float
    """Of the whole job."""
    checkpoint_s: float
    checkpoint_bytes: float
    interval_s: float
    """Young and Daly: sqrt(2 * checkpoint * time between failures)."""
    share: float


class Jitter(Struct, frozen=True, kw_only=True):
    """A synchronous step ends with its slowest rank."""

    ranks: int
    spread_frac: float
    expected_frac: float
    """Longer than the mean step."""
    allowed_ranks: int
    """With which the loss stays under five per cent at this spread."""


class DistantSites(Struct, frozen=True, kw_only=True):
    """Training over sites with a slow link between them."""

    sites: int
    link_bytes_per_s: float
    exchange_s: float
    step_s: float
    share: float
    """Of the speed of one site with all chips."""
    needed_bytes_per_s: float
    """Of link so that the exchange hides behind a step."""


class TrainAnswer(Struct, frozen=True, kw_only=True):
    """`plan train`."""

    model: str
    params: float
    active_params: float
    chip: str
    chips: int
    precision: str
    spread: Parallelism
    zero: int
    recompute: str
    microbatch: float
    interleave: int
    batch_sequences: float
    length: float
    tokens: float
    step_s: Estimate
    mfu_frac: Estimate
    tokens_per_s: float
    days: float
    """With failures."""
    usd: float | None
    energy_joule: float | None
    memory: TrainMemory
    loader_bytes_per_s: float
    """That the input pipeline of the whole job must deliver."""
    goodput: Goodput
    jitter: Jitter
    apart: DistantSites | None
    advice: tuple[str, ...] = ()
    swept: str = ""
    sweep: tuple[TrainPoint, ...] = ()
    schema_version: int = PLAN_VERSION
    days_range: Estimate | None = None
    """The same as `days`, with its interval."""
    usd_range: Estimate | None = None
    energy_range: Estimate | None = None
    microbatches: int = 0
    """Of a replica in a step, whole ones: `batch_sequences` is what they make."""
    asked_batch_tokens: float = 0.0
    """Of a step, as asked for; `batch_sequences` is the nearest that whole micro-batches make."""
    experts: ExpertLoad | None = None
    """Tokens of a micro-batch, bytes and seconds of a step; None for a dense model."""


class TrainPoint(Struct, frozen=True, kw_only=True):
    """One line of a range."""

    at: float
    step_s: float | None
    mfu_frac: float | None
    days: float | None
    spread: str = ""
    why_not: str = ""
    label: str = ""
    """Of a value that is not a number: a chip."""
    step_range: Estimate | None = None
    mfu_range: Estimate | None = None
    days_range: Estimate | None = None
    usd_range: Estimate | None = None
    energy_joule: float | None = None
    goodput_share: float | None = None
    loader_bytes_per_s: float | None = None


class Dimension(Struct, frozen=True, kw_only=True):
    """One number of a shape, and what it costs."""

    name: str
    value: int
    problem: str
    cost: str
    """As measured: a few per cent, at most about 1.5 times."""
    nearest: tuple[int, ...]
    """That do not have the problem."""


class ShapeAnswer(Struct, frozen=True, kw_only=True):
    """`plan shape`."""

    model: str
    chip: str
    precision: str
    dimensions: tuple[Dimension, ...]
    degrees: tuple[int, ...]
    """Tensor-parallel degrees that divide heads, feed-forward and vocabulary evenly."""
    schema_version: int = PLAN_VERSION
    edges: tuple[tuple[int, float, float], ...] = ()
    """Tokens of a step at a tile's edge, and how much longer one more takes: median, worst tenth.
    As measured on this chip; empty where nobody did."""
