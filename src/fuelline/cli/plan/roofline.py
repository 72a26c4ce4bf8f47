"""`fuelline roofline`: what this device can do at most, and how far below it a model runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.pages import add_page, check_page, say_page, write_page
from fuelline.cli.plots import add_plot, check_plot, say_plots, write_plot
from fuelline.plan.roofline.inputs import parse_input
from fuelline.schema.errors import InputError, RefusedError, UsageError
from fuelline.schema.files import make_folder, read_given, write_whole
from fuelline.store.home import home_folder

if TYPE_CHECKING:
    import argparse

    from fuelline.plan.roofline.inputs import InputShape
    from fuelline.plan.roofline.user_model import ModelCall
    from fuelline.report.document import Document
    from fuelline.schema.plan.roofline import ModelPoints, Roofline

_PRECISIONS = ("fp32", "bf16", "fp16")
_MOST_SAVED_BYTES = 4 << 20
"""Of a saved roofline, which has some kilobytes. Measuring takes the memory that it takes, and the
user's model as well, so this command does not run bounded (cli/bounded.py)."""
_DESCRIPTION = """\
Measure this machine's device: math rate per precision, memory bandwidth, launch
cost. With a model, every operator of it is placed under that roof: memory- or
math-bound, how far below, and what batch size would change it.

  fuelline roofline --save laptop
  fuelline roofline model.py:build --input 1x3x224x224
  fuelline roofline model.py:build --input 1x128:int64 --input mask=1x128:bool
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    from argparse import RawDescriptionHelpFormatter  # noqa: PLC0415

    parser = commands.add_parser(
        "roofline",
        help="measure this device, and place a model's operators under its roof",
        description=_DESCRIPTION,
        formatter_class=RawDescriptionHelpFormatter,
        epilog="docs/roofline.md explains how each ceiling is measured.",
    )
    parser.add_argument(
        "target",
        nargs="?",
        metavar="FILE.py:NAME",
        help="a module, a function that makes one, or any callable (default: the device alone)",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="SHAPE",
        help="[name=]1x3x224x224[:dtype], once per input (default: what the builder returns)",
    )
    parser.add_argument(
        "--precision",
        help="fp32, bf16, fp16: to measure, or to run the model in (default: fp32,bf16)",
    )
    parser.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    parser.add_argument("--threads", metavar="N", help="CPU threads (default: torch's own)")
    parser.add_argument("--rounds", metavar="N", help="rounds of measuring, 3 to 200 (default: 9)")
    parser.add_argument("--on", metavar="NAME", help="a saved roofline (default: measured now)")
    parser.add_argument(
        "--save", metavar="NAME", help="save it as a chip for `fuelline plan --chip` (default: no)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON (default: a report)")
    add_plot(parser)
    add_page(parser)
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Measure and show."""
    shapes = [parse_input(text) for text in options.input]
    _check(options, shapes)
    _load_torch(options)
    if options.target:
        return _show_model(options, shapes)
    from fuelline.report.plan.roofline import write_device  # noqa: PLC0415 - not for the help

    roofline = _find_roofline(options, _precisions(options) or ("fp32", "bf16"))
    document = write_device(roofline, options.save or "")
    return _show(options, roofline, document)


def _check(options: argparse.Namespace, shapes: list[InputShape]) -> None:
    check_plot(options)
    check_page(options.html)
    _precisions(options)
    if shapes and not options.target:
        raise UsageError("--input needs a model: fuelline roofline model.py:build --input ...")
    if options.device not in (None, "cpu", "cuda"):
        raise UsageError(f"--device is {options.device}; it can be cpu or cuda.")
    if options.save and not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", options.save):
        raise UsageError(f"--save {options.save} is no name: letters, digits, dots and dashes.")
    if options.save and options.on:
        raise UsageError(
            "--on takes a saved roofline and --save keeps a new one: give only one of them."
        )
    if options.save:
        _check_saving(options.save)
    _whole(options.rounds, "--rounds", 3, 200, 9)
    _whole(options.threads, "--threads", 1, 4096, 1)


def _precisions(options: argparse.Namespace) -> tuple[str, ...]:
    if not options.precision:
        return ()
    found = tuple(dict.fromkeys(each.strip().lower() for each in options.precision.split(",")))
    for each in found:
        if each not in _PRECISIONS:
            raise UsageError(f"no precision '{each}' here. Known: {', '.join(_PRECISIONS)}.")
    if options.target and len(found) > 1:
        raise UsageError("a model runs in one precision: give --precision one of them.")
    return found


def _whole(text: str | None, name: str, low: int, high: int, default: int) -> int:
    if text is None:
        return default
    if not text.isdigit() or not low <= int(text) <= high:
        raise UsageError(f"{name} is {text}; it must be a whole number from {low} to {high}.")
    return int(text)


