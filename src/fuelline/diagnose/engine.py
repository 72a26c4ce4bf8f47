"""Asks every rule, ranks what they found by the time it cost, and names one verdict or none.

Also here: why a late rank is late: its own stage and limit, from its own recording.

What a rank spends longer in than the others shows where to look; for input the rules that judge any
job are asked about this rank alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from fuelline import __version__
from fuelline.diagnose.evidence.network import unnamed_share
from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.evidence.stepless import speak_of_time
from fuelline.diagnose.evidence.tf_data import TF_DATA
from fuelline.diagnose.evidence.traces import judge
from fuelline.diagnose.rule import LISTED_SHARE, VERDICT_SHARE
from fuelline.diagnose.rules import RULE_GROUPS, RULES
from fuelline.schema.diagnosis.findings import (
    Collectives,
    Diagnosis,
    Finding,
    LateRank,
    StepStats,
    Verdict,
)
from fuelline.schema.readings import Missing, Reading, at_least, value_of
from fuelline.schema.units import duration, number, percent
from fuelline.store.entry_points import load_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fuelline.schema.diagnosis.devices import DeviceFacts, EnergyFacts
    from fuelline.schema.diagnosis.facts import Culprit, Facts
    from fuelline.schema.diagnosis.findings import Limit, Remedy, RunSummary, Stage
    from fuelline.schema.parts import StepPart
    from fuelline.schema.run.recording import Blindspot
    from fuelline.store.entry_points import Plugin


HEALTHY_CODE = "CP400"
_LOW_CONFIDENCE = (
    "No stack sample shows whether that was the loop's own work or a wait for the device. "
    "Record a longer run; `fuelline doctor` says whether stacks can be sampled here."
)
_FEW_STEPS = 5
"""Fewer steps than this are not enough for a verdict: the first ones are never typical."""


def diagnose(
    facts: Facts,
    run: RunSummary,
    blindspots: list[Blindspot],
    price_usd_per_hour: float | None = None,
) -> Diagnosis:
    """Facts in, Diagnosis out."""
    facts = _explain_culprits(facts)
    foreign, unheard = _ask_plugins(facts, {rule.code for rule in RULES} | {HEALTHY_CODE})
    found = sorted([*_judge(facts), *foreign], key=_rank)
    if facts.steps.kind == "time":
        found = [speak_of_time(finding) for finding in found]
    findings = [
        _with_energy(_with_price(finding, price_usd_per_hour), facts.energy) for finding in found
    ]
    hints = {finding.code for finding in foreign if finding.confidence == "low"}
    candidates = [finding for finding in findings if finding.code not in hints]
    diagnosis = Diagnosis(
        fuelline_version=__version__,
        run=run,
        verdict=_verdict(facts, candidates)
        if facts.trace is None
        else judge(facts.trace, candidates, _no_verdict),
        budget=facts.budget,
        findings=findings,
        steps=facts.steps,
        window=facts.window,
        blindspots=[*blindspots, *unheard],
        price_usd_per_hour=price_usd_per_hour,
        collectives=_collectives(facts),
        devices=[price_ladder(device, price_usd_per_hour) for device in facts.devices],
        unused_devices=facts.unused_devices,
        device_budget=facts.device_budget,
        energy=facts.energy if facts.trace is None else None,
        quality=[] if facts.trace is None else facts.trace.quality,
        tried_by=_find_trier(facts),
    )
    diagnosis.check()
    return diagnosis


def _find_trier(facts: Facts) -> Literal["run --fix", "tune"] | None:
    """--fix forks workers, and gives some to a loader that has none between its epochs only."""
    loader = facts.loader
    if loader is None:
        return "run --fix"
    if loader.style == "iterable" or loader.framework not in ("", TF_DATA):
        return None
    has_one_epoch = not facts.demands.pause_counts.get("epoch start")
    is_out_of_reach = loader.num_workers == 0 and has_one_epoch
    return "tune" if is_out_of_reach or loader.context not in {None, "fork"} else "run --fix"


def _judge(facts: Facts) -> list[Finding]:
    """What every group of rules finds, the greatest loss first."""
    found = [
        finding
        for group in RULE_GROUPS
        if (finding := next((hit for rule in group if (hit := rule.check(facts))), None))
        is not None
    ]
    return sorted(found, key=_rank)


def _ask_plugins(facts: Facts, taken: set[str]) -> tuple[list[Finding], list[Blindspot]]:
    """What rules of other packages find, and which of them could not be heard.

    Each is asked by itself and never believed blindly. One that fails, takes a code of ours or
    answers with anything but a possible Finding is a Blindspot; the diagnosis goes on without it.
    """
    installed = load_plugins("fuelline.rules")
    findings: list[Finding] = []
    problems = list(installed.problems)
    for plugin in installed.plugins:
        try:
            finding = _ask_plugin(plugin, facts, taken)
        except Exception as error:  # noqa: BLE001 - somebody else's code: reported, no crash
            problems.append(plugin.excuse(error))
            continue
        taken = taken | {plugin.made.code}
        findings += [] if finding is None else [finding]
    return findings, problems


def _ask_plugin(plugin: Plugin, facts: Facts, taken: set[str]) -> Finding | None:
    code = plugin.made.code
    if code in taken:
        raise ValueError(f"the code {code} is another rule's")
    finding = plugin.made.check(facts)
    if finding is None:
        return None
    if not isinstance(finding, Finding):
        raise TypeError(f"{code} answered with {type(finding).__name__}, which is not a Finding")
    if finding.code != code or not 0 <= finding.lost_share <= 1:
        raise ValueError(f"{code} found {finding.code} with a loss of {finding.lost_share:g}")
    return finding


def _rank(finding: Finding) -> tuple[float, str]:
    """The greatest loss first."""
    return -finding.lost_share, finding.code


def _explain_culprits(facts: Facts) -> Facts:
    """Give each late rank its own cause, which the rule about it then quotes."""
    if not facts.sync.culprits:
        return facts
    late = [explain(culprit, _judge) for culprit in facts.sync.culprits]
    return msgspec.structs.replace(facts, sync=msgspec.structs.replace(facts.sync, late=late))


def _collectives(facts: Facts) -> Collectives:
    sync = facts.sync
    if sync.ranks < 2:
        return Collectives(ranks=sync.ranks)
    return Collectives(
        ranks=sync.ranks,
        wait_share=value_of(sync.wait_share),
        exchange_share=value_of(sync.exchange.share),
        bytes_per_s=sync.exchange.bytes_per_s,
        latency_seconds=sync.exchange.latency_seconds,
        culprits=sync.late,
        jitter=sync.jitter,
    )


def cannot_tell(
    run: RunSummary,
    blindspots: list[Blindspot],
    reason: str,
    price_usd_per_hour: float | None = None,
    devices: Sequence[DeviceFacts] = (),
) -> Diagnosis:
    """A run without steps: nothing to judge, and why; what the accelerators did may be known."""
    return Diagnosis(
        fuelline_version=__version__,
        run=run,
        verdict=_no_verdict(reason),
        budget=[],
        findings=[],
        steps=StepStats(count=0),
        window=None,
        blindspots=blindspots,
        price_usd_per_hour=price_usd_per_hour,
        devices=[price_ladder(device, price_usd_per_hour) for device in devices],
    )


def price_ladder(device: DeviceFacts, price: float | None) -> DeviceFacts:
    """What was paid for the time that reached each rung."""
    if price is None:
        return device
    paid = price * device.seconds / 3600
    rungs = [
        msgspec.structs.replace(
            rung, usd=None if (share := value_of(rung.share)) is None else share * paid
        )
        for rung in device.rungs
    ]
    return msgspec.structs.replace(device, rungs=rungs)


def _with_price(finding: Finding, price: float | None) -> Finding:
    if price is None:
        return finding
    return msgspec.structs.replace(finding, lost_usd=finding.lost_seconds / 3600 * price)


def _with_energy(finding: Finding, energy: EnergyFacts) -> Finding:
    """Between what the accelerators draw at rest and what they draw on average."""
    mean, least = value_of(energy.watts), value_of(energy.least_watts)
    if mean is None or least is None:
        return finding
    low, high = (watts * finding.lost_seconds for watts in (min(least, mean), mean))
    joules = Reading(
        value=(low + high) / 2, unit="J", low=low, high=high, level=95, origin="power x time lost"
    )
    return msgspec.structs.replace(finding, lost_joules=joules)


def _no_verdict(reason: str) -> Verdict:
    return Verdict(
        code=None,
        stage=None,
        limit=None,
        share_of_wall=None,
        sentence=f"Cannot tell: {reason}",
        reason=reason,
    )


_TOLD_BY: dict[Limit, float] = {"cores": 1.0, "launch": 0.5}
"""Limit of a finding to how much of the waiting for a host without a core it speaks for as well.

