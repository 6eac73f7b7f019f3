"""Rows and leaves of the specialised operators, one pair of builders per kernel, for the interpolation tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from support import Row, miss, row, source, write_database
from tensor_cast import InterpolatingDataSource, LeafOp, Miss, QueryResult, Requests

DFC, DFC_OP = "DispatchFFNCombine", "tensor_cast.dispatch_ffn_combine_quant.default"
INDEXER, INDEXER_OP = "LightningIndexer", "tensor_cast.quant_lightning_indexer.default"
SPARSE, SPARSE_OP = "SparseFlashAttention", "tensor_cast.sparse_attn_sharedkv.default"
QUANT, QUANT_OP = "DynamicQuant", "tensor_cast.dynamic_quantize_symmetric.default"
QBMM, QBMM_OP = "QuantBatchMatmulV3", "tensor_cast.static_quant_linear.default"
SCATTER, SCATTER_OP = "ScatterNdUpdate", "tensor_cast.scatter_nd_update_mla.default"
ADD, ADD_OP = "Add", "aten.add.Tensor"

DFC_ENTRY = {"kernel_type": DFC, "query_mode": "moe_fused", "tc_input_count": 1}
INDEXER_ENTRY = {"kernel_type": INDEXER, "query_mode": "attention_lightning_indexer"}
SPARSE_ENTRY = {"kernel_type": SPARSE, "query_mode": "attention_sparse_sharedkv"}
QUANT_ENTRY = {"kernel_type": QUANT, "compute_subcategory": "compute_scale"}
QBMM_ENTRY = {"kernel_type": QBMM, "compute_subcategory": "quantized_matmul", "tc_input_count": 2}
SCATTER_ENTRY = {
    "kernel_type": SCATTER,
    "alternate_kernel_types": ["ScatterNdUpdateAiCore"],
    "query_mode": "scatter_nd_update_mla",
}
ADD_ENTRY = {"kernel_type": ADD, "alternate_kernel_types": ["AddAiCore"], "query_mode": "elementwise"}

ENTRIES: dict[str, Mapping[str, Any]] = {
    DFC_OP: DFC_ENTRY,
    INDEXER_OP: INDEXER_ENTRY,
    SPARSE_OP: SPARSE_ENTRY,
    QUANT_OP: QUANT_ENTRY,
    QBMM_OP: QBMM_ENTRY,
    SCATTER_OP: SCATTER_ENTRY,
    ADD_OP: ADD_ENTRY,
}

Tensor = tuple[tuple[int, ...], str]


def data(
    folder: Path,
    tables: Mapping[str, Sequence[Row]],
    entries: Mapping[str, Mapping[str, Any]] | None = None,
    policies: Mapping[str, Mapping[str, Any]] | None = None,
    **parallel: Any,
) -> InterpolatingDataSource:
    """A source over these tables; the entries default to one per specialised operator, the EP size to 16."""
    layout = {"expert_parallel_size": 16, **parallel}
    return source(write_database(folder, tables, {**ENTRIES, **(entries or {})}, policies), **layout)


def differs_in(answer: QueryResult | Miss, attempt: int = 0) -> list[str]:
    """The regime fields in which the nearest rows differ from the target, sorted."""
    found = miss(answer)
    assert found.code == "regime_key_unmatched", str(found)
    return sorted(found.details["attempts"][attempt]["nearest_regime_differs_in"])


def rejected(answer: QueryResult | Miss, attempt: int = 0) -> dict[str, int]:
    """Rejected rows by reason, as the miss reports them."""
    counts: dict[str, int] = miss(answer).details["attempts"][attempt]["rejected_rows"]
    return counts


def _joined(shapes: Iterable[Sequence[int]]) -> str:
    return ";".join(",".join(str(dim) for dim in shape) for shape in shapes)


# --- DispatchFFNCombine ---------------------------------------------------------------------------------------------


def dfc_row(
    tokens: int,
    latency: float | str | None,
    *,
    x: Sequence[int] | None = None,
    gmm1: Sequence[int] = (16, 7168, 4096),
    gmm2: Sequence[int] = (16, 2048, 7168),
    topk: int = 4,
    ep: object = 16,
    activation: str = "DT_BF16",
    weight: str = "INT8",
    formats: str = "ND;FRACTAL_NZ;FRACTAL_NZ;ND;ND;ND;ND",
    **columns: Any,
) -> dict[str, Any]:
    """Seven inputs: activation, both stacked weights, expert ids, two scales, routing probabilities."""
    shapes = (x or (1, tokens, 7168), gmm1, gmm2, (tokens, topk), (65536,), (114688,), (tokens, topk))
    dtypes = f"{activation};{weight};{weight};INT32;INT64;INT64;FLOAT"
    extra = columns if ep is None else {"EP Size": ep, **columns}
    return row(_joined(shapes), dtypes, latency, formats=formats, **extra)


def dfc(
    tokens: int,
    operator: str = DFC_OP,
    *,
    x: Tensor | None = None,
    topk: int = 4,
    weight: str = "int8",
    gmm1: tuple[int, ...] = (7168, 4096),
    gmm2: tuple[int, ...] = (2048, 7168),
    experts: int = 16,
) -> LeafOp:
    """One weight matrix per local expert; expert ids are int64 as the simulator emits them."""
    weights: list[Tensor] = [*[(gmm1, weight)] * experts, *[(gmm2, weight)] * experts]
    return LeafOp.build(operator, [x or ((tokens, 7168), "bf16"), ((tokens, topk), "int64"), *weights])


# --- elementwise ----------------------------------------------------------------------------------------------------


def binary_row(
    left: Sequence[int],
    right: Sequence[int],
    output: Sequence[int],
    latency: float | str | None,
    dtype: str = "DT_BF16",
    **columns: Any,
) -> dict[str, Any]:
    dtypes = f"{dtype};{dtype}"
    return row(_joined((left, right)), dtypes, latency, outputs=_joined((output,)), output_dtypes=dtype, **columns)


def binary(
    left: tuple[int, ...],
    right: tuple[int, ...] | None,
    output: tuple[int, ...],
    dtype: str = "bf16",
    operator: str = ADD_OP,
) -> LeafOp:
    """`right` is None for a Python scalar."""
    inputs = [(left, dtype)] if right is None else [(left, dtype), (right, dtype)]
    return LeafOp.build(operator, inputs, [(output, dtype)])


# --- attention over selected keys -----------------------------------------------------------------------------------


def request_columns(query_lens: Sequence[int], kv_lens: Sequence[int]) -> dict[str, Any]:
    """The runtime columns of a completely recorded row: query lengths are cumulative."""
    return {
        "Runtime actual_seq_lengths_values": ",".join(str(total) for total in accumulate(query_lens)),
        "Runtime actual_seq_lengths_kv_values": ",".join(str(length) for length in kv_lens),
        "Runtime metadata_completeness": "complete",
    }


def indexer_row(
    tokens: int,
    blocks: int,
    latency: float | str | None,
    *,
    heads: int = 32,
    head_dim: int = 128,
    tail: Sequence[int] = (128, 1, 128),
    topk: int = 2048,
    requests: int = 2,
    width: int = 64,
    dtypes: str = "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32",
    **columns: Any,
) -> dict[str, Any]:
    shapes = (
        (tokens, heads, head_dim),
        (blocks, *tail),
        (tokens, heads),
        (requests,),
        (requests,),
        (requests, width),
    )
    outputs = _joined(((tokens, 1, topk), (tokens, 1, topk)))
    return row(_joined(shapes), dtypes, latency, outputs=outputs, output_dtypes="INT32;DT_BF16", **columns)


def indexer(
    tokens: int,
    blocks: int,
    *,
    heads: int = 32,
    head_dim: int = 128,
    topk: int = 2048,
    query: tuple[int, ...] | None = None,
    cache: tuple[int, ...] | None = None,
    dtype: str = "bf16",
    requests: Requests | None = None,
) -> LeafOp:
    """The quant operator's order: query, weights, cache."""
    shape = query or (tokens, heads, head_dim)
    inputs = [(shape, dtype), (shape[:-1], dtype), (cache or (blocks, 128, 128), dtype)]
    asked = requests or Requests(block_table_shape=(2, 64))
    return LeafOp.build(INDEXER_OP, inputs, [((*shape[:-2], topk), "int64")], requests=asked)


