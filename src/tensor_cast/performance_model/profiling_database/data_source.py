"""What a question to the database is answered with: a result with its source, or a miss with its reason."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import starmap
from typing import Any, Final, Protocol

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.records import OperatorRecord

__all__ = [
    "DataSourcePerformanceModel",
    "Miss",
    "MissReason",
    "QueryResult",
    "QuerySource",
    "ShapeMatchInfo",
    "SubKernelShapeInfo",
    "jsonable",
]

_MANY_VALUES: Final = 12


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


@dataclass(frozen=True, slots=True)
class ShapeMatchInfo:
    """Which shapes were asked for, which the row holds (lists of lists), and the rule that joined them."""

    simulation_shapes: Sequence[Sequence[int]] = field(hash=False)
    kernel_shapes: Sequence[Sequence[float]] = field(hash=False)
    shape_match_rule: str

    def __post_init__(self) -> None:
        _listed(self)


@dataclass(frozen=True, slots=True)
class SubKernelShapeInfo:
    """`ShapeMatchInfo` of one child kernel of a composite."""

    kernel_type: str
    simulation_shapes: Sequence[Sequence[int]] = field(hash=False)
    kernel_shapes: Sequence[Sequence[float]] = field(hash=False)
    shape_match_rule: str

    def __post_init__(self) -> None:
        _listed(self)


def _listed(info: ShapeMatchInfo | SubKernelShapeInfo) -> None:
    """Shapes as lists, as users of this class read and serialise them."""
    for name in ("simulation_shapes", "kernel_shapes"):
        object.__setattr__(info, name, [list(shape) for shape in getattr(info, name)])


class Evidence(Protocol):
    """What an answer rests on, put together when somebody reads it: most answers are used for their latency alone."""

    def details(self) -> Mapping[str, Any]: ...

    def info(self) -> ShapeMatchInfo: ...


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A latency in microseconds with its source; `details`, a plain dictionary, say which rows it rests on.

    Survives `json` (the details), `pickle` and `copy`; equal results hash equal.
    """

    latency_us: float
    confidence: float
    source: QuerySource
    details: dict[str, Any] = field(default_factory=dict, hash=False)
    shape_match_info: ShapeMatchInfo | None = field(default=None, hash=False)
    sub_kernel_shapes: tuple[SubKernelShapeInfo, ...] | None = field(default=None, hash=False)
    _evidence: Evidence | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def later(cls, latency_us: float, confidence: float, source: QuerySource, evidence: Evidence) -> QueryResult:
        """A result whose details and shapes are read from the evidence the first time they are asked for.

        One object beside the result: with more, the collector's walks cost more than the answers.
        """
        made = cls.__new__(cls)
        put = object.__setattr__
        put(made, "latency_us", latency_us)
        put(made, "confidence", confidence)
        put(made, "source", source)
        put(made, "sub_kernel_shapes", None)
        put(made, "_evidence", evidence)
        return made

    def __getattr__(self, name: str) -> Any:
        if name not in ("details", "shape_match_info"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        evidence = object.__getattribute__(self, "_evidence")
        value = jsonable(evidence.details()) if name == "details" else evidence.info()
        object.__setattr__(self, name, value)
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.latency_us, self.confidence, self.source, self.details, self.shape_match_info)
        return type(self), (*values, self.sub_kernel_shapes)

    def shape_debug_statistics(self) -> dict[str, str]:
        """The shapes behind the answer as text, for trace events."""
        if self.sub_kernel_shapes is not None:
            children = [
                {
                    "kernel_type": child.kernel_type,
                    "simulation_shapes": str([list(shape) for shape in child.simulation_shapes]),
                    "kernel_shapes": str([list(shape) for shape in child.kernel_shapes]),
                    "shape_match_rule": child.shape_match_rule,
                }
                for child in self.sub_kernel_shapes
            ]
            return {"sub_kernel_shapes": json.dumps(children)}
        if self.shape_match_info is not None:
            shapes = [list(shape) for shape in self.shape_match_info.kernel_shapes]
            return {
                "kernel_shapes": str(shapes) if shapes else "",
                "shape_match_rule": self.shape_match_info.shape_match_rule,
            }
        return {}

    def __str__(self) -> str:
        """One line: the latency, its source and the evidence."""
        parts = [f"{self.latency_us:.6g} us", str(self.source)]
        details = self.details
        if kernel := details.get("kernel_type"):
            parts.append(f"kernel {kernel}")
        if method := details.get("method"):
            axes = ", ".join(str(axis) for axis in details.get("axes", ()))
            parts.append(f"{method}({axes})" if axes else str(method))
        if rows := details.get("matched_row_meta"):
            parts.append("rows " + _row_names(rows))
        if merged := [row for row in rows or () if row.get("duplicate_count", 1) > 1]:
            parts.append("repeats " + ", ".join(_spread(row) for row in merged))
        if inexact := details.get("inexact_match"):
            parts.append(f"matched by {inexact['rule']}: {', '.join(inexact['changes'])}")
        if details.get("exact_match") == "strict":
            parts.append("strict matching")
        if suspect := details.get("suspect_row"):
            parts.append("suspect_row " + ", ".join(suspect))
        if note := details.get("note"):
            parts.append(str(note))
        if "synthetic" in details:
            parts.append("SYNTHETIC data")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The same facts as plain JSON values."""
        document: dict[str, Any] = {
            "latency_us": self.latency_us,
            "confidence": self.confidence,
            "source": str(self.source),
            "details": jsonable(self.details),
        }
        if self.shape_match_info is not None:
            document["shape_match"] = jsonable(self.shape_match_info)
        if self.sub_kernel_shapes is not None:
            document["sub_kernel_shapes"] = jsonable(self.sub_kernel_shapes)
        return document


def _spread(row: Mapping[str, Any]) -> str:
    """`2 of 186.48..415.45`: how many repeats were merged, and between which latencies."""
    return f"{row['duplicate_count']} of {row['duplicate_latency_min_us']:g}..{row['duplicate_latency_max_us']:g} us"


def _row_names(rows: Iterable[Mapping[str, Any]]) -> str:
    """`file:row,row` for each file."""
    by_file: dict[str, list[str]] = {}
    for row in rows:
        by_file.setdefault(str(row.get("file", "?")), []).append(str(row.get("line", row.get("row", "?"))))
    return "; ".join(f"{file}:{','.join(numbers)}" for file, numbers in by_file.items())


def _difference(name: str, pair: Mapping[str, Any]) -> str:
    """One field in which the nearest rows differ, with what they hold instead."""
    values = pair.get("measured_values", [pair["measured"]])
    more = f" and {len(values) - _MANY_VALUES} more" if len(values) > _MANY_VALUES else ""
    return f"{name} (asked {pair['asked']}, measured {', '.join(map(str, values[:_MANY_VALUES]))}{more})"


@dataclass(frozen=True, slots=True)
class Miss:
    """Why there is no answer.  `subject` names the kernel or field the reason speaks of."""

    reason: MissReason
    subject: str = ""
    details: dict[str, Any] = field(default_factory=dict, hash=False)
    partial: QueryResult | None = None

    @property
    def code(self) -> str:
        """`reason` or `reason:subject`."""
        return f"{self.reason}:{self.subject}" if self.subject else str(self.reason)

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        """One line: the reason, where the target lies and what was measured there."""
        parts = [f"no answer: {self.code}"]
        if kernels := self.details.get("attempted_kernel_types"):
            parts.append("kernels " + ", ".join(kernels))
        if unreadable := self.details.get("unreadable_tables"):
            parts.append("table unreadable: " + ", ".join(unreadable))
        if target := self.details.get("target_axes"):
            parts.append("asked " + ", ".join(f"{k}={v:g}" for k, v in target.items()))
        if measured := self.details.get("measured_range"):
            spans = (f"{axis} {low:g}..{high:g}" for axis, (low, high) in measured.items())
            parts.append("measured " + ", ".join(spans))
        for axis, values in self.details.get("measured_values", {}).items():
            parts.append(f"{axis} measured at " + ", ".join(f"{value:g}" for value in values))
        if differs := self.details.get("regime_differs_in"):
            parts.append("nearest rows differ in " + ", ".join(starmap(_difference, differs.items())))
        if hint := self.details.get("hint"):
            parts.append(str(hint))
        if self.partial is not None:
            parts.append(f"partial sum {self.partial.latency_us:.6g} us")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The same facts as plain JSON values."""
        document: dict[str, Any] = {
            "latency_us": None,
            "reason": str(self.reason),
            "code": self.code,
            "details": jsonable(self.details),
        }
        if self.partial is not None:
            document["partial"] = self.partial.to_json()
        return document


