"""Charts fit a terminal, keep their numbers, and are drawn as a picture too."""

from xml.etree import ElementTree as ET

from fuelline.report.document import Chart, Document, Series
from fuelline.report.renderers.charts import Axis, draw_chart
from fuelline.report.renderers.markdown import render_markdown
from fuelline.report.renderers.svg import draw_svg

CHART = Chart(
    "A & B <title>",
    "batch",
    "tokens/s",
    (Series("one", ((1, 10), (10, 100), (100, 200))), Series("dots", ((5, 50),), joined=False)),
    log_x=True,
    log_y=True,
    x_mark=20,
    x_mark_label="crossing",
)


def test_a_chart_fits_and_names_its_axes_series_and_mark() -> None:
    for plain in (True, False):
        lines = draw_chart(CHART, plain=plain)
        assert max(map(len, lines)) <= 80
        text = "\n".join(lines)
        assert "one" in text
        assert "dots" in text
        assert "crossing" in text
        assert "tokens/s" in text
    assert "\n".join(draw_chart(CHART, plain=True)).isascii()


def test_points_that_cannot_be_shown_are_left_out() -> None:
    odd = Chart(
        "t",
        "x",
        "y",
        (
            Series(
                "s",
                ((0, 1), (1, float("nan")), (2, 3)),
            ),
        ),
        log_x=True,
    )
    assert draw_chart(odd, plain=True)
    assert draw_chart(Chart("t", "x", "y", (Series("s", ()),)), plain=True)
    assert draw_chart(Chart("t", "x", "y", (Series("s", ((1, 1),)),)), plain=True)


def test_the_ends_of_an_axis_are_its_first_and_last_cell() -> None:
    axis = Axis([1, 1000], 31, log=True)
    assert (axis.cell(1), axis.cell(1000)) == (0, 30)
    assert axis.cell(31.6227766) == 15
    assert axis.cell(-1) is None
    assert axis.cell(2000) is None


def test_a_picture_is_well_formed_and_escapes_its_words() -> None:
    root = ET.fromstring(draw_svg(CHART))
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "A & B <title>" in words
    dots = list(root.iter("{http://www.w3.org/2000/svg}path"))
    assert len(dots) == 4 + len(CHART.series)  # the points, and a legend's sign for each series


def test_each_series_has_a_sign_of_its_own_and_points_may_have_names() -> None:
    pair = tuple(
        Series(name, ((place, 1),), joined=False, names=(f"op {name}",))
        for place, name in enumerate("ab")
    )
    root = ET.fromstring(draw_svg(Chart("t", "x", "y", pair)))
    shapes = {path.attrib["d"] for path in root.iter("{http://www.w3.org/2000/svg}path")}
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert len(shapes) == len(pair)
    assert {"op a", "op b"} <= set(words)


def test_a_picture_of_names_with_control_characters_is_well_formed() -> None:
    odd = Chart(
        title="a\x1b[31m<b>",
        x_label="\x00",
        y_label="\x07",
        series=(Series(name="\ud800", points=((1.0, 1.0), (2.0, 2.0))),),
    )
    ET.fromstring(draw_svg(odd).encode())


def test_a_chart_in_markdown_is_a_block_of_text() -> None:
    text = render_markdown(Document((CHART,)))
    assert text.startswith("```\n")
    assert "crossing" in text
