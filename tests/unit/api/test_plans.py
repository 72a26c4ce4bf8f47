"""`fuelline.plan.serve` and `.train` answer as `fuelline plan` does, to the last digit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import fuelline
from fuelline.cli import main
from fuelline.cli.plan import options
from fuelline.plan.asked import request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODEL = "llama-3.1-8b"
QUESTIONS: dict[str, Callable[[], Any]] = {
    f"serve {MODEL} --chip h100 --in 2048 --out 128 --slo tpot=40ms": lambda: fuelline.plan.serve(
        MODEL, chip="h100", prompt_tokens=2048, output_tokens=128, tpot_s=0.04
    ),
    f"serve {MODEL} --chip h100,h200 --batch 1,8,64 --precision fp8": lambda: fuelline.plan.serve(
        MODEL, chip=["h100", "h200"], batch=[1, 8, 64], precision="fp8"
    ),
    f"serve {MODEL} --chip h100 --rate 4 --headroom 30 --vary 50 --attain 90 --kv 8": lambda: (
        fuelline.plan.serve(
            MODEL, chip="h100", requests_per_s=4, headroom_frac=0.3, vary_frac=0.5,
            attain_frac=0.9, kv_bits=8,
        )
    ),
    f"train {MODEL} --chip h100 --chips 64 --tokens 1T --seq 8k --mtbf 1000h": lambda: (
        fuelline.plan.train(
            MODEL, chip="h100", chips=64, tokens=1e12, sequence_tokens=8000, chip_mtbf_hours=1000
        )
    ),
    f"train {MODEL} --chip h100 --chips 16,64 --jitter 2 --link 2.5 --price 3": lambda: (
        fuelline.plan.train(
            MODEL, chip="h100", chips=[16, 64], jitter_frac=0.02, link_bytes_per_s=2.5e9,
            usd_per_chip_hour=3,
        )
    ),
    f"train {MODEL} --chip h100,h200 --chips 64 --recompute full": lambda: fuelline.plan.train(
        MODEL, chip="h100,h200", chips=64, recompute="full"
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", QUESTIONS)
@pytest.mark.usefixtures("store")
def test_python_and_the_command_line_answer_alike(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words.split(), "--json"]) in (0, 1)
    said = json.loads(capsys.readouterr().out)
    assert json.loads(msgspec.json.encode(QUESTIONS[words]())) == said


def test_a_config_may_be_a_path(tmp_path: Path, store: Path) -> None:
    del store
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000,'
        ' "intermediate_size": 2048, "model_type": "llama"}'
    )
    assert fuelline.plan.serve(tmp_path, chip="h100").options
    assert fuelline.plan.serve(tmp_path / "config.json", chip="h100").options


def test_the_help_and_the_planner_name_the_same_engine() -> None:
    assert options.DEFAULT_ENGINE == request.DEFAULT_ENGINE


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda: fuelline.plan.train("llama-3.1-8b", chip="nobody-2000"),
            "entry: catalogue='FILE'.",
        ),
        (lambda: fuelline.plan.serve("nobody-7b", chip="h100"), "file: catalogue='FILE'."),
        (
            lambda: fuelline.plan.train("llama-3.1-405b", chip="h100", chips=8, tokens=1e9),
            "With chips=",
        ),
        (
            lambda: fuelline.plan.serve("llama-3.1-8b", chip="h100", batch=100_000),
            "Give batch=1 to ",
        ),
    ],
)
def test_an_error_of_the_planner_names_keywords_not_flags(
    ask: Callable[[], object], said: str
) -> None:
    with pytest.raises(fuelline.InputError) as caught:
        ask()
    assert said in str(caught.value)
    assert "--" not in str(caught.value)