A lack of cores holds the training process up, too. A host that launches too slowly even with a core
does so all the more without one; but what the device waits for then is an estimate, so that a loss
of less than half of the lack of cores is not named."""


def _verdict(facts: Facts, findings: list[Finding]) -> Verdict:
    if facts.steps.count < _FEW_STEPS:
        return _no_verdict(
            f"only {_count_steps(facts.steps.count)} after the first. Record at least "
            f"{_FEW_STEPS}; a minute of training is better."
        )
    crowded = value_of(facts.compute.crowded_share) or 0.0
    unknown = _unknown_share(facts, findings) + crowded
    known = _TOLD_BY.get(findings[0].limit, 0.0) * crowded if findings else 0.0
    if findings and findings[0].lost_share >= max(VERDICT_SHARE, unknown - known):
        top = findings[0]
        if top.confidence == "low":
            return _no_verdict(f"{top.sentence} {_LOW_CONFIDENCE}")
        return Verdict(
            code=top.code,
            stage=top.stage,
            limit=top.limit,
            share_of_wall=top.lost_share,
            sentence=top.sentence,
        )
    if unknown >= VERDICT_SHARE:
        return _no_verdict(_why_unknown(facts, unknown))
    if isinstance(facts.input.exposed_share, Missing):
        return _no_verdict(
            "nothing else slows the steps down, but how long they wait for input is not known: "
            f"{facts.input.exposed_share.reason}."
        )
    return _healthy(facts)


def _count_steps(count: int) -> str:
    return f"{count} step was seen" if count == 1 else f"{count} steps were seen"


def _unknown_share(facts: Facts, findings: list[Finding]) -> float:
    """Time that was lost for a reason that no rule can name."""
    split = split_input(facts)
    elsewhere = facts.share_of("unexplained") + unnamed_share(facts.sync.exchange)
    if split is None:
        return facts.share_of("input") + elsewhere
    # The rules about preparing samples need to know about cores; without that they are silent.
    named = any(finding.stage in ("decode", "transform") for finding in findings)
    unnamed = 0.0 if named or split.prepare < LISTED_SHARE else split.prepare
    return split.unknown + unnamed + elsewhere


def _why_unknown(facts: Facts, share: float) -> str:
    crowded = value_of(facts.compute.crowded_share) or 0.0
    if crowded > share / 2:
        return (
            f"{percent(crowded)} of the time the accelerator waits for the training process, which "
            "is ready to run but has no core. Take other work off these cores, or give the job "
            "more of them, and record again."
        )
    exchange = facts.sync.exchange
    missing = {
        signal.reason
        for signal in (
            *((exchange.latency_seconds, exchange.bytes_per_s) if unnamed_share(exchange) else ()),
            facts.input.exposed_share,
            facts.input.cpu_share,
            facts.input.read_share,
            facts.cores.allowed,
            facts.cores.used,
        )
        if isinstance(signal, Missing)
    }
    fallback = (
        "neither bytes nor a fixed cost nor packet loss explains the exchange between ranks"
        if unnamed_share(exchange)
        else "the state of the fetching threads does not point to a cause"
    )
    because = "; ".join(sorted(missing)) or fallback
    return (
        f"the cause of {percent(share)} of the time is not known{_where_unknown(facts)}: "
        f"{because}. `fuelline doctor` shows what can be measured on this machine."
    )


def _where_unknown(facts: Facts) -> str:
    """What the trainer does meanwhile, as the budget has it, where one part is most of that."""
    shares = {part: facts.share_of(part) for part in _UNKNOWN_PARTS}
    most = max(shares, key=lambda part: shares[part])
    words = _UNKNOWN_PARTS[most]
    return f" ({words}: {percent(shares[most])})" if words and shares[most] > 0 else ""


_UNKNOWN_PARTS: dict[StepPart, str] = {
    "input": "training waits for input",
    "collectives": "ranks wait for each other and exchange data",
    "unexplained": "",
}


def _healthy(facts: Facts) -> Verdict:
    if facts.steps.kind == "time":
        computed = facts.share_of("forward")
        return Verdict(
            code=HEALTHY_CODE,
            stage="compute",
            limit="math",
            share_of_wall=computed,
            sentence=f"Healthy: {percent(computed)} of the time goes to the model itself.",
        )
    compute = value_of(facts.compute.compute_share) or 0.0
    waiting = value_of(facts.input.exposed_share) or 0.0
    hidden = (value_of(facts.input.wait_share) or 0.0) - waiting
    aside = f" (another {percent(hidden)} of waiting is hidden because the device is busy)"
    return Verdict(
        code=HEALTHY_CODE,
        stage="compute",
        limit="math",
        share_of_wall=compute,
        sentence=f"Healthy: input does not hold training up. {percent(compute)} of the time goes "
        f"to the steps themselves, {percent(waiting)} to waiting for input"
        f"{aside if hidden >= LISTED_SHARE else ''}.{_batch_remark(facts)}",
    )


_FEW_SAMPLES = 4
"""In a batch: on most devices a few more take hardly longer."""


def _batch_remark(facts: Facts) -> str:
    """What a healthy step does not show: whether its time is for its samples, or for any batch."""
    batch = value_of(facts.compute.batch_samples)
    if batch is None or batch > _FEW_SAMPLES or not isinstance(facts.compute.fixed_share, Missing):
        return ""
    samples = "1 sample" if batch == 1 else f"{number(batch)} samples"
    return (
        f" Whether a step with more than {samples} would take longer was not seen, because "
        f"{facts.compute.fixed_share.reason}."
    )


_INPUT_PARTS: tuple[StepPart, ...] = ("input", "epoch start")
_INPUT_STAGES = ("read", "fetch", "decode", "transform", "collate", "handoff")
_COMPUTE_PARTS: tuple[StepPart, ...] = ("forward", "backward", "optimizer", "transfer", "sync")
_QUEUED = 0.5
"""A rank lacks cores if waiting for one explains at least half of its delay."""


def explain(culprit: Culprit, judge: Callable[[Facts], list[Finding]]) -> LateRank:
    """The culprit with its own cause; `judge` gives the findings for one rank's facts."""
    stage, limit, why, remedies = _cause(culprit, judge)
    longer = duration(culprit.excess_seconds / max(1, culprit.late_count))
    words = f"its {_WORDS.get(culprit.part, culprit.part)} takes {longer} longer each time"
    return LateRank(
        rank=culprit.rank,
        late_count=culprit.late_count,
        of=culprit.of,
        caused_wait_seconds=culprit.caused_wait_seconds,
        because=f"{words}. On that rank alone: {why}" if why else words,
        stage=stage,
        limit=limit,
        part=culprit.part,
        remedies=remedies,
    )


