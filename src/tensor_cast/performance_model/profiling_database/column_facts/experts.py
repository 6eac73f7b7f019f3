"""Routed experts: the fused feed-forward of a layer, and dispatch, feed-forward and combine in one kernel.

Source: GPU table facts, `moe_perf` and `dsv4_megamoe_module_perf`; leaf-operator facts, sections 1.5 and 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tensor_cast.leaf import LeafOp, TensorSpec
from tensor_cast.performance_model.profiling_database.column_facts.facts import (
    ColumnFacts,
    base_name,
    count_attr,
    missing,
    refuse,
    required_role,
    text_attr,
)
from tensor_cast.performance_model.profiling_database.data_source import MissReason

__all__ = ["describe_experts"]

# weight dtype -> subtypes it may stand for, the first by default; None first where the dtype alone does not tell
_QUANTS: Final[dict[str, tuple[str | None, ...]]] = {
    "bfloat16": ("bfloat16",),
    "float16": ("float16",),
    "float8_e4m3fn": ("fp8", "fp8_block"),
    "int8": ("int8",),
    "int4": ("int4_wo", "w4afp8"),
    "float4": (None, "nvfp4", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8"),
    "float4_e2m1fn_x2": (None, "nvfp4", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8"),
}

_DISPATCH: Final = "dispatch_ffn_combine"
_DISPATCH_QUANTS: Final = {
    "_quant": "int8",
    "_quant_int4": "int4_wo",
    "_fp8": "fp8",
    "_mxfp4": "w4a8_mxfp4_mxfp8",
}


def describe_experts(leaf: LeafOp, constants: Mapping[str, Any]) -> ColumnFacts:
    """Axis num_tokens (or tokens, per rank); facts of the layer, its weights and how it is spread over ranks.

    `fused_experts`: num_tokens enter the layer on all ranks together, before top-k.  `dispatch_ffn_combine*`: tokens
    are those of this rank; the fact `phase` comes from the request lengths or the attribute.
    """
    x = required_role(leaf, "x")
    indices = required_role(leaf, "topk_indices", "expert_indices")
    weights = _Weights.of(leaf, x.shape[-1])
    tokens = float(math.prod(x.shape[:-1]))
    dispatch = base_name(leaf).startswith(_DISPATCH)
    tensor_ranks = _ranks(leaf, constants, "moe_tp_size") or 1
    expert_ranks = _ranks(leaf, constants, "moe_ep_size") or (_group(leaf) if dispatch else 1)
    inter_size = count_attr(leaf, constants, "inter_size")
    settled: dict[str, object] = {
        "quant": _quant(leaf, constants, weights.dtype, dispatch=dispatch),
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
    return ColumnFacts({"tokens" if dispatch else "num_tokens": tokens}, {**regime, **settled}, settled=settled)


@dataclass(frozen=True, slots=True)
class _Weights:
    """The local experts: how many, and the inner size each holds on this rank."""

    experts: int
    inter_size: int
    dtype: str

    @classmethod
    def of(cls, leaf: LeafOp, hidden: int) -> _Weights:
        """From stacked `(E, ...)` tensors or lists of one tensor per expert, in either orientation."""
        experts, wide, first = _stacked(leaf, "gmm1_weight", hidden)
        others, inner, second = _stacked(leaf, "gmm2_weight", hidden)
        if experts != others or first.dtype != second.dtype or wide not in (inner, 2 * inner):
            hint = f"gmm1 ({experts}, {hidden}, {wide}) and gmm2 ({others}, {inner}, {hidden}) do not belong together"
            raise refuse(MissReason.TARGET_UNAVAILABLE, "gmm1_weight", hint)
        return cls(experts, inner, first.dtype)


def _stacked(leaf: LeafOp, role: str, hidden: int) -> tuple[int, int, TensorSpec]:
    """Number of experts, the dimension that is not the hidden size, and the tensor itself."""
    found = leaf.roles(role)
    if not found:
        raise missing(role, f"{leaf.name} needs its expert weights {role!r}")
    spec = found[0]
    experts = len(found) if spec.rank == 2 else spec.shape[0] * len(found)
    if spec.rank in (2, 3) and hidden in spec.shape[-2:]:
        first, last = spec.shape[-2:]
        return experts, last if first == hidden else first, spec
    hint = f"{role} {spec.shape} has no dimension of the hidden size {hidden}"
    raise refuse(MissReason.TARGET_UNAVAILABLE, role, hint)


def _quant(leaf: LeafOp, constants: Mapping[str, Any], weight_dtype: str, *, dispatch: bool) -> str:
    asked = leaf.attributes.get("quant") or constants.get("quant")
    suffix = base_name(leaf).removeprefix(_DISPATCH) if dispatch else ""
    if suffix:
        return str(asked or _DISPATCH_QUANTS.get(suffix, suffix.removeprefix("_")))
    allowed = _QUANTS.get(weight_dtype, (weight_dtype,))
    found = asked or allowed[0]
    if found is None:
        names = ", ".join(str(name) for name in allowed[1:])
        raise missing("quant", f"{weight_dtype} weights do not tell the subtype: give attrs.quant, one of {names}")
    if found not in allowed:
        names = ", ".join(str(name) for name in allowed if name)
        hint = f"{weight_dtype} weights may stand for {names}; got quant {found!r}"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "quant", hint)
    return str(found)


def _ranks(leaf: LeafOp, constants: Mapping[str, Any], name: str) -> int | None:
    found = count_attr(leaf, constants, name)
    if found is not None and found < 1:
        raise refuse(MissReason.TARGET_UNAVAILABLE, name, f"{name} must be at least 1, got {found}")
    return found


def _group(leaf: LeafOp) -> int:
    group = leaf.attributes.get("rank_group")
    if not isinstance(group, tuple) or not group:
        raise missing("moe_ep_size", "give attrs.moe_ep_size or attrs.rank_group, the ranks the experts lie on")
    return len(group)


def _experts(leaf: LeafOp, constants: Mapping[str, Any], local: int, ranks: int) -> int:
    """Experts of the layer: given, or the local ones times the ranks; both must agree up to an uneven split."""
    total = count_attr(leaf, constants, "num_experts")
    if total is None:
        return local * ranks
    if local not in (total // ranks, math.ceil(total / ranks)):
        hint = f"{local} local experts on {ranks} ranks are not {total} experts"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "num_experts", hint)
    return total


def _phase(leaf: LeafOp, constants: Mapping[str, Any]) -> str:
    known = leaf.requests.phase if leaf.requests is not None else None
    phase = known or text_attr(leaf, constants, "phase", "give the request lengths or attrs.phase: prefill or decode")
    if phase not in ("prefill", "decode"):
        raise refuse(MissReason.PHASE_NOT_MEASURED, phase, "measured are batches of prefills and batches of decodes")
    return phase
