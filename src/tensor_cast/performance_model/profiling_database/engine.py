"""The one engine behind every path: exact coordinate, then 1D, 2D, 3D inside the matching regimes, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensor_cast.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.candidates import build_index
from tensor_cast.performance_model.profiling_database.data_source import (
    LazyDetails,
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
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup, CandidateIndex
from tensor_cast.performance_model.profiling_database.kernel_table import LABELS, ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.many import Sweep, fill_exact, fill_interpolated
from tensor_cast.performance_model.profiling_database.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath, Target
from tensor_cast.performance_model.profiling_database.slices import CONFIDENCE, Attempt, Found, Method, Pick

__all__ = ["InterpolationEngine"]

Search = Callable[[OperatorPath, "_Reading", Method], "Found | tuple[Attempt, ...]"]


@dataclass(frozen=True, slots=True)
class _Question:
    """One operator on its way through one path."""

    path: OperatorPath
    leaf: LeafOp
    entry: OperatorEntry
    fallback_from: str
    measured_only: bool = False

    @property
    def searches(self) -> tuple[Search, ...]:
        exact = (_exact,) if self.path.checks_exact else ()
        return exact if self.measured_only else (*exact, _interpolate)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one operator's question to one kernel needs, settled on the first such question."""

    table: TensorTable | ColumnTable | None
    policy: KernelPolicy
    method: Method
    indexes: dict[str, CandidateIndex]


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
        return _miss(question, attempts)

    def answer_many(self, path: OperatorPath, leaf: LeafOp, entry: OperatorEntry, sweep: Sweep) -> None:
        """Answer the sweep's open points, kernel by kernel, as `answer` would one by one."""
        if path.refuses(self._context, leaf, entry) is not None:
            return
        for kernel in path.kernels(entry):
            plan = self._plans.get((entry.name, kernel)) or self._plan(entry, kernel)
            if plan.table is None:
                continue
            targets = path.targets(self._context, leaf, entry, plan.table, plan.policy)
            seen = sweep.along(path.coordinates(sweep.varied, plan.policy))
            for target in () if isinstance(targets, Miss) else targets:
                index = self.index(path, plan.table, entry, target.view)
                groups = index.matching(target.regime, path.allow_extra, path.required(target, plan.table))
                _fill(path, seen, _readings(path, plan.table, target, groups, []), plan.method)

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
        plan = self._plans.get((entry.name, kernel)) or self._plan(entry, kernel)
        if plan.table is None:
            problems = self._context.database.report(kernel).problems
            return KernelAttempt(kernel, path.table_missing, {"table": list(problems)})
        targets = path.targets(self._context, question.leaf, entry, plan.table, plan.policy)
        if isinstance(targets, Miss):
            return KernelAttempt(kernel, targets.reason, {**targets.details, "subject": targets.subject})
        attempt: KernelAttempt | None = None
        for target in targets:
            outcome = self._target(question, plan, plan.table, target)
            if isinstance(outcome, QueryResult):
                return outcome
            attempt = outcome if attempt is None else decisive_attempt((attempt, outcome))
        return attempt or KernelAttempt(kernel, path.final_reason, {})

    def _plan(self, entry: OperatorEntry, kernel: str) -> _Plan:
        plan = _Plan(self._context.database.table(kernel), self._policy(entry, kernel), self.method(entry, kernel), {})
        return self._plans.setdefault((entry.name, kernel), plan)

    def _target(
        self, question: _Question, plan: _Plan, table: TensorTable | ColumnTable, target: Target
    ) -> QueryResult | KernelAttempt:
        path = question.path
        index = plan.indexes.get(target.view)
        if index is None:
            index = plan.indexes.setdefault(target.view, self.index(path, table, question.entry, target.view))
        groups = index.matching(target.regime, path.allow_extra, path.required(target, table))
        if not groups:
            details = {
                "rejected_rows": dict(index.rejected),
                "usable_points": index.usable_points,
                "nearest_regime_differs_in": index.nearest_mismatch(target.regime),
            }
            return KernelAttempt(table.kernel, MissReason.REGIME_KEY_UNMATCHED, details, target)
        failed: list[tuple[Attempt, ...]] = []
        readings = _readings(path, table, target, groups, failed)
        for search in question.searches:
            for reading in readings:
                outcome = search(path, reading, plan.method)
                if isinstance(outcome, Found):
                    return self._result(question, reading, outcome)
                failed.append(outcome)
                if outcome and outcome[0].reason in _AMBIGUOUS:
                    return _failed(path, table, index, target, [outcome])
        return _failed(path, table, index, target, failed)

    def _result(self, question: _Question, reading: _Reading, found: Found) -> QueryResult:
        merged = found.merged
        transformed = "seq" in found.axes and self._policy(question.entry, reading.table.kernel).axis_transform
        info = ShapeMatchInfo(
            question.leaf.tensor_shapes,
            tuple([merged.places[vertex] for vertex in found.vertices]),
            shape_rule(found, bool(transformed)),
        )
        details = LazyDetails(lambda: self._evidence(question, reading, found))
        source = QuerySource.MEASURED if found.dim == 0 else QuerySource.INTERPOLATED
        return QueryResult(found.latency_us, CONFIDENCE[found.dim], source, details, info)

    def _evidence(self, question: _Question, reading: _Reading, found: Found) -> dict[str, Any]:
        entry, target, table, label = question.entry, reading.target, reading.table, reading.pick.label
        policy = self._policy(entry, table.kernel)
        details = found_details(found, target, reading.group, table, policy.axis_transform)
        details |= {
            "confidence": CONFIDENCE[found.dim],
            "fallback_from": question.fallback_from,
            "query_mode": entry.query_mode,
            "interpolation_path": question.path.path_name(found.dim),
            "latency_source_attempt": "all" if label is None else f"{LABELS[label].split('_')[0]}_only",
        }
        details |= {key: value for key, value in target.notes.items() if value is not None}
        details |= _named_policy(policy, found)
        if entry.facts:
            details["mapping_facts"] = dict(entry.facts)
        if table.synthetic:
            details["synthetic"] = self._context.database.mapping.header.get("provenance", "synthetic")
        return details


