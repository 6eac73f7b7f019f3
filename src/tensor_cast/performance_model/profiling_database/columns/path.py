"""Tables with named columns: the layout names the axes, the leaf's facts say where the question lies.

Source: docs/decisions/004-gpu-tables.md; docs/facts/gpu-tables.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from tensor_cast.errors import InvalidValueError, nearest
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.columns.facts import ColumnFacts, describe
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.exact.attention_evidence import attention_details
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.mapping.table_layout import Assumption
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, OperatorPath, Target
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable

__all__ = ["TabulatedPath"]


_ATTENTION: Final = ("attention", "latent_attention", "sparse_attention")


class TabulatedPath(OperatorPath):
    """Every combination of the layout's axes, low dimension first, in the layout's order."""

    name = "tabulated"
    final_reason = MissReason.CANDIDATE_GROUP_FAILED
    owns_exact = True
    checks_exact = True

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        axes = tuple(target.axes)
        return tuple(group for size in (1, 2, 3) for group in combinations(axes, size))

    def evidence(self, entry: OperatorEntry, target: Target, group: CandidateGroup) -> dict[str, object]:
        return attention_details(target.axes, target.regime) if entry.facts.get("family") in _ATTENTION else {}

    def moved(self, leaf: LeafOp, axes: Mapping[str, int], entry: OperatorEntry) -> LeafOp:
        from tensor_cast.performance_model.profiling_database.columns.facts.moves import MOVES

        facts = describe(leaf, entry)
        if isinstance(facts, Miss):
            raise InvalidValueError(f"query_many: {leaf.name} cannot be moved: {facts}")
        return MOVES[str(entry.facts["family"])](leaf, facts, axes)

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        facts = describe(leaf, entry)
        if isinstance(facts, Miss):
            return facts
        if not isinstance(table, ColumnTable):
            hint = f"rows of {table.report.source} are tensors: facts.family needs tables.{table.kernel}"
            return Miss(MissReason.TARGET_UNAVAILABLE, table.kernel, {"hint": f"{hint} in op_mapping.yaml"})
        for name in (*table.fact_names, *table.constants):
            if name not in facts.regime:
                hint = f"give attrs.{name}, or facts.{name} of {entry.name} in op_mapping.yaml"
                return Miss(MissReason.SEMANTIC_FIELD_MISSING, name, {"hint": hint})
        if facts.variant is not None and table.variants and facts.variant not in table.variants:
            close = nearest(facts.variant, table.variants)
            hint = f"kernel_source {facts.variant!r} is not in the table{close}; it holds {', '.join(table.variants)}"
            return Miss(MissReason.TARGET_UNAVAILABLE, "kernel_source", {"hint": hint})
        contradicted = _contradicted(table, facts)
        if contradicted:
            return Miss(MissReason.REGIME_KEY_UNMATCHED, details={"regime_differs_in": contradicted})
        axes = {axis: float(facts.axes[axis]) for axis in table.axes if axis in facts.axes}
        regime = tuple((name, facts.regime[name]) for name in (*table.constants, *table.fact_names))
        if len(axes) < len(table.axes):
            missing = next(axis for axis in table.axes if axis not in axes)
            hint = (
                f"tables.{table.kernel}.axes in op_mapping.yaml: {entry.facts['family']} knows {', '.join(facts.axes)}"
            )
            return Miss(MissReason.MISSING_TARGET_AXIS, missing, {"hint": hint})
        return (Target(axes, regime, facts.variant),)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        return "not_a_column_table"


def _contradicted(table: ColumnTable, facts: ColumnFacts) -> dict[str, dict[str, object]]:
    """Facts that hold for the whole table and that the leaf states otherwise."""
    whole: dict[str, Assumption] = {name: (value,) for name, value in table.constants.items()}
    found = {}
    for name, assumption in (whole | dict(table.assumed)).items():
        stated, allowed = facts.regime.get(name), _allowed(assumption, facts)
        if stated is not None and allowed is not None and stated not in allowed:
            found[name] = {"asked": stated, "measured": " or ".join(map(str, allowed))}
    return found


def _allowed(assumption: Assumption, facts: ColumnFacts) -> tuple[object, ...] | None:
    """The values an assumption allows; None where it says nothing of this leaf."""
    if isinstance(assumption, tuple):
        return assumption
    [(fact, choices)] = assumption.items()
    allowed: tuple[object, ...] | None = choices.get(facts.regime.get(fact))
    return allowed
