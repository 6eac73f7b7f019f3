"""The one engine behind every path: exact coordinate, then 1D, 2D, 3D inside the matching regimes, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.candidates import build_index
from tensor_cast.performance_model.profiling_database.data_source import (
    Miss,
    MissReason,
    QueryResult,
    QuerySource,
    ShapeMatchInfo,
)
from tensor_cast.performance_model.profiling_database.diagnostics import (
    KernelAttempt,
    deciding_attempt,
    decisive_attempt,
    found_details,
    kernels_that_ran,
    miss_details,
    shape_rule,
)
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.geometry.slices import CONFIDENCE, Attempt, Found, Method, Pick
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup, CandidateIndex
from tensor_cast.performance_model.profiling_database.known_facts import open_facts, regime_facts, with_facts
from tensor_cast.performance_model.profiling_database.many import (
    Reading,
    Sweep,
    fill_exact,
    fill_interpolated,
)
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath, Target
from tensor_cast.performance_model.profiling_database.tables.kernel_table import LABELS, ColumnTable, TensorTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

__all__ = ["InterpolationEngine"]

Search = Callable[[OperatorPath, "_Reading", Method], "Found | tuple[Attempt, ...]"]
_Failure = tuple[Target, tuple[Attempt, ...]]


@dataclass(frozen=True, slots=True)
class _Question:
    """One operator on its way through one path."""

    path: OperatorPath
    leaf: LeafOp
    entry: OperatorEntry
    fallback_from: str
    measured_only: bool = False

    def searches(self, target: Target) -> tuple[Search, ...]:
        """How a target is looked for, in order."""
        exact = (_exact,) if self.path.exact_coordinates(target) else ()
        return exact if self.measured_only else (*exact, _interpolate)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one operator's question to one kernel needs, settled on the first such question."""

    table: TensorTable | ColumnTable | None
    policy: KernelPolicy
    method: Method
    indexes: dict[str, CandidateIndex]
    facts: frozenset[str]
    extra: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Reading:
    """A question as one group of rows sees it, restricted to one latency source or kernel variant."""

    table: TensorTable | ColumnTable
    group: CandidateGroup
    target: Target
    pick: Pick


