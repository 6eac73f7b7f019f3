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
from tensor_cast.performance_model.profiling_database.evidence import Evidence, evidence_details
from tensor_cast.performance_model.profiling_database.reasons import MissReason, QuerySource

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


class Basis(Protocol):
    """What an answer was found in, read when somebody asks: most answers are used for their latency alone."""

    @property
    def dim(self) -> int: ...

    def evidence(self) -> Evidence: ...

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
    _basis: Basis | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def later(cls, latency_us: float, confidence: float, source: QuerySource, basis: Basis) -> QueryResult:
        """A result whose details and shapes are read from its basis the first time they are asked for.

        One object beside the result: with more, the collector's walks cost more than the answers.
        """
        made = cls.__new__(cls)
        put = object.__setattr__
        put(made, "latency_us", latency_us)
        put(made, "confidence", confidence)
        put(made, "source", source)
        put(made, "sub_kernel_shapes", None)
        put(made, "_basis", basis)
        return made

    @property
    def interpolation_dim(self) -> int:
        """On how many axes the latency was interpolated; 0 for a measured one."""
        if self._basis is not None:
            return self._basis.dim
        return int(self.details.get("interpolation_dim", 0))

    @property
    def evidence(self) -> Evidence | None:
        """What the answer rests on, typed; None for sums, and for results that came through `pickle` or by hand."""
        return None if self._basis is None else self._basis.evidence()

    def __getattr__(self, name: str) -> object:
        if name not in ("details", "shape_match_info"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        basis = object.__getattribute__(self, "_basis")
        value = jsonable(evidence_details(basis.evidence())) if name == "details" else basis.info()
        object.__setattr__(self, name, value)
        return value

    def __reduce__(self) -> tuple[object, ...]:
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
        if missed := details.get("missed_kernels"):
            parts.append(f"missing {', '.join(missed)}: {details.get('hint', '')}")
        if "synthetic" in details:
            parts.append("SYNTHETIC data")
        return "; ".join(parts)

    def to_json(self) -> dict[str, object]:
        """The same facts as plain JSON values."""
        document: dict[str, object] = {
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


def _spread(row: Mapping[str, object]) -> str:
    """`2 of 186.48..415.45`: how many repeats were merged, and between which latencies."""
    return f"{row['duplicate_count']} of {row['duplicate_latency_min_us']:g}..{row['duplicate_latency_max_us']:g} us"


def _row_names(rows: Iterable[Mapping[str, object]]) -> str:
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
        """One line: the reason, where the target lies, what was measured there, what would settle it."""
        parts = [f"no answer: {self.code}"]
        if kernels := self.details.get("attempted_kernel_types"):
            parts.append("kernels " + ", ".join(kernels))
        return "; ".join((*parts, *self._facts()))

    @property
    def because(self) -> str:
        """The line without reason and kernels: what a parent says of a child that has no answer."""
        return "; ".join(self._facts()) or self.code

    def _facts(self) -> list[str]:
        parts = []
        if absent := self.details.get("missing_tables"):
            parts.append("no file " + ", ".join(absent))
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
        return parts

    def to_json(self) -> dict[str, object]:
        """The same facts as plain JSON values."""
        document: dict[str, object] = {
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


def jsonable(value: object) -> Any:
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
