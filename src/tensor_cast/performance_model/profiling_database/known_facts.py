"""Phase, EP size and uneven request lengths as regime fields, for every path whose own regime does not hold them.

A row's fact is part of its regime where its cell is filled; a question's, where it knows it.  What only one side knows
does not separate them (see `exact.agreement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.parallel import ParallelConfig
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.agreement import (
    fact_names,
    leaf_facts,
    regime_form,
    row_fact,
)
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, Target
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable

__all__ = ["candidate_with_facts", "open_facts", "regime_facts", "with_facts"]

_LENGTHS: Final = "kv_lens"
_FIELDS: Final = frozenset({"phase", "ep_size", _LENGTHS})


def regime_facts(table: TensorTable) -> frozenset[str]:
    """The facts that a table's rows may add to their regime.  The number of requests is an axis, not a regime."""
    return _FIELDS.intersection(fact_names(table))


def with_facts(target: Target, leaf: LeafOp, parallel: ParallelConfig, names: frozenset[str]) -> Target:
    """The target with what the question knows of `names`."""
    known = leaf_facts(leaf, parallel)
    return replace(target, regime=_extended(target.regime, {name: known[name] for name in names if name in known}))


def candidate_with_facts(candidate: Candidate, table: TensorTable, row: int, names: frozenset[str]) -> Candidate:
    """The candidate with what its row knows of `names`."""
    known = {name: value for name in names if (value := row_fact(table, row, name)) is not None}
    return replace(candidate, regime=_extended(candidate.regime, known)) if known else candidate


def _extended(regime: RegimeKey, facts: dict[str, object]) -> RegimeKey:
    held = {name for name, _ in regime}
    if "request_values" in held:
        held |= {"phase", _LENGTHS}
    if "sparse_phase" in held:
        held |= {"phase"}
    return (*regime, *((name, regime_form(name, facts[name])) for name in sorted(facts) if name not in held))


def open_facts(target: Target, groups: Sequence[CandidateGroup], names: frozenset[str]) -> dict[str, set[object]]:
    """Facts that the question leaves open and in which the groups differ, with the values they hold."""
    if not names or len(groups) < 2:
        return {}
    asked = {name for name, _ in target.regime}
    held = {name: {group.regime[name] for group in groups if name in group.regime} for name in sorted(names - asked)}
    return {name: values for name, values in held.items() if len(values) > 1}
