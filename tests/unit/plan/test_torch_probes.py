"""What is timed on an accelerator has to fill it and to lie outside its caches."""

import pytest

from fuelline.plan.roofline import torch_probes

pytestmark = pytest.mark.torch


def test_an_accelerator_gets_a_product_that_fills_it() -> None:
    probes = {probe.key: probe for probe in torch_probes.math_probes("bf16", "meta")}
    assert probes["bf16 full"].amount == 2 * 8192**3
    assert "bf16 full" not in {probe.key for probe in torch_probes.math_probes("bf16", "cpu")}


def test_bandwidth_of_an_accelerator_is_measured_outside_its_caches() -> None:
    assert torch_probes.array_bytes("cuda") >= 2**30
    assert torch_probes.array_bytes("cpu") == 256 * 2**20
