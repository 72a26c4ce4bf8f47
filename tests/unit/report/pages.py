"""A page as a browser's parser sees it: elements with their attributes and texts, nothing run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from typing import Any

import msgspec

from fuelline.report import Drawn
from fuelline.schema.diagnosis.findings import Collectives, Diagnosis, LateRank
from fuelline.signals.recorded.picture import picture_run
from fuelline.whatif import fit, tabulate
from tests.golden.freeze import make_diagnoses
from tests.unit.builders import Lane, facts_of, judge, make_timeline
from tests.unit.whatif.jobs import make_facts

replace = msgspec.structs.replace
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&<!--\x1b[31m\u202e"

VOID = {"meta", "input", "br"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)


class Page(HTMLParser):
    """All elements in order, each with the text inside it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.open: list[Element] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.texts.append(data)

    def all(self, name: str) -> list[Element]:
        return [element for element in self.elements if element.name == name]


@cache
def drawn() -> Drawn:
    """A short story over time, and a model that can be asked."""
    lane = Lane()
    for _ in range(40):
        lane.step(wait=10, forward=10, backward=20, opt=5).gap(5)
    timeline = make_timeline(lane)
    trainer, segments = judge(timeline)
    budget = facts_of(timeline).budget
    picture = picture_run(timeline, trainer, segments, budget=budget, fixes=[], judged=segments)
    return Drawn(
        picture, tabulate(fit(make_facts(batch=42, workers=1, cpu=40, device=11, cores=2)))
    )


def find(answer: Any, path: str) -> Any:
    """What stands there; the sum if it is several paths."""
    if " + " in path:
        return sum(find(answer, each) for each in path.split(" + "))
    for step in path.split("/"):
        answer = answer[int(step)] if isinstance(answer, list) else answer[step]
    return answer


def name_hostile() -> Diagnosis:
    """A diagnosis in which everything that a job names is an attack."""
    diagnosis = make_diagnoses()["starved"]
    finding = diagnosis.findings[0]
    evidence = [
        replace(each, what=HOSTILE, line=HOSTILE, source=HOSTILE, mount=HOSTILE)
        for each in finding.evidence
    ]
    remedies = [replace(each, setting=HOSTILE, why=HOSTILE) for each in finding.remedies]
    return replace(
        diagnosis,
        run=replace(diagnosis.run, command=[HOSTILE, HOSTILE], run_id=HOSTILE),
        verdict=replace(diagnosis.verdict, sentence=HOSTILE),
        findings=[replace(finding, sentence=HOSTILE, evidence=evidence, remedies=remedies)],
        blindspots=[replace(each, what=HOSTILE, why=HOSTILE) for each in diagnosis.blindspots],
        collectives=Collectives(
            culprits=[
                LateRank(rank=1, late_count=3, of=4, caused_wait_seconds=1.0, because=HOSTILE)
            ]
        ),
    )
