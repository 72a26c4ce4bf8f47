"""Names that others chose: files, commands, processes. They are shown, never interpreted.

A file name is any bytes; Python keeps what is not UTF-8 as lone surrogates, which cannot be
encoded.
"""

import re

_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def clean(text: str) -> str:
    """Show control and direction characters as escapes; they must not reach the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def encodable(text: str) -> str:
    """The same text, with escapes for what cannot be written as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