_AMBIGUOUS = (MissReason.AMBIGUOUS_DUPLICATE_COORDINATE, MissReason.KERNEL_VARIANT_AMBIGUOUS)


def _readings(
    path: OperatorPath,
    table: TensorTable | ColumnTable,
    target: Target,
    groups: tuple[CandidateGroup, ...],
    failed: list[tuple[Attempt, ...]],
) -> list[_Reading]:
    """Each group as the path fits the target to it, once per latency source where sources are kept apart."""
    readings = []
    for group in path.ordered(groups):
        fitted = path.fit(target, group)
        if isinstance(fitted, MissReason):
            failed.append((Attempt(tuple(target.axes), fitted, len(group)),))
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


def _fill(path: OperatorPath, sweep: Sweep, readings: list[_Reading], method: Method) -> None:
    for reading in readings if path.checks_exact else ():
        fill_exact(sweep, reading.group, reading.target.axes, reading.pick, path.matchers())
    for reading in readings:
        groups = path.axis_groups(reading.target, reading.table)
        fill_interpolated(sweep, reading.group, reading.target.axes, reading.pick, groups, method, path.matchers())


def _failed(
    path: OperatorPath,
    table: TensorTable | ColumnTable,
    index: CandidateIndex,
    target: Target,
    failed: list[tuple[Attempt, ...]],
) -> KernelAttempt:
    deciding = deciding_attempt(failed)
    details: dict[str, Any] = {
        "rejected_rows": dict(index.rejected),
        "axis_attempts": [attempt.to_details() for attempts in failed for attempt in attempts],
    }
    groups = index.matching(target.regime, path.allow_extra, path.required(target, table))
    details |= kernels_that_ran(table, groups, target, deciding)
    reason = path.final_reason if deciding is None else deciding.reason
    return KernelAttempt(table.kernel, reason, details, target, deciding)


def _miss(question: _Question, attempts: list[KernelAttempt]) -> Miss:
    path, entry = question.path, question.entry
    decisive = decisive_attempt(attempts)
    details = miss_details(path.kernels(entry), attempts)
    details |= {
        "path_reason": str(path.final_reason),
        "interpolation_path": path.name,
        "query_mode": entry.query_mode,
        "compute_subcategory": entry.compute_subcategory,
        "fallback_from": question.fallback_from,
    }
    if decisive is None:
        return Miss(path.final_reason, details=details)
    subject = str(decisive.details.get("subject", "")) if decisive.target is None else ""
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
