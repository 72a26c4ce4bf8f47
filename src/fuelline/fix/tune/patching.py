"""The patch of a script: the DataLoader call is found in its syntax tree and its keywords edited.

Only a keyword that is absent or a plain constant is edited: an expression such as `args.workers` is
the user's own knob, and the patch would take it away. Then there is no patch, and the caller shows
the settings to paste. The text outside the keywords stays as it is, to the byte.
"""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.trials import Setting

_NO_NEWLINE = "\n\\ No newline at end of file\n"
_INSIGNIFICANT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


@dataclass(frozen=True)
class Patch:
    """A script before and after."""

    path: str
    before: str
    after: str

    def diff(self) -> str:
        """As `patch` reads it."""
        name = self.path.lstrip("/")
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            f"a/{name}",
            f"b/{name}",
        )
        return "".join(line if line.endswith("\n") else f"{line}{_NO_NEWLINE}" for line in lines)


@dataclass(frozen=True)
class NoPatch:
    """Why there is none."""

    reason: str


def make_patch(path: str, source: str, line: int, settings: Sequence[Setting]) -> Patch | NoPatch:
    """Edit the call at a line of a script."""
    try:
        call = _find_call(ast.parse(source), line)
    except SyntaxError as error:
        return NoPatch(f"{path} cannot be parsed (line {error.lineno})")
    if call is None:
        return NoPatch(f"no DataLoader call was found at {path}:{line}")
    edits = []
    for setting in settings:
        edit = _edit(call, setting)
        if isinstance(edit, NoPatch):
            return NoPatch(f"{edit.reason} at {path}:{call.lineno}")
        edits.append(edit)
    return Patch(path, source, _apply(source, call, edits))


def _find_call(tree: ast.Module, line: int) -> ast.Call | None:
    """The innermost call of a loader that covers a line."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and _name(node.func).endswith("Loader")
    ]
    return min(calls, key=lambda call: (call.end_lineno or 0) - call.lineno, default=None)


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else str(getattr(function, "attr", ""))


@dataclass(frozen=True)
class _Edit:
    text: str
    place: ast.expr | None
    """The value to replace; None to add the keyword."""


def _edit(call: ast.Call, setting: Setting) -> _Edit | NoPatch:
    if any(keyword.arg is None for keyword in call.keywords):
        return NoPatch("the call takes **keywords")
    for keyword in call.keywords:
        if keyword.arg == setting.knob:
            if not isinstance(keyword.value, ast.Constant):
                return NoPatch(f"{setting.knob} is `{ast.unparse(keyword.value)}`")
            return _Edit(str(setting.value), keyword.value)
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return NoPatch("the call takes *arguments")
    return _Edit(setting.text(), None)


def _apply(source: str, call: ast.Call, edits: list[_Edit]) -> str:
    """Change the text from its end to its beginning, so that places stay valid."""
    raw = source.encode()
    starts = [0]
    for line in raw.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    changes = [
        (_offset(starts, edit.place, is_end=False), _offset(starts, edit.place), edit.text)
        for edit in edits
        if edit.place is not None
    ]
    added = [edit.text for edit in edits if edit.place is None]
    if added:
        changes.append(_addition(source, call, starts, ", ".join(added)))
    for begin, end, text in sorted(changes, reverse=True):
        raw = raw[:begin] + text.encode() + raw[end:]
    return raw.decode()


def _offset(starts: list[int], place: ast.expr, *, is_end: bool = True) -> int:
    if not is_end:
        return starts[place.lineno - 1] + place.col_offset
    return starts[(place.end_lineno or place.lineno) - 1] + (place.end_col_offset or 0)


def _addition(source: str, call: ast.Call, starts: list[int], added: str) -> tuple[int, int, str]:
    """Behind the last token before the closing parenthesis, whatever comments follow it."""
    close = _offset(starts, call) - 1
    last, at = None, 0
    lines = source.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source, newline="").readline):
        row, column = token.end
        end = starts[row - 1] + len(lines[row - 1][:column].encode()) if row <= len(lines) else 0
        if end > close or token.type in _INSIGNIFICANT:
            if end > close and last is not None:
                break
            continue
        last, at = token, end
    if last is None or last.string == "(":
        return at, at, added
    if last.string != ",":
        return at, at, f", {added}"
    line = lines[last.end[0] - 1]
    is_apart = call.end_lineno is not None and call.end_lineno > last.end[0]
    indent = line[: len(line) - len(line.lstrip())]
    return (at, at, f"\n{indent}{added},") if is_apart else (at, at, f" {added}")
