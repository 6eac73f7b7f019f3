"""`query_many` equals `query`, point by point."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import attention, mm, row, source, write_database
from tensor_cast import LeafOp, QueryResult
from tensor_cast.errors import InvalidValueError

BF16 = "DT_BF16;DT_BF16"
MM = {"aten.mm.default": {"kernel_type": "MatMulV2", "alternate_kernel_types": ["MatMulV3"]}}


def product(m: int, k: int, n: int, latency: float) -> dict[str, Any]:
    return row(f"{m},{k};{k},{n}", BF16, latency, outputs=f"{m},{n}", output_dtypes="DT_BF16")


def same(many: Any, single: list[Any]) -> None:
    for latency, dim, answer in zip(many.latency_us.tolist(), many.dims.tolist(), single, strict=True):
        if isinstance(answer, QueryResult):
            assert latency == pytest.approx(answer.latency_us, rel=1e-12)
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
        row("30,4,128;99,128,128", BF16, float(seq), **runtime, **{"Runtime avg_seq_len": seq})
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
    with pytest.raises(InvalidValueError, match="arrays of one length"):
        wrapper.query_many(leaf, M=[1, 2], K=[1])
    with pytest.raises(InvalidValueError, match="no axes to vary"):
        wrapper.query_many(LeafOp.build("a.b.c", []), M=[1])
