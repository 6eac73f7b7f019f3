"""Upstream decomposition against the database: one leaf, exact first, interpolated after, summed once and outside.

Source: RFC 3.2.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import tensor_cast.performance_model.profiling_database as database
from specialized_rows import (
    INDEXER_ENTRY,
    QBMM_ENTRY,
    SCATTER_ENTRY,
    SPARSE_ENTRY,
    SPARSE_OP,
    even,
    indexer_row,
    qbmm_row,
    request_columns,
    scatter_row,
    sparse_row,
)
from support import base_source, row, source, write_database
from tensor_cast import InterpolatingDataSource, LeafOp, Miss, ParallelConfig, QueryResult, TensorSpec
from tensor_cast.operators.composites import canonical_leaf, canonical_leaves
from tensor_cast.operators.records import OperatorRecord, as_leaf
from tensor_cast.performance_model.base import OperatorTime, TimeSource
from tensor_cast.performance_model.empirical import EmpiricalModel
from tensor_cast.performance_model.profiling_database.data_source import DataSourcePerformanceModel

GLM5 = "tensor_cast.mla_sparse_attention.default"
DSA = "tensor_cast.dsa_indexer.default"
ENTRIES: dict[str, dict[str, Any]] = {
    GLM5: {"composite": True, "decomposer": True},
    SPARSE_OP: SPARSE_ENTRY,
    "tensor_cast.quant_lightning_indexer.default": INDEXER_ENTRY,
    "tensor_cast.scatter_nd_update_mla.default": SCATTER_ENTRY,
    "tensor_cast.static_quant_linear.default": QBMM_ENTRY,
    "tensor_cast.quantize.default": {"kernel_type": "AscendQuantV2", "tc_input_count": 1},
    "aten.bmm.default": {"kernel_type": "BatchMatMulV2", "alternate_kernel_types": ["TransposeBatchMatMul"]},
    "aten.mm.default": {"kernel_type": "MatMulV2"},
    "aten.to.dtype": {"kernel_type": "Cast"},
    "aten.native_layer_norm.default": {"kernel_type": "LayerNormV3", "tc_input_count": 3},
}
BF16 = "DT_BF16;DT_BF16"


class Spy(DataSourcePerformanceModel):
    """The real source, with every question written down."""

    def __init__(self, inner: InterpolatingDataSource) -> None:
        self.inner = inner
        self.asked: list[LeafOp] = []

    @property
    def database(self) -> Any:
        return self.inner.database

    def query(self, op: LeafOp | OperatorRecord) -> QueryResult | Miss:
        self.asked.append(as_leaf(op))
        return self.inner.query(op)

    def lookup(self, op: LeafOp | OperatorRecord) -> QueryResult | None:
        return self.inner.lookup(op)


def glm5(count: int, query: int = 1) -> LeafOp:
    """Sparse latent attention of `count` requests on 3000 tokens: 4 heads of 192 + 64, values of 256, top-k 2048."""
    tokens = count * query
    inputs = [
        TensorSpec((tokens, 4, 256), "bfloat16", role="query"),
        TensorSpec((1766, 128, 576), "bfloat16", role="kv_cache"),
        TensorSpec((count, 64), "int32", role="block_table"),
        TensorSpec((4, 192, 512), "bfloat16", role="w_uk_t"),
        TensorSpec((4, 512, 256), "bfloat16", role="w_uv"),
        TensorSpec((512, 1792), "bfloat16", role="kv_b_proj"),
        TensorSpec((1, tokens, 2048), "int64", role="topk_indices"),
    ]
    outputs = [TensorSpec((tokens, 4, 256), "bfloat16")]
    return LeafOp.build(GLM5, inputs, outputs, requests=even(count, query, 3000))


def prefill_rows(latencies: dict[int, float]) -> list[dict[str, Any]]:
    """Two requests of equal query lengths on 3000 tokens: only the token count differs between the rows."""
    return [
        sparse_row(2 * query, latency, **request_columns((query, query), (3000, 3000)))
        for query, latency in latencies.items()
    ]


def folder(path: Path, sparse: dict[int, float], expand: dict[int, float]) -> Path:
    products = [row(f"{tokens},512;512,1792", BF16, latency) for tokens, latency in expand.items()]
    return write_database(path, {"SparseFlashAttention": prefill_rows(sparse), "MatMulV2": products}, ENTRIES)


SPARSE = {4: 10.0, 8: 16.0, 16: 30.0}
EXPAND = {8: 2.0, 16: 3.0, 32: 5.0}


def ask(path: Path, op: LeafOp) -> tuple[OperatorTime, Spy]:
    spy = Spy(source(path))
    return EmpiricalModel(spy).time(op), spy


def test_one_leaf_is_exact_first_and_interpolated_once_its_row_is_gone(tmp_path: Path) -> None:
    """16 tokens lie between 8 and 32: a third of the way from 10 to 30 is 16.667."""
    op = glm5(2, 8)
    exact, _ = ask(folder(tmp_path / "whole", SPARSE, EXPAND), op)
    assert [(str(part.source), part.latency_us) for part in exact.leaves] == [("MEASURED", 3.0), ("MEASURED", 16.0)]
    assert exact.latency_us == 19.0
    without = {4: 10.0, 16: 30.0}
    between, _ = ask(folder(tmp_path / "without", without, EXPAND), op)
    assert [str(part.source) for part in between.leaves] == ["MEASURED", "INTERPOLATED"]
    assert between.leaves[1].latency_us == pytest.approx(10 + 20 * (16 - 8) / (32 - 8))
    assert between.latency_us == pytest.approx(3.0 + 50 / 3)
    assert [part.leaf for part in between.leaves] == [part.leaf for part in exact.leaves]
    outside, _ = ask(folder(tmp_path / "outside", {8: 16.0, 16: 30.0}, EXPAND), glm5(2, 4))
    assert [str(part.source) for part in outside.leaves] == ["MEASURED", "MISS"]
    assert (outside.complete, outside.latency_us) == (False, 2.0)


def test_each_child_is_asked_once_and_the_parent_never(tmp_path: Path) -> None:
    _, spy = ask(folder(tmp_path, SPARSE, EXPAND), glm5(2, 8))
    assert [leaf.source for leaf in spy.asked] == [f"child:{GLM5}#0", f"child:{GLM5}#1"]
    assert [leaf.name for leaf in spy.asked] == ["aten.mm.default", SPARSE_OP]
    spy.asked.clear()
    total = EmpiricalModel(spy).total([(glm5(2, 8), 78), (glm5(2, 4), 1), (glm5(2, 8), 2)])
    assert [leaf.tensor_shapes[0] for leaf in spy.asked] == [(16, 512), (16, 4, 512), (8, 512), (8, 4, 512)]
    assert total.latency_us == 80 * 19.0 + 12.0
    assert total.complete


def test_decode_absorbs_around_the_same_leaf(tmp_path: Path) -> None:
    tables = {
        "SparseFlashAttention": [sparse_row(2, 9.0, **request_columns((1, 1), (3000, 3000)))],
        "BatchMatMulV2": [row("4,2,192;4,192,512", BF16, 1.0)],
        "TransposeBatchMatMul": [row("4,2,512;4,512,256", BF16, 2.0)],
    }
    time, spy = ask(write_database(tmp_path, tables, ENTRIES), glm5(2))
    assert [part.latency_us for part in time.leaves] == [1.0, 9.0, 2.0]
    assert [part.kernel for part in time.leaves] == ["BatchMatMulV2", "SparseFlashAttention", "TransposeBatchMatMul"]
    assert (time.latency_us, len(spy.asked)) == (12.0, 3)


def test_the_indexer_is_answered_leaf_by_leaf_through_ordinary_entries(tmp_path: Path) -> None:
    """Nine leaves; the two casts share neither row nor direction."""
    lengths = request_columns((1, 1), (500, 500))
    tables = {
        "MatMulV2": [row("2,6144;6144,128", BF16, 1.0), row("2,6144;6144,32", BF16, 2.0)],
        "Cast": [
            row("2,128", "DT_BF16", 3.0, outputs="2,128", output_dtypes="FLOAT"),
            row("2,128", "FLOAT", 4.0, outputs="2,128", output_dtypes="DT_BF16"),
        ],
        "LayerNormV3": [row("2,128;128;128", "FLOAT;FLOAT;FLOAT", 5.0)],
        "AscendQuantV2": [row("2,2048;2048;2048", "DT_BF16;DT_BF16;DT_BF16", 6.0)],
        "QuantBatchMatmulV3": [qbmm_row(2, 2048, 4096, 7.0)],
        "ScatterNdUpdate": [scatter_row(2, 8.0)],
        "LightningIndexer": [indexer_row(2, 1766, 9.0, **lengths)],
    }
    time, spy = ask(write_database(tmp_path, tables, ENTRIES), dsa())
    assert [part.latency_us for part in time.leaves] == [1.0, 3.0, 5.0, 4.0, 2.0, 6.0, 7.0, 8.0, 9.0], str(time)
    assert time.latency_us == 45.0
    assert {part.source for part in time.leaves} == {TimeSource.MEASURED}
    assert DSA not in {leaf.name for leaf in spy.asked}


def dsa() -> LeafOp:
    """32 index heads of 128 over hidden 6144, q_lora 2048, INT8 query projection."""
    tensors: list[tuple[str, tuple[int, ...], str]] = [
        ("hidden", (1, 2, 6144), "bfloat16"),
        ("qa_normed", (1, 2, 2048), "bfloat16"),
        ("indexer_cache", (1766, 128, 128), "bfloat16"),
        ("block_table", (2, 64), "int32"),
        ("wq_b", (4096, 2048), "int8"),
        ("wk", (128, 6144), "bfloat16"),
        ("weights_proj", (32, 6144), "bfloat16"),
        ("k_norm", (128,), "bfloat16"),
    ]
    inputs = [TensorSpec(shape, dtype, role=role) for role, shape, dtype in tensors]
    sizes = {"num_heads": 32, "head_dim": 128, "topk_limit": 2048}
    return LeafOp.build(DSA, inputs, [((1, 2, 2048), "int64")], sizes, even(2, 1, 500))


def test_deepseek_v4_is_answered_by_the_row_that_answers_glm5(tmp_path: Path) -> None:
    path = folder(tmp_path, SPARSE, EXPAND)
    query = ((2, 8, 4, 512), "bf16")
    v4 = LeafOp.build(
        SPARSE_OP,
        [query, ((1766, 128, 1, 512), "bf16"), ((4,), "float32"), ((2, 8, 2048), "int32")],
        [query],
        {"head_dim": 512},
        even(2, 8, 3000),
    )
    direct, spy = ask(path, v4)
    child, _ = ask(path, glm5(2, 8))
    assert direct.leaves[0].latency_us == child.leaves[1].latency_us == 16.0
    assert spy.asked[0].inputs == child.leaves[1].leaf.inputs
    as_emitted, canonical = source(path).query(v4), source(path).query(canonical_leaf(v4))
    assert isinstance(as_emitted, QueryResult)
    assert isinstance(canonical, QueryResult)
    assert (as_emitted.latency_us, dict(as_emitted.details)) == (canonical.latency_us, dict(canonical.details))


def test_exact_lookup_and_interpolation_read_the_same_descriptor(tmp_path: Path) -> None:
    """The very leaf the base answered exactly is the one the wrapper interpolates when the row is gone."""
    children = canonical_leaves(glm5(2, 17), ParallelConfig())
    assert isinstance(children, tuple)
    expand = children[0]
    whole = folder(tmp_path / "whole", SPARSE, {34: 3.0})
    measured = base_source(whole).query(expand)
    assert isinstance(measured, QueryResult)
    assert measured.latency_us == 3.0
    gone = folder(tmp_path / "gone", SPARSE, {24: 2.0, 44: 5.0})
    assert isinstance(base_source(gone).query(expand), Miss)
    interpolated = source(gone).query(expand)
    assert isinstance(interpolated, QueryResult), str(interpolated)
    assert interpolated.latency_us == pytest.approx(3.5)  # 34 lies halfway


# --- nothing below decomposes or sums ---------------------------------------------------------------------------------

PACKAGE = Path(next(iter(database.__path__)))
UPSTREAM = (
    "tensor_cast.operators.composites",
    "tensor_cast.performance_model.empirical",
    "tensor_cast.performance_model.forward_time",
    "tensor_cast.performance_model.base",
    "tensor_cast.performance_model.base",
)
WHOLE_COMPOSITES = PACKAGE / "exact" / "composite.py"
CHILDREN = PACKAGE / "exact" / "children.py"


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path not in (WHOLE_COMPOSITES, CHILDREN))


def imported(path: Path) -> set[str]:
    """Every module a file imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_nothing_in_the_database_package_imports_what_decomposes_or_sums() -> None:
    found = {
        str(path.relative_to(PACKAGE)): sorted(name for name in imported(path) if name.startswith(UPSTREAM))
        for path in modules()
    }
    assert {path: names for path, names in found.items() if names} == {}
    assert any(name.startswith(UPSTREAM[0]) for name in imported(CHILDREN))


def test_the_wrapper_the_engine_and_the_paths_add_up_no_latencies() -> None:
    watched = [PACKAGE / "interpolating_data_source.py", PACKAGE / "engine.py", *(PACKAGE / "paths").glob("*.py")]
    assert len(watched) > 10
    assert {str(path.relative_to(PACKAGE)): _additions(path) for path in watched if _additions(path)} == {}
    assert _additions(WHOLE_COMPOSITES) == ["total((part.latency_us for _, part in parts))"]


def _additions(path: Path) -> list[str]:
    """Sums and additions over anything called latency."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        is_sum = isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "sum",
            "total",
            "math.fsum",
            "fsum",
            "np.sum",
        )
        is_addition = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Add)
        if (is_sum or is_addition) and "latency" in (text := ast.unparse(node)):
            found.append(text)
    return found
