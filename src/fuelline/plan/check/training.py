"""Answers for rows about training, in the row's own unit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.plan.check.inference import Point
from fuelline.plan.physics.rates import find_convention
from fuelline.plan.physics.setup import Setup
from fuelline.plan.training.memory import USABLE_SHARE, count_memory
from fuelline.plan.training.step import Schedule, Training, model_flops
from fuelline.plan.training.timing import time_training
from fuelline.schema.errors import InputError
from fuelline.schema.plan.estimates import Parallelism

if TYPE_CHECKING:
    from fuelline.plan.check.case import Case
    from fuelline.plan.check.rows import Row
    from fuelline.plan.physics.constants import Constants, Convention

_TERA = 1e12
_USUAL_LENGTH = 4096.0
_USUAL_BATCH_TOKENS = 4e6
"""Tokens a step of a run that does not say: 4M, as Llama-2 and most of its time (arXiv
2307.09288)."""
_USUAL_CHIPS = 1024
_USUAL_MICROBATCHES = (1, 2, 4)
_GOODPUT = 0.93
"""Share of time that a whole run trains: failures, restarts, evaluations (Llama-3: above 0.9)."""


def answer_training(row: Row, case: Case, constants: Constants) -> Point:
    """The fastest of the ways that a silent row allows."""
    convention = find_convention(row.text, constants)
    steps = []
    for spread in _spreads(row, case, convention):
        setup = Setup(
            model=case.model,
            chip=case.chip,
            precision=case.precision,
            spread=spread,
            constants=constants,
        )
        steps += [
            (time_training(setup, schedule), schedule)
            for schedule in _schedules(row, case, spread, convention)
        ]
    step, schedule = max(steps, key=lambda each: each[0].tokens / each[0].seconds / each[0].chips)
    return Point(
        value=_in_unit(row, case, step, schedule, convention),
        parts=step,
        assumptions=(*case.assumptions, *_assumed(row)),
    )


def _assumed(row: Row) -> tuple[str, ...]:
    """A step's time is that of its batch; a rate hardly depends on it."""
    if not _is_step(row) or row.batch or _batch_tokens(row):
        return ()
    return (f"batch not given: {_USUAL_BATCH_TOKENS / 1e6:.0f}M tokens assumed",)


def _is_step(row: Row) -> bool:
    return "iter" in row.metric or "step" in row.metric


def _spreads(row: Row, case: Case, convention: Convention) -> list[Parallelism]:
    """The row's degrees; replicas fill the chips that the others leave."""
    cp = _number(r"\bCP ?(\d+)", row.notes) or 1
    norms = not convention.counts_recompute
    chips = row.chips or _USUAL_CHIPS
    ways = []
    for spread in _ways(row, case):
        left = chips // (spread.tp * spread.pp * cp)
        if left < 1:
            continue
        ways.append(replace(spread, dp=left, cp=cp, shared_norms=norms))
    if not ways:
        first = case.spreads[0]
        ways.append(replace(first, cp=1, shared_norms=norms))
    return ways


def _ways(row: Row, case: Case) -> list[Parallelism]:
    if row.tp and row.pp:
        return list(case.spreads[:1])
    tps = [row.tp] if row.tp else [1, 2, 4, 8]
    pps = [row.pp] if row.pp and row.chips and row.tp else [1, 2, 4, 8, 16]
    ep = row.ep or 1
    ways = [Parallelism(tp=tp, pp=pp, ep=ep) for tp in tps for pp in pps]
    # 18 bytes per parameter must fit with the optimiser spread over replicas: 4 bytes stay (arXiv
    # 2205.05198).
    room = (case.chip.mem_bytes or 0) * 0.6
    fits = [way for way in ways if case.model.params * 4 / (way.tp * way.pp) <= room]
    return fits or ways[-1:]


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return int(found[1]) if found else None


def _schedules(row: Row, case: Case, spread: Parallelism, convention: Convention) -> list[Schedule]:
    """What the row says; of what it does not say, all usual ways that fit in memory."""
    length = row.input_len or _USUAL_LENGTH
    batch = row.batch or max((_batch_tokens(row) or _USUAL_BATCH_TOKENS) / length, spread.dp)
    text = row.text
    stated = _recompute(text, convention)
    first = Schedule(
        batch=batch,
        length=length,
        recompute=stated or "full",
        interleave=_interleave(row, spread, convention),
        zero=3 if "fsdp" in text or "zero-3" in text or "zero3" in text else 1,
        flat="zero-3" in text,
        flash=convention.flash,
        eager=convention.eager,
        older_attention=convention.older_attention,
        blocking=convention.blocking and "async" not in text,
    )
    ways = [
        replace(first, microbatch=size, recompute=recompute)
        for size in _microbatches(row, spread, convention, max(batch / spread.dp, 1))
        for recompute in ([stated] if stated else ["selective", "full"])
    ]
    fits = [each for each in ways if _may_fit(case, spread, each)]
    return fits or [each for each in ways if each.microbatch == ways[0].microbatch][-1:]


