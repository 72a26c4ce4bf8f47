"""The catalogue: names found as people write them, sources kept, nothing borrowed."""

from pathlib import Path

import pytest

from fuelline.cli.quantities import (
    parse_amount,
    parse_choices,
    parse_duration,
    parse_limits,
    parse_values,
)
from fuelline.schema.errors import InputError, UsageError
from fuelline.schema.plan.chips import find_chip, find_peak_flops, list_chips, read_chips
from fuelline.schema.plan.models import find_model, list_models, name_model
from fuelline.schema.plan.precision import parse_precision


def test_at_least_48_chips_and_25_models_carry_their_source() -> None:
    assert len(list_chips()) >= 48
    assert len(list_models()) >= 25
    assert all(chip.source and chip.confidence for chip in list_chips())
    assert all(model.source for model in list_models())
    assert {"gpu", "tpu", "apple", "sram"} == {chip.kind for chip in list_chips()}


def test_all_kinds_of_models_are_there() -> None:
    models = list_models()
    assert any(model.latent for model in models)
    assert any(model.experts for model in models)
    assert any(model.window and model.global_every for model in models)
    assert any(1 < model.kv_heads < model.heads for model in models)
    assert any(model.kv_heads == 1 for model in models)


@pytest.mark.parametrize(
    ("name", "params_b", "active_b"),
    [
        ("Llama-2-7B", 6.74, 6.74),
        ("Llama-3.1-405B", 405.85, 405.85),
        ("Mixtral-8x7B", 46.7, 12.9),
        ("DeepSeek-V3", 671, 37),
        ("Qwen3-235B-A22B", 235, 22),
        ("gpt-oss-120b", 116.8, 5.1),
        ("Falcon-180B", 179.5, 179.5),
        ("PaLM-540B", 540.35, 540.35),
    ],
)
def test_parameter_counts_follow_from_the_shapes(
    name: str, params_b: float, active_b: float
) -> None:
    model = name_model(name)
    assert model.params / 1e9 == pytest.approx(params_b, rel=0.01)
    assert model.active_params / 1e9 == pytest.approx(active_b, rel=0.03)


def test_names_are_found_whatever_their_spelling() -> None:
    assert find_chip("h100").name == "H100-SXM-80GB"
    assert find_chip("H100 SXM 80GB") is find_chip("h100-sxm-80gb")
    assert find_chip("NVIDIA A100-SXM4-80GB").name == "A100-80GB-SXM"
    assert find_model("meta-llama/Llama-3.1-8B-Instruct") is name_model("llama 3.1 8b")
    assert find_model("nothing like it") is None
    assert find_model("somebody/-chat") is None


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("OPT-13B", "OPT-13B"),
        ("OPT-1.3B", "OPT-1.3B"),
        ("opt 13b", "OPT-13B"),
        ("llama31 8b", "Llama-3.1-8B"),
        ("neuralmagic/Meta-Llama-3.1-70B-Instruct", "Llama-3.1-70B"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B"),
        ("Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B"),
        ("gemma-2-9b-it", "Gemma-2-9B"),
        ("Command-R+", "Command-R-Plus"),
        ("Command-R", "Command-R-35B"),
    ],
)
def test_a_name_means_one_shape_however_it_is_spelled(said: str, meant: str) -> None:
    assert name_model(said).name == meant


def test_a_dot_that_is_written_is_meant() -> None:
    assert find_model("GPT-1.3B") is None


