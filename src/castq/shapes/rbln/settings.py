"""The settings of vllm-rbln that shapes depend on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from castq.shapes.rbln.buckets import BucketLayout, decode_ceiling
from castq.shapes.rbln.startup import check_startup
from castq.shapes.refusals import ShapeError

__all__ = ["CURRENT", "VERSIONS", "RblnRules", "RblnSettings"]


@dataclass(frozen=True, slots=True)
class RblnRules:
    """What releases differ in: see the names in `data_parallel`, `scheduler` and `metadata`."""

    keeps_local_bucket: bool = False
    soft_cap: bool = True
    slides_back: bool = False


CURRENT: Final = "0.11.3a21"
VERSIONS: Final = {
    "0.11.0": RblnRules(keeps_local_bucket=True, soft_cap=False, slides_back=True),
    "0.11.1a1": RblnRules(),
    CURRENT: RblnRules(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RblnSettings:
    """Defaults are the vendor's: one slot, one bucket.  Refused at construction where start-up refuses."""

    max_num_seqs: int = 1
    max_num_batched_tokens: int = 2048
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    buckets: BucketLayout = field(default_factory=BucketLayout)
    specialize_moe_decode: bool = True
    moe_token_mask: bool = True
    expert_parallel: bool = False
    num_spec_tokens: int = 0
    method: str | None = None
    max_model_len: int = 1 << 20
    devices_per_rank: int = 1
    rebel: bool = False
    multi_block_store: bool = False
    version: str = CURRENT

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise ShapeError("unknown_version", f"vllm-rbln {self.version!r}: described are {', '.join(VERSIONS)}")
        for name in ("max_num_seqs", "max_num_batched_tokens", "pipeline_parallel_size", "data_parallel_size"):
            if getattr(self, name) < 1:
                raise ShapeError("not_positive", f"{name} {getattr(self, name)}: at least 1")
        check_startup(
            self.max_num_seqs,
            self.max_num_batched_tokens,
            data_parallel_size=self.data_parallel_size,
            pipeline_parallel_size=self.pipeline_parallel_size,
            expert_parallel=self.expert_parallel,
            moe_token_mask=self.moe_token_mask,
        )

    @property
    def rules(self) -> RblnRules:
        return VERSIONS[self.version]

    @property
    def ceiling(self) -> int:
        """Decodes that one step can hold."""
        return decode_ceiling(self.max_num_seqs, self.pipeline_parallel_size)

    @property
    def specialized(self) -> bool:
        """Whether decode graphs for MoE are specialised."""
        return self.specialize_moe_decode and self.data_parallel_size > 1
