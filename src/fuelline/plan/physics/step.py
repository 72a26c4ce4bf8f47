"""The time of one forward step on a chip: rooflines per operator, launches, exchanges, the host.

t(operator) = launches * launch cost + max(flops / rate, bytes / bandwidth), both as reached. The
sum over operators and exchanges is the step; each part keeps its name, its limit and its doubt.

Also here: operators on a device that was measured itself: its own curve of products instead of two
shares.

`fuelline roofline` times products by their rows, attention in prefill and decode, and small
operators on one token
and on many. Those times are used as they are; what a product waits for follows from its bytes.
"""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from fuelline.plan.physics.exchanges import (
    GIGA,
    all_gather,
    all_reduce,
    all_to_all,
    hidden_part,
    host_gbps,
    send,
)
from fuelline.plan.physics.expert_operators import expert_share
from fuelline.plan.physics.kernels import ACT_BYTES, Operator
from fuelline.plan.physics.kernels import half as half_unit
from fuelline.plan.physics.operators import list_operators
from fuelline.plan.physics.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fuelline.plan.physics.constants import Matmul
    from fuelline.plan.physics.setup import Setup
    from fuelline.plan.physics.work import StepWork


SENT_BYTES = 1.0
"""Tokens go to their experts in 8 bits and come back in 16 (DeepSeek-V3 report)."""
_MATH_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}


def time_step(setup: Setup, work: StepWork) -> Tally:
    """One forward step of all layers on one tensor-parallel group."""
    tally = Tally()
    operators = forward_operators(setup, work)
    add_operators(tally, setup, operators)
    _add_exchanges(tally, setup, work)
    _add_context(tally, setup, work)
    _add_bus(tally, setup, operators)
    engine = setup.engine
    host_s = (engine.step_us + engine.sequence_us * work.logit_rows) * 1e-6
    tally.host += max(host_s - tally.seconds, 0.0) if engine.overlapped else host_s
    return tally


def forward_operators(setup: Setup, work: StepWork) -> list[Operator]:
    """With as many routing kernels as the constants say."""
    launches = setup.constants.shares.route_launches
    return list_operators(setup.model, setup.precision, work, setup.spread, launches)


def add_operators(tally: Tally, setup: Setup, operators: Iterable[Operator]) -> None:
    """Put each operator's time where it belongs."""
    own = setup.rates(setup.unit(half_unit(setup.precision)))
    if own.by_rows:
        add_measured(tally, setup, operators, own)
        return
    half, engine, shares = setup.rates("bf16"), setup.engine, setup.constants.shares
    move_rate = shares.move_share * setup.bandwidth
    small_s = (engine.launch_us or half.launch_us * shares.small_launch_share) * 1e-6
    for op in operators:
        if op.kind == "elementwise":
            tally.moved += op.count * op.moved_bytes / move_rate
            tally.launch += 0.0 if engine.fused else op.count * op.launches * small_s
            continue
        unit = setup.unit(op.math)
        entry = setup.rates(unit)
        tally.launch += op.count * op.launches * (engine.launch_us or entry.launch_us) * 1e-6
        if op.kind == "attention":
            _add_attention(tally, setup, op, half)
        else:
            _add_product(tally, setup, op, unit, entry)


def _add_attention(tally: Tally, setup: Setup, op: Operator, half: Matmul) -> None:
    math_s = op.flops / ((half.attention_share or half.math_share) * setup.peak("bf16"))
    share = half.memory_share * setup.constants.shares.cache_read_share
    move_s = op.moved_bytes / (share * setup.bandwidth)
    if math_s > move_s:
        tally.attention_math += op.count * math_s
    else:
        tally.cache += op.count * move_s


def _add_product(tally: Tally, setup: Setup, op: Operator, unit: str, entry: Matmul) -> None:
    shares = setup.constants.shares
    short = shares.short_sum_bytes / _MATH_BYTES.get(unit, 2.0)
    reach = entry.math_share * op.inner / (op.inner + short)
    if op.kind == "grouped":
        reach *= shares.grouped_share * op.filled_share / fullest(setup)
        reach *= shares.unpacked_share if op.math == "mxfp4" and unit == "bf16" else 1.0
    math_s = op.flops / (reach * setup.peak(unit))
    memory_share = entry.memory_share * unpack_share(op, entry)
    move_s = (op.weight_bytes + op.moved_bytes) / (memory_share * setup.bandwidth)
    if math_s > move_s:
        even_s = math_s / fullest(setup) if op.kind == "grouped" else math_s
        tally.math += op.count * even_s
        tally.uneven += op.count * (math_s - even_s)
    else:
        tally.weights += op.count * move_s


def fullest(setup: Setup) -> float:
    """Tokens of the fullest expert-parallel chip against the mean."""
    return 1 + setup.constants.shares.imbalance * log2(max(setup.spread.ep, 1))


