"""Which tensor plays which role, from its place in the call alone."""

from __future__ import annotations

import pytest

from tensor_cast import LeafOp, TensorSpec
from tensor_cast.operators.signatures import Argument, assign_roles, known_operators, signature

QUERY, CACHE = ((4, 512), "bf16"), ((9, 128, 1, 128), "bf16")
MATRIX, VECTOR = ((16, 32), "int8"), ((32,), "float32")
X, IDS = ((4, 16), "bf16"), ((4, 2), "int64")
QUANT = "tensor_cast.dispatch_ffn_combine_quant.default"


def roles(name: str, tensors: list[tuple[tuple[int, ...], str]]) -> list[str]:
    return [spec.role for spec in LeafOp.build(name, tensors).inputs]


def test_a_signature_is_found_for_any_overload() -> None:
    assert signature("aten.mm.default") == signature("aten.mm.out") == signature("aten.mm")
    assert signature("aten.mm.default") == (
        Argument("x", is_tensor=True, is_list=False, optional=False),
        Argument("weight", is_tensor=True, is_list=False, optional=False),
    )
    assert signature("aten.unheard_of.default") is None
    assert signature("mm") is None


def test_suffixes_say_what_an_argument_is() -> None:
    found = {argument.name: argument for argument in signature(QUANT) or ()}
    assert found["gmm1_weight"] == Argument("gmm1_weight", is_tensor=True, is_list=True, optional=False)
    assert found["gmm1_scale"] == Argument("gmm1_scale", is_tensor=True, is_list=True, optional=True)
    assert found["rank_group"] == Argument("rank_group", is_tensor=False, is_list=False, optional=True)
    assert list(found)[:8] == [
        "x",
        "expert_indices",
        "gmm1_weight",
        "gmm1_scale",
        "gmm1_offset",
        "gmm1_bias",
        "gmm1_out_dtype",
        "gmm2_weight",
    ]


def test_the_table_has_no_argument_twice() -> None:
    for name in known_operators():
        names = [argument.name for argument in signature(name) or ()]
        assert len(names) == len(set(names)), name
        assert all(part.isidentifier() for part in names), name


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (2, ["query", "key"]),
        (3, ["query", "key", "value"]),
        (4, ["query", "key", "value", "attention_mask"]),
        (5, ["query", "key", "value", "attention_mask", "block_table"]),
        (
            8,
            [
                "query",
                "key",
                "value",
                "attention_mask",
                "block_table",
                "query_start_loc",
                "seq_lens",
                "query_lens",
            ],
        ),
    ],
)
def test_attention_takes_optional_arguments_from_the_left(count: int, expected: list[str]) -> None:
    assert roles("tensor_cast.attention.default", [QUERY, *[CACHE] * (count - 1)]) == expected


def test_more_tensors_than_arguments_stay_unnamed() -> None:
    assert roles("aten.mm.default", [MATRIX] * 3) == ["x", "weight", ""]
    assert roles("aten.unheard_of.default", [MATRIX] * 2) == ["", ""]


def test_explicit_roles_are_kept_and_the_rest_filled_around_them() -> None:
    specs = (TensorSpec((4,), "int64", role="seq_lens"), TensorSpec((4, 512), "bfloat16"))
    named = assign_roles("tensor_cast.attention.default", specs)
    assert [spec.role for spec in named] == ["seq_lens", "query"]
    assert assign_roles("tensor_cast.attention.default", named) == named


def test_scaled_linears_take_the_activation_scale_first() -> None:
    tensors = [MATRIX, MATRIX, VECTOR, VECTOR]
    assert roles("tensor_cast.fp8_linear.default", tensors) == ["x", "weight", "x_scale", "w_scale"]
    assert roles("tensor_cast.static_quant_linear.default", tensors) == ["x", "weight", "w_scale", "w_offset"]


def test_an_indexer_takes_its_cache_last() -> None:
    tensors = [((4, 1, 32, 128), "int8"), ((4, 1, 32), "float32"), ((9, 128, 128), "int8")]
    assert roles("tensor_cast.quant_lightning_indexer.default", tensors) == ["query", "weights", "indexer_cache"]


def test_a_list_argument_takes_every_tensor() -> None:
    assert roles("aten.cat.default", [VECTOR]) == ["tensors"]
    assert roles("aten.cat.default", [VECTOR, MATRIX, VECTOR]) == ["tensors"] * 3