_WORDS: dict[StepPart, str] = {
    "input": "wait for input",
    "loop": "own code between steps",
    "sync": "synchronisation",
}


def _cause(
    culprit: Culprit, judge: Callable[[Facts], list[Finding]]
) -> tuple[Stage | None, Limit | None, str, list[Remedy]]:
    own = culprit.own
    if own is None:
        return None, None, "", []
    if culprit.part in _INPUT_PARTS:
        found = next((each for each in judge(own) if each.stage in _INPUT_STAGES), None)
        if found is None:
            return None, None, "", []
        # A gain of the whole job cannot be told from one of its ranks.
        kept = [
            msgspec.structs.replace(each, at_most_speedup=None, question=None)
            for each in found.remedies
            if not each.by_fix
        ]
        return found.stage, found.limit, found.sentence, kept
    if culprit.part in _COMPUTE_PARTS:
        if _lacks_cores(culprit, own):
            return "compute", "cores", "it is ready to run but has to wait for a core.", []
        return "compute", "code", "", []
    return "pause", "code", "", []


def _lacks_cores(culprit: Culprit, own: Facts) -> bool:
    queued_s = (value_of(own.compute.core_wait_share) or 0.0) * own.window.seconds
    if queued_s >= _QUEUED * culprit.excess_seconds:
        return True
    return at_least(own.cores.throttled_share, _QUEUED)
