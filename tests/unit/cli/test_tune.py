"""`fuelline tune --apply` where the patch cannot be written, or need not be."""

import pytest

from fuelline.cli.fix.tune import _apply
from fuelline.fix.tune.patching import NoPatch
from fuelline.schema.diagnosis.trials import Setting, Tuning
from fuelline.schema.errors import InputError


def make_tuning(chosen: list[Setting]) -> Tuning:
    return Tuning(
        fuelline_version="0",
        now=[],
        trials=[],
        chosen=chosen,
        steps=[],
        trial_seconds=1.0,
        paste="DataLoader(..., num_workers=4)",
    )


def test_a_patch_that_cannot_be_written_is_no_success() -> None:
    tuning = make_tuning([Setting(knob="num_workers", value=4)])
    with pytest.raises(
        InputError, match=r"args\.workers.*write DataLoader\(\.\.\., num_workers=4\)"
    ):
        _apply(tuning, NoPatch("num_workers is `args.workers` at train.py:18"))


def test_nothing_to_change_is_a_success(capfd: pytest.CaptureFixture[str]) -> None:
    _apply(make_tuning([]), NoPatch("nothing need change"))
    assert "nothing need change" in capfd.readouterr().err
