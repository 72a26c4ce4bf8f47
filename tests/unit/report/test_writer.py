"""What is said, and in which order."""

import re

import msgspec
import pytest

from fuelline.report.diagnosis.words import as_code
from fuelline.report.diagnosis.writer import write_document
from fuelline.report.document import Bars, Code, Document, Heading, Items, Statement
from fuelline.schema.diagnosis.findings import Diagnosis
from fuelline.schema.diagnosis.fixes import BeforeAfter, Fix, LoaderFixes, Stretch
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.trials import Recommendation, Setting, Trial
from fuelline.schema.readings import Missing, Reading, Signal
from tests.golden.freeze import make_diagnoses

replace = msgspec.structs.replace


def statements(document: Document) -> list[str]:
    return [block.text for block in document.in_text() if isinstance(block, Statement)]


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


def test_after_fix_the_time_before_its_change_is_what_is_not_counted() -> None:
    stretch = Stretch(seconds=9.0, step_seconds=0.1, wait_share=0.5, workers=1)
    fixed = replace(starved(), fixed=BeforeAfter(before=stretch, after=stretch))
    plain, changed = (" ".join(statements(write_document(each))) for each in (starved(), fixed))
    assert "before the end of the first step, " in plain
    assert "before the last change of --fix that lasted, " in changed
    assert "first step" not in changed


def test_what_fix_took_back_is_not_what_the_job_is_measured_by() -> None:
    stretch = Stretch(seconds=9.0, step_seconds=0.1, wait_share=0.5, workers=1)
    trial = Trial(settings=[], speedup=Reading(value=0.96, unit="x"))
    fix = Fix(why="x", trial=trial, outcome="rolled back")
    loader = LoaderFixes(loader="DataLoader", pid=1, workers=1, workers_at_end=1, fixes=[fix])
    effect = BeforeAfter(before=stretch, after=stretch)
    document = write_document(replace(starved(), fixes=[loader], fixed=effect))
    assert "before --fix took its last change back, " in " ".join(statements(document))
    (done,) = (
        item
        for block in document.blocks
        if isinstance(block, Items)
        for item in block.items
        if item.text.startswith("before: ")
    )
    assert any("both are of the same settings" in detail for detail in done.details)


def test_a_gain_that_may_be_none_is_said_to_be_and_is_worth_nothing_for_sure() -> None:
    unsure = Reading(value=1.8, unit="x", low=0.9, high=3.7, level=90)
    diagnosis = with_question(unsure, workers=2)
    (remedy,) = diagnosis.findings[0].remedies
    told = replace(remedy, gain_words="1.80x (90 %: 0.90-3.70)", worth_usd_per_day=9.0)
    finding = replace(diagnosis.findings[0], remedies=[told])
    (items,) = (
        block
        for block in write_document(replace(diagnosis, findings=[finding])).blocks
        if isinstance(block, Items) and block.numbered
    )
    assert "predicted: 1.80x (90 %: 0.90-3.70); it may gain nothing" in items.items[0].details
    assert not any("worth" in detail for detail in items.items[0].details)


def test_the_loaders_setting_is_not_the_recommendation_where_the_verdict_gains_more() -> None:
    setting = Setting(knob="persistent_workers", value=True)
    recommended = Recommendation(
        settings=[setting],
        written="DataLoader(..., persistent_workers=True)",
        workers=1,
        speedup=Reading(value=1.1, unit="x"),
        why="starting epochs takes 5 % of the time now",
    )
    outdone = replace(with_question(TWICE, workers=2), recommended=recommended)
    (told,) = (text for text in statements(write_document(outdone)) if "persistent" in text)
    assert told.startswith("Of the loader's settings: DataLoader(..., persistent_workers=True)")
    best = replace(outdone, recommended=replace(recommended, speedup=Reading(value=3.0, unit="x")))
    (told,) = (text for text in statements(write_document(best)) if "persistent" in text)
    assert told.startswith("Recommended: ")


def test_remedies_are_numbered_and_say_how_safe_they_are() -> None:
    (items,) = (b for b in write_document(starved()).blocks if isinstance(b, Items) and b.numbered)
    assert items.items[0].text.startswith("DataLoader(")
    assert any(detail.startswith("check first (") for detail in items.items[0].details)
    assert any(detail.startswith("safe: same samples") for detail in items.items[1].details)


def test_fix_is_no_remedy_for_a_run_that_had_it_or_that_it_cannot_help() -> None:
    diagnosis = starved()
    finding = diagnosis.findings[0]
    asked = [replace(finding.remedies[0], by_fix=True), finding.remedies[1]]
    plain = replace(diagnosis, findings=[replace(finding, remedies=asked)])
    had = replace(plain, fixes=[LoaderFixes(loader="DataLoader", pid=1, workers=2)])

    def named(told: Diagnosis) -> list[str]:
        blocks = write_document(told).blocks
        (items,) = (block for block in blocks if isinstance(block, Items) and block.numbered)
        return [item.text for item in items.items]

    assert named(plain) == [remedy.setting for remedy in asked]
    assert named(had) == [asked[1].setting]
    assert named(replace(plain, tried_by=None)) == [asked[1].setting]


def test_money_is_an_hourly_loss_at_the_stated_price() -> None:
    loss = statements(write_document(starved()))[-2]
    assert loss.startswith("At 2.5 USD per hour this costs 1.53 USD per hour")
    assert "USD" not in " ".join(statements(write_document(make_diagnoses()["healthy"])))