def sparse_row(
    tokens: int,
    latency: float | str | None,
    *,
    heads: int = 4,
    head_dim: int = 512,
    cache: Sequence[int] = (1766, 128, 1, 512),
    topk: int = 2048,
    requests: int = 2,
    width: int = 64,
    dtypes: str = "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32;INT32;DT_BF16;DT_BF16",
    **columns: Any,
) -> dict[str, Any]:
    shapes = (
        (tokens, heads, head_dim),
        cache,
        cache,
        (tokens, 1, topk),
        (requests, width),
        (requests,),
        (requests,),
        (tokens, heads, 64),
        (*cache[:-1], 64),
    )
    outputs = _joined(((tokens, heads, head_dim),))
    return row(_joined(shapes), dtypes, latency, outputs=outputs, output_dtypes="DT_BF16", **columns)


def sparse(
    tokens: int,
    *,
    heads: int = 4,
    head_dim: int = 512,
    cache: tuple[int, ...] = (1766, 128, 512),
    topk: int = 2048,
    query: tuple[int, ...] | None = None,
    dtype: str = "bf16",
    requests: Requests | None = None,
    fresh: tuple[int, ...] | None = None,
) -> LeafOp:
    """With `fresh` keys and values the cache is the dependency argument, as in prefill."""
    shape = query or (tokens, heads, head_dim)
    inputs: list[Any] = [(shape, dtype), (fresh or cache, dtype), ((heads,), "float32")]
    inputs.append(((*shape[:-2], topk), "int32"))
    if fresh is not None:
        inputs.append((cache, dtype))
    return LeafOp.build(SPARSE_OP, inputs, [(shape, dtype)], requests=requests)