class InterpolationEngine:
    """Prepared indexes are kept in the context; every answer names the rows and the policy it used."""

    def __init__(self, context: ExactContext) -> None:
        self._context = context
        self._plans: dict[tuple[str, str], _Plan] = {}

    def answer(
        self, path: OperatorPath, leaf: LeafOp, entry: OperatorEntry, fallback_from: str, *, measured_only: bool = False
    ) -> QueryResult | Miss:
        """The first kernel that answers, or a miss that keeps every attempt.

        `measured_only` stops at exact coordinates: what the base answers for leaves that have no rows of plain shapes.
        """
        refused = path.refuses(self._context, leaf, entry)
        if refused is not None:
            return refused
        question = _Question(path, leaf, entry, fallback_from, measured_only)
        attempts: list[KernelAttempt] = []
        for kernel in path.kernels(entry):
            outcome = self._kernel(question, kernel)
            if isinstance(outcome, QueryResult):
                return outcome
            attempts.append(outcome)
        return _miss(question, attempts, self._context.exact_match)

    def answer_many(self, path: OperatorPath, leaves: Mapping[int, LeafOp], entry: OperatorEntry, sweep: Sweep) -> None:
        """Answer the sweep's open points as `answer` would one by one.

        `leaves` are the operator at some of these points.  Where they are not described alike, apart from the axes that
        vary, the open points are marked doubtful.
        """
        if any(path.refuses(self._context, leaf, entry) is not None for leaf in leaves.values()):
            return sweep.doubt()
        for kernel in path.kernels(entry):
            plan = self._plans.get((entry.name, kernel)) or self._plan(path, entry, kernel)
            if plan.table is None:
                continue
            described = {at: self._targets(path, leaf, entry, plan, plan.table) for at, leaf in leaves.items()}
            if all(isinstance(targets, Miss) for targets in described.values()):
                continue
            columns = path.coordinates(sweep.columns, plan.policy)
            readings = self._alike(path, entry, plan, described, columns)
            if readings is None:
                return sweep.doubt()
            for shared in readings:
                _fill(sweep, shared, plan)
        return None

    def _alike(
        self,
        path: OperatorPath,
        entry: OperatorEntry,
        plan: _Plan,
        described: Mapping[int, tuple[Target, ...] | Miss],
        columns: Mapping[str, FloatArray],
    ) -> list[list[_Shared]] | None:
        """The readings of each target, shared by all points; None where the points are not described alike."""
        targets = [found for found in described.values() if not isinstance(found, Miss)]
        if len({len(found) for found in targets}) != 1 or len(targets) < len(described):
            return None
        shared = []
        for same in zip(*targets, strict=True):
            views = [self._seen(path, entry, plan, target) for target in same]
            if len({len(view) for view in views}) != 1:
                return None
            joined = [_joined(path, list(described), list(view), columns) for view in zip(*views, strict=True)]
            if None in joined:
                return None
            shared.append([reading for reading in joined if reading is not None])
        return shared

    def _seen(self, path: OperatorPath, entry: OperatorEntry, plan: _Plan, target: Target) -> list[_Reading]:
        if plan.table is None:
            return []
        index = self.index(path, plan.table, entry, target.view)
        groups = index.matching(target.regime, plan.extra, path.required(target, plan.table))
        if path.strict and open_facts(target, groups, plan.facts):
            return []
        return _readings(path, plan.table, target, groups, [])

    def index(
        self, path: OperatorPath, table: TensorTable | ColumnTable, entry: OperatorEntry, view: str = ""
    ) -> CandidateIndex:
        """The candidates of a table under a path, built once."""
        policy = self._policy(entry, table.kernel)
        key = ("candidates", path.index_key(entry, policy), table.kernel, view)
        return self._context.cached(key, lambda: build_index(path, table, entry, policy, view))

    def method(self, entry: OperatorEntry, kernel: str) -> Method:
        """How a kernel is interpolated.  The ceiling is the kernel's own, other policies may be the primary's."""
        policy = self._policy(entry, kernel)
        own = self._context.database.mapping.policies.get(kernel)
        ceiling = None if own is None else own.max_interpolation_dim
        return Method(ceiling, policy.method, policy.axis_order == "tightest", policy.frontier_guard)

    def _policy(self, entry: OperatorEntry, kernel: str) -> KernelPolicy:
        return self._context.database.mapping.policy(kernel, entry.kernel_type)

    def _kernel(self, question: _Question, kernel: str) -> QueryResult | KernelAttempt:
        path, entry = question.path, question.entry
        plan = self._plans.get((entry.name, kernel)) or self._plan(path, entry, kernel)
        if plan.table is None:
            report = self._context.database.report(kernel)
            details: dict[str, Any] = {"table": list(report.problems)}
            if report.unreadable:
                details["unreadable"] = report.unreadable
            return KernelAttempt(kernel, path.table_missing, details)
        targets = self._targets(path, question.leaf, entry, plan, plan.table)
        if isinstance(targets, Miss):
            return KernelAttempt(kernel, targets.reason, {**targets.details, "subject": targets.subject})
        attempt: KernelAttempt | None = None
        for target in targets:
            outcome = self._target(question, plan, plan.table, target)
            if isinstance(outcome, QueryResult):
                return outcome
            attempt = outcome if attempt is None else decisive_attempt((attempt, outcome))
        return attempt or KernelAttempt(kernel, path.final_reason, {})

    def _plan(self, path: OperatorPath, entry: OperatorEntry, kernel: str) -> _Plan:
        table = self._context.database.table(kernel)
        facts = regime_facts(table) if isinstance(table, TensorTable) else frozenset()
        extra = path.allow_extra | facts
        plan = _Plan(table, self._policy(entry, kernel), self.method(entry, kernel), {}, facts, extra)
        return self._plans.setdefault((entry.name, kernel), plan)

    def _targets(
        self, path: OperatorPath, leaf: LeafOp, entry: OperatorEntry, plan: _Plan, table: TensorTable | ColumnTable
    ) -> tuple[Target, ...] | Miss:
        """The path's targets, with what the question knows of the facts that the table's rows record."""
        targets = path.targets(self._context, leaf, entry, table, plan.policy)
        if isinstance(targets, Miss) or not plan.facts:
            return targets
        return tuple(with_facts(target, leaf, self._context.parallel, plan.facts) for target in targets)

    def _target(
        self, question: _Question, plan: _Plan, table: TensorTable | ColumnTable, target: Target
    ) -> QueryResult | KernelAttempt:
        path = question.path
        index = plan.indexes.get(target.view)
        if index is None:
            index = plan.indexes.setdefault(target.view, self.index(path, table, question.entry, target.view))
        groups = index.matching(target.regime, plan.extra, path.required(target, table))
        unknown = open_facts(target, groups, plan.facts) if path.strict else {}
        if unknown:
            return _unknown_fact(table.kernel, target, unknown)
        if not groups:
            details = {
                "rejected_rows": dict(index.rejected),
                "usable_points": index.usable_points,
                "nearest_regime_differs_in": index.nearest_mismatch(target.regime),
            }
            return KernelAttempt(table.kernel, MissReason.REGIME_KEY_UNMATCHED, details, target)
        failed: list[_Failure] = []
        readings = _readings(path, table, target, groups, failed)
        for search in question.searches(target):
            for reading in readings:
                outcome = search(path, reading, plan.method)
                if isinstance(outcome, Found):
                    return self._result(question, reading, outcome)
                failed.append((reading.target, outcome))
                if outcome and outcome[0].reason in _AMBIGUOUS:
                    return _failed(path, table, index, target, failed[-1:])
        return _failed(path, table, index, target, failed)

    def _result(self, question: _Question, reading: _Reading, found: Found) -> QueryResult:
        source = QuerySource.MEASURED if found.dim == 0 else QuerySource.INTERPOLATED
        evidence = _FoundEvidence(self, question, reading, found)
        return QueryResult.later(found.latency_us, CONFIDENCE[found.dim], source, evidence)

    def _info(self, question: _Question, reading: _Reading, found: Found) -> ShapeMatchInfo:
        transform = self._policy(question.entry, reading.table.kernel).axis_transform
        places = [found.merged.places[vertex] for vertex in found.vertices]
        rule = shape_rule(found, transform is not None and "seq" in found.axes)
        return ShapeMatchInfo(question.leaf.tensor_shapes, places, rule)

    def _evidence(self, question: _Question, reading: _Reading, found: Found) -> dict[str, Any]:
        entry, target, table, label = question.entry, reading.target, reading.table, reading.pick.label
        policy = self._policy(entry, table.kernel)
        details = found_details(found, target, reading.group, table, policy.axis_transform)
        details |= {
            "confidence": CONFIDENCE[found.dim],
            "exact_match": self._context.exact_match,
            "fallback_from": question.fallback_from,
            "query_mode": entry.query_mode,
            "interpolation_path": question.path.path_name(found.dim),
            "latency_source_attempt": "all" if label is None else f"{LABELS[label].split('_')[0]}_only",
        }
        details |= question.path.evidence(entry, target, reading.group)
        details |= {key: value for key, value in target.notes.items() if value is not None}
        details |= _named_policy(policy, found)
        if entry.facts:
            details["mapping_facts"] = dict(entry.facts)
        if table.synthetic:
            details["synthetic"] = self._context.provenance
        return details


