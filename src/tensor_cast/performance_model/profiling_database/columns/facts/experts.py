"""Routed experts: the fused feed-forward of a layer, and dispatch, feed-forward and combine in one kernel.

Source: docs/facts/gpu-tables.md, "Experts"; docs/facts/leaf-operators.md, "Experts and collectives".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.columns.facts.facts import (
    ColumnFacts,
    base_name,
    count_attr,
    missing,
    refuse,
    required_role,
    shaped,
    table_dtype,
    text_attr,
)
from tensor_cast.performance_model.profiling_database.columns.facts.operands import settle_operands
from tensor_cast.performance_model.profiling_database.data_source import MissReason

__all__ = ["describe_experts"]

_DISPATCH: Final = "dispatch_ffn_combine"
_PACKED_DTYPE: Final = "float4_e2m1fn_x2"


def describe_experts(leaf: LeafOp, constants: Mapping[str, object]) -> ColumnFacts:
    """Axis num_tokens (or tokens, per rank); facts of the layer, its weights and how it is spread over ranks.

    `fused_experts`: num_tokens enter the layer on all ranks together, before top-k.  `dispatch_ffn_combine*`: tokens
    are those of this rank; the fact `phase` comes from the request lengths or the attribute.
    """
    x = required_role(leaf, "x")
    indices = required_role(leaf, "topk_indices", "expert_indices")
    weights = _Weights.of(leaf, x.shape[-1])
    tokens = math.prod(x.shape[:-1])
    if math.prod(indices.shape[:-1]) != tokens:
        hint = f"indices {indices.shape} choose experts for other tokens than those of x {x.shape}"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "topk_indices", hint)
    dispatch = base_name(leaf).startswith(_DISPATCH)
    tensor_ranks = _ranks(leaf, constants, "moe_tp_size") or 1
    expert_ranks = _expert_ranks(leaf, constants, dispatch=dispatch)
    inter_size = count_attr(leaf, constants, "inter_size")
    settled: dict[str, object] = {
        "quant": settle_operands(leaf, constants) or weights.dtype,
        "distribution": text_attr(
            leaf, constants, "distribution", "give attrs.distribution: balanced, power_law_1.01 or power_law_1.2"
        ),
    }
    regime: dict[str, object] = {
        "hidden_size": x.shape[-1],
        "inter_size": weights.inter_size * tensor_ranks if inter_size is None else inter_size,
        "topk": indices.shape[-1],
        "num_experts": _experts(leaf, constants, weights.experts, expert_ranks),
        "moe_tp_size": tensor_ranks,
        "moe_ep_size": expert_ranks,
    }
    if dispatch:
        settled["phase"] = _phase(leaf, constants)
    return ColumnFacts({"tokens" if dispatch else "num_tokens": float(tokens)}, {**regime, **settled}, settled=settled)


@dataclass(frozen=True, slots=True)
class _Weights:
    """The local experts: how many, and the inner size each holds on this rank."""

    experts: int
    inter_size: int
    dtype: str

    @classmethod
    def of(cls, leaf: LeafOp, hidden: int) -> _Weights:
        """From stacked `(E, ...)` tensors or lists of one tensor per expert, in either orientation.

        The first product makes gate and up side by side, so it is twice as wide as the second is deep.
        """
        experts, wide, first = _stacked(leaf, "gmm1_weight", hidden)
        others, inner, second = _stacked(leaf, "gmm2_weight", hidden, packed_inner=True)
        if experts != others or first.dtype != second.dtype or wide != 2 * inner:
            hint = (
                f"gmm1 ({experts}, {hidden}, {wide}) and gmm2 ({others}, {inner}, {hidden}) are not the gate, up and"
                " down projections of one layer"
            )
            raise refuse(MissReason.TARGET_UNAVAILABLE, "gmm1_weight", hint)
        return cls(experts, inner, table_dtype(first))


def _stacked(leaf: LeafOp, role: str, hidden: int, *, packed_inner: bool = False) -> tuple[int, int, TensorSpec]:
    """Number of experts, the dimension that is not the hidden size, and the first tensor.

    A packed weight holds two values of the reduced dimension in one element: hidden in the first product, the inner
    size in the second.
    """
    found = leaf.roles(role)
    if not found:
        raise missing(role, f"{leaf.name} needs its expert weights {role!r}")
    spec = shaped(found[0], role)
    if any((other.shape, other.dtype) != (spec.shape, spec.dtype) for other in found) or spec.rank not in (2, 3):
        hint = f"{role}: expected one (experts, ...) tensor or a list of equal matrices, got {spec.shape}"
        raise refuse(MissReason.TARGET_UNAVAILABLE, role, hint)
    experts = len(found) if spec.rank == 2 else spec.shape[0] * len(found)
    packed = spec.dtype == _PACKED_DTYPE
    known = hidden / 2 if packed and not packed_inner else hidden
    first, last = spec.shape[-2:]
    if known not in (first, last):
        hint = f"{role} {spec.shape} has no dimension of {known:g}, the hidden size as this dtype stores it"
        raise refuse(MissReason.TARGET_UNAVAILABLE, role, hint)
    other = last if first == known else first
    return experts, other * 2 if packed and packed_inner else other, spec


def _ranks(leaf: LeafOp, constants: Mapping[str, object], name: str) -> int | None:
    found = count_attr(leaf, constants, name)
    if found is not None and found < 1:
        raise refuse(MissReason.TARGET_UNAVAILABLE, name, f"{name} must be at least 1, got {found}")
    return found


def _expert_ranks(leaf: LeafOp, constants: Mapping[str, object], *, dispatch: bool) -> int:
    """Ranks the experts lie on: given, else for a dispatch the ranks of its group, else 1."""
    given = _ranks(leaf, constants, "moe_ep_size")
    group = leaf.attributes.get("rank_group")
    ranks = len(group) if isinstance(group, tuple) and group else None
    if given is not None and ranks is not None and given != ranks:
        hint = f"moe_ep_size {given} and a rank_group of {ranks} ranks contradict each other"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "moe_ep_size", hint)
    if not dispatch:
        return given or 1
    found = given or ranks
    if found is None:
        raise missing("moe_ep_size", "give attrs.moe_ep_size or attrs.rank_group, the ranks the experts lie on")
    return found


def _experts(leaf: LeafOp, constants: Mapping[str, object], local: int, ranks: int) -> int:
    """Experts of the layer: given, or the local ones times the ranks; both must agree up to an uneven share."""
    total = count_attr(leaf, constants, "num_experts")
    if total is None:
        return local * ranks
    if local not in (total // ranks, math.ceil(total / ranks)):
        hint = f"{local} local experts on {ranks} ranks are not {total} experts"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "num_experts", hint)
    return total


def _phase(leaf: LeafOp, constants: Mapping[str, object]) -> str:
    known = leaf.requests.phase if leaf.requests is not None else None
    phase = known or text_attr(leaf, constants, "phase", "give the request lengths or attrs.phase: prefill or decode")
    if phase not in ("prefill", "decode"):
        raise refuse(MissReason.PHASE_NOT_MEASURED, phase, "measured are batches of prefills and batches of decodes")
    return phase