class DataSourcePerformanceModel(ABC):
    """A read-only source of operator latencies; a source of one's own needs `lookup` only."""

    @property
    def last_miss_reason(self) -> str:
        """Why this thread's last `lookup` answered None; read it only after a None or a PARTIAL."""
        return ""

    def query(self, op: LeafOp | OperatorRecord) -> QueryResult | Miss:
        """The answer, or the miss that says why there is none: here, what `lookup` left as its reason."""
        found = self.lookup(op)
        if found is not None:
            return found
        code, _, subject = self.last_miss_reason.partition(":")
        known = code in MissReason._value2member_map_
        return Miss(MissReason(code), subject) if known else Miss(MissReason.LOOKUP_MISS, self.last_miss_reason)

    @abstractmethod
    def lookup(self, op: LeafOp | OperatorRecord) -> QueryResult | None:
        """The answer, or None; `last_miss_reason` then says why, per thread."""

    def store(self, *_: object, **__: object) -> None:
        """Profiling databases are read-only: always raises NotImplementedError."""
        raise NotImplementedError("a profiling database is read-only: measurements are added to its tables")


def jsonable(value: Any) -> Any:
    """Plain JSON values: tuples to lists, dataclasses and mappings to objects, numpy scalars to numbers."""
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, StrEnum) else value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: jsonable(getattr(value, name)) for name in value.__dataclass_fields__}
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, Iterable):
        return [jsonable(item) for item in value]
    return str(value)
