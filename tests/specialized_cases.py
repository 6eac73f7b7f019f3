"""One case per specialised path: rows and leaves along its first axis, and what its answers must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from specialized_rows import (
    ADD,
    ADD_OP,
    DFC,
    DFC_OP,
    INDEXER,
    INDEXER_OP,
    QBMM,
    QBMM_OP,
    QUANT,
    QUANT_OP,
    SCATTER,
    SCATTER_OP,
    SPARSE,
    SPARSE_OP,
    binary,
    binary_row,
    dfc,
    dfc_row,
    even,
    indexer,
    indexer_row,
    qbmm,
    qbmm_row,
    quant,
    quant_row,
    request_columns,
    scatter,
    scatter_row,
    sparse,
    sparse_row,
)
from tensor_cast import LeafOp

Built = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One path: rows and leaves at a coordinate of its first axis, and what its answers must say."""

    kernel: str
    operator: str
    axis: str
    row: Callable[..., Built]
    leaf: Callable[[int], LeafOp]
    path: str
    owned: bool
    selector: dict[str, str]
    shown: dict[str, Any]
    row_of_other_regime: Callable[..., Built]
    fields: list[str] = field(default_factory=list)


def sum_row(tokens: int, latency: Any, width: tuple[int, ...] | None = None, **columns: Any) -> Built:
    shape = (tokens, 64)
    return binary_row(shape, width or shape, shape, latency, **columns)


def recorded_sparse_row(tokens: int, latency: Any, context: int = 3000, **columns: Any) -> Built:
    return sparse_row(tokens, latency, **request_columns((tokens // 2,) * 2, (context,) * 2), **columns)


CASES = {
    "dispatch_ffn_combine": Case(
        DFC,
        DFC_OP,
        "tokens",
        dfc_row,
        dfc,
        "moe_fused",
        True,
        {"query_mode": "moe_fused"},
        {"ep_size": 16, "quant_subtype": "w8a8"},
        lambda at, latency: dfc_row(at, latency, ep=8),
        ["ep_size"],
    ),
    "elementwise": Case(
        ADD,
        ADD_OP,
        "axis_0",
        sum_row,
        lambda at: binary((at, 64), (at, 64), (at, 64)),
        "elementwise",
        True,
        {"query_mode": "elementwise"},
        {},
        lambda at, latency: sum_row(at, latency, width=(64,)),
        ["broadcast_pattern"],
    ),
    "lightning_indexer": Case(
        INDEXER,
        INDEXER_OP,
        "tokens",
        lambda at, latency, **columns: indexer_row(at, 1000, latency, **columns),
        lambda at: indexer(at, 1000),
        "lightning_indexer",
        False,
        {"query_mode": "attention_lightning_indexer"},
        {"topk": 2048, "grouping_source": "shapes"},
        lambda at, latency: indexer_row(at, 1000, latency, topk=1024),
        ["topk"],
    ),
    "sparse_flash_attention": Case(
        SPARSE,
        SPARSE_OP,
        "tokens",
        recorded_sparse_row,
        lambda at: sparse(at, requests=even(2, at // 2, 3000)),
        "sparse_attention",
        False,
        {"query_mode": "attention_sparse_sharedkv"},
        {"phase": "mixed", "topk": 2048, "grouping_source": "runtime_values"},
        lambda at, latency: recorded_sparse_row(at, latency, context=9000),
        ["request_values"],
    ),
    "dynamic_quant": Case(
        QUANT,
        QUANT_OP,
        "M",
        lambda at, latency, **columns: quant_row(at, 64, latency, **columns),
        lambda at: quant(at, 64),
        "compute_scale",
        True,
        {"compute_subcategory": "compute_scale"},
        {"scale_mode": "per_token"},
        lambda at, latency: quant_row(at, 64, latency, scales=("()",)),
        ["auxiliary_modes", "scale_mode"],
    ),
    "quantized_matmul": Case(
        QBMM,
        QBMM_OP,
        "M",
        lambda at, latency, **columns: qbmm_row(at, 64, 128, latency, **columns),
        lambda at: qbmm(at, 64, 128),
        "quantized_matmul",
        True,
        {"compute_subcategory": "quantized_matmul"},
        {"packed": "none"},
        lambda at, latency: qbmm_row(at, 64, 128, latency, output_dtype="FLOAT"),
        ["output_dtypes"],
    ),
    "cache_update": Case(
        SCATTER,
        SCATTER_OP,
        "tokens",
        scatter_row,
        scatter,
        "scatter_nd_update_mla",
        False,
        {"query_mode": "scatter_nd_update_mla"},
        {},
        lambda at, latency: scatter_row(at, latency, cache=(1280, 128)),
        ["cache_shape"],
    ),
}
