"""Serving a model: the question from flags or from Python, and its answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fuelline.plan.asked.plain import make_request, name_keywords
from fuelline.plan.asked.request import DEFAULT_ENGINE, find_engine
from fuelline.plan.serving.answer import Question, answer_serving
from fuelline.plan.serving.load import Stream
from fuelline.plan.simulation.trace import read_requests
from fuelline.schema.errors import UsageError
from fuelline.schema.mistakes import tell_plainly

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from fuelline.plan.asked.plain import Number
    from fuelline.plan.asked.request import PlanRequest
    from fuelline.schema.plan.answers import ServeAnswer

BURSTY = 3.0
"""Coefficient of variation of gaps called bursty: production shows 2 to 5 (arXiv 2401.17644)."""
VALUES = ("batch", "in", "out", "rate", "tp", "pp", "ep", "cp", "chips")
RANGES = (
    *VALUES, "ttft", "tpot", "price", "measured", "kv", "headroom", "vary", "attain",
)  # fmt: skip
"""Flags that may hold a range."""
_OF_A_STREAM = ("headroom", "vary", "attain")
"""Flags that say something about requests of a rate, and nothing without one."""
_BURSTINESS = {"poisson": 1.0, "bursty": BURSTY, "even": 0.0}
_PYTHON = {
    # Keyword: its flag, and from the keyword's unit to the flag's.
    "prompt_tokens": ("in", 1.0),
    "output_tokens": ("out", 1.0),
    "requests_per_s": ("rate", 1.0),
    "batch": ("batch", 1.0),
    "tp": ("tp", 1.0),
    "pp": ("pp", 1.0),
    "ep": ("ep", 1.0),
    "cp": ("cp", 1.0),
    "most_chips": ("chips", 1.0),
    "ttft_s": ("ttft", 1.0),
    "tpot_s": ("tpot", 1.0),
    "usd_per_chip_hour": ("price", 1.0),
    "measured_tokens_per_s": ("measured", 1.0),
    "kv_bits": ("kv", 1.0),
    "headroom_frac": ("headroom", 100.0),
    "vary_frac": ("vary", 100.0),
    "attain_frac": ("attain", 100.0),
}


@tell_plainly
@name_keywords(_PYTHON)
def serve(
    model: str | os.PathLike[str],
    *,
    chip: str | Sequence[str] | None = None,
    prompt_tokens: Number | None = None,
    output_tokens: Number | None = None,
    requests_per_s: Number | None = None,
    batch: Number | None = None,
    ttft_s: Number | None = None,
    tpot_s: Number | None = None,
    tp: Number | None = None,
    pp: Number | None = None,
    ep: Number | None = None,
    cp: Number | None = None,
    most_chips: Number | None = None,
    precision: str | None = None,
    kv_bits: Number | None = None,
    usd_per_chip_hour: Number | None = None,
    headroom_frac: Number | None = None,
    arrivals: Literal["poisson", "bursty", "even"] = "poisson",
    vary_frac: Number | None = None,
    attain_frac: Number | None = None,
    trace: str | os.PathLike[str] | None = None,
    measured_tokens_per_s: Number | None = None,
    engine: str = DEFAULT_ENGINE,
    offload: bool = False,
    catalogue: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
) -> ServeAnswer:
    """What serves a model within limits at least cost: `fuelline plan serve`.

    `model` is a `config.json`, its folder, or a public name. A keyword that holds a number may hold
    a list of them, one keyword at a time: then the answer has a table (`sweep`). What is left out
    is searched for, or has the default of the command line. docs/plan.md says how it is calculated.

    Raises:
        UsageError: a value makes no sense, or two contradict each other.
        InputError: the model or chip is not known, or nothing fits.
    """
    given = {
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "requests_per_s": requests_per_s,
        "batch": batch,
        "ttft_s": ttft_s,
        "tpot_s": tpot_s,
        "tp": tp,
        "pp": pp,
        "ep": ep,
        "cp": cp,
        "most_chips": most_chips,
        "kv_bits": kv_bits,
        "usd_per_chip_hour": usd_per_chip_hour,
        "headroom_frac": headroom_frac,
        "vary_frac": vary_frac,
        "attain_frac": attain_frac,
        "measured_tokens_per_s": measured_tokens_per_s,
    }
    request = make_request(model, chip, precision, catalogue=catalogue, given=given, flags=_PYTHON)
    if arrivals not in _BURSTINESS:
        raise UsageError(
            f"arrivals={arrivals!r} is not known. Nothing was planned. Give one of "
            f"{', '.join(map(repr, _BURSTINESS))}."
        )
    path = None if trace is None else Path(trace)
    return ask_serving(request, engine=engine, arrivals=arrivals, trace=path, offload=offload)


def ask_serving(
    request: PlanRequest,
    *,
    engine: str,
    arrivals: str,
    trace: Path | None,
    offload: bool,
    plotted: bool = False,
) -> ServeAnswer:
    """The answer; `plotted` if all batches of a chart are wanted."""
    constants = request.find_constants()
    loaded = request.load()
    stream = _read_stream(request, arrivals, trace)
    swept = _find_swept(request, trace)
    values = request.values
    limits = {name: request.first(name) for name in ("ttft", "tpot")}
    question = Question(
        model=loaded.model,
        precision=request.find_precision(loaded, request.first("kv", 16.0)),
        chips=request.find_chips(),
        engine=find_engine(engine, constants),
        limits={name: limit for name, limit in limits.items() if limit},
        values={**{name: values.get(name) for name in VALUES}, **stream.means()},
        swept=swept,
        measured=request.first("measured") or None,
        price=request.first("price") or None,
        headroom=request.first("headroom", 20.0) / 100,
        offload=offload,
        plotted=plotted,
        stream=stream,
        native=request.is_native(loaded),
        walked=values.get(swept, ()) if swept else (),
    )
    request.check_degrees(loaded.model)
    return answer_serving(question, constants)


def _read_stream(request: PlanRequest, arrivals: str, trace: Path | None) -> Stream:
    if trace and ("rate" in request.values or "vary" in request.values):
        spell = request.spell
        raise UsageError(
            f"{spell('trace', '')} says when requests come and how long they are: give no "
            f"{spell('rate', '')} or {spell('vary', '')}."
        )
    return Stream(
        burstiness=_BURSTINESS[arrivals],
        length_spread=request.first("vary") / 100,
        attain_share=request.first("attain", 95.0) / 100,
        trace=tuple(read_requests(trace)) if trace else (),
    )


def _find_swept(request: PlanRequest, trace: Path | None) -> str:
    swept = request.find_swept(RANGES)
    given = [name for name in ("vary", "attain") if name in request.values]
    idle = [swept] if swept in _OF_A_STREAM else given
    if idle and not (trace or "rate" in request.values):
        spell = request.spell
        raise UsageError(
            f"{spell(idle[0], '')} says something about requests that come at a rate, and changes "
            f"nothing without: give {spell('rate', '')} or {spell('trace', '')} too."
        )
    return swept
