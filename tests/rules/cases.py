"""Case files of rules, and the Facts they stand for.

A rule's folder holds four files, each a list of cases:

    {"case": "what this is", "base": "reading",
     "facts": {"storage": {"saturation": 0.8}},
     "finding": {"stage": "read", "limit": "bandwidth", "lost_share": 0.61, "words": ["10 MB/s"]},
     "verdict": "IN102"}

`base` is one of the jobs in bases.json; `facts` is what differs from it. A number is a Reading,
null is Missing; `budget` gives shares of parts, and `forward` takes the rest of the whole.
`devices` is a list; each entry changes the device in bases.json. `trace` is of an imported run.
`finding` is what the rule itself must say, null for nothing. `verdict` is what the engine must say
when all rules are asked: it shows which rule speaks for a stage, and null means "cannot tell".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fuelline.diagnose.rules import RULES
from fuelline.schema.diagnosis.ceilings import Probe
from fuelline.schema.diagnosis.devices import DeviceFacts
from fuelline.schema.diagnosis.facts import (
    ComputeFacts,
    CoreFacts,
    ExchangeFacts,
    Facts,
    HotLine,
    InputFacts,
    PlaceFacts,
    StorageFacts,
    SyncFacts,
    TraceSignals,
    TransferFacts,
)
from fuelline.schema.diagnosis.findings import BudgetPart, LateRank, RunSummary, StepStats, Window
from fuelline.schema.diagnosis.stragglers import StragglerFacts
from fuelline.schema.parts import STEP_PARTS, StepPart
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.run.recording import LoaderFacts
from fuelline.schema.run.trace import CopyFacts, HostFrame, Quality, Software

HERE = Path(__file__).parent
BASES = json.loads((HERE / "bases.json").read_text())
KINDS = ("fires", "stays_silent", "near_miss", "blind")
ROOMS = {
    "storage": StorageFacts,
    "cores": CoreFacts,
    "compute": ComputeFacts,
    "transfer": TransferFacts,
}
SIGNALS = {
    name
    for name, default in zip(
        DeviceFacts.__struct_fields__[-len(DeviceFacts.__struct_defaults__) :],
        DeviceFacts.__struct_defaults__,
        strict=True,
    )
    if isinstance(default, Missing)
}
"""Fields of a device that are Readings or Missing."""
RUN = RunSummary(run_id="case", command=["train.py"], host="here", exit_code=0, seconds=70)


def load_cases() -> list[Any]:
    """All cases of all rules, each with its rule and kind."""
    return [
        pytest.param(rule, kind, case, id=f"{rule.code}-{kind}-{case['case']}")
        for rule in RULES
        for kind in KINDS
        if (HERE / rule.code / f"{kind}.json").exists()
        for case in json.loads((HERE / rule.code / f"{kind}.json").read_text())
    ]


def build_facts(case: dict[str, Any]) -> Facts:
    """The base with the case's changes on top, as the structs that rules read."""
    plain = _merge(BASES["healthy"], BASES[case["base"]])
    plain = _merge(plain, case.get("facts", {}))
    places = {name: _struct(PlaceFacts, plain[name]) for name in ("place", "lock_place")}
    step_s = plain["step_seconds"]
    return Facts(
        window=Window(seconds=plain["window_seconds"], before_seconds=8, after_seconds=0),
        steps=StepStats(count=plain["steps"], mean=step_s, p50=step_s, p95=step_s),
        budget=_budget(plain["budget"], plain["window_seconds"]),
        loader=_struct(LoaderFacts, plain["loader"]),
        input=InputFacts(**_signals(plain["input"]), **places),
        **{name: kind(**_signals(plain[name])) for name, kind in ROOMS.items()},
        fetch_lines=[_line(line) for line in plain["fetch_lines"]],
        loop_lines=[_line(line) for line in plain["loop_lines"]],
        step_lines=[_line(line) for line in plain["step_lines"]],
        hidden_frac=plain["hidden_frac"],
        devices=[_device(number, changes) for number, changes in enumerate(plain["devices"])],
        sync=_sync(plain["sync"]),
        stragglers=_struct(StragglerFacts, plain["stragglers"]),
        trace=_trace(plain["trace"]),
        probe=_struct(Probe, plain["probe"]),
    )


def _sync(values: dict[str, Any]) -> SyncFacts:
    signals = {name: values[name] for name in ("wait_share", "straggler_share")}
    return SyncFacts(
        ranks=values["ranks"],
        wait_share_by_rank=values["wait_share_by_rank"],
        late=[msgspec.convert(late, LateRank) for late in values["late"]],
        exchange=ExchangeFacts(**_signals(values["exchange"])),
        **_signals(signals),
    )


def _trace(values: dict[str, Any] | None) -> TraceSignals | None:
    if values is None:
        return None
    numbers = {
        name: value
        for name, value in values.items()
        if name.endswith(("_share", "_seconds", "_per_s")) or name in _TRACE_SIGNALS
    }
    rest = {name: value for name, value in values.items() if name not in numbers}
    rest["late"] = [msgspec.convert(late, LateRank) for late in rest["late"]]
    rest["quality"] = [msgspec.convert(each, Quality) for each in rest["quality"]]
    rest["frames"] = msgspec.convert(rest["frames"], dict[str, HostFrame])
    rest["software"] = _struct(Software, rest["software"])
    rest["copies"] = msgspec.convert(rest["copies"], list[CopyFacts])
    return TraceSignals(**_signals(numbers), **rest)


_TRACE_SIGNALS = ("utilisation", "fill", "occupancy")


def _device(number: int, changes: dict[str, Any]) -> DeviceFacts:
    plain = _merge(BASES["device"], changes)
    numbers = {name: plain.pop(name) for name in list(plain) if name in SIGNALS}
    return DeviceFacts(device=f"gpu{number}", **plain, **_signals(numbers))


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        assert name in base, f"{name} is not a fact of the healthy base"
        both = isinstance(value, dict) and isinstance(base[name], dict)
        free = name in (
            "budget",
            "hidden_frac",
            "wait_share_by_rank",
            "during",
            "frames",
            "software",
            "waiting_share_by_rank",
        )  # these replace: their keys are parts, not facts
        merged[name] = _merge(base[name], value) if both and not free else value
    return merged


def _signals(values: dict[str, Any]) -> dict[str, Any]:
    units = {
        name: "frac" if name.endswith(("share", "use", "busy")) else "count" for name in values
    }
    return {
        name: value
        if isinstance(value, str | bool) or name.endswith(("_text", "_name"))
        else Missing(reason=f"{name} was not measured")
        if value is None
        else Reading(value=value, unit=units[name], origin=name)
        for name, value in values.items()
    }


def _struct(kind: type[Any], values: dict[str, Any] | None) -> Any:
    return None if values is None else msgspec.convert(values, kind)


def _line(values: dict[str, Any]) -> HotLine:
    return msgspec.convert({"source": None, "samples": 100, "own": False, **values}, HotLine)


def _budget(shares: dict[StepPart, float], seconds: float) -> list[BudgetPart]:
    whole: dict[StepPart, float] = {**shares, "forward": 1 - sum(shares.values())}
    return [
        BudgetPart(part=part, seconds=whole[part] * seconds, share=whole[part])
        for part in sorted(whole, key=STEP_PARTS.index)
    ]
