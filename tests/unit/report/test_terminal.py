"""What reaches the screen: at most 80 columns, no control characters, no markup, any encoding."""

import io
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fuelline.report.diagnosis.writer import write_document
from fuelline.report.document import (
    Bar,
    Bars,
    Document,
    Heading,
    Item,
    Items,
    Statement,
    Table,
)
from fuelline.report.renderers.terminal import WIDTH, render_terminal
from fuelline.schema.names import clean
from tests.golden.freeze import draw, make_diagnoses

LONG = "/a/very/long/path/" + "x" * 300 + "/train.py"
TEXT = st.text(max_size=300)


def rendered(document: Document, encoding: str = "utf-8", errors: str = "strict") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors=errors, newline="\n")
    render_terminal(document, stream)
    stream.flush()
    return raw.getvalue().decode(encoding)


def everywhere(text: str) -> Document:
    """The same words in every place that words can have."""
    return Document(
        (
            Statement(text, text, alarm=True),
            Heading(text),
            Bars((Bar(text, 0.5, text, marked=True), Bar("input", 1.0, text))),
            Items((Item(text, (text, text)),)),
            Items(tuple(Item(text, (text,)) for _ in range(11)), numbered=True),
        )
    )


@given(TEXT)
def test_nothing_runs_past_the_last_column(text: str) -> None:
    lines = rendered(everywhere(text)).split("\n")
    assert max(map(cell_len, lines)) <= WIDTH


@pytest.mark.parametrize("text", [LONG, f"python {LONG} --flag", "word " * 80, "漢字" * 90])
def test_long_words_and_long_sentences_are_folded_and_nothing_is_lost(text: str) -> None:
    output = rendered(Document((Statement(text),)))
    assert max(map(cell_len, output.split("\n"))) <= WIDTH
    assert re.sub(r"\s", "", output) == re.sub(r"\s", "", text)


def test_a_command_to_copy_stays_on_one_line() -> None:
    command = f"Next: fuelline diagnose {LONG} --json"
    assert rendered(Document((Statement(command, is_whole=True),))) == f"\n{command}\n"


def test_bars_give_way_to_what_stands_beside_them() -> None:
    details = ("12 h 20 min +-35 %", "1000 h 10 min +-12 %")
    bars = Bars(tuple(Bar("exchange between experts", 0.5, detail) for detail in details))
    output = rendered(Document((bars,)))
    assert all(detail in output for detail in details)
    assert max(map(cell_len, output.split("\n"))) <= WIDTH


@given(TEXT)
def test_no_control_character_reaches_the_screen(text: str) -> None:
    output = rendered(everywhere(text))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", output)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\x1b[31mred", r"a\x1b[31mred"),
        ("bell\a", r"bell\x07"),
        ("two\nlines", r"two\x0alines"),
        ("\u202egnp.exe", r"\x202egnp.exe"),
        ("half\udc80", r"half\xdc80"),
        ("\x9b2J", r"\x9b2J"),
    ],
)
def test_control_characters_are_shown_as_escapes(name: str, shown: str) -> None:
    assert clean(name) == shown
    assert shown in rendered(everywhere(name))


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "[/]", "[link=http://x]y", ":smile:", "[[]"])
def test_markup_in_a_name_is_shown_as_it_is(name: str) -> None:
    assert name in rendered(Document((Statement(name), Heading(name), Items((Item(name),)))))


def test_output_to_a_pipe_has_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for diagnosis in make_diagnoses().values():
        assert "\x1b" not in draw(diagnosis)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def draw_on_screen(document: Document, columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    render_terminal(document, stream)
    return stream.getvalue()


def test_a_terminal_gets_colour_but_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis = make_diagnoses()["starved"]
    document = write_document(diagnosis, diagnosis.run.run_id, "/usr/bin/python")
    output = draw_on_screen(document, 80, monkeypatch)
    assert "\x1b[" in output
    assert re.sub(r"\x1b\[[\d;]*m", "", output) == draw(diagnosis)


@pytest.mark.parametrize(
    ("columns", "text", "table"), [(60, 60, 60), (120, 100, 120), (300, 100, 160)]
)
def test_a_wide_terminal_is_used_as_far_as_it_reads_well(
    monkeypatch: pytest.MonkeyPatch, columns: int, text: int, table: int
) -> None:
    words = " ".join(["word"] * 100)
    cells = (("name", "what"), (("a", "x" * 400),))
    output = draw_on_screen(
        Document((Statement(words), Table(*cells), Bars((Bar("part", 0.5, "1 s"),)))),
        columns,
        monkeypatch,
    )
    lines = re.sub(r"\x1b\[[\d;]*m", "", output).splitlines()
    assert text - 5 < max(len(line) for line in lines if "word" in line) <= text
    assert max(len(line) for line in lines if "xx" in line) == table
    assert max(len(line) for line in lines if "part" in line) <= columns


def test_a_table_can_say_which_column_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(("run", "verdict"), (("a" * 70, "too few workers"),), gives_way=1)
    output = draw_on_screen(Document((table,)), 80, monkeypatch)
    assert "a" * 70 in output
    assert "too f…" in output


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_stream_that_cannot_draw_blocks_gets_plain_signs(encoding: str) -> None:
    output = rendered(write_document(make_diagnoses()["starved"]), encoding)
    assert "####" in output
    assert "wait for input" in output


@given(TEXT)
def test_any_name_can_be_written_to_an_ascii_stream(text: str) -> None:
    rendered(everywhere(text), "ascii").encode("ascii")


def test_a_name_that_the_stream_cannot_show_is_escaped() -> None:
    assert r"/donn\xe9es" in rendered(Document((Statement("/données"),)), "ascii")


def test_a_report_with_hostile_names_keeps_its_shape() -> None:
    diagnosis = make_diagnoses()["starved"]
    (finding, *_) = diagnosis.findings
    evil = f"\x1b]0;owned\a[red]{LONG}\r\n"
    hostile = msgspec.structs.replace(
        diagnosis,
        run=msgspec.structs.replace(diagnosis.run, command=["python", evil], run_id=evil),
        findings=[
            msgspec.structs.replace(
                finding,
                sentence=evil,
                evidence=[
                    msgspec.structs.replace(entry, what=evil, mount=evil, line=evil, source=evil)
                    for entry in finding.evidence
                ],
            )
        ],
    )
    lines = draw(hostile).split("\n")
    *others, command, _ = lines
    assert max(map(len, others)) <= WIDTH
    assert command.startswith("Next: ")
    assert not any("\x1b" in line or "\a" in line or "\r" in line for line in lines)
    assert any("[red]" in line for line in lines)
