"""Composites as the base owns them: alternatives plus a collective, or decomposed children with a PARTIAL sum.

Source: docs/facts/exact-lookup.md, "Composites that the base sums".
"""

from __future__ import annotations

import math
from dataclasses import replace

from tensor_cast.arithmetic import total
from tensor_cast.dtypes import profile_dtype, stored_bytes
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import (
    Miss,
    MissReason,
    QueryResult,
    QuerySource,
    SubKernelShapeInfo,
)
from tensor_cast.performance_model.profiling_database.exact.attention import (
    AttentionParams,
    asked_cache_precision,
    average_context,
    lookup_attention,
)
from tensor_cast.performance_model.profiling_database.exact.children import SubKernel, decompose, is_decomposable, needs
from tensor_cast.performance_model.profiling_database.exact.communication import Message, lookup_message, rank_group
from tensor_cast.performance_model.profiling_database.exact.compute import lookup_compute
from tensor_cast.performance_model.profiling_database.exact.context import (
    ExactContext,
    dtypes_lacking,
    profile_dtypes,
)
from tensor_cast.performance_model.profiling_database.exact.low_precision import contradicts
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry

__all__ = ["lookup_composite"]

_QUANTISED_INPUT = ("int8", "uint8", "float8_e4m3fn", "float8_e5m2")


def lookup_composite(context: ExactContext, leaf: LeafOp, entry: OperatorEntry) -> QueryResult | Miss:
    """A registered decomposition wins over a static list of sub-kernels."""
    if is_decomposable(leaf.name):
        return _decomposed(context, leaf, entry)
    return _static(context, leaf, entry)


def _static(context: ExactContext, leaf: LeafOp, entry: OperatorEntry) -> QueryResult | Miss:
    if not entry.sub_kernels:
        hint = f"operator_mappings.{leaf.name} in op_mapping.yaml lists no sub_kernels"
        return Miss(MissReason.NO_SUB_KERNELS, details={"hint": hint})
    compute = tuple(name for name in entry.sub_kernels if not name.startswith("hcom_"))
    collectives = tuple(name for name in entry.sub_kernels if name.startswith("hcom_"))
    foreign = _foreign_operands(context, leaf)
    if foreign is not None:
        return foreign
    hit = lookup_compute(context, leaf, compute, entry.tc_input_count)
    if isinstance(hit, Miss):
        return hit
    parts = [(str(hit.details["kernel_type"]), hit)]
    for name in collectives:
        found = _collective(context, leaf, name)
        if isinstance(found, Miss):
            return replace(found, reason=MissReason.COMM_SUB_KERNEL_MISS, subject=name)
        parts.append((name, found))
    return _summed(parts, parts[0][0], 0.9 if collectives else 0.8, "compute kernel plus collectives")


def _foreign_operands(context: ExactContext, leaf: LeafOp) -> Miss | None:
    """Strict matching: the miss of a product whose matrices are not those that its operator multiplies."""
    names = profile_dtypes(leaf.tensor_dtypes[:2], context.strict) if context.strict else None
    if names is None or len(names) < 2 or not contradicts(leaf.name.replace("_all_reduce", ""), *names):
        return None
    hint = f"{leaf.name} does not multiply {names[0]} by {names[1]}"
    return Miss(MissReason.TARGET_UNAVAILABLE, leaf.name, {"hint": hint})


def _collective(context: ExactContext, leaf: LeafOp, kernel: str) -> QueryResult | Miss:
    group = rank_group(leaf)
    left, right = (*leaf.tensors, None, None)[:2]
    if group is None or left is None or right is None:
        return Miss(MissReason.INVALID_ARGS, details={"hint": "two matrices and a rank_group are needed"})
    width = 2.0 if left.dtype in _QUANTISED_INPUT else stored_bytes(left.dtype)
    if width is None:
        return Miss(MissReason.DTYPE_UNMAPPED, left.dtype, {"hint": f"the bytes of {left.dtype} are not known"})
    size = int(_products(left, right, packed="_int4" in leaf.name) * width)
    return lookup_message(context, kernel, Message(size, group, _summed_dtype(leaf, left), (left.shape, right.shape)))


