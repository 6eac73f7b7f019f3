"""Where a latency comes from, and why there is none."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["MissReason", "QuerySource"]


class QuerySource(StrEnum):
    """Where a latency comes from.  EXTRAPOLATED exists for compatibility and is never produced."""

    MEASURED = "MEASURED"
    INTERPOLATED = "INTERPOLATED"
    EXTRAPOLATED = "EXTRAPOLATED"
    PARTIAL = "PARTIAL"


class MissReason(StrEnum):
    """Why the data cannot answer.  The texts are stable and machine readable."""

    # mapping and mode
    UNMAPPED = "unmapped"
    LOOKUP_MISS = "lookup_miss"
    KERNEL_TYPE_MISSING = "compute_kernel_type_missing"
    QUERY_MODE_UNKNOWN = "query_mode_unknown"
    COMPUTE_SUBCATEGORY_UNKNOWN = "compute_subcategory_unknown"
    WRAPPER_UNMAPPED = "wrapper_unmapped"
    WRAPPER_NOT_APPLICABLE = "wrapper_not_applicable"
    WRAPPER_COMMUNICATION_OWNED_BY_BASE = "wrapper_communication_owned_by_base"
    WRAPPER_COMPOSITE_OWNED_UPSTREAM = "wrapper_composite_owned_upstream"
    WRAPPER_INTERPOLATION_FAILED = "wrapper_interpolation_failed"
    # tables
    CSV_NOT_FOUND = "csv_not_found"
    CSV_FORMAT_RAW = "csv_format_raw"
    COMPUTE_CSV_NOT_FOUND = "compute_csv_not_found"
    # exact lookup
    SHAPE_MISMATCH = "shape_mismatch"
    INPUT_COUNT_MISMATCH = "input_count_mismatch"
    INVALID_ARGS = "invalid_args"
    INSUFFICIENT_ARGS = "insufficient_args"
    QUERY_NOT_TENSOR = "query_not_tensor"
    DTYPE_UNMAPPED = "dtype_unmapped"
    Q_SHAPE_NORMALIZE_FAILED = "q_shape_normalize_failed"
    MISSING_SEQ_LENS = "missing_seq_lens"
    INVALID_SEQ_LENS = "invalid_seq_lens"
    ELEMENTWISE_OUTPUT_SHAPE_MISMATCH = "elementwise_output_shape_mismatch"
    EP_SIZE_NOT_CONFIGURED = "ep_size_not_configured"
    NO_SUB_KERNELS = "no_sub_kernels"
    DECOMPOSE_FAILED = "decompose_failed"
    SUB_KERNEL_MISS = "sub_kernel_miss"
    COMM_SUB_KERNEL_MISS = "comm_sub_kernel_miss"
    ATTENTION_SUB_KERNEL_MISS = "attention_sub_kernel_miss"
    # targets
    TARGET_UNAVAILABLE = "target_unavailable"
    COMPUTE_TARGET_UNAVAILABLE = "compute_target_unavailable"
    SEMANTIC_FIELD_MISSING = "semantic_field_missing"
    REQUEST_LENGTHS_NOT_UNIFORM = "request_lengths_not_uniform"
    PHASE_NOT_MEASURED = "phase_not_measured"
    KERNEL_VARIANT_AMBIGUOUS = "kernel_variant_ambiguous"
    GENERIC_COMPUTE_OUTPUT_SHAPE_UNAVAILABLE = "generic_compute_output_shape_unavailable"
    GENERIC_COMPUTE_OUTPUT_NUMEL_MULTI_OUTPUT_UNSUPPORTED = "generic_compute_output_numel_multi_output_unsupported"
    GENERIC_COMPUTE_OUTPUT_SHAPE_INVALID = "generic_compute_output_shape_invalid"
    GENERIC_COMPUTE_INPUT_SHAPE_UNAVAILABLE = "generic_compute_input_shape_unavailable"
    GENERIC_COMPUTE_DTYPE_UNAVAILABLE = "generic_compute_dtype_unavailable"
    ATTENTION_INDEX_UNAVAILABLE = "attention_index_unavailable"
    ATTENTION_TARGET_UNAVAILABLE = "attention_target_unavailable"
    ATTENTION_SPARSE_MODE_UNKNOWN = "attention_sparse_mode_unknown"
    ATTENTION_INPUT_LAYOUT_UNAVAILABLE = "attention_input_layout_unavailable"
    ELEMENTWISE_OUTPUT_UNAVAILABLE = "elementwise_output_unavailable"
    ELEMENTWISE_INPUT_SIGNATURE_UNAVAILABLE = "elementwise_input_signature_unavailable"
    MOE_FUSED_TARGET_UNEXTRACTABLE = "moe_fused_target_unextractable"
    TOPK_UNEXTRACTABLE = "topk_unextractable"
    # regimes
    REGIME_KEY_UNMATCHED = "regime_key_unmatched"
    AMBIGUOUS_DUPLICATE_COORDINATE = "ambiguous_duplicate_coordinate"
    BATCH_AXIS_UNCONSTRAINED = "batch_axis_unconstrained"
    # geometry
    MISSING_TARGET_AXIS = "missing_target_axis"
    INTERPOLATION_DIM_DISABLED = "interpolation_dim_disabled"
    INSUFFICIENT_FILTERED_CANDIDATES = "insufficient_filtered_candidates"
    OUTSIDE_AXIS_BOUNDARY = "outside_axis_boundary"
    BOUNDARY_POINT_MISSING = "boundary_point_missing"
    GRID_STRUCTURE_REJECTED = "grid_structure_rejected"
    LATENCY_GUARD_REJECTED = "latency_guard_rejected"
    BEYOND_MEASURED_FRONTIER = "beyond_measured_frontier"
    KERNEL_VARIANT_CHANGES = "kernel_variant_changes"
    GRIDDATA_FAILED = "griddata_failed"
    SCIPY_UNAVAILABLE = "scipy_unavailable"
    INVALID_ARRAY_RANK = "invalid_array_rank"
    POINT_SHAPE_MISMATCH = "point_shape_mismatch"
    INSUFFICIENT_POINTS = "insufficient_points"
    NON_FINITE_INPUT = "non_finite_input"
    DEGENERATE_POINT_CLOUD = "degenerate_point_cloud"
    SCIPY_EXCEPTION = "scipy_exception"
    EMPTY_RESULT = "empty_result"
    OUTSIDE_CONVEX_HULL = "outside_convex_hull"
    # one per path, after every kernel and group failed
    CANDIDATE_GROUP_FAILED = "candidate_group_failed"
    COMPUTE_MULTIDIM_INTERPOLATION_FAILED = "compute_multidim_interpolation_failed"
    ATTENTION_CANDIDATE_GROUP_FAILED = "attention_candidate_group_failed"
