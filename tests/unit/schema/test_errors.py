"""The family of errors and the exit codes that scripts may rely on."""

import pytest

from fuelline.schema import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.UsageError, 2),
        (errors.InputError, 3),
        (errors.NotARecordingError, 3),
        (errors.DamagedRecordingError, 3),
        (errors.NewerRecordingError, 3),
        (errors.RefusedError, 4),
    ],
)
def test_each_error_knows_its_exit_code(kind: type[errors.FuellineError], code: int) -> None:
    assert issubclass(kind, errors.FuellineError)
    assert kind.exit_code == code


def test_the_tree_at_the_top_of_the_file_names_every_error() -> None:
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert name in (errors.__doc__ or "")
