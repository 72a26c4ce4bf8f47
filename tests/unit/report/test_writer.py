"""What is said, and in which order."""

import re

import msgspec

from fuelline.report.diagnosis.writer import write_document
from fuelline.report.document import Bars, Document, Heading, Items, Statement
from fuelline.schema.diagnosis.findings import Diagnosis
from tests.golden.freeze import make_diagnoses

replace = msgspec.structs.replace


def statements(document: Document) -> list[str]:
    return [block.text for block in document.blocks if isinstance(block, Statement)]


def headings(document: Document) -> list[str]:
    return [block.text for block in document.blocks if isinstance(block, Heading)]


def starved() -> Diagnosis:
    return make_diagnoses()["starved"]


def test_the_verdict_comes_before_everything_but_the_command() -> None:
    command, verdict, *_ = statements(write_document(starved()))
    assert command.startswith("python train.py")
    assert verdict == starved().verdict.sentence


def test_the_sections_follow_in_the_order_in_which_they_matter() -> None:
    titles = headings(write_document(starved()))
    assert [re.split(r" \(|:", title)[0] for title in titles] == [
        "Where the time went",
        "Evidence",
        "What to try next",
        "Also found",
        "What could not be seen",
    ]


def test_a_part_that_took_no_time_has_no_bar() -> None:
    bars = next(b for b in write_document(starved()).blocks if isinstance(b, Bars)).bars
    assert [bar.label for bar in bars] == ["wait for input", "forward", "between steps"]
    assert [bar.marked for bar in bars] == [True, False, True]


def test_remedies_are_numbered_and_say_how_safe_they_are() -> None:
    (items,) = (b for b in write_document(starved()).blocks if isinstance(b, Items) and b.numbered)
    assert items.items[0].text.startswith("DataLoader(")
    assert any(detail.startswith("check first (") for detail in items.items[0].details)
    assert any(detail.startswith("safe: same samples") for detail in items.items[1].details)


def test_money_is_an_hourly_loss_at_the_stated_price() -> None:
    loss = statements(write_document(starved()))[-2]
    assert loss.startswith("At 2.5 USD per hour this costs 1.53 USD per hour")
    assert "USD" not in " ".join(statements(write_document(make_diagnoses()["healthy"])))


def test_the_report_ends_with_the_next_command() -> None:
    for diagnosis in make_diagnoses().values():
        assert statements(write_document(diagnosis))[-1].endswith("--json")


def test_the_next_command_names_the_run_by_its_shortest_word() -> None:
    last = statements(write_document(starved(), "20260412-train"))[-1]
    assert last == "Next: fuelline diagnose 20260412-train --json"


def test_a_path_with_spaces_can_be_pasted() -> None:
    diagnosis = starved()
    spaced = replace(diagnosis, run=replace(diagnosis.run, path="/my runs/one"))
    assert "'/my runs/one' --json" in statements(write_document(spaced))[-1]


def test_how_a_job_ended_is_said_unless_it_ended_well() -> None:
    def first(exit_code: int | None) -> str:
        diagnosis = starved()
        run = replace(diagnosis.run, exit_code=exit_code)
        return statements(write_document(replace(diagnosis, run=run)))[0]

    assert "ended" not in first(0)
    assert "ended" not in first(None)
    assert "ended with exit code 3" in first(3)
    assert "ended with signal 9" in first(-9)


def test_a_run_without_a_command_is_called_by_its_id() -> None:
    diagnosis = starved()
    nameless = replace(diagnosis, run=replace(diagnosis.run, command=[]))
    assert statements(write_document(nameless))[0].startswith(diagnosis.run.run_id)
