"""Questions that have no target, no regime or no neighbours, each with the line after `no answer: `."""

from __future__ import annotations

from column_leaves import attend, linear
from refusals import (
    LINE,
    MM,
    MM_OP,
    NORM_OP,
    NUMEL,
    ONE_KERNEL,
    PRODUCTS,
    QUERY,
    RANKS,
    STRICT,
    TRIANGLE,
    Asked,
    added,
    collected,
    columns,
    decode,
    dense,
    fia_row,
    for_other_tokens,
    fp8_of_int8,
    indexed,
    indexer_without_output,
    mm_row,
    moe,
    no_output,
    norm,
    norm_leaf,
    parts,
    prefills,
    product,
    quantised,
    rounded,
    selected,
    sparse_parts,
    without_weights,
    written,
)
from specialized_rows import ADD_OP, SCATTER_OP, binary, dfc, dfc_row, even, indexer, indexer_row, qbmm, quant, sparse
from support import attention, mm, row
from tensor_cast import LeafOp, Requests
from tensor_cast.performance_model.profiling_database.data_source import MissReason as M

__all__ = ["CASES"]

CASES: tuple[tuple[M, Asked, str], ...] = (
    (
        M.TARGET_UNAVAILABLE,
        product(LeafOp.build(MM_OP, [((16, 64), "bf16"), ((65, 32), "bf16")])),
        "target_unavailable:MatMulV2; kernels MatMulV2; (16, 64) and (65, 32) are not two matrices that multiply",
    ),
    (
        M.TARGET_UNAVAILABLE,
        product(mm(40, 64, 32, "float64")),
        "target_unavailable:MatMulV2; kernels MatMulV2; the tables have no name for float64",
    ),
    (
        M.TARGET_UNAVAILABLE,
        quantised(no_output()),
        "target_unavailable:QuantBatchMatmulV3; kernels QuantBatchMatmulV3; give the output's shape and dtype",
    ),
    (
        M.TARGET_UNAVAILABLE,
        quantised(fp8_of_int8()),
        "target_unavailable:QuantBatchMatmulV3; kernels QuantBatchMatmulV3; tensor_cast.fp8_linear.default "
        "does not multiply INT8 by INT8",
    ),
    (
        M.TARGET_UNAVAILABLE,
        quantised(qbmm(16, 64, 32, weight=(65, 32))),
        "target_unavailable:QuantBatchMatmulV3; kernels QuantBatchMatmulV3; x (16, 64) and weight (65, 32) do"
        " not multiply",
    ),
    (
        M.TARGET_UNAVAILABLE,
        rounded(quant(16, 64, scales=[(3,)])),
        "target_unavailable:DynamicQuant; kernels DynamicQuant; x (16, 64) with outputs (16, 64), (3,): a "
        "scale holds one value, one for each row or one for each column",
    ),
    (
        M.TARGET_UNAVAILABLE,
        written(LeafOp.build(SCATTER_OP, [])),
        "target_unavailable:ScatterNdUpdate; kernels ScatterNdUpdate; give update, cache (blocks, block, D) and index",
    ),
    (
        M.TARGET_UNAVAILABLE,
        columns(linear(MM_OP, [16, 64], [64, 32], "bfloat16", kernel_source="c")),
        "target_unavailable:kernel_source; kernels Rows; kernel_source 'c' is not in the table; it holds a, b",
    ),
    (
        M.TARGET_UNAVAILABLE,
        Asked(mm(16, 64, 32), {**MM, "facts": {"family": "matmul"}}, {"MatMulV2": LINE}),
        "target_unavailable:MatMulV2; kernels MatMulV2; rows of MatMulV2.csv are tensors: facts.family needs "
        "tables.MatMulV2 in op_mapping.yaml",
    ),
    (
        M.COMPUTE_TARGET_UNAVAILABLE,
        norm(norm_leaf((40, 64), dtype="float64")),
        "compute_target_unavailable:RmsNorm; kernels RmsNorm; generic_compute_dtype_unavailable: the tables "
        "have no name for float64",
    ),
    (
        M.GENERIC_COMPUTE_DTYPE_UNAVAILABLE,
        norm(norm_leaf((40, 64), dtype="float64")),
        "compute_target_unavailable:RmsNorm; kernels RmsNorm; generic_compute_dtype_unavailable: the tables "
        "have no name for float64",
    ),
    (
        M.GENERIC_COMPUTE_INPUT_SHAPE_UNAVAILABLE,
        norm(LeafOp.build(NORM_OP, [])),
        "compute_target_unavailable:RmsNorm; kernels RmsNorm; generic_compute_input_shape_unavailable: give "
        "the input tensors",
    ),
    (
        M.GENERIC_COMPUTE_OUTPUT_SHAPE_UNAVAILABLE,
        norm(norm_leaf(), policy=NUMEL),
        "compute_target_unavailable:RmsNorm; kernels RmsNorm; generic_compute_output_shape_unavailable: "
        "generic_compute.axis output_numel in op_mapping.yaml needs the output's shape",
    ),
    (
        M.GENERIC_COMPUTE_OUTPUT_SHAPE_INVALID,
        norm(norm_leaf(()), policy=NUMEL),
        "compute_target_unavailable:RmsNorm; kernels RmsNorm; generic_compute_output_shape_invalid: "
        "generic_compute.axis output_numel in op_mapping.yaml needs an output with elements",
    ),
    (
        M.GENERIC_COMPUTE_OUTPUT_NUMEL_MULTI_OUTPUT_UNSUPPORTED,
        norm(norm_leaf((40, 64), (40, 64)), policy=NUMEL),
        "compute_target_unavailable:RmsNorm; kernels RmsNorm; "
        "generic_compute_output_numel_multi_output_unsupported: generic_compute.axis output_numel in "
        "op_mapping.yaml needs a single output",
    ),
    (
        M.SEMANTIC_FIELD_MISSING,
        selected(sparse(40, requests=Requests(block_table_shape=(2, 64)))),
        "semantic_field_missing:phase; kernels SparseFlashAttention; give query and KV lengths of the "
        "requests, or the phase",
    ),
    (
        M.SEMANTIC_FIELD_MISSING,
        selected(sparse_parts("query", "topk_indices")),
        "semantic_field_missing:cache; kernels SparseFlashAttention; give the cache (blocks, block, D)",
    ),
    (
        M.SEMANTIC_FIELD_MISSING,
        indexed(indexer(40, 1000, requests=even(2, 20, 3000))),
        "semantic_field_missing:actual_seq_lengths_kv_values; kernels LightningIndexer; the question gives "
        "request lengths, the rows record shapes only; the attribute grouping=shapes asks for these rows on "
        "purpose",
    ),
    (
        M.SEMANTIC_FIELD_MISSING,
        columns(mm(16, 64, 32), layout={**PRODUCTS, "regime": {"phase": "kernel"}}),
        "semantic_field_missing:phase; kernels Rows; give attrs.phase, or facts.phase of aten.mm.default in "
        "op_mapping.yaml",
    ),
    (
        M.REQUEST_LENGTHS_NOT_UNIFORM,
        dense(attention(4, 8, 128, [512, 512, 512, 600], query_lens=[1] * 4), setting=STRICT),
        "request_lengths_not_uniform:kv_lens; kernels FusedInferAttentionScore; kv_lens 512..600: ask once "
        "for each group of equal requests",
    ),
    (
        M.REQUEST_LENGTHS_NOT_UNIFORM,
        prefills(attend([41, 4096], [20, 21], [20, 21])),
        "request_lengths_not_uniform:query_lens; kernels Rows; query_lens 20..21: ask once for each group of "
        "equal requests",
    ),
    (
        M.PHASE_NOT_MEASURED,
        prefills(attend([4, 4096], [2, 2], [9, 9])),
        "phase_not_measured:mixed; kernels Rows; asked 2 new tokens on 7; measured are prefills without a "
        "cached prefix and decodes of one token per request",
    ),
    (
        M.KERNEL_VARIANT_AMBIGUOUS,
        columns(mm(128, 64, 32)),
        "kernel_variant_ambiguous; kernels Rows; asked M=128, K=64, N=32; give attrs.kernel_source, one of a, b",
    ),
    (
        M.ATTENTION_INDEX_UNAVAILABLE,
        dense(decode(), [row("4,8,128;64,128,1,128", "DT_BF16;DT_BF16", 5.0)]),
        "attention_index_unavailable:FusedInferAttentionScore; kernels FusedInferAttentionScore; "
        "FusedInferAttentionScore.csv has no column Runtime avg_seq_len",
    ),
    (
        M.ATTENTION_TARGET_UNAVAILABLE,
        dense(parts(QUERY, ("key", (64,)))),
        "attention_target_unavailable:FusedInferAttentionScore; kernels FusedInferAttentionScore; attention "
        "needs query, key and value, the key as (blocks, block, heads, head_dim)",
    ),
    (
        M.ELEMENTWISE_OUTPUT_UNAVAILABLE,
        added(LeafOp.build(ADD_OP, [((40, 64), "bf16"), ((40, 64), "bf16")])),
        "elementwise_output_unavailable; kernels Add; give the output's shape and dtype",
    ),
    (
        M.ELEMENTWISE_INPUT_SIGNATURE_UNAVAILABLE,
        added(binary((40, 64), (40, 64), (40, 64), "float64")),
        "elementwise_input_signature_unavailable; kernels Add; the tables have no name for float64",
    ),
    (
        M.MOE_FUSED_TARGET_UNEXTRACTABLE,
        moe(without_weights(), setting=RANKS),
        "moe_fused_target_unextractable; kernels DispatchFFNCombine; give gmm1_weight (7168, N) and "
        "gmm2_weight (N/2, 7168) of each expert",
    ),
    (
        M.MOE_FUSED_TARGET_UNEXTRACTABLE,
        moe(dfc(16, weight="float64"), setting=RANKS),
        "moe_fused_target_unextractable:w8a8; kernels DispatchFFNCombine; the tables have no name for float64",
    ),
    (
        M.TOPK_UNEXTRACTABLE,
        moe(for_other_tokens(), setting=RANKS),
        "topk_unextractable; kernels DispatchFFNCombine; give expert_indices (16, topk)",
    ),
    (
        M.TOPK_UNEXTRACTABLE,
        selected(sparse_parts("query", "kv")),
        "topk_unextractable; kernels SparseFlashAttention; give topk_indices (..., topk)",
    ),
    (
        M.TOPK_UNEXTRACTABLE,
        indexed(indexer_without_output()),
        "topk_unextractable; kernels LightningIndexer; give the output: its last dimension is top-k",
    ),
    (
        M.REGIME_KEY_UNMATCHED,
        indexed(indexer(40, 1000, topk=64)),
        "regime_key_unmatched; kernels LightningIndexer; asked tokens=40, cache_blocks=1000; nearest rows "
        "differ in topk (asked 64, measured 2048)",
    ),
    (
        M.REGIME_KEY_UNMATCHED,
        product(mm(40, 64, 32, "float32"), setting=STRICT),
        "regime_key_unmatched; kernels MatMulV2; asked M=40, K=64, N=32; nearest rows differ in input_dtypes "
        "(asked ('FLOAT', 'FLOAT'), measured ('DT_BF16', 'DT_BF16'))",
    ),
    (
        M.REGIME_KEY_UNMATCHED,
        moe(dfc(16), [dfc_row(16, 10.0, ep=None)], setting=RANKS),
        "regime_key_unmatched; kernels DispatchFFNCombine; asked tokens=16; no usable row in "
        "DispatchFFNCombine.csv: ep_size_missing 1",
    ),
    (
        M.REGIME_KEY_UNMATCHED,
        collected(2, dtype="DT_FP16", setting=STRICT),
        "regime_key_unmatched; kernels hcom_allReduce_; nearest rows differ in dtype (asked bfloat16, "
        "measured DT_FP16)",
    ),
    (
        M.AMBIGUOUS_DUPLICATE_COORDINATE,
        indexed(indexer(16, 1000), [indexer_row(16, 1000, 10.0), indexer_row(16, 1000, 20.0)]),
        "ambiguous_duplicate_coordinate; kernels LightningIndexer; asked tokens=16, cache_blocks=1000; "
        "LightningIndexer.csv:2,3 disagree in request metadata or latency, 10..20 us",
    ),
    (
        M.AMBIGUOUS_DUPLICATE_COORDINATE,
        columns(mm(16, 64, 32), ONE_KERNEL + "bfloat16,a,16,64,32,20\n"),
        "ambiguous_duplicate_coordinate; kernels Rows; asked M=16, K=64, N=32; repeats of table.csv:0 differ "
        "by a factor of 2",
    ),
    (
        M.MISSING_TARGET_AXIS,
        columns(mm(16, 64, 32), layout={**PRODUCTS, "axes": {"M": "m", "batch": "k"}}),
        "missing_target_axis:batch; kernels Rows; tables.Rows.axes in op_mapping.yaml: matmul knows M, K, N",
    ),
    (
        M.INTERPOLATION_DIM_DISABLED,
        product(mm(40, 64, 32), policy={"max_interpolation_dim": 0}),
        "interpolation_dim_disabled; kernels MatMulV2; asked M=40, K=64, N=32; measured M 16..64, K 64..64, N"
        " 32..32; interpolation_policy.kernel_overrides.MatMulV2.max_interpolation_dim is 0 in "
        "op_mapping.yaml",
    ),
    (
        M.INSUFFICIENT_FILTERED_CANDIDATES,
        product(mm(40, 64, 32), LINE[:1]),
        "insufficient_filtered_candidates; kernels MatMulV2; asked M=40, K=64, N=32; measured M 16..16, K "
        "64..64, N 32..32",
    ),
    (
        M.OUTSIDE_AXIS_BOUNDARY,
        product(mm(400, 64, 32)),
        "outside_axis_boundary; kernels MatMulV2; asked M=400, K=64, N=32; measured M 16..64; M measured at 16, 64",
    ),
    (
        M.OUTSIDE_AXIS_BOUNDARY,
        dense(decode(1024, 16), [fia_row(16, 1024, 1.0, 2), fia_row(16, 1024, 2.0, 4)]),
        "outside_axis_boundary; kernels FusedInferAttentionScore; asked q_tokens=16, seq=1024, heads=8, "
        "head_dim=128, batch=16; measured batch 2..4; batch measured at 2, 4",
    ),
    (
        M.BOUNDARY_POINT_MISSING,
        columns(mm(40, 200, 32), ONE_KERNEL, policy={"method": "bracket_blend"}),
        "boundary_point_missing; kernels Rows; asked M=40, K=200, N=32; measured M 16..64, K 64..256",
    ),
    (
        M.GRID_STRUCTURE_REJECTED,
        product(mm(40, 96, 32), [mm_row(16, 1.0, 64), mm_row(64, 2.0, 128)]),
        "grid_structure_rejected; kernels MatMulV2; asked M=40, K=96, N=32; measured M 16..64, K 64..128",
    ),
    (
        M.BEYOND_MEASURED_FRONTIER,
        product(mm(60, 240, 32), TRIANGLE, policy={"frontier_guard": True}),
        "beyond_measured_frontier; kernels MatMulV2; asked M=60, K=240, N=32; measured M 16..64, K 64..256",
    ),
    (
        M.KERNEL_VARIANT_CHANGES,
        columns(mm(40, 64, 32)),
        "kernel_variant_changes; kernels Rows; asked M=40, K=64, N=32; measured M 16..64; give "
        "attrs.kernel_source, one of a, b",
    ),
    (
        M.DEGENERATE_POINT_CLOUD,
        product(mm(40, 160, 32), [mm_row(16, 1.0, 64), mm_row(32, 2.0, 128), mm_row(64, 3.0, 256)]),
        "degenerate_point_cloud; kernels MatMulV2; asked M=40, K=160, N=32; measured M 16..64, K 64..256",
    ),
    (
        M.SCIPY_EXCEPTION,
        product(mm(10**14, 65, 32), [mm_row(1, 1.0, 64), mm_row(10**15, 2.0, 64), mm_row(1, 3.0, 66)]),
        "scipy_exception; kernels MatMulV2; asked M=1e+14, K=65, N=32; measured M 1..1e+15, K 64..66",
    ),
    (
        M.OUTSIDE_CONVEX_HULL,
        product(mm(60, 240, 32), TRIANGLE),
        "outside_convex_hull; kernels MatMulV2; asked M=60, K=240, N=32; measured M 16..64, K 64..256",
    ),
)
