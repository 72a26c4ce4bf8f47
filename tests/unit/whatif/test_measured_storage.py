"""`whatif --storage probe.json`: the disk as it was measured, not as a data sheet has it."""

from pathlib import Path

import msgspec
import pytest

from fuelline.api.questions import read_probe
from fuelline.schema.diagnosis.ceilings import Probe
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.storages import STORAGE_KINDS, StorageKind
from fuelline.schema.errors import InputError
from fuelline.whatif import fit, forecast
from fuelline.whatif.fitting import Fit
from tests.unit.whatif.jobs import make_facts

WAITING = {"batch": 51.25, "workers": 2, "cpu": 2.0, "blocked": 100.0, "device": 12.0}


def ask(storage: str, measured: StorageKind | None = None) -> object:
    job = fit(make_facts(**WAITING))
    assert isinstance(job, Fit)
    return forecast(job, WhatIf(storage=storage, measured=measured)).speedup


def probed(tmp_path: Path, storage: StorageKind | None) -> str:
    path = tmp_path / "probe.json"
    path.write_bytes(msgspec.json.encode(Probe(host="h", path="/data", storage=storage)))
    return str(path)


def test_a_probed_disk_counts_as_the_data_sheets_kind_of_the_same_numbers(tmp_path: Path) -> None:
    word = probed(tmp_path, STORAGE_KINDS["nvme"])
    assert ask(word, read_probe(word)) == ask("nvme")


def test_a_slower_probed_disk_gives_less(tmp_path: Path) -> None:
    slow = msgspec.structs.replace(STORAGE_KINDS["hdd"], words="this ext4, as measured")
    word = probed(tmp_path, slow)
    assert ask(word, read_probe(word)) != ask("nvme")


def test_other_words_are_no_probe() -> None:
    assert read_probe(None) is read_probe("nvme") is read_probe("2x") is None


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"host": "h"}'])
def test_a_file_that_is_no_probe_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not what `fuelline probe --json` writes"):
        read_probe(str(path))


def test_a_disk_that_could_not_be_measured_cold_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no cold reads"):
        read_probe(probed(tmp_path, None))
