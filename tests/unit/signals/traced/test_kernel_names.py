"""What a kernel's name says: real names with the class that a reader gives them.

`kernel_names.tsv` holds names of published traces and of public sources, up to 400 letters each.
They were classed by hand before the classifier saw them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fuelline.signals.traced.kernels.names import CLASSES, classify, find_library, uses_tensor_cores
from fuelline.signals.traced.kernels.parsed import take_apart

_TABLE = [
    tuple(line.split("\t"))
    for line in Path(__file__)
    .with_name("kernel_names.tsv")
    .read_text(encoding="utf-8")
    .splitlines()
]


def test_the_table_has_every_class_and_hundreds_of_names() -> None:
    assert len(_TABLE) >= 700
    assert {kind for kind, _ in _TABLE} == set(CLASSES)


def test_every_name_of_the_table_gets_the_class_that_a_reader_gives_it() -> None:
    wrong = [(kind, classify(name), name) for kind, name in _TABLE if classify(name) != kind]
    assert not wrong


@pytest.mark.parametrize(
    ("name", "own", "path"),
    [
        (
            "void at::native::reduce_kernel<512, at::Mean<float> >(at::X)",
            "reduce_kernel",
            "at_native_reduce_kernel",
        ),
        (
            "std::enable_if<((8)>(0))&&v::E<int>::exists, void>::type vllm::rms_norm<8>(int)",
            "rms_norm",
            "vllm_rms_norm",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float>(float*)",
            "softmax_warp_forward",
            "softmax_warp_forward",
        ),
        (
            "_ZN2ck12_GLOBAL__N_119kernel_grouped_convINS_4gemmEEEv",
            "kernel_grouped_conv",
            "ck_kernel_grouped_conv",
        ),
        (
            "%all-reduce.3 = f32[8]{0} all-reduce(f32[8]{0} %dot.4), to_apply=%add",
            "all_reduce",
            "all_reduce",
        ),
        (
            "%add_fusion.2 = f32[8]{0} fusion(f32[8]{0} %copy-done.1), kind=kLoop",
            "add_fusion",
            "add_fusion",
        ),
        ("loop_convert_fusion.kd", "loop_convert_fusion", "loop_convert_fusion"),
        ("void broken<unfinished, at::native::(anon", "broken", "broken"),
        ("", "", ""),
    ],
)
def test_a_name_is_taken_apart(name: str, own: str, path: str) -> None:
    said = take_apart(name)
    assert (said.own, said.path) == (own, path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::softmax_op<float> >(int)",
            "elementwise",
        ),
        ("triton_poi_fused_flash_attention_mm_convolution_7", "elementwise"),
        ("triton_red_fused_mm_native_layer_norm_3", "reduce"),
        ("%fusion.9 = f32[8]{0} fusion(f32[8]{0} %all-reduce.4), kind=kLoop", "elementwise"),
        ("%fusion.9 = f32[8]{0} fusion(f32[8]{0} %all-reduce.4), kind=kInput", "reduce"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128>(int)", "gemm"),
        ("void wrapped<all_reduce_kernel>(nccl::comm)", "other"),
        ("triton__0d1d2d", "other"),
    ],
)
def test_arguments_and_operands_decide_only_for_wrappers(name: str, kind: str) -> None:
    assert classify(name) == kind


def test_communication_is_named_by_its_library() -> None:
    assert find_library("void dpsk::ep::internode::dispatch<false, 4>(int4*)") == "DeepEP"
    assert find_library("hcom_allReduce__123_0") == "HCCL"
    assert find_library("%all-to-all.3 = f32[8] all-to-all(f32[8] %x)") == "XLA"
    assert find_library("void normal_kernel<ncclComm>(int)") is None
    assert find_library("block_all_reduce_sum_f32_f32_kernel(float*, float*, int)") is None


def test_only_kernels_that_multiply_matrices_can_use_matrix_units() -> None:
    assert uses_tensor_cores("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn")
    assert not uses_tensor_cores("triton_poi_fused__scaled_dot_product_flash_attention_clone_6")
    assert not uses_tensor_cores("volta_sgemm_128x64_nn")
