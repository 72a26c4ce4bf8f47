"""Answers for rows about prefill, decode and serving, in the row's own unit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.plan.physics.constants import EQUAL_LENGTHS
from fuelline.plan.physics.deployment import Deployment
from fuelline.plan.physics.rates import find_loop
from fuelline.plan.serving.batch_energy import batch_power_w
from fuelline.plan.serving.steady import Load, load, saturate
from fuelline.plan.training.step import Training, model_flops
from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.plan.check.case import Case
    from fuelline.plan.check.rows import Row
    from fuelline.plan.physics.constants import Constants, Loop
    from fuelline.plan.physics.tally import Tally

TIME_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "min": 1 / 60}
"""Of a row's unit in one second."""
_WORDS = {"low": 1.0, "api": 1.0, "single": 1.0, "latency": 1.0, "large": 512.0, "high": 512.0}
_DEFAULT_INPUT, _DEFAULT_OUTPUT = 1000.0, 250.0
"""Lengths of a row that states none and belongs to no known benchmark."""
_SLO_HEADROOM = 0.85
"""Of the saturated rate that a p99 limit on latency leaves (MLPerf server against offline)."""


class Point(Struct, frozen=True, kw_only=True):
    """An answer before it has an interval."""

    value: float
    parts: Tally | Training
    """The terms that the number is made of."""
    assumptions: tuple[str, ...] = ()


class Ask(Struct, frozen=True, kw_only=True):
    """Lengths and number of sequences of a row, with blanks filled."""

    prompt: float
    output: float
    sequences: float | None
    """None: as many as fit."""
    loop: Loop = EQUAL_LENGTHS
    assumptions: tuple[str, ...] = ()


def answer_inference(row: Row, case: Case, constants: Constants) -> Point:
    """The best over the ways that a silent row allows."""
    ask = read_ask(row, case, constants)
    points = []
    for spread in case.spreads:
        replica = Deployment(
            model=case.model,
            chip=case.chip,
            precision=case.precision,
            spread=spread,
            constants=constants,
            engine=case.engine,
        )
        points.append(_measure(row, case, replica, ask))
    best = max if _more_is_better(row) else min
    chosen = best(points, key=lambda point: point.value)
    return Point(
        value=chosen.value,
        parts=chosen.parts,
        assumptions=(*case.assumptions, *ask.assumptions, *chosen.assumptions),
    )


def _more_is_better(row: Row) -> bool:
    return "throughput" in row.metric or "mfu" in row.metric or "tok/s" in row.unit


def read_ask(row: Row, case: Case, constants: Constants) -> Ask:
    """Fill blanks from the benchmark that the source names, or from usual lengths."""
    prompt, output, notes = row.input_len, row.output_len, []
    known = [
        each
        for each in constants.workload
        if each.model == case.model.name and any(word in row.text for word in each.words)
    ]
    if prompt is None:
        prompt = known[0].input_len if known else _DEFAULT_INPUT
        notes.append(f"input length not given: {prompt:.0f} assumed")
    if output is None:
        output = known[0].output_len if known else _DEFAULT_OUTPUT
        if "ttft" not in row.metric and "prefill" not in row.metric:
            notes.append(f"output length not given: {output:.0f} assumed")
    sequences = row.batch
    if sequences is None and row.batch_word != "max":
        sequences = next((size for word, size in _WORDS.items() if word in row.batch_word), None)
    if sequences is None and _is_one_user(row):
        sequences = 1.0
    loop = find_loop(row.text, constants)
    return Ask(
        prompt=prompt * loop.mean_share,
        output=output * loop.mean_share,
        sequences=sequences,
        loop=loop,
        assumptions=tuple(notes),
    )


def _is_one_user(row: Row) -> bool:
    return row.batch_word != "max" and (
        "user" in row.metric or row.metric in ("ttft", "tpot", "itl")
    )


def _is_total_rate(row: Row) -> bool:
    return "throughput" in row.metric and "user" not in row.metric and row.batch is None


def is_under_load(row: Row) -> bool:
    """Requests come and go; otherwise one batch starts and ends together."""
    if row.kind == "prefill" or (row.kind == "decode" and not _is_total_rate(row)):
        return False
    if row.batch is None:
        return True
    return row.metric in ("tpot", "ttft", "itl") or any(
        word in row.text
        for word in ("in-flight", "inflight", "continuous", "concurrency", "mlperf")
    )


