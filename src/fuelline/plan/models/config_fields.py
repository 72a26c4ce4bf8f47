"""Single fields of a `config.json`: a whole number, a yes or no, a table; else one clear message.

A field that is absent or null says nothing. A field that is there but no number is a mistake and
is named with its value: it is never skipped for another spelling, nor read as something near.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

MOST = 1_000_000_000
_SHOWN = 40


class Fields:
    """The fields of one file."""

    def __init__(self, config: dict[str, Any], path: Path) -> None:
        self.config, self.path = config, path

    def number(self, *names: str) -> int | None:
        """The first spelling that is there; None if none is."""
        for name in names:
            value = self.config.get(name)
            if value is not None:
                return self._whole(name, value)
        return None

    def needed(self, *names: str) -> int:
        """Like `number`, but a model cannot be without it."""
        value = self.number(*names)
        if value is None:
            others = f" (nor {', '.join(names[1:])})" if len(names) > 1 else ""
            raise InputError(
                f"{self.path} does not say `{names[0]}`{others}, so FLOPs and bytes cannot be "
                "counted. Add it, or give the shape as a [[model]] entry: see docs/plan.md."
            )
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def table(self, *names: str) -> Fields:
        """A part with names of its own; empty if it is not there."""
        for name in names:
            value = self.config.get(name)
            if value is not None:
                if not isinstance(value, dict):
                    raise self._wrong(name, value, "a table of settings")
                return Fields(value, self.path)
        return Fields({}, self.path)

    def word(self, *names: str) -> str:
        """Words as they stand; empty if there are none."""
        for name in names:
            value = self.config.get(name)
            if value is not None:
                if not isinstance(value, str):
                    raise self._wrong(name, value, "a word")
                return value
        return ""

    def kinds(self, name: str) -> tuple[str, ...]:
        """A word for every layer."""
        value = self.config.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._wrong(name, value, "a list with a word for every layer")
        return tuple(value)

    def per_layer(self, name: str) -> list[int] | None:
        """Whole numbers, one per layer; None if the field is not a list."""
        value = self.config.get(name)
        if not isinstance(value, list):
            return None
        return [self._whole(name, each) for each in value]

    def _whole(self, name: str, value: Any) -> int:
        if isinstance(value, list):
            numbers = {self._whole(name, each) for each in value if not isinstance(each, list)}
            if len(numbers) != 1 or any(isinstance(each, list) for each in value):
                raise self._wrong(name, value, "one whole number for all layers")
            return numbers.pop()
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(name, value, "a whole number")
        if not 0 <= value <= MOST:
            raise self._wrong(name, value, f"between 1 and {MOST:,}")
        if value != int(value):
            raise self._wrong(name, value, "a whole number")
        return int(value)

    def _wrong(self, name: str, value: Any, wanted: str) -> InputError:
        shown = f"{value:g}" if isinstance(value, float) else repr(value)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MOST:
            shown = f"{float(value):g}" if abs(value) < 10**300 else "beyond 1e300"
        if len(shown) > _SHOWN:
            shown = f"{shown[:_SHOWN]}..."
        return InputError(
            f"{self.path}: `{name}` is {shown}; it must be {wanted}. Correct the file, or give "
            "the shape as a [[model]] entry: see docs/plan.md."
        )
