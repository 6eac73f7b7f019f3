"""Fused dispatch + FFN + combine: tokens only, everything else equal.  Source: RFC 4.1.1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.exact.compute import EP_SIZE_HINT
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.dispatch_place import leaf_place, row_place
from tensor_cast.performance_model.profiling_database.paths.moving import (
    at_role,
    immovable,
    reshaped,
    with_rows,
)
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, OperatorPath, Target
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable

__all__ = ["DispatchFFNCombinePath"]


class DispatchFFNCombinePath(OperatorPath):
    """1D over tokens.  EP size, top-k, subtype and both complete weight shapes isolate."""

    name = "moe_fused"
    final_reason = MissReason.CANDIDATE_GROUP_FAILED
    owns_exact = True
    checks_exact = True
    source_pure = True

    def kernels(self, entry: OperatorEntry) -> tuple[str, ...]:
        return entry.kernels[:1]

    def refuses(self, context: ExactContext, leaf: LeafOp, entry: OperatorEntry) -> Miss | None:
        if context.parallel.expert_parallel_size is None:
            return Miss(MissReason.EP_SIZE_NOT_CONFIGURED, details={"hint": EP_SIZE_HINT})
        return None

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return (("tokens",),)

    def moved(self, leaf: LeafOp, axes: Mapping[str, int], entry: OperatorEntry) -> LeafOp:
        x, ids = at_role(leaf, "x"), at_role(leaf, "expert_indices")
        if x is None or ids is None or set(axes) != {"tokens"}:
            raise immovable(leaf, axes, ("tokens",))
        inputs = {place: with_rows(leaf.inputs[place].shape, axes["tokens"]) for place in (x, ids)}
        tokens = math.prod(leaf.inputs[x].shape[:-1])
        outputs = {
            place: with_rows(spec.shape, axes["tokens"])
            for place, spec in enumerate(leaf.outputs)
            if spec.shape and math.prod(spec.shape[:-1]) == tokens
        }
        return reshaped(leaf, inputs, outputs)

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        place = leaf_place(leaf, context.parallel.expert_parallel_size or 0, strict=self.strict)
        if isinstance(place, Miss):
            return place
        notes = {"ep_size": place.ep_size, "quant_subtype": place.subtype}
        return (Target({"tokens": float(place.tokens)}, place.regime(table.kernel), notes=notes),)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        place = row_place(table, row)
        if isinstance(place, str):
            return place
        return Candidate({"tokens": float(place.tokens)}, place.regime(table.kernel))
