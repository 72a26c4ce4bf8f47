"""A report as one HTML file: the numbers of the JSON, names as text, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from fuelline.report import Drawn, render_page, render_terminal, write_comparison, write_document
from fuelline.report.document import (
    Bar,
    Bars,
    Chart,
    Code,
    Document,
    Heading,
    Item,
    Items,
    Number,
    Said,
    Series,
    SideBySide,
    StackedBars,
    Statement,
    Summary,
    Table,
)
from fuelline.schema.diagnosis.findings import Collectives, LateRank
from fuelline.schema.diagnosis.fixes import BeforeAfter, LoaderFixes, Stretch
from fuelline.schema.foreign import encode_json
from fuelline.signals.changes import compare_samples
from tests.golden.freeze import make_diagnoses
from tests.unit.report.pages import HOSTILE, Page, drawn, find, name_hostile
from tests.unit.report.test_comparison import run

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import Diagnosis

replace = msgspec.structs.replace
NAMES = sorted(make_diagnoses())


def page_of(diagnosis: Diagnosis, shown: Drawn | None = None) -> Page:
    return Page(render_page(write_document(diagnosis, "a run", None, shown or drawn()), "a run"))


@pytest.mark.parametrize("name", NAMES)
def test_every_number_that_has_a_place_in_the_json_is_the_number_there(name: str) -> None:
    diagnosis = make_diagnoses()[name]
    answer = json.loads(encode_json(diagnosis))
    told = [
        each.attributes for each in page_of(diagnosis).all("data") if "data-path" in each.attributes
    ]
    for each in told:
        assert find(answer, each["data-path"]) == float(each["value"]), each
    paths = {each["data-path"] for each in told}
    shown = {
        f"budget/{place}/share"
        for place, part in enumerate(diagnosis.budget)
        if part.share >= 0.001
    }
    assert shown <= paths


@pytest.mark.parametrize("name", NAMES)
def test_all_that_the_diagnosis_says_is_on_the_page(name: str) -> None:
    diagnosis = make_diagnoses()[name]
    text = page_of(diagnosis).elements[0].text
    assert diagnosis.verdict.sentence in text
    for finding in diagnosis.findings:
        assert finding.sentence in text
    for remedy in diagnosis.findings[0].remedies if diagnosis.findings else []:
        assert remedy.setting in text
        assert remedy.gain_words in text
    for spot in diagnosis.blindspots:
        assert spot.why in text


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_asked_of_anybody(name: str) -> None:
    page = page_of(make_diagnoses()[name])
    for element in page.elements:
        assert element.name not in ("link", "img", "iframe", "object", "form", "base")
        assert not {"src", "style", "action", "srcset"} & set(element.attributes)
        assert not [key for key in element.attributes if key.startswith("on")]
        assert (element.attributes.get("href") or "#").startswith("#")
    assert "http://www.w3.org" in page.elements[0].text  # a name in the script, not an address
    code = "".join(each.text for each in page.all("script") if "type" not in each.attributes)
    assert set(re.findall(r"https?://[^\"' ]+", code)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|innerHTML|eval\(|import\(", code)
    assert "url(" not in page.all("style")[0].text


def test_the_policy_allows_our_own_script_and_style_by_their_hashes_and_nothing_else() -> None:
    page = page_of(make_diagnoses()["starved"])
    (policy,) = [
        each.attributes["content"]
        for each in page.all("meta")
        if each.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    (style,), (code,) = (
        page.all("style"),
        [s for s in page.all("script") if "type" not in s.attributes],
    )
    assert policy.startswith("default-src 'none'; ")
    for kind, element in (("style", style), ("script", code)):
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_a_hostile_name_stays_text_wherever_it_stands() -> None:
    diagnosis, named = make_diagnoses()["starved"], name_hostile()
    html = render_page(write_document(named, HOSTILE, None, drawn()), HOSTILE)
    page = Page(html)
    assert [each.name for each in page.elements if each.name == "img"] == []
    usual = page_of(diagnosis)
    assert len(page.all("script")) == len(usual.all("script"))
    assert "<!--" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    (title,) = page.all("h1")
    assert title.text.startswith("</script><script>alert(1)</script><img src=x onerror=alert(2)>")
    for each in page.all("script"):
        if each.attributes.get("type") == "application/json":
            assert "<" not in each.text
            json.loads(each.text)


def test_the_first_screen_has_the_verdict_its_cost_and_the_change_with_its_gain() -> None:
    diagnosis = make_diagnoses()["computing"]
    html = render_page(write_document(diagnosis, "a run", None, drawn()), "a run")
    top = html[html.index('<section class="summary') : html.index("</section>")]
    assert diagnosis.verdict.sentence in top
    assert "lost in this run" in top
    assert diagnosis.recommended.text() in top
    assert "predicted" in top
    assert 'class="copy"' in top


def test_money_is_on_the_first_screen_once_there_is_a_price() -> None:
    starved, computing = (make_diagnoses()[name] for name in ("starved", "computing"))
    assert "1.53 USD" in page_of(starved).all("section")[0].text
    assert "--price" in page_of(computing).all("section")[0].text


def test_every_place_has_one_name() -> None:
    for diagnosis in make_diagnoses().values():
        names = [
            each.attributes["id"] for each in page_of(diagnosis).elements if "id" in each.attributes
        ]
        assert len(names) == len(set(names))


def test_every_picture_says_itself_in_text() -> None:
    page = page_of(make_diagnoses()["computing"])
    assert len(page.all("canvas")) == 0  # drawn by the script, beside tables that are there without
    tables = [each.text for each in page.all("table")]
    assert any("longest" in each and "backward" in each for each in tables)
    assert any("Loader workers" in each for each in tables)
    out = io.StringIO()
    render_terminal(write_document(make_diagnoses()["computing"], "a run", None, drawn()), out)
    assert "What if\n" in out.getvalue()
    assert "NVMe" in out.getvalue()
    assert "longest" in out.getvalue()


def test_before_and_after_a_fix_stand_side_by_side() -> None:
    before = Stretch(seconds=9.0, step_seconds=0.2, wait_share=0.5, workers=1)
    after = Stretch(seconds=9.0, step_seconds=0.1, wait_share=0.1, workers=2)
    fixed = replace(
        make_diagnoses()["starved"],
        fixes=[LoaderFixes(loader="DataLoader", pid=1, workers=1, workers_at_end=2)],
        fixed=BeforeAfter(before=before, after=after),
    )
    (table,) = [
        each for each in page_of(fixed).all("table") if each.attributes.get("class") == "pairs"
    ]
    assert "200 ms" in table.text
    assert "100 ms" in table.text


def test_a_comparison_is_a_page_with_both_sides() -> None:
    comparison = compare_samples(run(), run(step_s=0.02), threshold=0.05)
    page = Page(render_page(write_comparison(comparison), "two"))
    answer = json.loads(encode_json(comparison))
    told = [each.attributes for each in page.all("data")]
    assert [find(answer, each["data-path"]) for each in told] == [float(e["value"]) for e in told]
    assert "Steps are" in page.all("h1")[0].text
    assert [each for each in page.all("table") if each.attributes.get("class") == "pairs"]


def test_of_several_ranks_it_is_said_whose_time_and_settings_are_shown() -> None:
    diagnosis = make_diagnoses()["starved"]
    late = LateRank(rank=1, late_count=3, of=4, caused_wait_seconds=2.0, because="it sleeps")
    ranks = Collectives(ranks=3, wait_share=0.5, exchange_share=0.1, culprits=[late])
    top = replace(
        diagnosis.findings[0], code="SY601", name="straggler", stage="sync", limit="imbalance"
    )
    parts = [replace(diagnosis.budget[0], part="collectives"), *diagnosis.budget[1:]]
    several = replace(
        diagnosis,
        verdict=replace(diagnosis.verdict, code="SY601"),
        findings=[top, *diagnosis.findings],
        collectives=ranks,
        budget=parts,
    )
    text = page_of(several).elements[0].text
    assert "of the job's time lost to rank 1" in text
    assert "the 2 others wait, added up" in text
    assert "These figures are of the first rank that makes no other wait." in text
    assert f"{diagnosis.findings[0].title}, in the first rank that makes no other wait: " in text
    assert "collectiveswaits" in text
    exchanging = replace(several, collectives=replace(ranks, wait_share=0.1, exchange_share=0.5))
    assert "collectiveswaits" not in page_of(exchanging).elements[0].text
    alone = page_of(replace(several, collectives=Collectives(ranks=1))).elements[0].text
    assert "the first rank" not in alone


def test_numbers_in_a_sentence_and_shares_of_a_whole_name_their_places() -> None:
    said = Said("waits ", Number("3 s", 3.0, "wait"), " of <b>")
    share = Number("30.0", 3, "part + rest", "whole")
    document = Document((Items((Item(said, (said,)),)), Table(("%",), ((share,),))))
    page = Page(render_page(document, "numbers"))
    told = [each.attributes for each in page.all("data")]
    assert [each["data-path"] for each in told] == ["wait", "wait", "part + rest"]
    assert told[2]["data-of"] == "whole"
    assert find({"part": 1, "rest": 2}, "part + rest") == 3
    assert "waits 3 s of <b>" in [each.text for each in page.all("p")]


def test_one_step_has_neither_mean_nor_percentile() -> None:
    diagnosis = make_diagnoses()["starved"]
    one = replace(diagnosis, steps=replace(diagnosis.steps, count=1))
    assert "600 steps, mean 100 ms, p95 100 ms" in page_of(diagnosis).elements[0].text
    paths = [each.attributes.get("data-path") for each in page_of(diagnosis).all("data")]
    assert {"window/seconds", "steps/count", "steps/mean", "steps/p95"} <= set(paths)
    text = page_of(one).elements[0].text
    assert ", 1 step" in text
    assert "1 step, mean" not in text


def test_each_block_has_its_element() -> None:
    chart = Chart("A <b>", "x", "y", (Series("one", ((1.0, 2.0), (2.0, 3.0))),))
    table = Table(("part", "s"), (("<i>", "1"),))
    page = Page(
        render_page(
            Document(
                (
                    Summary("job", "All is well"),
                    Heading("One"),
                    Bars((Bar("a", 0.5, "1 s"), Bar("b", None, "")), falling=True),
                    Items((Item(Code("x = 1"), (Code("y"),)),), numbered=True),
                    SideBySide(table, ((1.0, 2.0),)),
                    StackedBars(
                        (("rank 0", (("input", 0.4), ("forward", 0.6))),),
                        {"input": "i", "forward": "f"},
                        table,
                    ),
                    chart,
                    Statement("Next: fuelline doctor", is_whole=True, command="fuelline doctor"),
                )
            ),
            "title",
        )
    )
    text = page.elements[0].text
    assert "A <b>" in text
    assert "unknown" in text
    assert "50.0 %" in text
    assert not page.all("b")[1:]
    assert [each.text for each in page.all("button")] == ["Copy", "Copy"]
    assert [each.text for each in page.all("code")][-1] == "fuelline doctor"