def _products(left: TensorSpec, right: TensorSpec, *, packed: bool) -> int:
    """How many values a product of `(..., M, K)` and `(K, N)` or `(N, K)` has; packed weights hold two of K in one."""
    reduced = left.shape[-1]
    if right.rank < 2 or reduced == right.shape[-2] * (1 + packed):
        return math.prod(left.shape[:-1]) * right.shape[-1]
    return math.prod(left.shape[:-1]) * right.shape[-2]


def _summed_dtype(leaf: LeafOp, left: TensorSpec) -> str:
    """What the collective adds up: the product's output."""
    if leaf.outputs:
        return leaf.outputs[0].dtype
    return "bfloat16" if left.dtype in _QUANTISED_INPUT else left.dtype


def _decomposed(context: ExactContext, leaf: LeafOp, entry: OperatorEntry) -> QueryResult | Miss:
    children = decompose(leaf)
    if not children:
        return Miss(MissReason.DECOMPOSE_FAILED, details={"hint": f"give {needs(leaf.name)}"})
    hits: list[tuple[str, QueryResult]] = []
    missed: dict[str, str] = {}
    for part in children:
        found = _child(context, part, leaf.role("kv_cache"))
        if isinstance(found, QueryResult):
            hits.append((str(found.details["kernel_type"]), found))
        elif part.is_attention:
            return replace(found, reason=MissReason.ATTENTION_SUB_KERNEL_MISS, subject=part.kernels[0])
        else:
            missed[part.kernels[0]] = found.because
    if not missed:
        return _summed(hits, ",".join(name for name, _ in hits), 0.8, "decomposed sub-kernels")
    hint = "; ".join(f"{kernel}: {why}" for kernel, why in missed.items())
    miss = Miss(MissReason.SUB_KERNEL_MISS, ",".join(missed), {"attempted_kernel_types": list(missed), "hint": hint})
    if not hits or entry.require_all_sub_kernels:
        return miss
    partial = _summed(hits, ",".join(name for name, _ in hits), len(hits) / len(children), "partial sum")
    details: dict[str, object] = {
        **partial.details,
        "hit_kernels": [name for name, _ in hits],
        "missed_kernels": list(missed),
        "partial": True,
        "miss_reason": miss.code,
        "hint": hint,
    }
    return replace(partial, source=QuerySource.PARTIAL, details=details)


def _child(context: ExactContext, part: SubKernel, cache: TensorSpec | None) -> QueryResult | Miss:
    """A child's answer; attention in absorbed form reads the parent's cache, else keys of the query's dtype."""
    if not part.is_attention:
        return lookup_compute(context, part.leaf, part.kernels, part.input_count)
    query = part.leaf.inputs[0]
    dtype = profile_dtype(query.dtype)
    length = average_context(part.leaf)
    if dtype is None:
        return Miss(MissReason.DTYPE_UNMAPPED, query.dtype, {"hint": dtypes_lacking((query,))})
    if isinstance(length, Miss):
        return length
    tokens, heads, width = query.shape
    precision = asked_cache_precision(cache) if cache is not None and part.sparse_mode == 0 else None
    params = AttentionParams(
        tokens, heads, width, dtype, length, part.sparse_mode, part.num_kv_heads, kv_precision=precision
    )
    return lookup_attention(context, part.leaf, part.kernels, params)


def _summed(parts: list[tuple[str, QueryResult]], kernel: str, confidence: float, note: str) -> QueryResult:
    details: dict[str, object] = {
        "kernel_type": kernel,
        "sub_kernel_durations": [(name, part.latency_us) for name, part in parts],
        "composite": True,
        "exact_match": parts[0][1].details.get("exact_match", "compatible"),
        "note": note,
        "matched_row_meta": [row for _, part in parts for row in part.details.get("matched_row_meta", ())],
    }
    synthetic = next((part.details["synthetic"] for _, part in parts if "synthetic" in part.details), None)
    if synthetic is not None:
        details["synthetic"] = synthetic
    shapes = tuple(
        SubKernelShapeInfo(name, info.simulation_shapes, info.kernel_shapes, info.shape_match_rule)
        for name, part in parts
        if (info := part.shape_match_info) is not None
    )
    latency = total(part.latency_us for _, part in parts)
    return QueryResult(latency, confidence, QuerySource.MEASURED, details, None, shapes)
