"""For pytest: what `fuelline feed --at-least` and `compare --threshold` check, as assertions.

    def test_the_loader_keeps_up(fuelline_ci):
        fuelline_ci.feed("train.py", step="45ms", at_least=90)

    def test_training_did_not_get_slower(fuelline_ci):
        fuelline_ci.compare("baseline", "train", threshold=5)

Loaded in every pytest of an environment that has fuelline, so it imports nothing of it. What cannot
be told skips the test; numbers go into JUnit's properties.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

_REFUSED = 2
"""Exit codes from here on: nothing was checked."""


class Checks:
    """Each starts the command that a user would type."""

    def __init__(self, note: Callable[[str, object], None]) -> None:
        self._note = note

    def feed(
        self,
        *job: str | PathLike[str],
        at_least: float,
        step: str | None = None,
        rate: str | None = None,
        seconds: float = 15,
    ) -> dict[str, Any]:
        """The job's loader keeps an accelerator busy for `at_least` percent of the time.

        It takes `step` (such as "45ms") per batch, or `rate` ("2900/s") samples.
        """
        device = ["--step", step] if step else ["--rate", rate] if rate else []
        words = ["feed", "--json", "--seconds", f"{seconds:g}", "--at-least", f"{at_least:g}"]
        told, code = _ask([*words, *device, *map(str, job)])
        busy = told["utilisation"].get("value")
        self._note("fuelline_utilisation", busy)
        if busy is None:
            pytest.skip(f"cannot tell: {told['utilisation'].get('reason')}")
        if code:
            _fail(f"the loader keeps it busy {100 * busy:.1f} %, less than {at_least:g} %", told)
        return told

    def compare(
        self, before: str | PathLike[str], after: str | PathLike[str], *, threshold: float
    ) -> dict[str, Any]:
        """Steps of `after` are not more than `threshold` percent longer than those of `before`."""
        words = ["compare", "--json", "--threshold", f"{threshold:g}", str(before), str(after)]
        told, code = _ask(words)
        share = told["step"].get("share")
        self._note("fuelline_step_change", share)
        if told["judgement"] == "cannot tell":
            pytest.skip("cannot tell whether it got slower: the noise is too large")
        if code:
            longer = "longer" if share is None else f"{100 * share:.1f} % longer"
            pytest.fail(f"steps are {longer}, over the limit of {threshold:g} %", pytrace=False)
        return told


@pytest.fixture
def fuelline_ci(record_property: Callable[[str, object], None]) -> Checks:
    """Checks of the input pipeline and of a run's pace, by fuelline."""
    return Checks(record_property)


def _ask(words: list[str]) -> tuple[dict[str, Any], int]:
    done = subprocess.run(
        [sys.executable, "-m", "fuelline", *words], capture_output=True, text=True, check=False
    )
    if done.returncode >= _REFUSED or not done.stdout:
        pytest.fail(done.stderr.strip() or f"fuelline ended with {done.returncode}", pytrace=False)
    told: dict[str, Any] = json.loads(done.stdout)
    return told, done.returncode


def _fail(words: str, told: dict[str, Any]) -> NoReturn:
    pytest.fail(f"{words}\n{told['verdict']['sentence']}", pytrace=False)