def _load_torch(options: argparse.Namespace) -> None:
    """The framework, with as many threads as asked for."""
    try:
        import fuelline.plan.roofline.torch_device as adapter  # noqa: PLC0415 - only here
    except ImportError as error:
        raise RefusedError(
            f"PyTorch cannot be loaded here ({error}). Nothing was measured. Run `pip install "
            "torch` and try again."
        ) from error
    options.device = options.device or adapter.default_device()
    adapter.check_device(options.device)
    if options.threads:
        adapter.use_threads(int(options.threads))


def _find_roofline(options: argparse.Namespace, precisions: tuple[str, ...]) -> Roofline:
    """A saved one, or a new one that is saved if asked for."""
    from fuelline.plan.roofline.torch_device import measure_device  # noqa: PLC0415

    if options.on:
        return _read_saved(options.on)
    rounds = _whole(options.rounds, "--rounds", 3, 200, 9)
    if not options.json:
        print(f"Measuring {options.device} in {', '.join(precisions)} ...", file=sys.stderr)
    roofline = measure_device(options.device, precisions, rounds)
    if options.save:
        _save(options.save, roofline)
    return roofline


def _save(name: str, roofline: Roofline) -> None:
    """For its owner alone, whatever the umask: a plan believes no file that others can write."""
    import msgspec  # noqa: PLC0415 - the help needs none of these

    from fuelline.plan.roofline.measured import write_entry  # noqa: PLC0415

    products = write_entry(roofline, name).encode(), msgspec.json.encode(roofline)
    _check_saving(name)  # again: measuring takes minutes
    folder = home_folder() / "chips"
    try:
        make_folder(folder, is_new=False)
        for (path, _), content in zip(_products(name), products, strict=True):
            with write_whole(path) as file:
                file.write(content)
    except OSError as error:
        raise RefusedError(
            f"cannot write to {folder}: {error.strerror}. The measurement is lost; set "
            "FUELLINE_HOME."
        ) from error


def _check_saving(name: str) -> None:
    """A chip of that name that the user wrote is not replaced."""
    from fuelline.report.renderers.whole_file import check_free  # noqa: PLC0415 - the help needs none of it

    for path, sign in _products(name):
        check_free(path, sign)


def _products(name: str) -> list[tuple[Path, bytes]]:
    """Files that a saved roofline is, with the words by which one of ours is known."""
    folder = home_folder() / "chips"
    return [
        (folder / f"{name}.toml", b"# Measured by `fuelline roofline`"),
        (folder / f"{name}.json", b'"read_bytes_per_s":{'),
    ]


def _read_saved(name: str) -> Roofline:
    import msgspec  # noqa: PLC0415 - the help needs none of these

    from fuelline.schema.foreign import decode_json  # noqa: PLC0415
    from fuelline.schema.plan.roofline import Roofline as Noun  # noqa: PLC0415

    path = home_folder() / "chips" / f"{name}.json"
    try:
        return decode_json(read_given(path, _MOST_SAVED_BYTES), Noun)
    except FileNotFoundError as error:
        known = (
            sorted(each.stem for each in path.parent.glob("*.json")) if path.parent.is_dir() else []
        )
        raise InputError(
            f"no roofline was saved as '{name}'. Saved: {', '.join(known) or 'none'}. "
            f"`fuelline roofline --save {name}` makes one."
        ) from error
    except (OSError, msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"the saved roofline {path} cannot be read: {error}.") from error


def _show_model(options: argparse.Namespace, shapes: list[InputShape]) -> int:
    from fuelline.plan.roofline.seam import check_parts  # noqa: PLC0415

    check_parts()  # torch_model cannot be imported without them
    from fuelline.plan.roofline import torch_model, torch_probes, user_model  # noqa: PLC0415
    from fuelline.report.plan.roofline import write_points  # noqa: PLC0415

    wanted = _precisions(options)
    dtype = torch_probes.PRECISIONS[wanted[0]] if wanted else None
    call: ModelCall = user_model.load_call(options.target, shapes, dtype, options.device)
    shown = ", ".join(str(each) for each in shapes)
    torch_model.check_call(options.target, call, shown)
    roofline = _find_roofline(options, torch_model.needed_precisions(call))
    rounds = _whole(options.rounds, "--rounds", 3, 200, 9)
    found: ModelPoints = torch_model.measure_model(options.target, call, roofline, rounds, shown)
    return _show(options, found, write_points(found))


def _show(options: argparse.Namespace, answer: object, document: Document) -> int:
    from fuelline.report.renderers.terminal import render_terminal  # noqa: PLC0415
    from fuelline.schema.foreign import encode_json  # noqa: PLC0415 - the help needs none of these

    written = write_plot(options, document)
    write_page(options.html, document, options.target or "roofline")
    if options.json:
        sys.stdout.write(encode_json(answer, is_indented=False) + "\n")
    else:
        render_terminal(document, sys.stdout)
        if options.save:
            print(f"\nSaved as {options.save} in {Path(home_folder(), 'chips')}.")
    say_plots(options, written)
    say_page(options.html, beside_data=options.json)
    return 0
