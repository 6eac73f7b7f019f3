"""Sequence parallelism: when it is on, and the rounding of tokens that it asks for.

Source: vllm_ascend/ascend_config.py, vllm_ascend/worker/model_runner_v1.py at 0.27.1rc1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from castq.shapes.ascend.versions import CURRENT, rules_of

__all__ = ["PLAIN_BACKEND", "SpGate", "round_tokens", "sp_gate"]

_CAPABLE: Final = ("allgather_reducescatter", "nixl_ep", "deepep_", "mori_")
PLAIN_BACKEND: Final = "flashinfer_all2allv"


@dataclass(frozen=True, slots=True)
class SpGate:
    """Whether sequence parallelism is on, and the exchange backend that start-up settles on."""

    on: bool
    backend: str


def sp_gate(
    backend: str,
    *,
    expert_parallel: bool,
    tensor_parallel_size: int,
    data_parallel_size: int,
    flashcomm: bool = False,
    dsa_context_parallel: bool = False,
    version: str = CURRENT,
) -> SpGate:
    """On where an SP-capable backend meets expert and tensor parallelism and it was asked for.

    Where it could be on and was not asked for, start-up moves to a backend that is not capable.
    """
    rules = rules_of(version)
    asked = flashcomm or dsa_context_parallel
    if rules.sp_by_switch:
        return SpGate(asked and tensor_parallel_size > 1, backend)
    could = backend.startswith(_CAPABLE) and expert_parallel and tensor_parallel_size > 1
    if rules.sp_by_property:
        return SpGate(could and (data_parallel_size > 1 or not rules.sp_needs_dp), backend)
    return SpGate(could and asked, PLAIN_BACKEND if could and not asked else backend)


def round_tokens(tokens: int, tensor_parallel_size: int, *, active: bool) -> int:
    """Tokens up to a multiple of the tensor-parallel size, where sequence or DSA context parallelism is active."""
    return -(-tokens // tensor_parallel_size) * tensor_parallel_size if active else tokens
