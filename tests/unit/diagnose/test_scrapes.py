from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuelline.diagnose.scrapes import judge_scrapes
from fuelline.ingest.dcgm import Dcgm
from fuelline.schema.diagnosis.findings import RunSummary
from fuelline.signals.traced.scrapes import is_scrape, measure_scrapes
from tests.unit.ingest.foreign.reading import Read, read, real

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.diagnosis.findings import Diagnosis

RUN = RunSummary(run_id="s", command=["import"], host="h", exit_code=None, seconds=None)
FIELDS = {
    "util": "DCGM_FI_DEV_GPU_UTIL",
    "engine": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "sm": "DCGM_FI_PROF_SM_ACTIVE",
    "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "dram": "DCGM_FI_PROF_DRAM_ACTIVE",
}


def scrape(gpu: int = 0, **shares: float) -> str:
    labels = f'{{gpu="{gpu}",UUID="G{gpu}",modelName="NVIDIA H100",Hostname="n"}}'
    return "".join(f"{FIELDS[name]}{labels} {share}\n" for name, share in shares.items())


def judged(result: Read) -> Diagnosis:
    diagnosis = judge_scrapes(RUN, measure_scrapes(result.trace), [])
    diagnosis.check()
    return diagnosis


def said(tmp_path: Path, text: str) -> str:
    path = tmp_path / "scrape"
    path.write_text(text)
    return judged(read(Dcgm(), path)).verdict.sentence


def test_the_real_t4_at_91_percent_is_not_a_busy_chip() -> None:
    diagnosis = judged(read(Dcgm(), real("dcgm/ericsson_t4_util91.prom")))
    sentence = diagnosis.verdict.sentence
    assert sentence.startswith("Not a busy chip: gpu0 (Tesla T4) reports 91 % utilisation")
    assert "resident 16 %" in sentence
    assert "tensor cores active 0.6 %" in sentence
    ladder = diagnosis.devices[0].ladder
    assert ladder["reported utilisation"] == pytest.approx(0.91)
    assert ladder["kernels resident"] == pytest.approx(0.156, abs=0.001)
    assert ladder["tensor cores active"] == pytest.approx(0.006, abs=0.001)
    assert ladder["SMs active"] is None


def test_the_real_l4_is_idle() -> None:
    assert "is idle" in judged(read(Dcgm(), real("dcgm/kops_2xL4_idle.prom"))).verdict.sentence


def test_a_full_chip_is_not_accused(tmp_path: Path) -> None:
    sentence = said(tmp_path, scrape(util=97, engine=0.96, sm=0.9, tensor=0.5, dram=0.6))
    assert sentence.startswith("gpu0 (NVIDIA H100) reports 97 % utilisation, and kernels")


def test_a_chip_busy_with_memory_is_busy_without_tensor_cores(tmp_path: Path) -> None:
    assert "Not a busy" not in said(tmp_path, scrape(util=97, engine=0.96, tensor=0.0, dram=0.8))


def test_resident_kernels_that_do_nothing_visible_are_no_work(tmp_path: Path) -> None:
    sentence = said(tmp_path, scrape(util=91, engine=0.95, tensor=0.006, dram=0.03))
    assert "Not a busy chip" in sentence
    assert "hardly any work is visible" in sentence


def test_utilisation_alone_proves_nothing(tmp_path: Path) -> None:
    sentence = said(tmp_path, scrape(util=91))
    assert "No exported counter shows whether it filled the chip" in sentence


def test_the_most_misleading_device_speaks(tmp_path: Path) -> None:
    text = scrape(util=97, engine=0.96, sm=0.9, tensor=0.5) + scrape(1, util=90, engine=0.1)
    assert "Not a busy chip: gpu1" in said(tmp_path, text)


def test_a_series_is_averaged_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "scrape"
    path.write_text("".join(scrape(util=util, engine=0.5) for util in (40, 60, 80)))
    trace = read(Dcgm(), path).trace
    assert is_scrape(trace)
    assert trace.facts.ranks[0].settings["scrapes"] == "3"
    assert measure_scrapes(trace)[0].ladder["reported utilisation"] == pytest.approx(0.6)
