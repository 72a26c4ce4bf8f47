"""FLOPs and bytes of a model's operators, against torch's own counter and against counting by
hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fuelline.plan.roofline.torch_model import check_call, find_batch, measure_model
from fuelline.plan.roofline.torch_operators import OperatorCall, OperatorWatch
from fuelline.plan.roofline.user_model import ModelCall
from tests.unit.plan.rooflines import roofline


def watch(model: Any, *inputs: Any) -> list[OperatorCall]:
    with torch.no_grad():
        return OperatorWatch(model, lambda: None).watch(lambda: model(*inputs))


def count(model: Any, *inputs: Any) -> int:
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(*inputs)
    return counter.get_total_flops()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x: Any) -> Any:
        query, key, value = self.qkv(x).view(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(query @ key.transpose(-1, -2) / 4, -1)
        return scores @ value


MODELS = {
    "linear": (nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8)), (5, 64)),
    "no bias": (nn.Linear(64, 32, bias=False), (2, 7, 64)),
    "convolution": (
        nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1)),
        (2, 3, 17, 17),
    ),
    "attention": (Attention(), (2, 16, 64)),
    "encoder layer": (
        nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0).train(),
        (2, 5, 32),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_flops_are_those_of_the_flop_counter(name: str) -> None:
    model, shape = MODELS[name]
    inputs = torch.randn(shape)
    ours = sum(each.flops for each in watch(model, inputs))
    assert ours == pytest.approx(count(model, inputs), rel=0.001)
    assert ours > 0


def test_a_product_reads_weights_and_rows_and_writes_its_result() -> None:
    model = nn.Linear(64, 32, bias=False)
    (call,) = watch(model, torch.randn(5, 64))
    assert call.weight_bytes == 64 * 32 * 4
    assert call.moved_bytes == (5 * 64 + 5 * 32) * 4
    assert call.precision == "fp32"


def test_views_are_no_operators() -> None:
    calls = watch(lambda x: x.view(4, 2).transpose(0, 1)[0].unsqueeze(0), torch.randn(8))
    assert calls == []


def test_a_lookup_reads_what_it_returns_not_the_whole_table() -> None:
    model = nn.Embedding(100_000, 16)
    (call,) = watch(model, torch.zeros(3, dtype=torch.int64))
    assert call.weight_bytes + call.moved_bytes == 2 * 3 * 16 * 4 + 3 * 8


def test_an_expanded_input_is_read_once() -> None:
    (call,) = watch(lambda a, b: a + b, torch.randn(1, 8).expand(100, 8), torch.randn(100, 8))
    assert call.moved_bytes == (8 + 800 + 800) * 4


def test_in_place_operators_count_as_read_and_written() -> None:
    (call,) = watch(lambda x: x.add_(1.0), torch.zeros(10))
    assert call.moved_bytes == 2 * 40


def test_attention_kernels_that_torch_does_not_count_are_told_apart() -> None:
    query = torch.randn(1, 4, 16, 8)
    calls = watch(nn.functional.scaled_dot_product_attention, query, query, query)
    assert sum(each.flops for each in calls) == count(
        nn.functional.scaled_dot_product_attention, query, query, query
    )
    every = sum(each.flops + each.uncounted_flops for each in calls)
    assert every == 2 * 2 * 4 * 16 * 16 * 8


def test_a_model_becomes_points_that_sum_to_its_operators() -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU())
    call = ModelCall(model.eval(), (torch.randn(4, 64),), {})
    check_call("m.py:m", call, "4x64")
    found = measure_model("m.py:m", call, roofline(), 3, "4x64")
    assert found.batch == 4
    assert found.params == 64 * 256 * 2 + 256 + 64
    assert found.flops == count(model, call.args[0])
    assert sum(point.share for point in found.points) == pytest.approx(1.0)
    assert {point.name for point in found.points} == {"addmm", "relu"}
    assert sum(point.calls for point in found.points) == 4


def test_encoder_layers_are_seen_operator_by_operator() -> None:
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    found = measure_model(
        "m.py:m", ModelCall(model, (torch.randn(2, 5, 32),), {}), roofline(), 3, ""
    )
    assert found.flops > 0
    assert torch.backends.mha.get_fastpath_enabled()


def test_watching_leaves_no_hook_behind() -> None:
    """Composite operators are taken apart inside the watch; each entry once left its hooks."""
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    with torch.inference_mode():
        OperatorWatch(model, lambda: None).watch(lambda: model(torch.ones(1, 4)))
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.nn.modules.module._global_forward_hooks


def test_inputs_of_different_first_sizes_have_no_common_batch() -> None:
    call = ModelCall(torch.add, (torch.ones(2, 3), torch.ones(1, 3)), {})
    assert find_batch(call) is None
