"""A measured device as a chip: found again from its file, and the step model lands on what was
measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from fuelline.plan.physics.constants import shipped_constants
from fuelline.plan.physics.deployment import Deployment
from fuelline.plan.roofline.measured import (
    make_chip,
    make_matmuls,
    read_entries,
    with_entries,
    write_entry,
)
from fuelline.schema.plan.chips import find_chip, read_chips
from fuelline.schema.plan.estimates import Parallelism
from fuelline.schema.plan.models import Model
from fuelline.schema.plan.precision import parse_precision
from tests.unit.plan.rooflines import roofline

if TYPE_CHECKING:
    from pathlib import Path

MODEL = Model(name="tiny", hidden=1024, layers=10, heads=16, kv_heads=16, ffn=4096, vocab=8000)


def replica(precision: str = "fp32") -> Deployment:
    return Deployment(
        model=MODEL,
        chip=make_chip(roofline(), "here"),
        precision=parse_precision(precision, 32.0 if precision == "fp32" else 16.0),
        spread=Parallelism(),
        constants=with_entries(shipped_constants(), make_matmuls(roofline(), "here")),
    )


def test_a_saved_device_is_found_by_its_name_with_its_figures(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    path.write_text(write_entry(roofline(), "my laptop"))
    chip = find_chip("My Laptop", read_chips(path))
    assert chip.peak_flops("fp32") == pytest.approx(100e9)
    assert chip.peak_flops("bf16") == pytest.approx(20e9)
    assert chip.mem_bytes_per_s == pytest.approx(10e9)
    assert chip.fp8_tflops is None
    entries = read_entries(path)
    assert [each.math for each in entries] == ["fp32", "bf16"]
    assert entries[0].by_rows == ((1.0, 0.1), (16.0, 0.4), (256.0, 1.0))


def test_what_was_measured_under_load_says_so_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    path.write_text(write_entry(replace(roofline(), spread_frac=0.31), "here"))
    assert "rounds differed by 31 %" in read_chips(path)[0].notes
    path.write_text(write_entry(replace(roofline(), spread_frac=0.04), "here"))
    assert "under load" not in read_chips(path)[0].notes


def test_names_with_quotes_survive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(write_entry(roofline(), 'a "b" \\ c'))
    assert read_chips(path)[0].name == 'a "b" \\ c'


def test_products_take_what_their_number_of_rows_was_measured_at() -> None:
    entry = make_matmuls(roofline(), "here")[0]
    assert entry.peak_share_at(1) == pytest.approx(0.1)
    assert entry.peak_share_at(4) == pytest.approx(0.2)  # halfway between 1 and 16 in logarithms
    assert entry.peak_share_at(16) == pytest.approx(0.4)
    assert entry.peak_share_at(5000) == pytest.approx(1.0)
    assert entry.peak_share_at(0.5) == pytest.approx(0.1)


def test_products_that_widen_take_their_own_curve_where_it_was_measured() -> None:
    entry = make_matmuls(roofline(), "here")[0]
    assert entry.peak_share_at(16, widening=4) == entry.peak_share_at(16)
    apart = replace(entry, wide_by_rows=((1.0, 0.05), (16.0, 0.3)), narrow_by_rows=((1.0, 0.2),))
    assert apart.peak_share_at(16, widening=4) == pytest.approx(0.3)
    assert apart.peak_share_at(16, widening=1) == pytest.approx(0.2)


def test_half_precision_without_a_unit_is_predicted_slower() -> None:
    assert replica("bf16").prefill(4, 64).seconds > 4 * replica("fp32").prefill(4, 64).seconds


def test_decoding_one_sequence_takes_at_least_the_weights_over_the_bandwidth() -> None:
    weights = MODEL.active_params * 4
    assert replica().decode(1, 100).seconds > weights / 10e9


def test_the_parts_of_a_step_are_the_measured_ones() -> None:
    tally = replica().decode(16, 500)
    products = 2 * 16 * MODEL.active_params / (0.4 * 100e9)
    assert tally.weights + tally.math == pytest.approx(products, rel=0.01)
    cached = 10 * 2 * 1024 * 4 * 16 * 501
    assert tally.cache == pytest.approx(cached / 5e9, rel=0.02)
    # Norms twice, rotation, gate a layer, and the embedding; five products and attention.
    launches = (10 * 4 + 1) * 2e-5 + (10 * 5 + 1) * 4e-6
    assert tally.launch == pytest.approx(launches, rel=0.01)


def test_other_chips_are_not_touched_by_an_entry() -> None:
    ours, theirs = (
        shipped_constants(),
        with_entries(shipped_constants(), make_matmuls(roofline(), "here")),
    )
    steps = [
        Deployment(
            model=MODEL,
            chip=find_chip("h100"),
            precision=parse_precision("bf16"),
            spread=Parallelism(),
            constants=constants,
        )
        .decode(8, 100)
        .seconds
        for constants in (ours, theirs)
    ]
    assert steps[0] == steps[1]
