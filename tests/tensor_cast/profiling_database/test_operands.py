"""Which operands a row stands for: packed weights, scales, dtypes; and that no shape is an exception."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from column_leaves import EXPERTS, FP8, INT4, MM, NVFP4, PACKED, code, experts, facts, leaf, operands, shipped, tensors
from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import AttrValue, LeafOp, Requests
from tensor_cast.operators.signatures import signature
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.columns.facts import ColumnFacts, describe
from tensor_cast.performance_model.profiling_database.data_source import Miss
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry


# K is 64 in every case: x of a packed dtype is 32 wide
@pytest.mark.parametrize(
    ("op", "x", "weight", "dtype", "columns"),
    [
        (INT4, ([8, 64], "bfloat16"), [32, 16], "int8", 16),
        (INT4, ([8, 64], "bfloat16"), [16, 32], "int8", 16),
        (INT4, ([8, 64], "bfloat16"), [32, 64], "int8", 64),
        (INT4, ([8, 64], "bfloat16"), [64, 32], "int8", 64),
        (INT4, ([8, 64], "bfloat16"), [32, 64], "int4", 64),
        (INT4, ([8, 64], "bfloat16"), [64, 64], "int4", 64),
        (INT4, ([8, 64], "bfloat16"), [64, 48], "int4", 48),
        (NVFP4, ([8, 32], PACKED), [32, 64], PACKED, 64),
        (NVFP4, ([8, 32], PACKED), [64, 32], PACKED, 64),
        (NVFP4, ([8, 32], PACKED), [32, 32], PACKED, 32),
        (NVFP4, ([8, 64], "float4"), [64, 128], "float4", 128),
        (NVFP4, ([8, 64], "float4"), [64, 32], "float4", 32),
    ],
)
def test_packed_weights_hold_two_values_of_k(
    op: str, x: tuple[list[int], str], weight: list[int], dtype: str, columns: int
) -> None:
    found = facts(leaf(op, tensors(x, (weight, dtype))), "matmul", operands=operands(op))
    assert found.axes == {"M": 8.0, "K": 64.0, "N": float(columns)}


@pytest.mark.parametrize(
    ("weight", "dtype"),
    [([64, 32], "int4"), ([64, 64], "int8"), ([48, 16], "int4")],
    ids=["packed or plain", "eight bits hold two values", "no K"],
)
def test_a_weight_that_can_be_read_in_two_ways_is_refused(weight: list[int], dtype: str) -> None:
    op = leaf(INT4, tensors(([8, 64], "bfloat16"), (weight, dtype)))
    assert code(op, "matmul", operands=operands(INT4)) == "target_unavailable:weight"


@pytest.mark.parametrize(
    ("x_scale", "w_scale", "quant"),
    [
        ([8, 1], [128], "fp8"),
        ([1], [1, 128], "fp8"),
        ([8, 2], [2, 1], "fp8_block"),
        ([8, 2], [1, 2], "fp8_block"),
    ],
)
def test_scales_tell_the_block_kernel(x_scale: list[int], w_scale: list[int], quant: str) -> None:
    pairs = [([8, 256], "float8_e4m3fn"), ([256, 128], "float8_e4m3fn"), (x_scale, "float32"), (w_scale, "float32")]
    assert facts(leaf(FP8, tensors(*pairs)), "matmul", operands=operands(FP8)).regime["quant"] == quant


@pytest.mark.parametrize(
    ("scale", "dtype", "asked"),
    [([8, 4], "float32", {}), ([8, 1], "int8", {}), ([8, 1], "float32", {"quant": "fp8_block"})],
    ids=["groups of 64", "integer scales", "blocks asked, rows given"],
)
def test_scales_of_another_granularity_or_dtype_meet_no_row(
    scale: list[int], dtype: str, asked: dict[str, Any]
) -> None:
    pairs = [([8, 256], "float8_e4m3fn"), ([256, 128], "float8_e4m3fn"), (scale, dtype), ([128], "float32")]
    op = leaf(FP8, tensors(*pairs), attrs=asked)
    assert code(op, "matmul", operands=operands(FP8)) == "regime_key_unmatched"


def test_an_operand_that_no_row_was_measured_with_is_named() -> None:
    pairs = [([8, 32], "bfloat16"), ([32, 16], "bfloat16"), ([16], "bfloat16")]
    assert code(leaf(MM, tensors(*pairs)), "matmul") == "target_unavailable:inputs[2]"
    scaled = tensors(([8, 32], "float8_e4m3fn"), ([32, 16], "float8_e4m3fn"), ([], "float32"), ([], "float32"))
    biased = leaf(FP8, [*scaled, {"shape": [16], "dtype": "bfloat16", "role": "bias"}])
    found = describe(biased, shipped()[FP8])
    assert isinstance(found, Miss)
    assert found.details["regime_differs_in"] == {"bias": {"asked": "bfloat16", "measured": "absent"}}


@pytest.mark.parametrize("gmm1", [[16, 1024, 1536], [16, 1536, 1024]])
@pytest.mark.parametrize("gmm2", [[16, 384, 2048], [16, 2048, 384]])
def test_packed_experts_hold_two_values_of_the_reduced_dimension(gmm1: list[int], gmm2: list[int]) -> None:
    op = experts(gmm1, gmm2, dtype=PACKED, quant="nvfp4", distribution="balanced")
    regime = facts(op, "experts", operands=operands(EXPERTS)).regime
    assert (regime["hidden_size"], regime["inter_size"], regime["quant"]) == (2048, 768, "nvfp4")


SHAPES = st.lists(st.sampled_from([0, 1, 2, 8, 16, 64, 128]), max_size=4).map(tuple)
DTYPES = st.sampled_from(["bfloat16", "float8_e4m3fn", PACKED, "int4", "int64", "float32"])
LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=3)


@settings(deadline=None)
@given(st.data())
def test_no_operator_is_an_exception(data: st.DataObject) -> None:
    """Whatever the shapes, 0-d and empty ones included, the answer is facts or a miss."""
    name = data.draw(st.sampled_from(sorted(shipped())))
    roles = [argument.name for argument in signature(name) or () if argument.is_tensor]
    present = data.draw(st.lists(st.sampled_from(roles), unique=True))
    inputs = tuple(TensorSpec(data.draw(SHAPES), data.draw(DTYPES), role=role) for role in present)
    lens = data.draw(LENGTHS)
    requests = data.draw(st.sampled_from([None, Requests(tuple(lens), tuple(lens)), Requests((1,) * len(lens))]))
    attrs: dict[str, AttrValue] = {
        "model": "m",
        "stage": "pre",
        "num_heads": 8,
        "phase": "decode",
        "quant": "fp8",
        "moe_ep_size": 2,
    }
    kept = data.draw(st.lists(st.sampled_from(sorted(attrs)), unique=True))
    op = LeafOp(name, inputs, attrs=tuple((key, attrs[key]) for key in sorted(kept)), requests=requests)
    found = describe(op, shipped()[name])
    assert isinstance(found, Miss | ColumnFacts)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({}, "facts.operands: expected a list of readings, got {}"),
        (["x"], r"facts.operands\[0\]: expected a mapping of inputs to dtypes, got 'x'"),
        ([{"x": "bfloat16"}], r"facts.operands\[0\].x: expected a list of dtypes or any, got 'bfloat16'"),
        ([{"x": "any", "group": 0}], r"facts.operands\[0\].group: expected a whole number above 0, got 0"),
    ],
)
def test_a_wrong_list_of_operands_is_an_error(lines: Any, message: str) -> None:
    op = leaf(FP8, tensors(([8, 32], "float8_e4m3fn"), ([32, 16], "float8_e4m3fn")))
    with pytest.raises(InvalidValueError, match=message):
        describe(op, OperatorEntry(FP8, facts={"family": "matmul", "operands": lines}))
