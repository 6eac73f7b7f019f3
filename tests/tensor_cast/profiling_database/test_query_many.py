"""`query_many` equals `query`, point by point."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specialized_cases import CASES
from specialized_rows import SPARSE, data, request_columns, sparse, sparse_row
from support import attention, mm, named, row, source, write_database
from tensor_cast import InterpolatingDataSource, LeafOp, QueryResult, Requests, TensorSpec
from tensor_cast.errors import InvalidValueError
from tensor_cast.performance_model.profiling_database.data_source import QuerySource

BF16 = "DT_BF16;DT_BF16"
MM = {"aten.mm.default": {"kernel_type": "MatMulV2", "alternate_kernel_types": ["MatMulV3"]}}

# Tokens, latency and query lengths; the two rows at 60 tokens differ in their lengths.
SPLIT_ROWS = ((40, 8.0, (20, 20)), (60, 12.0, (20, 40)), (60, 13.0, (40, 20)), (100, 20.0, (50, 50)))


def product(m: int, k: int, n: int, latency: float) -> dict[str, Any]:
    return row(f"{m},{k};{k},{n}", BF16, latency, outputs=f"{m},{n}", output_dtypes="DT_BF16")


def same(many: Any, single: list[Any]) -> None:
    for latency, dim, answer in zip(many.latency_us.tolist(), many.dims.tolist(), single, strict=True):
        if isinstance(answer, QueryResult):
            assert latency == answer.latency_us
            assert dim == answer.details.get("interpolation_dim", 0)
        else:
            assert math.isnan(latency)
            assert dim == -1


def test_matmul_over_every_m_including_padded_and_measured_ones(tmp_path: Path) -> None:
    rows = [product(m, k, 64, m + k / 7) for m in (5, 60, 100, 171, 400) for k in (96, 128)]
    folder = write_database(tmp_path, {"MatMulV2": rows, "MatMulV3": [product(500, 128, 64, 9.0)]}, MM)
    wrapper = source(folder)
    values = np.arange(1, 520)
    many = wrapper.query_many(mm(7, 128, 64), M=values)
    same(many, [wrapper.query(mm(int(m), 128, 64)) for m in values])
    assert set(many.dims.tolist()) == {-1, 0, 1}
    assert many.answered.sum() == (many.dims >= 0).sum()


def test_two_axes_at_once_reach_2d(tmp_path: Path) -> None:
    rows = [product(m, k, 64, 1 + m + 2 * k) for m in (100, 201, 403) for k in (90, 170, 330)]
    wrapper = source(write_database(tmp_path, {"MatMulV2": rows}, MM))
    m, k = (grid.ravel() for grid in np.meshgrid([100, 150, 201, 300, 500], [90, 101, 170, 200]))
    many = wrapper.query_many(mm(9, 128, 64), M=m, K=k)
    same(many, [wrapper.query(mm(int(a), int(b), 64)) for a, b in zip(m, k, strict=True)])
    assert 2 in many.dims


def test_elementwise_owns_its_exact_points(tmp_path: Path) -> None:
    mapping = {"aten.add.Tensor": {"kernel_type": "Add", "query_mode": "elementwise"}}
    rows = [
        row(f"{t},{d};{t},{d}", BF16, t * d / 10, outputs=f"{t},{d}", output_dtypes="DT_BF16")
        for t in (10, 20, 40)
        for d in (8, 16)
    ]
    wrapper = source(write_database(tmp_path, {"Add": rows}, mapping))

    def add(tokens: int, width: int) -> LeafOp:
        shape = ((tokens, width), "bf16")
        return LeafOp.build("aten.add.Tensor", [shape, shape], [shape])

    values = np.array([5, 10, 11, 20, 33, 40, 50])
    same(wrapper.query_many(add(1, 8), axis_0=values), [wrapper.query(add(int(t), 8)) for t in values])


@pytest.mark.parametrize("policy", [None, {"FusedInferAttentionScore": {"axis_transform": "sqrt_seq"}}])
def test_attention_along_the_context(tmp_path: Path, policy: dict[str, Any] | None) -> None:
    mapping = {
        "tensor_cast.attention.default": {"kernel_type": "FusedInferAttentionScore", "query_mode": "attention_special"}
    }
    runtime = {"Runtime sparse_mode": 3, "Runtime num_key_value_heads": 1, "Runtime input_layout": "TND"}
    rows = [
        row("30,4,128;99,128,128", BF16, float(seq), **named(runtime), **named({"Runtime avg_seq_len": seq}))
        for seq in (1000, 2000, 5000)
    ]
    wrapper = source(write_database(tmp_path, {"FusedInferAttentionScore": rows}, mapping, policy))
    values = np.array([900, 1000, 1010, 1500, 3000, 5016, 5017])
    for tokens in (30, 32):  # 32 pads 30
        many = wrapper.query_many(attention(tokens, 4, 128, [7, 7]), seq=values)
        same(many, [wrapper.query(attention(tokens, 4, 128, [int(v)] * 2)) for v in values])
        assert many.dims.tolist() == [-1, 0, 0, 1, 1, 0, -1]


def test_misuse_is_named(tmp_path: Path) -> None:
    wrapper = source(write_database(tmp_path, {"MatMulV2": [product(4, 8, 64, 1.0), product(8, 8, 64, 2.0)]}, MM))
    leaf = mm(4, 8, 64)
    with pytest.raises(InvalidValueError, match="cannot be moved along tokens"):
        wrapper.query_many(leaf, tokens=[1, 2])
    with pytest.raises(InvalidValueError, match="arrays of one length, got M 2, K 1"):
        wrapper.query_many(leaf, M=[1, 2], K=[1])
    with pytest.raises(InvalidValueError, match="no axes to vary"):
        wrapper.query_many(LeafOp.build("a.b.c", []), M=[1])


# --- what a sweep asks, by the place of the tensors ------------------------------------------------------------------


def test_every_tensor_with_the_first_ones_rows_moves(tmp_path: Path) -> None:
    """SwiGlu of two halves: rows of the joined form 10, 100 and 200 us at 16, 20 and 40 tokens."""
    mapping = {"tensor_cast.swiglu.default": {"kernel_type": "SwiGlu"}}
    rows = [row(f"{t},256", "DT_BF16", latency) for t, latency in ((16, 10.0), (20, 100.0), (40, 200.0))]
    wrapper = source(write_database(tmp_path, {"SwiGlu": rows}, mapping))
    half = ((16, 128), "bf16")
    many = wrapper.query_many(LeafOp.build("tensor_cast.swiglu.default", [half, half], [half]), axis_0=[16, 30, 40, 41])
    assert many.latency_us.tolist()[:3] == [10.0, 150.0, 200.0]
    assert many.dims.tolist() == [0, 1, 0, -1]


def test_one_tensor_object_twice_is_two_tensors(tmp_path: Path) -> None:
    wrapper = source(write_database(tmp_path, {"MatMulV2": [product(m, 64, 64, m / 4) for m in (40, 80, 160)]}, MM))
    one = TensorSpec((64, 64), "bfloat16")
    for leaf in (
        LeafOp("aten.mm.default", (one, one)),
        LeafOp("aten.mm.default", (one, TensorSpec((64, 64), "bfloat16"))),
    ):
        assert wrapper.query_many(leaf, M=[40, 80, 120, 160]).latency_us.tolist() == [10.0, 20.0, 30.0, 40.0]


def test_rows_that_the_base_reaches_by_flattening(tmp_path: Path) -> None:
    mapping = {"tensor_cast.quantize.default": {"kernel_type": "AscendQuantV2", "tc_input_count": 1}}
    rows = [row("200,128", "DT_BF16", 10.0, outputs="200,128", output_dtypes="INT8")]
    wrapper = source(write_database(tmp_path, {"AscendQuantV2": rows}, mapping))
    vector = ((128,), "bf16")
    leaf = LeafOp.build("tensor_cast.quantize.default", [((3, 100, 128), "bf16"), vector, vector])
    many = wrapper.query_many(leaf, axis_0=[1, 2, 3])
    assert many.latency_us.tolist()[1] == 10.0
    assert many.dims.tolist() == [-1, 0, -1]


@pytest.mark.parametrize("name", CASES)
def test_specialised_operators_move_as_they_are_built(name: str, tmp_path: Path) -> None:
    """Rows at 40 and 200 of the path's first axis: 8 us and 40 us."""
    case = CASES[name]
    wrapper = data(tmp_path, {case.kernel: [case.row(40, 8.0), case.row(200, 40.0)]})
    many = wrapper.query_many(case.leaf(60), **{case.axis: [40, 100, 120, 200, 202]})
    assert many.latency_us.tolist()[:4] == [8.0, 20.0, 24.0, 40.0]
    assert many.dims.tolist() == [0, 1, 1, 0, -1]
    same(many, [wrapper.query(case.leaf(at)) for at in (40, 100, 120, 200, 202)])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.owned])
