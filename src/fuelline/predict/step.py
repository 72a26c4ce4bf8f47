"""The time of one forward step on a chip: rooflines per operator, launches, exchanges, the host.

t(operator) = launches * launch cost + max(flops / reached math rate, bytes / reached bandwidth). The
sum over operators and exchanges is the step; each part keeps its name, its limit and its doubt.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.predict.exchanges import all_reduce, all_to_all, send
from fuelline.predict.operators import ACT_BYTES, Operator, Work, expert_share, list_operators
from fuelline.predict.constants import BARE, Engine
from fuelline.predict.rates import find_matmul, usable_math
from fuelline.schema.plans import Term

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fuelline.predict.constants import Constants, Matmul
    from fuelline.schema.chips import Chip
    from fuelline.schema.models import Model
    from fuelline.schema.plans import Parallelism
    from fuelline.schema.precision import Precision

_MATH_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}


class Tally:
    """Seconds by term; a plain accumulator because a search fills a hundred thousand of them."""

    __slots__ = ("attention_math", "cache", "exchange", "host", "launch", "math", "moved", "weights")

    def __init__(self) -> None:
        self.weights = self.math = self.cache = self.attention_math = 0.0
        self.moved = self.launch = self.exchange = self.host = 0.0

    @property
    def seconds(self) -> float:
        """The step."""
        return (
            self.weights + self.math + self.cache + self.attention_math
            + self.moved + self.launch + self.exchange + self.host
        )

    def terms(self, doubt: float = 0.08) -> tuple[Term, ...]:
        """With names, limits and doubts; nothing that is zero."""
        rows = (
            ("read weights", self.weights, "memory bandwidth", doubt),
            ("matrix math", self.math, "math", 1.5 * doubt),
            ("read cache", self.cache, "memory bandwidth", 1.5 * doubt),
            ("attention math", self.attention_math, "math", 2 * doubt),
            ("move activations", self.moved, "memory bandwidth", 2 * doubt),
            ("launch kernels", self.launch, "launch", 0.35),
            ("exchange between chips", self.exchange, "interconnect", 0.35),
            ("host between steps", self.host, "host", 0.5),
        )
        return tuple(
            Term(name=name, seconds=seconds, limit=limit, doubt_frac=each)
            for name, seconds, limit, each in rows
            if seconds > 0
        )

    def scaled(self, factor: float) -> Tally:
        """Every part times this."""
        other = Tally()
        for name in self.__slots__:
            setattr(other, name, getattr(self, name) * factor)
        return other

    def plus(self, more: Tally, factor: float = 1.0) -> Tally:
        """The sum, part by part."""
        other = Tally()
        for name in self.__slots__:
            setattr(other, name, getattr(self, name) + factor * getattr(more, name))
        return other


def time_step(
    model: Model,
    chip: Chip,
    precision: Precision,
    spread: Parallelism,
    work: Work,
    engine: Engine,
    constants: Constants,
) -> Tally:
    """One forward step of all layers on one tensor-parallel group."""
    tally = Tally()
    add_operators(tally, list_operators(model, precision, work, spread, constants.shares.route_launches), chip, constants, engine)
    _add_exchanges(tally, model, chip, spread, work, engine, constants)
    host_s = (engine.step_us + engine.sequence_us * work.logit_rows) * 1e-6
    tally.host += max(host_s - tally.seconds, 0.0) if engine.overlapped else host_s
    return tally


def add_operators(
    tally: Tally,
    operators: Iterable[Operator],
    chip: Chip,
    constants: Constants,
    engine: Engine = BARE,
) -> None:
    """Put each operator's time where it belongs."""
    bandwidth = chip.mem_bytes_per_s or math.nan
    shares = constants.shares
    half = find_matmul(chip, "bf16", constants)
    half_peak = chip.peak_flops("bf16") or math.nan
    for op in operators:
        if op.kind == "elementwise":
            tally.moved += op.count * op.moved_bytes / (shares.move_share * bandwidth)
            if not engine.fused:
                each_us = engine.launch_us or half.launch_us * shares.small_launch_share
                tally.launch += op.count * op.launches * each_us * 1e-6
            continue
        unit = usable_math(chip, op.math)
        entry = find_matmul(chip, unit, constants)
        tally.launch += op.count * op.launches * (engine.launch_us or entry.launch_us) * 1e-6
        if op.kind == "attention":
            math_s = op.flops / ((half.attention_share or half.math_share) * half_peak)
            move_s = op.moved_bytes / (half.memory_share * shares.cache_read_share * bandwidth)
            if math_s > move_s:
                tally.attention_math += op.count * math_s
            else:
                tally.cache += op.count * move_s
            continue
        short = shares.short_sum_bytes / _MATH_BYTES.get(unit, 2.0)
        reach = entry.math_share * op.inner / (op.inner + short)
        reach *= shares.grouped_share if op.kind == "grouped" else 1.0
        math_s = op.flops / (reach * (chip.peak_flops(unit) or math.nan))
        memory_share = entry.memory_share * unpack_share(op, entry)
        move_s = (op.weight_bytes + op.moved_bytes) / (memory_share * bandwidth)
        if math_s > move_s:
            tally.math += op.count * math_s
        else:
            tally.weights += op.count * move_s


def unpack_share(op: Operator, entry: Matmul) -> float:
    """Weights that are unpacked on the way reach less of the bandwidth, the more the fewer bits."""
    if not op.packed_bits:
        return 1.0
    return entry.unpack8_share if op.packed_bits > 6 else entry.unpack4_share


def _add_exchanges(
    tally: Tally,
    model: Model,
    chip: Chip,
    spread: Parallelism,
    work: Work,
    engine: Engine,
    constants: Constants,
) -> None:
    wide = ACT_BYTES * work.rows * model.hidden
    if spread.tp > 1:
        each = all_reduce(chip, constants, spread.tp, wide, nccl=engine.nccl)
        tally.exchange += 2 * model.layers * each
    _, replicas, _ = expert_share(model, spread) if model.experts else (0, 1.0, 0)
    if model.experts and replicas > 1:
        sent = work.rows * model.experts_per_token * model.hidden
        each = all_to_all(chip, constants, spread.ep, sent * 1.0)
        back = all_to_all(chip, constants, spread.ep, sent * ACT_BYTES)
        tally.exchange += model.moe_layers * (each + back)
    if spread.pp > 1:
        tally.exchange += (spread.pp - 1) * send(chip, constants, wide / spread.tp)