class _FoundEvidence(NamedTuple):
    """The rows and the geometry behind an answer of the engine."""

    engine: InterpolationEngine
    question: _Question
    reading: _Reading
    found: Found

    def details(self) -> dict[str, Any]:
        return self.engine._evidence(self.question, self.reading, self.found)

    def info(self) -> ShapeMatchInfo:
        return self.engine._info(self.question, self.reading, self.found)


def _unknown_fact(kernel: str, target: Target, unknown: dict[str, set[Any]]) -> KernelAttempt:
    """A strict question that leaves open in what the rows differ."""
    name, values = next(iter(unknown.items()))
    held = ", ".join(sorted(str(value) for value in values))
    details = {"hint": f"rows differ in {name} ({held}): say which", "subject_field": name}
    return KernelAttempt(kernel, MissReason.SEMANTIC_FIELD_MISSING, details, target)


_AMBIGUOUS = (MissReason.AMBIGUOUS_DUPLICATE_COORDINATE, MissReason.KERNEL_VARIANT_AMBIGUOUS)


def _readings(
    path: OperatorPath,
    table: TensorTable | ColumnTable,
    target: Target,
    groups: tuple[CandidateGroup, ...],
    failed: list[_Failure],
) -> list[_Reading]:
    """Each group as the path fits the target to it, once per latency source where sources are kept apart."""
    readings = []
    for group in path.ordered(groups):
        fitted = path.fit(target, group)
        if isinstance(fitted, MissReason):
            failed.append((target, (Attempt(tuple(target.axes), fitted, len(group)),)))
            continue
        fitted_target, part = fitted
        readings += [_Reading(table, part, fitted_target, pick) for pick in _picks(path, table, part, fitted_target)]
    return readings