def _batch_tokens(row: Row) -> float | None:
    """`batch 0.5M tokens`, `global batch size of 4M tokens`, in the notes."""
    said = re.search(r"batch[^.;,\d]*([\d.]+)\s*([kKM])\s*tok", row.notes)
    return float(said[1]) * {"k": 1e3, "K": 1e3, "M": 1e6}[said[2]] if said else None


def _may_fit(case: Case, spread: Parallelism, schedule: Schedule) -> bool:
    """Kept as 8 bits or chosen operator by operator, activations take about half."""
    memory = count_memory(case.model, case.chip, spread, schedule)
    least = memory.total_bytes - memory.activations_bytes / 2
    return memory.room_bytes is not None and least <= USABLE_SHARE * memory.room_bytes


def _microbatches(
    row: Row, spread: Parallelism, convention: Convention, local: float
) -> list[float]:
    micro = _number(r"microbatch (\d+)(?! unless)", row.notes)
    if micro is None and convention.microbatches_are_stages:
        micro = max(int(local // spread.pp), 1)
    if micro is not None:
        return [min(micro, local)]
    return [size for size in _USUAL_MICROBATCHES if size <= local and local % size == 0] or [1]


def _recompute(text: str, convention: Convention) -> str | None:
    if any(
        word in text for word in ("full activation", "full ac", "checkpointing true", "full recomp")
    ):
        return "full"
    if any(word in text for word in ("checkpointing false", "no recompute", "no ac")):
        return "none"
    if "selective recompute" in text:
        return "selective"
    return convention.recompute or None


def _interleave(row: Row, spread: Parallelism, convention: Convention) -> int:
    stated = _number(r"\bVP ?(\d+)", row.notes)
    if stated or convention.interleave:
        return stated or convention.interleave
    if spread.pp == 1 or convention.counts_recompute or "1f1b" in row.notes.lower():
        return 2 if "interleaved" in row.notes.lower() and spread.pp > 1 else 1
    return 4


def _in_unit(
    row: Row, case: Case, step: Training, schedule: Schedule, convention: Convention
) -> float:
    chips = row.chips or step.chips
    rate = step.tokens / step.seconds / step.chips
    flops = model_flops(case.model, schedule.length, causal=convention.counts_causal)
    metric = row.metric
    if "tflops" in metric or "mfu" in metric or "hfu" in metric:
        counted = (convention.counts_recompute or "hfu" in metric) and schedule.recompute == "full"
        each = rate * flops * (4 / 3 if counted else 1.0)
        if "tflops" in metric:
            return each / _TERA
        peak = case.chip.peak_flops("bf16") or float("nan")
        return each / peak * (100.0 if "%" in row.unit else 1.0)
    if "throughput" in metric or "tok/s" in row.unit:
        per_chip = "per_gpu" in metric or "/gpu" in row.unit or "/chip" in row.unit
        total = rate if per_chip else rate * chips
        return total / schedule.length if "seq" in row.unit or "sample" in row.unit else total
    if _is_step(row):
        return step.seconds * (1e3 if row.unit.lower() == "ms" else 1.0)
    return _whole_run(row, rate, chips)


def _whole_run(row: Row, rate: float, chips: int) -> float:
    tokens = _tokens(row)
    if tokens is None:
        raise InputError(
            f"'{row.metric}' needs the number of training tokens, which the row does not state"
        )
    seconds = tokens / rate / _GOODPUT
    if "gpu" in row.metric or "chip" in row.metric or "gpu" in row.unit.lower():
        return seconds / 3600
    return (
        seconds
        / chips
        / {"days": 86400, "h": 3600, "hours": 3600, "min": 60}.get(row.unit.lower(), 1)
    )


def _tokens(row: Row) -> float | None:
    said = re.search(r"([\d.]+)\s*([TBM])\s*(?:training )?tokens", row.notes)
    if said:
        return float(said[1]) * {"T": 1e12, "B": 1e9, "M": 1e6}[said[2]]
    steps = re.search(r"([\d.]+)k iters", f"{row.notes} {row.source}")
    if steps and row.batch and row.input_len:
        return float(steps[1]) * 1e3 * row.batch * row.input_len
    return None
