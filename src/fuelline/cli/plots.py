"""`--plot FILE.svg` or `FILE.png`: a chart of a report as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.schema.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from fuelline.report.document import Chart, Document

_ENDINGS = (".svg", ".png")


def add_plot(parser: argparse.ArgumentParser) -> None:
    """The option."""
    parser.add_argument(
        "--plot", metavar="FILE", help="also write the plot, as .svg or .png (default: none)"
    )


def check_plot(options: argparse.Namespace) -> None:
    """Before anything is computed: a name that cannot be written is refused at once."""
    if not options.plot:
        return
    if Path(options.plot).suffix.lower() not in _ENDINGS:
        raise UsageError(f"--plot {options.plot} must end in .svg or .png.")
    _check_free([Path(options.plot)])


def write_plot(options: argparse.Namespace, document: Document) -> tuple[Path, ...]:
    """The first chart; further ones beside it, numbered. The files that were written."""
    from fuelline.report.document import Chart as ChartBlock  # noqa: PLC0415 - not for the help

    if not options.plot:
        return ()
    check_plot(options)
    charts = [block for block in document.blocks if isinstance(block, ChartBlock)]
    if not charts:
        raise UsageError(
            "there is nothing to plot here: give a range of numbers, such as --batch 1..256 or "
            "--chips 64..1024."
        )
    path = Path(options.plot)
    names = [path, *(path.with_stem(f"{path.stem}-{each}") for each in range(2, len(charts) + 1))]
    _check_free(names)
    for named, chart in zip(names, charts, strict=True):
        _write(chart, named)
    return tuple(names)


def say_plots(options: argparse.Namespace, written: tuple[Path, ...]) -> None:
    """Which files there are now; beside JSON on the standard error."""
    stream = sys.stderr if options.json else sys.stdout
    for number, path in enumerate(written):
        print(f"{'' if number else chr(10)}Plot written to {path}", file=stream)


def _check_free(names: list[Path]) -> None:
    from fuelline.report.renderers.whole_file import check_free  # noqa: PLC0415 - as below

    for path in names:
        check_free(path, _sign(path))


def _sign(path: Path) -> bytes:
    from fuelline.report.renderers import png, svg  # noqa: PLC0415 - only where a plot is asked for

    return png.SIGN if path.suffix.lower() == ".png" else svg.SIGN


def _write(chart: Chart, path: Path) -> None:
    from fuelline.report.renderers.png import draw_png  # noqa: PLC0415 - only where a plot is asked for
    from fuelline.report.renderers.svg import draw_svg  # noqa: PLC0415
    from fuelline.report.renderers.whole_file import write_named  # noqa: PLC0415

    is_png = path.suffix.lower() == ".png"
    drawn = draw_png(chart) if is_png else draw_svg(chart).encode()
    with write_named(path, _sign(path)) as file:
        file.write(drawn)