def test_an_unknown_chip_is_refused_with_its_neighbours_and_a_way_out() -> None:
    with pytest.raises(InputError, match=r"h100.*--catalogue"):
        find_chip("h1000")
    assert find_peak_flops("NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None
    assert find_peak_flops("NVIDIA H100 80GB HBM3") == pytest.approx(989.4e12)


def test_a_chip_of_ones_own_wins_and_keeps_its_blanks(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[chip]]\nname = "H100"\nmem_gbps = 1000\n')
    own = read_chips(path)
    assert find_chip("h100", own).mem_gbps == 1000
    assert find_chip("h100", own).peak_flops("bf16") is None
    path.write_text('[[chip]]\nname = "X"\nmem_gpbs = 1000\n')
    with pytest.raises(InputError, match="mem_gpbs"):
        read_chips(path)
    with pytest.raises(InputError, match="cannot read"):
        read_chips(tmp_path / "absent.toml")


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "0", "1e308"])
def test_a_figure_that_no_chip_has_is_refused_by_name(tmp_path: Path, value: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f'[[chip]]\nname = "mine"\nmem_gb = {value}\n')
    with pytest.raises(InputError, match="mem_gb"):
        read_chips(path)


@pytest.mark.parametrize(
    ("name", "bits", "math"),
    [
        ("bf16", 16, "bf16"),
        ("FP8", 8, "fp8"),
        ("nvfp4", 4.5, "fp4"),
        ("mxfp8", 8, "fp8"),
        ("int8-wo", 8, "bf16"),
        ("int4-wo-g32", 5, "bf16"),
        ("q4_0", 4.5, "bf16"),
        ("Q8_0", 8.5, "bf16"),
        ("w8a8", 8, "int8"),
        ("awq", 4.25, "bf16"),
        ("fp32", 32, "fp32"),
    ],
)
def test_precisions_are_read_as_people_write_them(name: str, bits: float, math: str) -> None:
    found = parse_precision(name)
    assert (found.weight_bits, found.math) == (bits, math)


def test_an_unknown_precision_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"Known: .*nvfp4"):
        parse_precision("fp5.5")


def test_ranges_double_and_short_ones_are_walked_evenly() -> None:
    assert parse_values("1..256", "--batch", 1, 1e6) == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert parse_values("1,2,5", "--batch", 1, 1e6) == (1, 2, 5)
    assert parse_values("4k", "--in", 1, 1e6) == (4000,)
    assert parse_values("16,000", "--in", 1, 1e6) == (16000,)
    assert parse_values("96, 128", "--batch", 1, 1e6) == (96, 128)
    with pytest.raises(UsageError, match="96128, or '96, 128'"):
        parse_values("96,128", "--batch", 1, 1e6)
    assert parse_values("10..13", "--x", 1, 100) == (10, 11, 12, 13)
    assert parse_values("1,024", "--in", 1, 1e6) == (1024,)
    assert parse_values("0..40%", "--x", 0, 90, "%")[:3] == (0, 5, 10)
    assert parse_values("80..99", "--x", 50, 99.9)[-3:] == (96, 98, 99)
    assert parse_values("10s..2min", "--x", 1, 1e6, "s") == (10, 20, 40, 80, 120)
    assert parse_choices("0..3", "--zero", (0, 1, 2, 3)) == (0, 1, 2, 3)
    with pytest.raises(UsageError, match="one of 8, 16"):
        parse_choices("12", "--kv", (8, 16))


@pytest.mark.parametrize("text", ["0", "-1", "1e30", "nan", "inf", "many", "", "8..2", "1..2..3"])
def test_absurd_numbers_are_refused_with_the_valid_range(text: str) -> None:
    with pytest.raises(UsageError, match="--batch"):
        parse_values(text, "--batch", 1, 1e6)


def test_times_and_limits_are_read() -> None:
    assert parse_duration("500ms", "--x") == 0.5
    assert parse_duration("3h", "--x") == 10800
    assert parse_limits("ttft=2s, tpot=40ms") == {"ttft": (2.0,), "tpot": (0.04,)}
    assert parse_limits("tpot=20ms..40ms")["tpot"][-1] == 0.04
    assert parse_amount("1.5T", "--tokens", 1, 1e18) == 1.5e12
    for text in ("ttft", "speed=4s", "tpot=fast", "tpot=0ms"):
        with pytest.raises(UsageError, match="--slo"):
            parse_limits(text)
