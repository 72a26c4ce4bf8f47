"""A Hugging Face config becomes a shape; what is missing or contradictory is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuelline.plan.models.configs import Loaded, load_model
from fuelline.plan.models.shapes import check_shape
from fuelline.plan.physics.constants import BARE, shipped_constants
from fuelline.plan.serving.chips import line_for_serving
from fuelline.plan.serving.search import Wish
from fuelline.schema.errors import InputError
from fuelline.schema.plan.chips import find_chip
from fuelline.schema.plan.models import name_model
from fuelline.schema.plan.precision import parse_precision

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


def load(folder: Path, **changes: Any) -> Loaded:
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return load_model(str(folder))


def _groups(weights: dict[str, Any], inputs: dict[str, Any] | None) -> dict[str, Any]:
    """As compressed-tensors writes it."""
    group = {"weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


def test_a_config_gives_the_same_counts_as_the_public_name(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert loaded.model.params == name_model("Llama-3.1-8B").params
    assert loaded.precision is not None
    assert loaded.precision.math == "bf16"
    assert load_model(str(tmp_path / "config.json")).model.params == loaded.model.params


def test_experts_and_latent_attention_are_read(tmp_path: Path) -> None:
    model = load(
        tmp_path,
        model_type="deepseek_v3",
        hidden_size=7168,
        num_hidden_layers=61,
        num_attention_heads=128,
        num_key_value_heads=128,
        intermediate_size=18432,
        vocab_size=129280,
        n_routed_experts=256,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        n_shared_experts=1,
        first_k_dense_replace=3,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        quantization_config={"quant_method": "fp8"},
    )
    assert model.model.params == name_model("DeepSeek-V3").params
    assert model.model.active_params == name_model("DeepSeek-V3").active_params
    assert model.precision is not None
    assert model.precision.weight_bits == 8


def test_windows_and_mxfp4_experts_are_read(tmp_path: Path) -> None:
    model = load(
        tmp_path,
        model_type="gpt_oss",
        hidden_size=2880,
        num_hidden_layers=24,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        intermediate_size=2880,
        vocab_size=201088,
        num_local_experts=32,
        num_experts_per_tok=4,
        sliding_window=128,
        layer_types=["sliding_attention", "full_attention"] * 12,
        quantization_config={"quant_method": "mxfp4"},
    ).model
    named = name_model("gpt-oss-20b")
    assert model.params == named.params
    assert model.kv_values(5000) == named.kv_values(5000)
    assert model.expert_bits == 4.25


@pytest.mark.parametrize(
    ("quantised", "bits"),
    [
        ({"quant_method": "awq", "bits": 4}, 4.25),
        ({"quant_method": "gptq", "bits": 8}, 8),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8),
        ({"quant_algo": "NVFP4"}, 4.5),
    ],
)
def test_quantisation_is_read(tmp_path: Path, quantised: dict[str, Any], bits: float) -> None:
    found = load(tmp_path, quantization_config=quantised).precision
    assert found is not None
    assert found.weight_bits in (bits, 4.25)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"vocab_size": None}, "vocab_size"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"num_key_value_heads": 5}, "5 key-value heads"),
        ({"hidden_size": 10**30}, "between 1 and"),
        ({"num_hidden_layers": -4}, "between 1 and"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "9 of 8 experts"),
        ({"hidden_size": "4096"}, "`hidden_size` is '4096'; it must be a whole number"),
        ({"hidden_size": 4096.5}, "`hidden_size` is 4096.5; it must be a whole number"),
        ({"hidden_size": True}, "`hidden_size` is True"),
        ({"hidden_size": 1e30}, r"`hidden_size` is 1e\+30; it must be between 1 and"),
        ({"hidden_size": float("nan")}, "`hidden_size` is nan"),
        ({"hidden_size": 10**400}, "beyond 1e300"),
        ({"num_attention_heads": {}}, "`num_attention_heads` is {}"),
        ({"num_attention_heads": 0}, "heads is 0"),
        ({"num_attention_heads": 48}, "4096 does not divide into 48 heads"),
        ({"num_key_value_heads": [8, 4]}, "one whole number for all layers"),
        ({"intermediate_size": []}, "one whole number for all layers"),
        ({"quantization_config": "fp8"}, "`quantization_config` is 'fp8'"),
        ({"quantization_config": {"bits": "four"}}, "`bits` is 'four'"),
        ({"tie_word_embeddings": "no"}, "true or false"),
        ({"sliding_window": -1}, "`sliding_window` is -1"),
        ({"layer_types": "full"}, "a word for every layer"),
        ({"torch_dtype": 16}, "`torch_dtype` is 16"),
        ({"text_config": [1]}, "`text_config` is"),
        (
            {"num_local_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 40},
            "leaves none",
        ),
        ({"kv_lora_rank": 512, "hidden_size": 8}, "the value of a head is 0 wide"),
    ],
)
def test_what_is_missing_or_absurd_is_named(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        load(tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "bert"}, "`bert` is an encoder"),
        ({"model_type": "t5"}, "an encoder before its decoder"),
        ({"is_encoder_decoder": True}, "an encoder before its decoder"),
        ({"model_type": "jamba"}, "keep a state"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "'linear_attention'"),
    ],
)
def test_what_is_no_decoder_is_not_taken_for_one(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        load(tmp_path, **changes)
    assert "fuelline roofline" in str(caught.value)
    load(tmp_path, model_type="bert", is_decoder=True)


def test_layers_with_experts_may_be_listed(tmp_path: Path) -> None:
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2}
    model = load(tmp_path, **experts, moe_layer_freq=[0] + [1] * 31).model
    assert (model.dense_layers, model.moe_layers) == (1, 31)


NAMES = st.sampled_from(
    [*LLAMA, "head_dim", "num_local_experts", "num_experts_per_tok", "kv_lora_rank", "text_config",
     "moe_layer_freq", "first_k_dense_replace", "sliding_window", "layer_types", "n_shared_experts",
     "quantization_config", "tie_word_embeddings", "_name_or_path", "multi_query", "q_lora_rank"]
)  # fmt: skip
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.text(max_size=8) | st.floats()
    | st.integers(-2, 5000) | st.integers(-(10**40), 10**40)
    | st.sampled_from(["fp8", "mxfp4", "bert", "full_attention", "bits", 4096, 32]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=4,
)  # fmt: skip


@settings(
    max_examples=5 * settings().max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(changes=st.dictionaries(NAMES, JUNK, max_size=4))
def test_no_config_makes_it_fall_over(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    refusal = ""
    try:
        loaded = load_model(str(path))
    except InputError as error:
        refusal = str(error)
    if refusal:
        assert str(path) in refusal
        assert len(refusal) < 400 + len(str(path))
        return
    chip = find_chip("h100")
    precision = loaded.precision or parse_precision("bf16")
    wish = Wish(prompt=100.0, output=10.0)
    line = line_for_serving(loaded.model, chip, precision, wish, (BARE, shipped_constants()))
    assert line.why_not or (line.floor_s and line.floor_s > 0)
    check_shape(loaded.model, chip, precision)


def test_files_that_are_no_config_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{not json")
    with pytest.raises(InputError, match="is not JSON"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(InputError, match="not a configuration"):
        load_model(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no config\.json"):
        load_model(str(tmp_path / "empty"))
    with pytest.raises(InputError, match="no such file"):
        load_model(str(tmp_path / "absent.json"))


def test_an_unknown_name_is_refused_with_its_neighbours() -> None:
    with pytest.raises(InputError, match=r"Llama-3\.1-8B"):
        load_model("llama-3.1-9b")


def test_a_model_of_ones_own_comes_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[model]]\nname = "Mine"\nhidden = 64\nlayers = 2\nheads = 4\nkv_heads = 4\n'
        "ffn = 256\nvocab = 1000\n"
    )
    assert load_model(str(path)).model.name == "Mine"
    path.write_text('[[model]]\nname = "Mine"\nhiden = 64\n')
    with pytest.raises(InputError, match=r"hid"):
        load_model(str(path))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"quant_method": "gptq", "bits": 8}, "int8-wo"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        (_groups({"num_bits": 4, "type": "int"}, None), "int4"),
        (_groups({"num_bits": 8, "type": "float"}, {"num_bits": 8}), "fp8"),
        (_groups({"num_bits": 8, "type": "int"}, {"num_bits": 8}), "int8"),
        (_groups({"num_bits": 4, "type": "float"}, {"num_bits": 4}), "nvfp4"),
    ],
)
def test_quantised_weights_are_as_their_tool_says(
    tmp_path: Path, said: dict[str, Any], meant: str
) -> None:
    found = load(tmp_path, quantization_config=said)
    assert found.precision is not None
    assert (found.precision.name, found.unclear) == (meant, "")


@pytest.mark.parametrize("said", [{"quant_method": "aqlm"}, {"quant_method": "gptq", "bits": 3}])
def test_a_quantisation_that_nobody_knows_is_not_taken_for_half_precision(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    found = load(tmp_path, quantization_config=said)
    assert found.precision is None
    assert found.unclear == said["quant_method"]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gemma-3-4b", {"model_type": "gemma3_text", "sliding_window": 1024, "layers": 34}),
        ("gemma-2-9b", {"model_type": "gemma2", "sliding_window": 4096, "layers": 42}),
        ("qwen2-57b-a14b", {"model_type": "qwen2_moe", "layers": 28}),
        ("llama-4-maverick", {"model_type": "llama4_text", "layers": 48}),
    ],
)
def test_what_a_model_type_has_by_default_need_not_be_said(
    tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    known = name_model(name)
    own = {
        "hidden_size": known.hidden,
        "num_hidden_layers": changes.pop("layers"),
        "num_attention_heads": known.heads,
        "num_key_value_heads": known.kv_heads,
        "intermediate_size": known.ffn or known.expert_ffn,
        "head_dim": known.head_dim or None,
        "vocab_size": known.vocab,
        **changes,
    }
    if changes["model_type"] == "qwen2_moe":
        own |= {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 2560}
        own |= {"shared_expert_intermediate_size": 20480}
    if changes["model_type"] == "llama4_text":
        own |= {"num_local_experts": 128, "num_experts_per_tok": 1, "intermediate_size": 8192}
        own |= {"intermediate_size_mlp": 16384, "interleave_moe_layer_step": 2}
        own |= {"attention_chunk_size": 8192}
    found = load(tmp_path, **own).model
    assert (found.params, found.active_params) == (known.params, known.active_params)
    assert (found.window, found.global_every) == (known.window, known.global_every)