@pytest.mark.parametrize("experts", [1, 2, 3, 16])
@pytest.mark.parametrize("suffix", ["", "_quant", "_quant_int4", "_fp8", "_mxfp4"])
def test_expert_weights_split_evenly_between_both_products(suffix: str, experts: int) -> None:
    found = roles(f"tensor_cast.dispatch_ffn_combine{suffix}.default", [X, IDS, *[MATRIX] * (2 * experts)])
    assert found == ["x", "expert_indices", *["gmm1_weight"] * experts, *["gmm2_weight"] * experts]


@pytest.mark.parametrize("experts", [1, 2, 3])
def test_scales_and_offsets_follow_the_weights_they_belong_to(experts: int) -> None:
    def call(vectors: int) -> list[str]:
        side = [MATRIX] * experts + [VECTOR] * (experts * vectors)
        return roles(QUANT, [X, IDS, *side, *side])

    def named(*parts: str) -> list[str]:
        lists = [f"gmm{side}_{part}" for side in (1, 2) for part in parts]
        return ["x", "expert_indices", *(name for name in lists for _ in range(experts))]

    assert call(1) == named("weight", "scale")
    assert call(2) == named("weight", "scale", "offset")
    assert call(3) == named("weight", "scale", "offset", "bias")


@pytest.mark.parametrize("rest", [[MATRIX] * 3, [MATRIX, VECTOR, MATRIX], [MATRIX, *[VECTOR] * 4] * 2, [VECTOR] * 2])
def test_lists_that_do_not_divide_stay_unnamed(rest: list[tuple[tuple[int, ...], str]]) -> None:
    """Better no role than a wrong one: whatever needs the weights then refuses."""
    assert roles(QUANT, [X, IDS, *rest]) == ["x", "expert_indices", *[""] * len(rest)]


def test_a_lone_activation_is_still_the_activation() -> None:
    assert roles(QUANT, [X]) == ["x"]
    assert roles(QUANT, []) == []


GROUPED = "tensor_cast.grouped_matmul_quant_int4.default"
TOKENS, EXPERT, STACK = ((3, 32), "int8"), ((16, 8), "int8"), ((4, 16, 8), "int8")
ROW_SCALE, COLUMN_SCALE, OFFSET = ((3, 1), "float32"), ((8,), "float32"), ((8,), "int8")


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ([TOKENS, STACK], ["x", "weight"]),
        ([TOKENS, EXPERT], ["x", "weight"]),
        ([TOKENS, ((4, 32, 16), "int4")], ["x", "weight"]),
        ([TOKENS] * 4 + [EXPERT] * 4, ["x"] * 4 + ["weight"] * 4),
        ([((3, 32), "bf16")] * 2 + [EXPERT] * 2, ["x"] * 2 + ["weight"] * 2),  # another dtype tells them apart
        ([TOKENS] * 2 + [((32, 8), "int4")] * 2, ["x"] * 2 + ["weight"] * 2),
        ([TOKENS, STACK, ((4, 8), "float32"), ROW_SCALE], ["x", "weight", "w_scale", "x_scale"]),
        ([TOKENS, EXPERT, COLUMN_SCALE, OFFSET, ROW_SCALE], ["x", "weight", "w_scale", "w_offset", "x_scale"]),
        (
            [TOKENS] * 2 + [EXPERT] * 2 + [COLUMN_SCALE] * 2 + [ROW_SCALE] * 2,
            ["x"] * 2 + ["weight"] * 2 + ["w_scale"] * 2 + ["x_scale"] * 2,
        ),
        ([TOKENS], [""]),
        ([((3,), "int8"), STACK], ["", ""]),
    ],
)
def test_grouped_products_tell_activations_from_weights(
    tensors: list[tuple[tuple[int, ...], str]], expected: list[str]
) -> None:
    assert roles(GROUPED, tensors) == expected


def test_packed_experts_hold_int4() -> None:
    leaf = LeafOp.build(GROUPED, [TOKENS] * 2 + [EXPERT] * 2)
    assert leaf.tensor_dtypes == ("int8", "int8", "int4", "int4")


def test_scales_of_four_bit_floats_are_no_weights() -> None:
    x, weight, scale = ((3, 32), "float4"), ((32, 8), "float4"), ((8, 1), "uint8")
    found = roles("tensor_cast.grouped_matmul_mxfp4.default", [x, weight, scale, scale])
    assert found == ["x", "weight", "w_scale", "x_scale"]
