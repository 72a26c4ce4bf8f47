"""Every real trace of these formats, from file to diagnosis, against what is known of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fuelline import pipeline
from fuelline.ingest import import_trace, load_trace
from tests.unit.ingest.foreign.reading import RUN, real

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


def diagnosed(name: str, tmp_path: Path) -> dict[str, Any]:
    path = real(name)
    import_trace([path], tmp_path / "run", RUN, jobs=1)
    answer: dict[str, Any] = json.loads(pipeline.diagnose_as_json(tmp_path / "run"))
    for device in answer["devices"]:
        if device["ledger"]:
            assert sum(device["ledger"].values()) == pytest.approx(1)
    return answer


def test_an_h100_that_waits_for_its_weights_computes_2_percent(tmp_path: Path) -> None:
    """The busy 2.3 % of its README counts kernels, as nvidia-smi does; with copies it is 99.3."""
    answer = diagnosed("nsys/nsysai_h100_2gpu_1s.sqlite", tmp_path)
    assert (answer["verdict"]["stage"], answer["verdict"]["limit"]) == ("transfer", "bandwidth")
    assert len(answer["devices"]) == 2
    for device in answer["devices"]:
        assert device["ladder"]["reported utilisation"] == pytest.approx(0.023, abs=0.001)
        assert device["ledger"]["useful compute"] == pytest.approx(0.023, abs=0.001)
        assert device["ledger"]["copies"] == pytest.approx(0.970, abs=0.001)


def test_an_older_export_tells_its_chip(tmp_path: Path) -> None:
    answer = diagnosed("nsys/pipit_saxpy_mpi_cuda_perlmutter.sqlite", tmp_path)
    (device,) = answer["devices"]
    assert device["name"] == "NVIDIA A100-SXM4-40GB"
    assert device["ledger"]["copies"] == pytest.approx(0.260, abs=0.001)
    assert device["ladder"]["SM fill"] == pytest.approx(0.0807 * 2 / 108, abs=0.001)


def test_gemms_of_jax_run_on_one_of_eight_devices(tmp_path: Path) -> None:
    answer = diagnosed("xplane/tracelens_mi300_jax_gemm.xplane.pb", tmp_path)
    assert [device["device"] for device in answer["devices"]] == ["gpu0"]
    assert answer["trace"]["kernel_classes"][0]["name"] == "gemm"
    assert any("7 of 8 devices" in each["problem"] for each in answer["quality"])


def test_bert_on_v100_has_a_step_and_three_devices_with_events(tmp_path: Path) -> None:
    answer = diagnosed("xplane/xprof_GPU-multi-worker.xplane.pb", tmp_path)
    assert [device["device"] for device in answer["devices"]] == ["gpu1", "gpu4", "gpu6"]
    assert len(load_trace(tmp_path / "run").facts.ranks[0].chips) == 8
    assert answer["trace"]["steps_from"] == "profiler"
    assert answer["steps"]["count"] == 1


def test_a_slow_worker_is_the_only_culprit(tmp_path: Path) -> None:
    answer = diagnosed("straggler/trace-AR.parquet", tmp_path)
    assert answer["verdict"]["code"] == "SY621"
    assert answer["collectives"]["ranks"] == 16  # one of each tensor-parallel group of 4, of 64
    (culprit,) = answer["collectives"]["culprits"]
    assert culprit["rank"] == 0
    assert "2.4x as long as the replicas" in culprit["because"]
    assert all(each["ladder"]["tensor-core kernels"] is None for each in answer["devices"])


def test_a_long_stage_has_no_culprit(tmp_path: Path) -> None:
    answer = diagnosed("straggler/trace-ST.parquet", tmp_path)
    assert answer["verdict"]["code"] == "SY622"
    assert answer["collectives"]["ranks"] == 8
    assert "stage 3 (the last)" in answer["verdict"]["sentence"]
    assert answer["collectives"]["culprits"] == []


def test_a_busy_t4_is_not_busy(tmp_path: Path) -> None:
    answer = diagnosed("dcgm/ericsson_t4_util91.prom", tmp_path)
    assert "Not a busy chip" in answer["verdict"]["sentence"]
    ladder = answer["devices"][0]["ladder"]
    assert ladder["reported utilisation"] == pytest.approx(0.91, abs=0.001)
    assert ladder["kernels resident"] == pytest.approx(0.156, abs=0.001)
    assert ladder["tensor cores active"] == pytest.approx(0.006, abs=0.001)