def test_the_report_ends_with_the_next_command() -> None:
    for diagnosis in make_diagnoses().values():
        last = statements(write_document(diagnosis, "20260412-train"))[-1]
        assert last.startswith("Next: fuelline ")
        assert "--json" not in last


def next_of(diagnosis: Diagnosis, command: list[str] | None = None, **run: object) -> str:
    words = diagnosis.run.command if command is None else command
    asked = replace(diagnosis, run=replace(diagnosis.run, command=words, **run))
    document = write_document(asked, "20260412-train", "/venv/bin/python")
    return statements(document)[-1].removeprefix("Next: ")


TWICE = Reading(value=2.0, unit="x")


def with_question(gain: Signal = TWICE, **asked: object) -> Diagnosis:
    """The starved job, with a remedy that means this to the pipeline model."""
    diagnosis = starved()
    finding = diagnosis.findings[0]
    remedy = replace(finding.remedies[0], question=WhatIf(**asked), gain=gain)
    return replace(diagnosis, findings=[replace(finding, remedies=[remedy])])


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        (["/venv/bin/python", "train.py", "--epochs", "2"], "train.py --epochs 2"),
        (["/venv/bin/python", "-m", "pkg.train"], "-m pkg.train"),
        (["/other/python", "train.py"], "/other/python train.py"),
        (
            ["torchrun", "--nproc-per-node", "2", "my job.py"],
            "torchrun --nproc-per-node 2 'my job.py'",
        ),
        (["/venv/bin/python", "train.py", "--token", "***"], "train.py --token '***'"),
        (["/venv/bin/python", "train.py", "; rm -rf ~"], "train.py '; rm -rf ~'"),
        (["/venv/bin/python", "train.py", "x" * 400], "..."),
        ([], "..."),
    ],
)
def test_a_job_that_fix_can_help_is_repeated_as_it_is_typed(command: list[str], typed: str) -> None:
    for asked in ({"workers": 4}, {"prefetch": 4}):
        assert next_of(with_question(**asked), command) == f"fuelline run --fix {typed}"


def test_a_job_on_several_hosts_is_not_repeated_for_one() -> None:
    assert next_of(with_question(workers=4), run_id="node-0000") == "fuelline run --fix ..."


def test_fix_is_not_proposed_where_the_loader_is_as_recommended() -> None:
    best = replace(with_question(workers=4), recommended=Recommendation(workers=2))
    assert next_of(best) == "fuelline whatif 20260412-train"
    more = Recommendation(workers=4, settings=[Setting(knob="num_workers", value=4)])
    assert next_of(replace(best, recommended=more)).startswith("fuelline run --fix ")


def test_the_next_step_follows_what_was_found() -> None:
    assert next_of(with_question(storage="nvme")) == "fuelline whatif 20260412-train"
    unknown = with_question(storage="nvme", gain=Missing(reason="too few steps"))
    assert next_of(unknown).startswith("fuelline export ")  # whatif would know no more
    assert next_of(make_diagnoses()["healthy"]) == "fuelline whatif 20260412-train --chip 2x"
    imported = ["fuelline", "import", "rank0.json"]
    assert next_of(starved(), imported) == "fuelline run train.py"
    nothing = replace(starved().verdict, code=None, reason="too few steps")
    assert next_of(replace(starved(), verdict=nothing)) == "fuelline doctor"


def test_a_job_that_waits_is_not_asked_about_a_faster_chip() -> None:
    diagnosis = with_question(workers=4)
    dropped = replace(diagnosis, findings=[replace(diagnosis.findings[0], remedies=[])])
    script = ["/venv/bin/python", "train.py"]
    assert next_of(dropped, script) == "fuelline tune train.py"
    assert next_of(dropped, ["torchrun", "train"]).startswith("fuelline export ")
    beside = replace(dropped, verdict=replace(dropped.verdict, stage="transfer"))
    assert next_of(beside, script).startswith("fuelline export ")


def test_only_a_command_that_can_try_workers_is_proposed() -> None:
    script, launcher = ["/venv/bin/python", "train.py"], ["torchrun", "train.py"]
    by_tune = replace(with_question(workers=4), tried_by="tune")
    assert next_of(by_tune, script) == "fuelline tune train.py"
    assert next_of(by_tune, launcher) == "fuelline whatif 20260412-train"
    stream = replace(by_tune, tried_by=None)
    assert next_of(stream, script) == "fuelline whatif 20260412-train"
    dropped = replace(stream, findings=[replace(stream.findings[0], remedies=[])])
    assert next_of(dropped, script).startswith("fuelline export ")


def test_a_path_with_spaces_can_be_pasted() -> None:
    diagnosis = make_diagnoses()["healthy"]
    spaced = replace(diagnosis, run=replace(diagnosis.run, path="/my runs/one"))
    assert "'/my runs/one'" in statements(write_document(spaced))[-1]


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


@pytest.mark.parametrize(
    ("setting", "is_code"),
    [
        ("DataLoader(..., num_workers=4, prefetch_factor=4)", True),
        ("batch_size=128", True),
        ("blockdev --setra 4096 /dev/sda", True),
        ("fuelline run --fix", True),
        ("fuelline probe --dir /data, then diagnose this run again", False),
        ("give the job more CPU cores (quota, cpuset or instance type)", False),
        ("copy on a stream of its own, one batch ahead, with non_blocking=True", False),
    ],
)
def test_advice_in_words_is_not_set_as_code(setting: str, is_code: bool) -> None:
    assert as_code(setting) == setting
    assert isinstance(as_code(setting), Code) is is_code
