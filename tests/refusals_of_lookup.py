"""Questions that the mapping, the tables or the exact lookup refuse, each with the line after `no answer: `."""

from __future__ import annotations

from column_leaves import attend, leaf, tensors
from refusals import (
    ABSORBED,
    EXACT,
    EXACT_STRICT,
    FIA,
    KEY,
    LFS,
    MM,
    MM_OP,
    QUERY,
    REDUCE,
    Asked,
    added,
    collected,
    columns,
    decode,
    dense,
    latent,
    moe,
    parts,
    prefills,
    product,
    quantised,
    reduced,
    roundings,
    selected,
)
from specialized_rows import QUANT_OP, binary, dfc, even, qbmm, sparse
from support import collective, mm
from tensor_cast import LeafOp
from tensor_cast.performance_model.profiling_database.data_source import MissReason as M

__all__ = ["CASES"]

CASES: tuple[tuple[M, Asked, str], ...] = (
    (
        M.UNMAPPED,
        product(LeafOp.build("aten.mn.default", []), operator=MM_OP, setting=EXACT),
        "unmapped:aten.mn.default (did you mean 'aten.mm.default'?)",
    ),
    (
        M.WRAPPER_UNMAPPED,
        product(LeafOp.build("aten.mn.default", []), operator=MM_OP),
        "wrapper_unmapped:aten.mn.default (did you mean 'aten.mm.default'?)",
    ),
    (
        M.WRAPPER_UNMAPPED,
        product(LeafOp.build("gelu", []), operator=MM_OP),
        "wrapper_unmapped:gelu; castq ops -d DB lists the operators it has",
    ),
    (
        M.KERNEL_TYPE_MISSING,
        Asked(mm(16, 64, 32), {"notes": "planned"}),
        "compute_kernel_type_missing:aten.mm.default; operator_mappings.aten.mm.default in op_mapping.yaml "
        "names no kernel_type",
    ),
    (
        M.KERNEL_TYPE_MISSING,
        Asked(mm(16, 64, 32), {"notes": "planned"}, setting=EXACT),
        "compute_kernel_type_missing:aten.mm.default; operator_mappings.aten.mm.default in op_mapping.yaml "
        "names no kernel_type",
    ),
    (
        M.QUERY_MODE_UNKNOWN,
        Asked(mm(16, 64, 32), {**MM, "query_mode": "elementwize"}),
        "query_mode_unknown:elementwize; query_mode 'elementwize' is none of attention_lightning_indexer, "
        "attention_sparse_sharedkv, attention_special, elementwise, moe_fused, scatter_nd_update_mla (did you"
        " mean 'elementwise'?)",
    ),
    (
        M.COMPUTE_SUBCATEGORY_UNKNOWN,
        Asked(mm(16, 64, 32), {**MM, "compute_subcategory": "quantised_matmul"}),
        "compute_subcategory_unknown:quantised_matmul; compute_subcategory 'quantised_matmul' is none of "
        "compute_scale, quantized_matmul (did you mean 'quantized_matmul'?)",
    ),
    (
        M.CSV_NOT_FOUND,
        Asked(decode(), {"kernel_type": FIA, "query_mode": "attention_special"}),
        "csv_not_found; kernels FusedInferAttentionScore; no file FusedInferAttentionScore.csv",
    ),
    (
        M.CSV_NOT_FOUND,
        Asked(mm(16, 64, 32), {**MM, "alternate_kernel_types": ["MatMulV3"]}, setting=EXACT),
        "csv_not_found; kernels MatMulV2, MatMulV3; no file MatMulV2.csv, MatMulV3.csv",
    ),
    (M.CSV_NOT_FOUND, collected(), "csv_not_found; kernels hcom_allReduce_; no file hcom_allReduce_.csv"),
    (M.CSV_NOT_FOUND, columns(mm(16, 64, 32), text=""), "csv_not_found; kernels Rows; no file table.csv"),
    (
        M.CSV_NOT_FOUND,
        columns(mm(16, 64, 32), text="m,k\n1,2\n"),
        "csv_not_found; kernels Rows; table unreadable: column 'n', 'quant', 'kernel', 'latency' is missing "
        "(table.csv)",
    ),
    (
        M.COMPUTE_CSV_NOT_FOUND,
        Asked(mm(16, 64, 32), {**MM, "alternate_kernel_types": ["MatMulV3"]}),
        "compute_csv_not_found; kernels MatMulV2, MatMulV3; no file MatMulV2.csv, MatMulV3.csv",
    ),
    (
        M.COMPUTE_CSV_NOT_FOUND,
        Asked(mm(16, 64, 32), MM, files={"MatMulV2.csv": LFS}),
        "compute_csv_not_found; kernels MatMulV2; table unreadable: Git-LFS pointer (MatMulV2.csv)",
    ),
    (
        M.CSV_FORMAT_RAW,
        Asked(collective("all_reduce", 512, (0, 1)), REDUCE, files={"hcom_allReduce_.csv": "size,Duration(us)\n1,2\n"}),
        "csv_format_raw; kernels hcom_allReduce_; table unreadable: column 'message_bytes' is missing "
        "(hcom_allReduce_.csv)",
    ),
    (
        M.SHAPE_MISMATCH,
        product(mm(40, 64, 32), setting=EXACT),
        "shape_mismatch; kernels MatMulV2; no row has inputs 40,64;64,32 of DT_BF16;DT_BF16",
    ),
    (
        M.SHAPE_MISMATCH,
        product(mm(16, 64, 32, "float64"), setting=EXACT),
        "shape_mismatch; kernels MatMulV2; the tables have no name for float64",
    ),
    (
        M.SHAPE_MISMATCH,
        quantised(qbmm(40, 64, 32), setting=EXACT_STRICT),
        "shape_mismatch; kernels QuantBatchMatmulV3; asked M=40, K=64, N=32; measured M 16..16, K 64..64, N "
        "32..32; no row at this very place",
    ),
    (
        M.SHAPE_MISMATCH,
        dense(decode(), setting=EXACT),
        "shape_mismatch; kernels FusedInferAttentionScore; asked q_tokens=4, seq=512, heads=8, head_dim=128; "
        "no row of DT_BF16 has this context within 16 tokens and the rest alike",
    ),
    (
        M.SHAPE_MISMATCH,
        dense(decode(), setting=EXACT_STRICT),
        "shape_mismatch; kernels FusedInferAttentionScore; asked q_tokens=4, seq=512, heads=8, head_dim=128; "
        "measured q_tokens 4..4, seq 1024..2048, heads 8..8, head_dim 128..128; no row at this very place",
    ),
    (
        M.SHAPE_MISMATCH,
        collected(2),
        "shape_mismatch; kernels hcom_allReduce_; asked message_bytes=1024; measured message_bytes 2048..4096",
    ),
    (
        M.SHAPE_MISMATCH,
        collected(8),
        "shape_mismatch; kernels hcom_allReduce_; asked message_bytes=1024; nearest rows differ in "
        "num_devices (asked 2, measured 8)",
    ),
    (
        M.INVALID_ARGS,
        collected(2, LeafOp.build("tensor_cast.all_reduce.default", [((512,), "bf16")])),
        "invalid_args; a collective needs a tensor and its rank_group",
    ),
    (
        M.INSUFFICIENT_ARGS,
        dense(parts(QUERY), setting=EXACT),
        "insufficient_args; attention needs query, key and value, the key as (blocks, block, heads, head_dim)",
    ),
    (M.QUERY_NOT_TENSOR, dense(parts(KEY), setting=EXACT), "query_not_tensor; give the tensor query"),
    (
        M.DTYPE_UNMAPPED,
        dense(decode(dtype="float64"), setting=EXACT),
        "dtype_unmapped:float64; the tables have no name for float64",
    ),
    (
        M.DTYPE_UNMAPPED,
        selected(sparse(40, dtype="float64", requests=even(2, 20, 3000))),
        "dtype_unmapped:float64; kernels SparseFlashAttention; the tables have no name for float64",
    ),
    (
        M.DTYPE_UNMAPPED,
        roundings(leaf(QUANT_OP, tensors(([16, 64], "bfloat16")), attrs={"out_dtype": "fpp8", "dims": -1})),
        "dtype_unmapped:out_dtype; kernels Rows; unknown dtype 'fpp8' (did you mean 'fp8'?); known: bfloat16,"
        " bool, complex128, complex32, complex64, float16, float32, float4, float4_e2m1fn_x2, float64, "
        "float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, int16, int32, int4, "
        "int64, int8, uint16, uint32, uint64, uint8",
    ),
    (
        M.Q_SHAPE_NORMALIZE_FAILED,
        dense(parts(("query", (4, 1000)), KEY), setting=EXACT),
        "q_shape_normalize_failed; query (4, 1000) does not divide into heads of 128, the last size of key "
        "(64, 128, 1, 128)",
    ),
    (
        M.MISSING_SEQ_LENS,
        dense(parts(QUERY, KEY, lengths=False), setting=EXACT),
        "missing_seq_lens; give the context length of each request (kv_lens)",
    ),
    (
        M.INVALID_SEQ_LENS,
        dense(parts(QUERY, KEY, ("seq_lens", (4,)), lengths=False), setting=EXACT),
        "invalid_seq_lens; seq_lens has no values (a meta tensor?)",
    ),
    (
        M.INVALID_SEQ_LENS,
        prefills(attend([4, 4096], [3, 3], [3, 3])),
        "invalid_seq_lens:query_lens; kernels Rows; 2 requests of 3 tokens are not the query's 4 tokens",
    ),
    (
        M.ELEMENTWISE_OUTPUT_SHAPE_MISMATCH,
        added(binary((40, 64), (40, 64), (40, 64)), setting=EXACT),
        "elementwise_output_shape_mismatch; kernels Add; no row has the output 40,64 of DT_BF16",
    ),
    (
        M.ELEMENTWISE_OUTPUT_SHAPE_MISMATCH,
        added(binary((40, 64), (40, 64), (40, 64)), {}, setting=EXACT),
        "elementwise_output_shape_mismatch; kernels Add; no file Add.csv",
    ),
    (
        M.EP_SIZE_NOT_CONFIGURED,
        moe(dfc(16)),
        "ep_size_not_configured; give --ep-size (ParallelConfig.expert_parallel_size), the ranks the experts lie on",
    ),
    (
        M.EP_SIZE_NOT_CONFIGURED,
        moe(dfc(16), setting=EXACT),
        "ep_size_not_configured; kernels DispatchFFNCombine; give --ep-size "
        "(ParallelConfig.expert_parallel_size), the ranks the experts lie on",
    ),
    (
        M.NO_SUB_KERNELS,
        Asked(mm(16, 64, 32), {"composite": True}),
        "no_sub_kernels; operator_mappings.aten.mm.default in op_mapping.yaml lists no sub_kernels",
    ),
    (
        M.DECOMPOSE_FAILED,
        latent(roles=("w_uv",)),
        "decompose_failed; give query (T, h, D), and w_uk_t and w_uv (h, ...) for a decode or kv_b_proj "
        "(lora, ...) and kv_cache for a prefill",
    ),
    (
        M.SUB_KERNEL_MISS,
        latent(ABSORBED, require_all_sub_kernels=True),
        "sub_kernel_miss:BatchMatMulV2,TransposeBatchMatMul; kernels BatchMatMulV2, TransposeBatchMatMul; "
        "BatchMatMulV2: no file BatchMatMulV2.csv, BatchMatMulNd.csv; TransposeBatchMatMul: no file "
        "TransposeBatchMatMul.csv",
    ),
    (
        M.SUB_KERNEL_MISS,
        latent(ABSORBED),
        "sub_kernel_miss:BatchMatMulV2,TransposeBatchMatMul; kernels BatchMatMulV2, TransposeBatchMatMul; "
        "BatchMatMulV2: no file BatchMatMulV2.csv, BatchMatMulNd.csv; TransposeBatchMatMul: no file "
        "TransposeBatchMatMul.csv; partial sum 9 us",
    ),
    (
        M.COMM_SUB_KERNEL_MISS,
        reduced(),
        "comm_sub_kernel_miss:hcom_allReduce_; kernels hcom_allReduce_; asked message_bytes=1024; measured "
        "message_bytes 2048..4096",
    ),
    (
        M.ATTENTION_SUB_KERNEL_MISS,
        latent(),
        "attention_sub_kernel_miss:FusedInferAttentionScore; kernels FusedInferAttentionScore; no file "
        "FusedInferAttentionScore.csv",
    ),
)
