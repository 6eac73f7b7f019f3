"""How experts exchange tokens, and the token count that they exchange.

Source: vllm_ascend/ascend_forward_context.py at 0.27.1rc1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MoeExchange", "MoeLayout", "mc2_capacity", "moe_exchange"]

_MOST_PER_RANK: Final = 512
_A2_WORLD: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeLayout:
    """The layout that the choice depends on; `device` is the generation (A2, A3, A5, 310P)."""

    device: str
    expert_parallel: bool
    expert_parallel_size: int
    world_size: int
    tensor_parallel_size: int
    experts_per_token: int
    moe: bool = True
    lora: bool = False
    fused_mc2: bool = False


@dataclass(frozen=True, slots=True)
class MoeExchange:
    """The method, None for a dense model, and the tokens of each rank in it."""

    method: str | None
    tokens_per_rank: int


def mc2_capacity(largest_tokens: int, tensor_parallel_size: int) -> int:
    """Tokens of a rank up to which MC2 is used: 512 for each tensor-parallel rank, or as many as ever come."""
    return min(-(-largest_tokens // tensor_parallel_size), _MOST_PER_RANK) * tensor_parallel_size


def moe_exchange(layout: MoeLayout, largest_rank: int, capacity: int) -> MoeExchange:
    """The exchange of a step whose largest rank has so many tokens, rounded up to the tensor-parallel size."""
    tp = layout.tensor_parallel_size
    return MoeExchange(_method(layout, largest_rank, capacity), -(-largest_rank // tp) * tp)


def _method(layout: MoeLayout, tokens: int, capacity: int) -> str | None:
    if not layout.moe:
        return None
    if not layout.expert_parallel or layout.expert_parallel_size == 1 or layout.device == "310P":
        return "ALLGATHER"
    if layout.lora:
        return "ALLTOALL"
    if layout.device == "A3":
        return "FUSED_MC2" if layout.fused_mc2 else "MC2" if tokens <= capacity else "ALLTOALL"
    if layout.device == "A2":
        return "MC2" if tokens <= capacity and layout.world_size >= _A2_WORLD else "ALLGATHER"
    if tokens <= capacity:
        return "MC2"
    return "ALLTOALL" if layout.expert_parallel_size > layout.experts_per_token else "ALLGATHER"
