"""Rows of the real GPU tables, read independently, and that nothing is borrowed from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from column_leaves import GLM5, REAL, REAL_ROWS, SGLANG, indexer, sparse
from tensor_cast import InterpolatingDataSource, ProfilingDataSource, QueryResult
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.catalogue import open_database
from tensor_cast.performance_model.profiling_database.columns.aiconfigurator import (
    find_gpu_databases,
)
from tensor_cast.performance_model.profiling_database.evidence import row_details
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable

pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
pytestmark = pytest.mark.skipif(
    not REAL.is_dir(), reason="the shared GPU tables (../shared/data/aiconfigurator) are not on this machine"
)

IDS = [f"{kernel}-{database}" for database, _, kernel, _, _ in REAL_ROWS]


@cache
def source(database: str) -> ProfilingDataSource:
    return ProfilingDataSource(open_database(f"{REAL}::{database}"))


@pytest.mark.parametrize(("database", "op", "kernel", "row", "latency_ms"), REAL_ROWS, ids=IDS)
def test_a_real_row_answers(database: str, op: LeafOp, kernel: str, row: int, latency_ms: float) -> None:
    found = source(database).query(op)
    assert isinstance(found, QueryResult), found
    assert found.details["kernel_type"] == kernel
    assert [meta["row"] for meta in found.details["matched_row_meta"]] == [row]
    assert found.latency_us == pytest.approx(latency_ms * 1000, rel=1e-12)


DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
    *("float4", "float4_e2m1fn_x2", "int64", "int32", "int16", "int8", "int4", "uint8", "bool"),
)
WIDTHS = ("int32", "int64")  # of an index: not part of what runs


def changed(op: LeafOp, place: int, **fields: Any) -> LeafOp:
    inputs = (*op.inputs[:place], replace(op.inputs[place], **fields), *op.inputs[place + 1 :])
    return replace(op, inputs=inputs)


def other_dtypes(op: LeafOp) -> Iterator[tuple[str, LeafOp]]:
    for place, spec in enumerate(op.inputs):
        for dtype in DTYPES:
            if dtype != spec.dtype and not (dtype in WIDTHS and spec.dtype in WIDTHS):
                yield f"{spec.role} of {dtype}", changed(op, place, dtype=dtype)


def other_shapes(op: LeafOp) -> Iterator[tuple[str, LeafOp]]:
    """Each dimension halved and doubled; sizes of a paged cache (its blocks) are no part of what runs."""
    for place, spec in enumerate(op.inputs):
        paged = spec.role in ("key", "value", "kv_cache", "indexer_cache", "kv_dependency", "kv")
        for at, dim in enumerate(spec.shape):
            if paged and at < spec.rank - (2 if spec.role in ("key", "value") else 1):
                continue
            for size in {dim * 2, dim // 2} - {dim, 0}:
                shape = (*spec.shape[:at], size, *spec.shape[at + 1 :])
                yield f"{spec.role} {spec.shape} as {shape}", changed(op, place, shape=shape)


def other_extras(op: LeafOp) -> Iterator[tuple[str, LeafOp]]:
    for role in ("bias", "x_offset", "w_offset", "topk_indices", "gmm1_bias", ""):
        if op.role(role) is None:
            yield f"with {role or 'one more'}", replace(op, inputs=(*op.inputs, TensorSpec((4, 4), "int32", role=role)))


ATTRIBUTES: dict[str, dict[str, Any]] = {
    "attention": {"sliding_window": 4096, "window_size": 4096, "kernel_source": "none_such"},
    "matmul": {"quant": "nvfp4", "kernel_source": "none_such"},
    "experts": {"quant": "nvfp4", "distribution": "power_law_1.2", "moe_tp_size": 2, "num_experts": 64},
    "latent_attention": {"v_head_dim": 256, "topk_limit": 2048, "model": "m", "gemm_type": "nvfp4", "num_heads": 3},
    "sparse_attention": {"topk_limit": 100, "model": "m", "compress_ratio": 3, "num_heads": 32, "sliding_window": 64},
    "quantize": {"dims": (), "kernel_source": "none_such"},
}


def other_attributes(op: LeafOp, family: str) -> Iterator[tuple[str, LeafOp]]:
    # what an operator has no use for is not asked: kinds of latent attention differ in their attributes
    useless = {
        "tensor_cast.latent_attention_block.default": ("v_head_dim", "topk_limit"),
        "tensor_cast.multihead_latent_attention.default": ("model", "gemm_type", "num_heads"),
        "tensor_cast.sparse_attn_sharedkv.default": ("topk_limit",),
        "tensor_cast.quant_lightning_indexer.default": ("sliding_window",),
    }
    for name, value in ATTRIBUTES[family].items():
        if name not in useless.get(op.name, ()):
            attrs = {**op.attributes, name: value}
            yield f"{name}={value}", replace(op, attrs=tuple(sorted(attrs.items())))


@pytest.mark.parametrize(("database", "op", "kernel", "row", "latency_ms"), REAL_ROWS, ids=IDS)
def test_nothing_is_borrowed(database: str, op: LeafOp, kernel: str, row: int, latency_ms: float) -> None:
    """Another dtype, size, packing, operand, window, top-k or quantisation is a miss or has rows of its own."""
    asked = source(database)
    family = asked.database.mapping.operators[op.name].facts["family"]
    own = asked.query(op)
    assert isinstance(own, QueryResult)
    old = [meta["row"] for meta in own.details["matched_row_meta"]]
    variations = (*other_dtypes(op), *other_shapes(op), *other_extras(op), *other_attributes(op, family))
    borrowed = []
    for what, other in variations:
        found = asked.query(other)
        same_kernel = isinstance(found, QueryResult) and found.details["kernel_type"] == kernel
        if same_kernel and [meta["row"] for meta in found.details["matched_row_meta"]] == old:
            borrowed.append(what)
    assert borrowed == []
    assert len(variations) > 15


def test_a_scalar_in_place_of_a_tensor_is_a_miss() -> None:
    """Whatever tensor of a measured operator is 0-d: a miss, unless it is a scale."""
    for database, op, _, _, _ in REAL_ROWS:
        for place, spec in enumerate(op.inputs):
            found = source(database).query(changed(op, place, shape=()))
            assert not isinstance(found, QueryResult) or spec.role.endswith("scale"), (op.name, spec.role)


GLM5_SPARSE = sparse(576, 2048, attrs=GLM5, requests={"query_lens": [1024], "kv_lens": [5120]})


@pytest.mark.parametrize(
    ("op", "latencies"),
    [(indexer(1, 1024, 4096, **GLM5), (22.029, 43.69, 94.117)), (GLM5_SPARSE, (237.452, 486.326, 1014.339))],
)
def test_a_sweep_of_new_tokens_meets_the_rows(op: LeafOp, latencies: tuple[float, float, float]) -> None:
    """Weights, indices and fresh values go with the query: 512, 1024, 2048 tokens after 4096, as in the files."""
    found = InterpolatingDataSource(source(SGLANG)).query_many(op, isl=[512, 1024, 2048, 1536])
    assert found.latency_us.tolist() == pytest.approx([*latencies, sum(latencies[1:]) / 2], rel=1e-12)


def test_real_products_keep_their_grid() -> None:
    database = open_database(f"{REAL}::h200_sxm/vllm/0.24.0")
    table = database.table("QuantMatmul")
    assert isinstance(table, ColumnTable)
    report = database.report("QuantMatmul")
    assert (report.rows_read, report.rows_usable, report.repeats_merged) == (107225, 107225, 0)
    raw = pq.ParquetFile(REAL / "h200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet").read()
    for row in (0, 50_000, 107_224):
        line = raw.slice(row, 1).to_pylist()[0]
        assert row_details(table.row_ref(row))["row"] == row
        assert table.latency_us[row] == pytest.approx(line["latency"] * 1000, rel=1e-15)
        assert [table.axes[axis][row] for axis in "MKN"] == [line["m"], line["k"], line["n"]]
        assert table.regime_keys[table.regime_codes[row]] == (line["gemm_dtype"],)


def test_real_repeats_are_merged_or_marked() -> None:
    """h200_sxm/vllm/0.19.0 holds two releases in one file: 4 455 coordinates were measured twice."""
    database = open_database(f"{REAL}::h200_sxm/vllm/0.19.0")
    table = database.table("FusedExperts")
    assert isinstance(table, ColumnTable)
    report = database.report("FusedExperts")
    assert (report.rows_read, report.repeats_merged, len(table)) == (48195, 4455, 43740)
    assert int(table.ambiguous.sum()) == 83
    assert "rows say version 0.19.0, 0.19.1; the folder's 0.19.0 counts" in report.notes


def test_real_differences_of_zero_still_sum() -> None:
    database = open_database(f"{REAL}::h200_sxm/sglang/0.5.14")
    table = database.table("DynamicQuant")
    assert isinstance(table, ColumnTable)
    assert len(table) == 1628
    assert "the difference was zero in 1622 rows" in database.report("DynamicQuant").notes
    raw = pq.ParquetFile(REAL / "h200_sxm/quantize/sglang/0.5.14/scale_matrix_perf.parquet").read().to_pylist()
    line = next(row for row in raw if (row["m"], row["k"]) == (1, 1024))
    [at] = [i for i in range(len(table)) if table.axes["M"][i] == 1 and table.axes["K"][i] == 1024]
    assert table.latency_us[at] >= line["latency"] * 1000


def test_real_roots_hold_no_collectives() -> None:
    names = [str(name) for name in find_gpu_databases(REAL)]
    assert "h200_sxm/vllm/0.24.0" in names
    assert not [name for name in names if "nccl" in name]
