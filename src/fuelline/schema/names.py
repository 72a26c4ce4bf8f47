"""Names that others chose: files, commands, processes. They are shown, never interpreted.

A file name is any bytes; Python keeps what is not UTF-8 as lone surrogates, which cannot be
encoded.
"""

import re

_ABOVE_ASCII = r"\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff"
_CONTROL = re.compile(rf"[\x00-\x1f{_ABOVE_ASCII}\ud800-\udfff]")
_LEFT_BY_JSON = re.compile(f"[{_ABOVE_ASCII}]")


def clean(text: str) -> str:
    """Show control and direction characters as escapes; they must not reach the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def clean_json(text: str) -> str:
    """The same JSON, with JSON's escapes also for those characters for which it asks for none."""
    return _LEFT_BY_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def encodable(text: str) -> str:
    """The same text, with escapes for what cannot be written as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
