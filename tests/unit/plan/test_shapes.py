"""Dimensions that waste tiles or cannot be cut are named with their cost and what is near."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from fuelline.plan.models.shapes import check_shape, why_uneven
from fuelline.schema.plan.chips import find_chip
from fuelline.schema.plan.models import Model, name_model
from fuelline.schema.plan.precision import parse_precision

if TYPE_CHECKING:
    from fuelline.schema.plan.answers import Dimension

BF16 = parse_precision("bf16")
SOUND = name_model("llama-3.1-8b")


def problems(model: Model, chip: str = "h100", precision: str = "bf16") -> dict[str, Dimension]:
    answer = check_shape(model, find_chip(chip), parse_precision(precision))
    return {each.name: each for each in answer.dimensions}


def changed(**fields: int) -> Model:
    return msgspec.structs.replace(SOUND, **fields)


def test_a_sound_shape_has_no_problem_and_all_degrees() -> None:
    answer = check_shape(SOUND, find_chip("h100"), BF16)
    assert answer.dimensions == ()
    assert {1, 2, 4, 8} <= set(answer.degrees)


def test_a_width_off_the_tile_costs_what_was_measured_on_the_chip() -> None:
    found = problems(changed(ffn=14_300))["feed-forward width"]
    assert found.nearest == (14_272, 14_336)
    assert "in the worst tenth" in found.cost
    elsewhere = problems(changed(ffn=14_300), "mi300x")["feed-forward width"]
    assert "not measured on this chip" in elsewhere.cost


def test_smaller_numbers_need_longer_multiples() -> None:
    assert "feed-forward width" not in problems(changed(ffn=14_400))
    assert problems(changed(ffn=14_400), precision="fp8")["feed-forward width"].nearest == (
        14_336,
        14_464,
    )


def test_on_a_tpu_the_rest_of_the_array_computes_zeros() -> None:
    found = problems(changed(ffn=14_300), "tpu-v5p")["feed-forward width"]
    assert "computes zeros: 0.3 %" in found.cost
    assert found.nearest == (14_208, 14_336)


def test_a_vocabulary_is_padded_and_never_cut() -> None:
    found = problems(changed(vocab=50_257))["vocabulary"]
    assert found.nearest == (50_304,)
    assert "pad, do not cut" in found.cost


def test_a_head_that_kernels_pad_says_how_much_is_padding() -> None:
    found = problems(changed(head_dim=80 + 8))["head size"]
    assert found.nearest == (64, 128)
    assert found.cost.startswith("31")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"heads": 25}, "25 heads"),
        ({"ffn": 14_337}, "feed-forward width 14337"),
        ({"experts": 8, "expert_ffn": 1025}, "expert width 1025"),
    ],
)
def test_a_degree_that_does_not_cut_the_model_evenly_says_which_part(
    fields: dict[str, int], words: str
) -> None:
    found = problems(changed(**fields))["tensor parallelism"]
    assert (found.value, found.problem) == (2, f"{words} cannot be cut evenly by 2")


def test_few_key_value_heads_are_copied_beyond_their_number() -> None:
    found = problems(changed(kv_heads=2))["key-value heads"]
    assert "at tp 8 the cache takes 4.0 times its size" in found.cost


def test_a_degree_that_contradicts_the_model_says_why() -> None:
    assert why_uneven(SOUND, "tp", 7) == "cannot cut 32 heads"
    assert why_uneven(SOUND, "pp", 33) == "only 32 layers"
    assert why_uneven(SOUND, "ep", 8) == "no experts"
    assert why_uneven(changed(experts=6), "ep", 4) == "cannot cut 6 experts"
    assert [why_uneven(SOUND, name, 8) for name in ("tp", "pp", "dp")] == ["", "", ""]
