"""A kernel's name taken apart, so that its own words decide and not its arguments' or operands'.

| written | own | path | arguments |
|---|---|---|---|
| `void at::native::reduce_kernel<512, MeanOps>(...)` | reduce_kernel | at_native_... | `MeanOps` |
| `cutlass::Kernel2<cutlass_80_s1688gemm>(...)` | kernel2 | cutlass_kernel2 | `cutlass_80_...` |
| `%all-reduce.3 = f32[8]{0} all-reduce(f32[8] %dot.4), ...` | all_reduce | all_reduce | |
| `%add_fusion.2 = f32[8]{0} fusion(...), kind=kLoop` | add_fusion | add_fusion | `kLoop` |
| `_ZN2ck13kernel_gemm_v3INS_7RowMajorEEEv` | kernel_gemm_v3 | ck_kernel_gemm_v3 | `RowMajor` |

Words are in lower case with underscores between them, however they were written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_UNNAMED = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::")
_SUFFIX = re.compile(r"\.kd$|\s*\[clone [^\]]*\]|\.(?:cold|part|constprop)\.?\d*$")
_HLO = re.compile(r"^%?([\w.-]+) = ")
_OPCODE = re.compile(r"(?:^|[\])}]) ?([a-z][a-z0-9-]*)\(")
_KIND = re.compile(r"\bkind=k(\w+)")
_TARGET = re.compile(r'custom_call_target="([^"]+)"')
_ACLNN = re.compile(r"^aclnn\w+_\w+_\w+$")
"""Ascend's: the call, its variant, and last the kernel that ran for it."""
_NUMBERED = re.compile(r"(?:\.\d+)+$|\.(?:clone|remat\d*)\b")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w:$]*")
_WRAPPED_OPCODES: Final = frozenset({"fusion", "call", "async-start", "async-update", "async-done"})
"""Instructions of HLO whose own name says what they do, and whose opcode does not."""
_LENGTH = re.compile(r"(\d+)")
_NO_LENGTH = re.compile(r"L[a-z]n?$|DF$|[ST]$")
_MOST_MANGLED = 64
"""Words of a mangled name that are looked at."""


@dataclass(frozen=True, slots=True)
class KernelName:
    """What a name says, part by part."""

    own: str
    """Of the function itself."""
    path: str
    """With the namespaces that it lies in."""
    arguments: tuple[str, ...] = ()
    """Names among the arguments of its template, for wrappers only; of a fusion its kind."""


@lru_cache(8192)
def take_apart(name: str) -> KernelName:
    """A name as any profiler writes it."""
    text = _SUFFIX.sub("", name.strip())
    if _HLO.match(text):
        return _read_hlo(text)
    if _ACLNN.match(text):
        return KernelName(*2 * (snake(text.rpartition("_")[2]),))
    if text.startswith("_Z"):
        return _read_mangled(text)
    return _read_cpp(_UNNAMED.sub("", text))


def snake(text: str) -> str:
    """`CatArrayBatchedCopy` and `all-reduce.3` as `cat_array_batched_copy`, `all_reduce_3`."""
    return _HUMP.sub("_", text).strip("_").lower()


def _read_hlo(text: str) -> KernelName:
    """An instruction of XLA: `%name = type opcode(operands), attributes`."""
    label = _NUMBERED.sub("", text[: text.index(" = ")].lstrip("%"))
    rest = text[text.index(" = ") + 3 :]
    found = _OPCODE.search(rest)
    opcode = found[1] if found else label
    kind = _KIND.search(rest)
    target = _TARGET.search(rest)
    if opcode == "custom-call" and target:
        own = snake(target[1])
    else:
        own = snake(label if opcode in _WRAPPED_OPCODES else opcode)
    return KernelName(own, own, (kind[1],) if kind else ())


def _read_mangled(text: str) -> KernelName:
    """Words with their lengths in front (Itanium's C++ ABI).

    Those behind the first `I` or `E` are arguments. Numbers that are no lengths belong to literals
    (`Li256E`) and types (`DF16b`).
    """
    own: list[str] = []
    inner: list[str] = []
    at = 3 if text.startswith("_ZN") else 2
    for _ in range(_MOST_MANGLED):
        found = _LENGTH.search(text, at)
        if found is None:
            break
        size, before = int(found[1]), text[at : found.start(1)]
        word = text[found.end() : found.end() + size]
        is_word = not _NO_LENGTH.search(before) and len(word) == size
        is_inner = inner or (own and ("I" in before or "E" in before))
        if is_word and _IDENTIFIER.fullmatch(word):
            (inner if is_inner else own).append(word)
        at = found.end() + (size if is_word else 0)
    named = [word for word in own if not word.startswith("_GLOBAL__")] or [text]
    return KernelName(snake(named[-1]), snake("_".join(named)), tuple(inner))


def _read_cpp(text: str) -> KernelName:
    """A demangled function: without its arguments, and without the type that it returns."""
    brackets: list[str] = []
    outside: list[str] = []
    inside: list[str] = []
    for letter in text:
        if letter == "(" and not brackets and outside:
            break  # what it is called with
        if letter in "<(":
            if not brackets:
                inside.clear()  # of a type or namespace, not of the function
            brackets.append(letter)
        elif letter in ")>":
            _close(brackets, letter)
        (inside if brackets or letter in ">)" else outside).append(letter)
    path = _NUMBERED.sub("", (("".join(outside)).split() or [text])[-1])
    found = tuple(_IDENTIFIER.findall("".join(inside)))
    return KernelName(snake(path.rpartition("::")[2]), snake(path), found)


def _close(brackets: list[str], letter: str) -> None:
    """Forget what a bracket closes; `>` within round ones is `greater than`."""
    if letter == ">":
        if brackets and brackets[-1] == "<":
            brackets.pop()
        return
    while brackets and brackets.pop() != "(":
        pass
