"""Whatever a public function runs into, its caller gets an error of ours with its cause."""

import pytest

from fuelline.schema.errors import InputError, RefusedError
from fuelline.schema.mistakes import tell_plainly


def call(error: Exception) -> None:
    @tell_plainly
    def fail() -> None:
        raise error

    fail()


def test_what_a_disk_refuses_names_the_file() -> None:
    with pytest.raises(RefusedError, match=r"^/data/run cannot be used \(No space left\)") as told:
        call(OSError(28, "No space left", "/data/run"))
    assert isinstance(told.value.__cause__, OSError)


def test_what_a_library_says_of_damaged_data_is_one_line() -> None:
    with pytest.raises(InputError, match=r"unexpected ValueError \(bad magic\)\. ") as told:
        call(ValueError("bad magic\nand a dump of it"))
    assert isinstance(told.value.__cause__, ValueError)


def test_a_wrong_argument_keeps_its_own_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        call(TypeError("unexpected keyword"))