def _measure(row: Row, case: Case, replica: Deployment, ask: Ask) -> Point:
    for words, answer in _METRICS:
        if any(word in row.metric for word in words):
            return answer(row, case, replica, ask)
    if "tok/s" in row.unit or "req/s" in row.unit:
        return _rate(row, case, replica, ask)
    raise InputError(f"no such metric as '{row.metric}' ({row.unit or 'no unit'}) is predicted")


def _time(row: Row, seconds: float, tally: Tally, *notes: str) -> Point:
    factor = TIME_UNITS.get(row.unit.lower().split("/")[0], 1e3)
    return Point(value=seconds * factor, parts=tally, assumptions=notes)


def _per_replica(ask: Ask, replica: Deployment) -> float:
    """A concurrency is of the whole deployment; replicas share it."""
    return max((ask.sequences or 1.0) / replica.spread.dp, 1.0)


def _shared(row: Row, ask: Ask, replica: Deployment) -> float:
    """Of one batch, a replica's part; where a row says how it is spread, its batch is of that."""
    return (ask.sequences or 1.0) if row.tp else _per_replica(ask, replica)


def _load(ask: Ask, replica: Deployment) -> Load:
    return load(replica, _per_replica(ask, replica), ask.prompt, ask.output, ask.loop)


def _first_token(row: Row, _: Case, replica: Deployment, ask: Ask) -> Point:
    if is_under_load(row):
        found = _load(ask, replica)
        return _time(row, found.ttft_s, found.first())
    tally = replica.prefill(_shared(row, ask, replica), max(ask.prompt, 1))
    return _time(row, tally.seconds, tally)


def _per_token(row: Row, _: Case, replica: Deployment, ask: Ask) -> Point:
    if is_under_load(row):
        found = _load(ask, replica)
        return _time(row, found.tpot_s, found.token())
    tally = replica.decode(_shared(row, ask, replica), ask.prompt + ask.output / 2)
    return _time(row, tally.seconds, tally)


def _user_rate(row: Row, _: Case, replica: Deployment, ask: Ask) -> Point:
    if is_under_load(row) and (ask.sequences or 1) > 1:
        found = _load(ask, replica)
        return Point(value=1 / found.tpot_s, parts=found.token())
    tally = replica.decode(_shared(row, ask, replica), ask.prompt + ask.output / 2)
    return Point(value=1 / tally.seconds, parts=tally)


def _whole(row: Row, _: Case, replica: Deployment, ask: Ask) -> Point:
    if is_under_load(row):
        found = _load(ask, replica)
        parts = found.first().plus(found.token(), max(ask.output - 1, 0))
        return _time(row, parts.seconds, parts)
    tally = replica.batch(_shared(row, ask, replica), ask.prompt, ask.output)
    return _time(row, tally.seconds, tally)


def _prompt_rate(row: Row, case: Case, replica: Deployment, ask: Ask) -> Point:
    sequences = ask.sequences or max(8192 / max(ask.prompt, 1), 1.0)
    tally = replica.prefill(sequences, max(ask.prompt, 1))
    per_replica = sequences * max(ask.prompt, 1) / tally.seconds
    hits = re.search(r"([\d.]+)\s*% of input tokens are cache hits", row.notes)
    if hits and "incl_cache" in row.metric:
        per_replica /= 1 - float(hits[1]) / 100
    return Point(value=per_replica * _scale(row, case, replica), parts=tally)


def _scale(row: Row, case: Case, replica: Deployment) -> float:
    """From one replica (an attention replica, if experts are spread) to what the unit counts."""
    group = replica.spread.shards
    unit = f"{row.unit} {row.metric}".lower()
    if "/gpu" in unit or "per_gpu" in unit or "/chip" in unit or "per_chip" in unit:
        return 1 / group
    if "/node" in unit or "per_node" in unit:
        return 8 / group
    if "/user" in unit or "per_user" in unit:
        return 1.0
    return max(case.chips / group, 1.0)