def _picks(
    path: OperatorPath, table: TensorTable | ColumnTable, group: CandidateGroup, target: Target
) -> tuple[Pick, ...]:
    if isinstance(table, ColumnTable):
        if target.variant is None or not table.variants:
            return (Pick(),)
        return (Pick(variant=table.variants.index(target.variant) if target.variant in table.variants else -1),)
    if not path.source_pure or not group.labels:
        return (Pick(),)
    return tuple(Pick(label) for label in group.labels)


def _exact(path: OperatorPath, reading: _Reading, method: Method) -> Found | tuple[Attempt, ...]:
    found = reading.group.exact(reading.target.axes, reading.pick)
    if isinstance(found, Found):
        return found
    return (found,) if found.reason in _AMBIGUOUS else ()


def _interpolate(path: OperatorPath, reading: _Reading, method: Method) -> Found | tuple[Attempt, ...]:
    group, target, pick = reading.group, reading.target, reading.pick
    return group.interpolate(target.axes, path.axis_groups(target, reading.table), method, pick, path.matchers())


@dataclass(frozen=True, slots=True)
class _Shared:
    """A reading that all points of a sweep have in common."""

    reading: Reading
    axis_groups: Sequence[tuple[str, ...]]
    exact: bool


def _joined(
    path: OperatorPath, at: list[int], readings: list[_Reading], columns: Mapping[str, FloatArray]
) -> _Shared | None:
    """The one reading of which these are the views at some points; None where they differ in more than the columns."""
    first = readings[0]
    if any(one.group is not first.group or one.pick != first.pick for one in readings):
        return None
    if any(list(one.target.axes) != list(first.target.axes) for one in readings):
        return None
    axes: dict[str, FloatArray | float] = {}
    for axis, value in first.target.axes.items():
        column = columns.get(axis)
        wanted = [value] * len(at) if column is None else column[at].tolist()
        if [one.target.axes[axis] for one in readings] != wanted:
            return None
        axes[axis] = value if column is None else column
    groups = path.axis_groups(first.target, first.table)
    reading = Reading(first.group, first.pick, axes, path.matchers())
    return _Shared(reading, groups, path.exact_coordinates(first.target))


def _fill(sweep: Sweep, shared: list[_Shared], plan: _Plan) -> None:
    for one in shared:
        if one.exact:
            fill_exact(sweep, one.reading)
    for one in shared:
        fill_interpolated(sweep, one.reading, one.axis_groups, plan.method)


def _failed(
    path: OperatorPath,
    table: TensorTable | ColumnTable,
    index: CandidateIndex,
    target: Target,
    failed: list[_Failure],
) -> KernelAttempt:
    """The kernel's failure, told of the target as the deciding attempt saw it."""
    deciding = deciding_attempt([attempts for _, attempts in failed])
    seen = next((one for one, attempts in failed if any(attempt is deciding for attempt in attempts)), target)
    details: dict[str, Any] = {
        "rejected_rows": dict(index.rejected),
        "axis_attempts": [attempt.to_details() for _, attempts in failed for attempt in attempts],
    }
    groups = index.matching(target.regime, path.allow_extra, path.required(target, table))
    details |= kernels_that_ran(table, groups, target, deciding)
    reason = path.final_reason if deciding is None else deciding.reason
    return KernelAttempt(table.kernel, reason, details, seen, deciding)


def _miss(question: _Question, attempts: list[KernelAttempt], exact_match: str) -> Miss:
    path, entry = question.path, question.entry
    decisive = decisive_attempt(attempts)
    details = miss_details(path.kernels(entry), attempts)
    details |= {
        "exact_match": exact_match,
        "path_reason": str(path.final_reason),
        "interpolation_path": path.name,
        "query_mode": entry.query_mode,
        "compute_subcategory": entry.compute_subcategory,
        "fallback_from": question.fallback_from,
    }
    if decisive is None:
        return Miss(path.final_reason, details=details)
    shown = "subject" if decisive.target is None else "subject_field"
    subject = str(decisive.details.get(shown, ""))
    return Miss(decisive.reason, subject, details)


def _named_policy(policy: KernelPolicy, found: Found) -> dict[str, Any]:
    """Departures from the default method that shaped this answer."""
    named: dict[str, Any] = {}
    if found.dim and policy.axis_order != "listed":
        named["axis_order"] = policy.axis_order
    if found.dim > 1 and policy.method != "simplex":
        named["method"] = policy.method
    if found.dim > 1 and policy.frontier_guard:
        named["frontier_guard"] = True
    return {"policy": named} if named else {}
