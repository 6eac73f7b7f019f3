"""The interpolation engine of every path: exact coordinate, then 1D, 2D, 3D in matching regimes, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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
    AMBIGUOUS,
    Agreeing,
    Failure,
    KernelAttempt,
    decisive_attempt,
    found_rows,
    kernel_failure,
    miss_details,
    neighbourhood,
    other_regime,
    row_numbers,
    shape_rule,
    unknown_fact,
)
from tensor_cast.performance_model.profiling_database.evidence import Attempt, Evidence
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext, tables_lacking
from tensor_cast.performance_model.profiling_database.geometry.slices import CONFIDENCE, Found, Method, Pick
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup, CandidateIndex, Hidden
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

__all__ = ["InterpolationEngine", "Question"]

Search = Callable[[OperatorPath, "_Reading", Method], "Found | tuple[Attempt, ...]"]


@dataclass(frozen=True, slots=True)
class Question:
    """One operator on its way through one path; `measured_only` asks for exact coordinates alone."""

    path: OperatorPath
    leaf: LeafOp
    entry: OperatorEntry
    fallback_from: str = ""
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
        question = Question(path, leaf, entry, fallback_from, measured_only)
        attempts: list[KernelAttempt] = []
        for kernel in path.kernels(entry):
            outcome = self._kernel(question, kernel)
            if isinstance(outcome, QueryResult):
                return outcome
            attempts.append(outcome)
        return _miss(question, attempts, self._context.exact_match)

    def targets(self, question: Question, kernel: str) -> tuple[Target, ...] | Miss:
        """The first half of an answer: where the operator lies in a kernel's table.

        Several targets where rows may have recorded it in several forms; a miss where it lies nowhere.
        """
        plan = self._plan_of(question.path, question.entry, kernel)
        if plan.table is None:
            return Miss(question.path.table_missing, kernel)
        return self._targets(question.path, question.leaf, question.entry, plan, plan.table)

    def search(
        self, question: Question, kernel: str, target: Target, without: Hidden | None = None
    ) -> QueryResult | KernelAttempt:
        """The second half: the target among the rows of its regime, exactly or between them.

        `without` leaves points out, as if they had not been measured: the very search that answers questions tells how
        it would have answered without them.  Raises LookupError for a kernel without a table.
        """
        plan = self._plan_of(question.path, question.entry, kernel)
        if plan.table is None:
            raise LookupError(f"{kernel} has no table")
        return self._search(question, plan, plan.table, target, without)

    def answer_many(self, path: OperatorPath, leaves: Mapping[int, LeafOp], entry: OperatorEntry, sweep: Sweep) -> None:
        """Answer the sweep's open points as `answer` would one by one.

        `leaves` are the operator at some of these points.  Where they are not described alike, apart from the axes that
        vary, the open points are marked doubtful.
        """
        if any(path.refuses(self._context, leaf, entry) is not None for leaf in leaves.values()):
            return sweep.doubt()
        for kernel in path.kernels(entry):
            plan = self._plan_of(path, entry, kernel)
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

    def _kernel(self, question: Question, kernel: str) -> QueryResult | KernelAttempt:
        path, entry = question.path, question.entry
        plan = self._plan_of(path, entry, kernel)
        if plan.table is None:
            lacking = tables_lacking(self._context, (kernel,))
            return KernelAttempt(kernel, path.table_missing, {"table": lacking.pop("tables")[kernel], **lacking})
        targets = self._targets(path, question.leaf, entry, plan, plan.table)
        if isinstance(targets, Miss):
            return KernelAttempt(kernel, targets.reason, {**targets.details, "subject": targets.subject})
        attempt: KernelAttempt | None = None
        for target in targets:
            outcome = self._search(question, plan, plan.table, target)
            if isinstance(outcome, QueryResult):
                return outcome
            attempt = outcome if attempt is None else decisive_attempt((attempt, outcome))
        return attempt or KernelAttempt(kernel, path.final_reason, {})

    def _plan_of(self, path: OperatorPath, entry: OperatorEntry, kernel: str) -> _Plan:
        return self._plans.get((entry.name, kernel)) or self._plan(path, entry, kernel)

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

    def _search(
        self,
        question: Question,
        plan: _Plan,
        table: TensorTable | ColumnTable,
        target: Target,
        without: Hidden | None = None,
    ) -> QueryResult | KernelAttempt:
        path = question.path
        index = plan.indexes.get(target.view)
        if index is None:
            index = plan.indexes.setdefault(target.view, self.index(path, table, question.entry, target.view))
        groups = index.matching(target.regime, plan.extra, path.required(target, table))
        unknown = open_facts(target, groups, plan.facts) if path.strict else {}
        if unknown:
            return unknown_fact(table.kernel, target, unknown)
        if not groups:
            return other_regime(table, index, target, path.required(target, table), plan.extra)
        if without is not None:
            groups = tuple(thinned for group in groups if len(thinned := group.without(without)))
        failed: list[Failure] = []
        readings = _readings(path, table, target, groups, failed)
        for search in question.searches(target):
            for reading in readings:
                outcome = search(path, reading, plan.method)
                if isinstance(outcome, Found):
                    return self._result(question, reading, outcome)
                failed.append(Failure(reading.target, outcome, reading.group, reading.pick))
                if outcome and outcome[0].reason in AMBIGUOUS:
                    return kernel_failure(path, plan.method, index, Agreeing(table, target, groups), failed[-1:])
        return kernel_failure(path, plan.method, index, Agreeing(table, target, groups), failed)

    def _result(self, question: Question, reading: _Reading, found: Found) -> QueryResult:
        source = QuerySource.MEASURED if found.dim == 0 else QuerySource.INTERPOLATED
        return QueryResult.later(
            found.latency_us, CONFIDENCE[found.dim], source, _Answered(self, question, reading, found)
        )

    def evidence(self, question: Question, reading: _Reading, found: Found) -> Evidence:
        """The rows and the geometry behind an answer."""
        table, target = reading.table, reading.target
        rooted = found.dim > 0 and "seq" in found.axes and self._policy(question.entry, table.kernel).axis_transform
        layout = table.source_layout(row_numbers(found)) if isinstance(table, TensorTable) else None
        return Evidence(
            table.kernel,
            self._context.exact_match,
            found_rows(found, table),
            neighbourhood(found, target, reading.group, bool(rooted)),
            found.attempts,
            layout or "",
            self._context.provenance if table.synthetic else None,
            self._notes(question, reading, found),
        )

    def _notes(self, question: Question, reading: _Reading, found: Found) -> dict[str, object]:
        """What this kernel, path and mapping state of an answer."""
        entry, target, label = question.entry, reading.target, reading.pick.label
        notes: dict[str, object] = {
            "confidence": CONFIDENCE[found.dim],
            "fallback_from": question.fallback_from,
            "query_mode": entry.query_mode,
            "interpolation_path": question.path.path_name(found.dim),
            "latency_source_attempt": "all" if label is None else f"{LABELS[label].split('_')[0]}_only",
        }
        notes |= question.path.evidence(entry, target, reading.group)
        notes |= {key: value for key, value in target.notes.items() if value is not None}
        notes |= _named_policy(self._policy(entry, reading.table.kernel), found)
        return notes | ({"mapping_facts": dict(entry.facts)} if entry.facts else {})


class _Answered(NamedTuple):
    """An answer of the interpolation engine, before anybody has asked what it rests on."""

    engine: InterpolationEngine
    question: Question
    reading: _Reading
    found: Found

    @property
    def dim(self) -> int:
        return self.found.dim

    def evidence(self) -> Evidence:
        return self.engine.evidence(self.question, self.reading, self.found)

    def info(self) -> ShapeMatchInfo:
        place = self.evidence().neighbourhood
        assert place is not None
        return ShapeMatchInfo(self.question.leaf.tensor_shapes, place.coordinates, shape_rule(place))


def _readings(
    path: OperatorPath,
    table: TensorTable | ColumnTable,
    target: Target,
    groups: tuple[CandidateGroup, ...],
    failed: list[Failure],
) -> list[_Reading]:
    """Each group as the path fits the target to it, once per latency source where sources are kept apart."""
    readings = []
    for group in path.ordered(groups):
        fitted = path.fit(target, group)
        if isinstance(fitted, MissReason):
            failed.append(Failure(target, (Attempt(tuple(target.axes), fitted, len(group)),), group))
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
    return (found,) if found.reason in AMBIGUOUS else ()


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


def _miss(question: Question, attempts: list[KernelAttempt], exact_match: str) -> Miss:
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


def _named_policy(policy: KernelPolicy, found: Found) -> dict[str, object]:
    """Departures from the default method that shaped this answer."""
    named: dict[str, object] = {}
    if found.dim and policy.axis_order != "listed":
        named["axis_order"] = policy.axis_order
    if found.dim > 1 and policy.method != "simplex":
        named["method"] = policy.method
    if found.dim > 1 and policy.frontier_guard:
        named["frontier_guard"] = True
    return {"policy": named} if named else {}