def _rate(row: Row, case: Case, replica: Deployment, ask: Ask) -> Point:
    if not is_under_load(row):
        sequences = ask.sequences or 1.0
        if row.kind == "decode":
            tally = replica.decode(sequences, ask.prompt + ask.output / 2).scaled(ask.output)
        else:
            tally = replica.batch(sequences, ask.prompt, ask.output)
        rate = sequences * ask.output / tally.seconds
        notes: tuple[str, ...] = ()
    else:
        found = _steady(row, replica, ask)
        tally, rate = found.cycle, found.per_second * _under_limit(row)
        notes = (f"{found.sequences:.0f} sequences at once",)
    rate *= _scale(row, case, replica)
    if "total" in row.metric:
        rate *= (ask.prompt + ask.output) / ask.output
    if "req" in row.unit.lower() or "request" in row.metric or "sample" in row.unit.lower():
        rate /= ask.output
    return Point(value=rate, parts=tally, assumptions=notes)


def _steady(row: Row, replica: Deployment, ask: Ask) -> Load:
    limit = _token_limit(row)
    if row.kind == "decode":  # a pool that only decodes: no prefill shares its steps
        ask = Ask(prompt=1.0, output=2 * ask.prompt, sequences=ask.sequences)
    if ask.sequences is None or "offline" in row.metric:
        found = saturate(replica, ask.prompt, ask.output, ask.sequences)
    else:
        found = _load(ask, replica)
    tries = 0
    while limit is not None and found.tpot_s > limit and found.sequences > 1 and tries < 40:
        found = load(replica, found.sequences * 0.85, ask.prompt, ask.output)
        tries += 1
    return found


def _token_limit(row: Row) -> float | None:
    """`TPOT<=40ms` in the notes is a p99; the mean stays under it by the headroom."""
    user = re.search(r"per-user ([\d.]+)(?:-([\d.]+))? tok/s", row.notes)
    if user:
        return 2 / (float(user[1]) + float(user[2] or user[1]))
    said = re.search(r"TPOT\s*<=?\s*([\d.]+)\s*(ms|s)", row.notes)
    if not said:
        return None
    return float(said[1]) * (1e-3 if said[2] == "ms" else 1.0) * _SLO_HEADROOM


def _under_limit(row: Row) -> float:
    limited = "server" in row.metric or "interactive" in row.metric
    return _SLO_HEADROOM if limited or re.search(r"TTFT\s*<=?", row.notes) else 1.0


def _prefill_rate(row: Row, _: Case, replica: Deployment, ask: Ask) -> Point:
    sequences, prompt = ask.sequences or 1.0, max(ask.prompt, 1)
    tally = replica.prefill(sequences, prompt)
    flops = model_flops(replica.model, prompt) / 3 * sequences * prompt / tally.seconds
    each = flops / replica.spread.shards
    if "mfu" in row.metric:
        share = each / (replica.chip.peak_flops("bf16") or float("nan"))
        return Point(value=share * (100 if "%" in row.unit else 1), parts=tally)
    return Point(value=each / 1e12, parts=tally)


def _energy(row: Row, _: Case, replica: Deployment, ask: Ask) -> Point:
    sequences = ask.sequences or 1.0
    tally = replica.batch(sequences, ask.prompt, ask.output)
    watts = batch_power_w(replica, sequences, ask.prompt, ask.output, tally.seconds)
    if watts is None:
        raise InputError(f"the power limit of '{replica.chip.name}' is not known")
    if row.metric.startswith("power"):
        return Point(value=watts, parts=tally)
    tokens = sequences * (ask.output if "output" in row.metric else ask.output + ask.prompt)
    return Point(value=watts * replica.spread.shards * tally.seconds / tokens, parts=tally)


_METRICS: tuple[tuple[tuple[str, ...], Callable[[Row, Case, Deployment, Ask], Point]], ...] = (
    # Words of a metric's name and what answers it; the first that fits.
    (("energy", "power"), _energy),
    (("mfu", "tflops"), _prefill_rate),
    (("ttft", "first_token", "prefill_latency"), _first_token),
    (("tpot", "itl", "inter_token", "decode_latency", "per_token_latency"), _per_token),
    (("prefill", "input_throughput"), _prompt_rate),
    (("user",), _user_rate),
    (("latency", "e2e"), _whole),
    (("throughput",), _rate),
)