def even(count: int, query: int, context: int, width: int = 64) -> Requests:
    """`count` requests of `query` new tokens each on `context` tokens."""
    return Requests((query,) * count, (context,) * count, block_table_shape=(count, width))


# --- quantisation and cache -----------------------------------------------------------------------------------------


def quant_row(
    m: int,
    k: int,
    latency: float | str | None,
    *,
    dtype: str = "DT_BF16",
    scales: Sequence[str] | None = None,
    output_dtypes: str | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """Per-token scale by default; `scales` are the shapes of the auxiliary outputs as text."""
    auxiliary = (str(m),) if scales is None else tuple(scales)
    names = output_dtypes or ";".join(("INT8", "FLOAT", "INT32")[: 1 + len(auxiliary)])
    outputs = ";".join((f"{m},{k}", *auxiliary))
    return row(f"{m},{k}", dtype, latency, outputs=outputs, output_dtypes=names, **columns)


def quant(
    m: int,
    k: int,
    *,
    x: tuple[int, ...] | None = None,
    dtype: str = "bf16",
    scales: Sequence[tuple[int, ...]] | None = None,
    output_dtypes: Sequence[str] = ("int8", "float32", "int32"),
    operator: str = QUANT_OP,
) -> LeafOp:
    shape = (m, k) if x is None else x
    auxiliary = ((m, 1),) if scales is None else tuple(scales)
    outputs = list(zip((shape, *auxiliary), output_dtypes, strict=False))
    return LeafOp.build(operator, [(shape, dtype)], outputs)


def qbmm_row(
    m: int,
    k: int,
    n: int,
    latency: float | str | None,
    *,
    tiled: bool = False,
    dtypes: str = "INT8;INT8;DT_BF16;INT32",
    output_dtype: str = "DT_BF16",
    **columns: Any,
) -> dict[str, Any]:
    """Activation, weight (K, N) or tiled FRACTAL_NZ, scale, bias; only the first two are compared."""
    weight = (n // 32, k // 16, 16, 32) if tiled else (k, n)
    formats = "ND;FRACTAL_NZ;ND;ND" if tiled else "ND;ND;ND;ND"
    columns = {"outputs": f"{m},{n}", "output_dtypes": output_dtype, "formats": formats, **columns}
    return row(_joined(((m, k), weight, (n,), (n,))), dtypes, latency, **columns)


def qbmm(
    m: int,
    k: int,
    n: int,
    *,
    operator: str = QBMM_OP,
    dtype: str = "int8",
    weight: tuple[int, ...] | None = None,
    output_dtype: str = "bf16",
) -> LeafOp:
    inputs = [((m, k), dtype), (weight or (k, n), dtype), ((n,), "float32")]
    return LeafOp.build(operator, inputs, [((m, n), output_dtype)])


def scatter_row(
    tokens: int,
    latency: float | str | None,
    *,
    cache: Sequence[int] = (226048, 128),
    dtypes: str = "DT_BF16;INT32;DT_BF16",
    tail: int = 128,
    **columns: Any,
) -> dict[str, Any]:
    """Row order: cache, index, update."""
    return row(_joined((cache, (tokens, 1), (tokens, tail))), dtypes, latency, outputs=_joined((cache,)), **columns)


def scatter(
    tokens: int,
    *,
    cache: tuple[int, ...] = (226048, 128),
    update: tuple[int, ...] | None = None,
    dtype: str = "bf16",
    index: str = "int64",
) -> LeafOp:
    """Operator order: update, cache, index."""
    inputs = [(update or (tokens, cache[-1]), dtype), (cache, dtype), ((tokens,), index)]
    return LeafOp.build(SCATTER_OP, inputs, [(cache, dtype)])