def unpack_share(op: Operator, entry: Matmul) -> float:
    """Weights that are unpacked on the way reach less of the bandwidth, the more the fewer bits."""
    if not op.packed_bits:
        return 1.0
    return entry.unpack8_share if op.packed_bits > 6 else entry.unpack4_share


def _add_exchanges(tally: Tally, setup: Setup, work: StepWork) -> None:
    model, spread, chip, constants = setup.model, setup.spread, setup.chip, setup.constants
    wide = ACT_BYTES * work.rows * model.hidden
    if spread.tp > 1:
        each = all_reduce(chip, constants, spread.tp, wide, nccl=setup.engine.nccl)
        tally.exchange += 2 * model.layers * each
    if model.experts and expert_share(model, spread).replicas > 1:
        # Chips that cut one attention hold the same tokens, so each sends its part of them.
        sent = work.rows * model.experts_per_token * model.hidden / spread.tp
        each = all_to_all(chip, constants, spread.ep, sent * SENT_BYTES)
        back = all_to_all(chip, constants, spread.ep, sent * ACT_BYTES)
        between = model.moe_layers * (each + back) * fullest(setup)
        # Over a network, engines run two half batches so that one computes while the other travels.
        far = spread.ep > chip.scaleup_domain
        shown = hidden_part(tally.seconds, between) if far else between
        tally.scatter += shown / fullest(setup)
        tally.uneven += shown - shown / fullest(setup)
    if spread.pp > 1:
        tally.exchange += (spread.pp - 1) * send(chip, constants, wide / spread.tp)


def _add_context(tally: Tally, setup: Setup, work: StepWork) -> None:
    """Chips that share a sequence: keys go round while prompts are read, results are gathered.

    Keys travel behind the math of the layer before; what a decoding token attends to in other
    chips' parts of the cache comes back as partial results, which everyone waits for.
    """
    model, spread = setup.model, setup.spread
    if spread.cp == 1:
        return
    read = [part for part in work.slices if part.new > 1]
    tokens = spread.cp * sum(part.count * (part.new + part.past) for part in read)
    if read:
        size = tokens * model.kv_values(1.0) / model.layers * setup.precision.kv_bytes
        size /= 1.0 if model.latent else min(spread.tp, model.kv_heads)
        round_s = model.layers * all_gather(setup.chip, setup.constants, spread.cp, size, spread.tp)
        tally.exchange += hidden_part(tally.seconds, round_s)
    decoding = spread.cp * sum(part.count for part in work.slices if part.new <= 1)
    if decoding:
        wide = ACT_BYTES * decoding * model.heads * model.head_size / spread.tp
        each = all_gather(setup.chip, setup.constants, spread.cp, wide * spread.cp, spread.tp)
        tally.exchange += model.layers * each


def _add_bus(tally: Tally, setup: Setup, operators: Iterable[Operator]) -> None:
    """Weights in host memory come over the chip's bus while layers before them compute."""
    if setup.host_share > 0:
        read = sum(op.count * op.weight_bytes for op in operators)
        bus = host_gbps(setup.chip) * GIGA
        tally.bus += hidden_part(tally.seconds, setup.host_share * read / bus)


MOSTLY = 0.5
"""A product whose bytes alone take this share of its time waits for memory, not for math."""


def add_measured(tally: Tally, setup: Setup, operators: Iterable[Operator], own: Matmul) -> None:
    """Put each operator's time where it belongs."""
    for op in operators:
        unit = setup.unit(op.math)
        entry = setup.rates(unit) if setup.rates(unit).by_rows else own
        if op.kind == "elementwise":
            launch_s = own.small_us * 1e-6
            tally.moved += op.count * op.moved_bytes / (own.move_share * setup.bandwidth)
        else:
            launch_s = entry.launch_us * 1e-6
            _add(tally, setup, op, entry, unit)
        if not setup.engine.fused:
            tally.launch += op.count * op.launches * (setup.engine.launch_us * 1e-6 or launch_s)


def _add(tally: Tally, setup: Setup, op: Operator, entry: Matmul, unit: str) -> None:
    peak = setup.peak(unit)
    if op.kind == "attention":
        math_s = op.flops / ((entry.attention_share or 1.0) * peak)
        move_s = op.moved_bytes / ((entry.cache_share or 1.0) * setup.bandwidth)
        if math_s > move_s:
            tally.attention_math += op.count * math_s
        else:
            tally.cache += op.count * move_s
        return
    seconds = op.flops / (entry.peak_share_at(op.rows or 1.0, _widening(op)) * peak)
    move_s = (op.weight_bytes + op.moved_bytes) / (entry.memory_share * setup.bandwidth)
    if move_s > MOSTLY * seconds:
        tally.weights += op.count * max(seconds, move_s)
    else:
        tally.math += op.count * seconds


def _widening(op: Operator) -> float | None:
    """Values that a product gives for each that it takes; None for what is not a plain product."""
    if not op.rows or not op.inner:
        return None
    return op.flops / (2 * op.rows * op.inner**2)
