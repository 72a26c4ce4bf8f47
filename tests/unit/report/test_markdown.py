from fuelline.report.document import Bar, Bars, Document, Heading, Item, Items, Statement, Table
from fuelline.report.renderers.markdown import render_markdown


def test_each_block_has_its_markdown() -> None:
    page = render_markdown(
        Document(
            (
                Heading("Title"),
                Statement("Bad.", "over", alarm=True),
                Table(("part", "before", ""), (("input", "1 ms", "more"),)),
                Bars((Bar("compute", 0.5, "1 s"), Bar("MFU", None, ""))),
                Items((Item("one", ("why",)),), numbered=True),
            )
        )
    )
    assert page == (
        "### Title\n\n"
        "**Bad.** (over)\n\n"
        "| part | before |  |\n| --- | ---: | --- |\n| input | 1 ms | more |\n\n"
        "| part | share |  |\n| --- | ---: | --- |\n| compute | 50.0 % | 1 s |\n"
        "| MFU | unknown |  |\n\n"
        "1. one\n    - why\n"
    )


def test_names_cannot_break_out_of_a_table_or_into_markup() -> None:
    hostile = "a|b\n<img src=x>[link](http://x) `code` @team #1 \x1b[31m"
    page = render_markdown(Document((Table(("kernel", "s"), ((hostile, "1"),)),)))
    row = page.splitlines()[2]
    assert row.replace("\\|", "").count("|") == 3
    assert "\\<img" in row
    assert "\\[link\\]" in row
    assert "\\@team" in row
    assert "\x1b" not in row
