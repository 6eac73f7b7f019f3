"""The settings of vllm-ascend that shapes depend on."""

from __future__ import annotations

from dataclasses import dataclass

from castq.shapes.ascend.versions import CURRENT, AscendRules, rules_of
from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.graph_settings import GraphSettings

__all__ = ["MOST_DRAFTS", "AscendSettings"]

MOST_DRAFTS = 15
"""Drafts of a request: its query may hold 16 tokens (rule A-f)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AscendSettings(GraphSettings):
    """Defaults are the vendor's.  `sp` says that sequence parallelism is on (see `sp_gate`).

    `stream_cap` is off; older releases capped the streams of captured graphs at 1920, for which `layers` and the kinds
    of parallelism above 1 (`parallel_kinds`) must be known.
    """

    tensor_parallel_size: int = 1
    sp: bool = False
    dsa_context_parallel: bool = False
    shared_expert_dp: bool = False
    reduced_capture_device: bool = False
    stream_cap: int | None = None
    layers: int | None = None
    parallel_kinds: int = 0
    version: str = CURRENT

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size"):
            if getattr(self, name) < 1:
                raise ShapeError("not_positive", f"{name} {getattr(self, name)}: at least 1")
        if not 0 <= self.num_spec_tokens <= MOST_DRAFTS:
            raise ShapeError("drafts_out_of_range", f"num_spec_tokens {self.num_spec_tokens}: from 0 to {MOST_DRAFTS}")
        if self.stream_cap is not None and not self.layers:
            raise ShapeError("layers_unknown", "stream_cap needs layers, the number of the model's layers")
        rules_of(self.version)

    @property
    def rules(self) -> AscendRules:
        return rules_of(self.version)

    @property
    def rounds_tokens(self) -> bool:
        """Whether tokens are rounded up to the tensor-parallel size."""
        return self.sp or self.dsa_context_parallel