def test_without_interpolation_the_rows_are_left(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    wrapper = data(tmp_path, {case.kernel: [case.row(40, 8.0), case.row(200, 40.0)]})
    alone = InterpolatingDataSource(wrapper.base, disable_interpolation=True)
    many = alone.query_many(case.leaf(60), **{case.axis: [40, 100, 200]})
    same(many, [alone.query(case.leaf(at)) for at in (40, 100, 200)])


def test_an_ambiguous_coordinate_is_a_miss_in_a_sweep_too(tmp_path: Path) -> None:
    """Two rows of one coordinate whose requests differ: neither answers, nor does a line through their neighbours."""
    rows = [sparse_row(at, latency, **request_columns(lengths, (3000, 3000))) for at, latency, lengths in SPLIT_ROWS]
    wrapper = data(tmp_path, {SPARSE: rows})
    leaf = sparse(60, requests=Requests(None, None, "mixed", (2, 64)))
    values = [40, 50, 60, 80, 100]
    same(wrapper.query_many(leaf, tokens=values), [wrapper.query(sparse(t, requests=leaf.requests)) for t in values])


def test_the_answers_carry_their_points_and_sources(tmp_path: Path) -> None:
    wrapper = source(write_database(tmp_path, {"MatMulV2": [product(m, 128, 64, m / 10) for m in (100, 201)]}, MM))
    many = wrapper.query_many(mm(9, 128, 64), M=range(100, 301, 100), K=128)
    assert {axis: column.tolist() for axis, column in many.axes.items()} == {"M": [100, 200, 300], "K": [128] * 3}
    assert many.sources == (QuerySource.MEASURED, QuerySource.INTERPOLATED, None)
    assert len(wrapper.query_many(mm(9, 128, 64), M=100)) == 1
    assert len(wrapper.query_many(mm(9, 128, 64), M=[])) == 0


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({}, "name at least one axis"),
        ({"M": [1.5]}, "M must be whole numbers from 0 to 2\\*\\*53, got 1.5"),
        ({"M": [-1]}, "got -1"),
        ({"M": [float("nan")]}, "got nan"),
        ({"M": ["4"]}, "M must be whole numbers"),
        ({"M": [[1, 2]]}, "2 dimensions"),
        ({"m": [1]}, "allowed are M, K, N"),
    ],
)
def test_values_and_axes_that_no_operator_has(axes: dict[str, Any], message: str, tmp_path: Path) -> None:
    wrapper = source(write_database(tmp_path, {"MatMulV2": [product(4, 8, 64, 1.0)]}, MM))
    with pytest.raises(InvalidValueError, match=message):
        wrapper.query_many(mm(4, 8, 64), **axes)
