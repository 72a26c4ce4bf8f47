from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import pytest

from fuelline.ingest.dcgm import Dcgm
from fuelline.schema.errors import InputError
from tests.unit.ingest.foreign.reading import Read, read, real

if TYPE_CHECKING:
    from pathlib import Path

LABELS = 'gpu="{}",UUID="GPU-{}",modelName="Tesla T4",Hostname="{}"'


def scrape(util: float, gpu: int = 0, host: str = "n1", time: str = "") -> str:
    labels = LABELS.format(gpu, gpu, host)
    return (
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"
        f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {util}{time}\n"
        f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{labels}}} 0.25{time}\n"
        f"DCGM_FI_DEV_FB_USED{{{labels}}} 2{time}\n"
    )


def made(tmp_path: Path, text: str, *, partial: bool = False) -> Read:
    path = tmp_path / "scrape"
    path.write_text(text)
    return read(Dcgm(), path, partial=partial)


def values(result: Read, name: str, rank: int = 0) -> list[float]:
    return result.table("counters", rank).filter(name=name)["value"].to_list()


def test_fields_have_our_names_and_units(tmp_path: Path) -> None:
    result = made(tmp_path, scrape(91))
    assert values(result, "util.gpu_frac") == [0.91]
    assert values(result, "gpm.tensor_frac") == [0.25]
    assert values(result, "memory.used_bytes") == [2 * 1024 * 1024]


def test_a_series_that_comes_again_begins_the_next_scrape(tmp_path: Path) -> None:
    result = made(tmp_path, scrape(10) + scrape(20) + scrape(30))
    assert values(result, "util.gpu_frac") == [0.1, 0.2, 0.3]
    assert result.imported is not None
    assert result.imported.ranks[0].settings["scrapes"] == "3"
    assert result.imported.ranks[0].settings["times"] == "counted"


def test_times_are_taken_where_there_are_some(tmp_path: Path) -> None:
    result = made(tmp_path, scrape(10, time=" 1000") + scrape(20, time=" 16000"))
    at = result.table("counters").filter(name="util.gpu_frac")["at_ns"].to_list()
    assert at == [1_000_000_000, 16_000_000_000]


def test_hosts_are_ranks_and_devices_keep_their_numbers(tmp_path: Path) -> None:
    result = made(tmp_path, scrape(10) + scrape(20, gpu=3) + scrape(30, host="n2"))
    assert result.imported is not None
    assert [rank.host for rank in result.imported.ranks] == ["n1", "n2"]
    assert [chip.device for chip in result.imported.ranks[0].chips] == [0, 3]
    assert values(result, "util.gpu_frac", 1) == [0.3]


def test_slices_of_one_card_are_devices_of_their_own(tmp_path: Path) -> None:
    text = scrape(10) + scrape(30).replace('gpu="0"', 'gpu="0",GPU_I_ID="7"')
    result = made(tmp_path, text)
    assert result.imported is not None
    assert [chip.device for chip in result.imported.ranks[0].chips] == [0, 1]


@pytest.mark.parametrize("value", ["NaN", "2147483632", "9223372036854775794", "140737488355328"])
def test_blank_values_are_no_values(tmp_path: Path, value: str) -> None:
    result = made(tmp_path, scrape(91).replace("0.25", value))
    assert values(result, "gpm.tensor_frac") == []


@pytest.mark.parametrize("value", ["-0.5", "1.5", "+Inf", "1e300"])
def test_impossible_shares_are_left_out_and_said(tmp_path: Path, value: str) -> None:
    result = made(tmp_path, scrape(91).replace("0.25", value))
    assert values(result, "gpm.tensor_frac") == []
    assert result.imported is not None
    assert [each.code for each in result.imported.quality] == ["insane"]


def test_labels_may_hold_quotes_braces_and_commas(tmp_path: Path) -> None:
    text = scrape(91).replace("Tesla T4", r"T\"4\\, {x}=1")
    result = made(tmp_path, text)
    assert result.imported is not None
    assert result.imported.ranks[0].chips[0].name == 'T"4\\, {x}=1'


def test_a_packed_scrape_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "scrape.gz"
    path.write_bytes(gzip.compress(scrape(91).encode()))
    result = Read()
    Dcgm().read(path, 0, result, partial=False, advance=lambda _: None)
    assert values(result, "util.gpu_frac") == [0.91]


@pytest.mark.parametrize(
    "line",
    [
        "DCGM_FI_DEV_GPU_UTIL{gpu=0} 91",
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"} many',
        'DCGM_FI_DEV_GPU_UTIL{gpu="0} 91',
        "<html>502 Bad Gateway</html>",
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"}',
    ],
)
def test_a_line_that_is_none_is_refused_with_line_and_byte(tmp_path: Path, line: str) -> None:
    good = scrape(91)
    with pytest.raises(InputError, match=rf"scrape, line 5 \(byte {len(good)}\): "):
        made(tmp_path, good + line + "\n")


def test_a_scrape_cut_off_inside_a_line_is_refused_or_loses_that_line(tmp_path: Path) -> None:
    whole = scrape(91)
    start = whole.index("DCGM_FI_PROF")
    for size in range(start + 30, len(whole)):
        if whole[size - 1] == "\n":
            continue
        with pytest.raises(InputError, match=f"ends at byte {size}, inside line"):
            made(tmp_path, whole[:size])
        result = made(tmp_path, whole[:size], partial=True)
        assert values(result, "memory.used_bytes") == []


def test_a_line_without_end_is_not_held_in_memory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="longer than"):
        made(tmp_path, scrape(1) + "x" * (3 << 20))


def test_the_real_t4_says_what_its_readme_says() -> None:
    path = real("dcgm/ericsson_t4_util91.prom")
    result = read(Dcgm(), path)
    assert values(result, "util.gpu_frac") == pytest.approx([0.91])
    assert values(result, "gpm.graphics_frac") == pytest.approx([0.156], abs=0.001)
    assert values(result, "gpm.tensor_frac") == pytest.approx([0.006], abs=0.001)


@pytest.mark.parametrize("name", ["ericsson_t4_util91.prom", "kops_2xL4_idle.prom"])
def test_every_line_of_real_scrapes_is_read(name: str) -> None:
    path = real(f"dcgm/{name}")
    result = read(Dcgm(), path)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert result.imported is not None
    assert result.imported.source.events == len(lines)
    for field, ours, factor in (
        ("DCGM_FI_DEV_POWER_USAGE", "power.draw_watts", 1),
        ("DCGM_FI_DEV_SM_CLOCK", "clock.sm_hz", 1e6),
        ("DCGM_FI_PROF_PCIE_RX_BYTES", "gpm.pcie_rx_bytes_per_s", 1),
    ):
        told = re.findall(rf"^{field}\{{.*\}} ([\d.]+)$", path.read_text(), re.MULTILINE)
        assert values(result, ours) == pytest.approx([float(word) * factor for word in told])
