"""How many decodes a step of a pipeline may hold.

Source: vllm_rbln/v1/core/rbln_scheduler.py at 0.11.3a21; v0.11.0 knows the hard cap only.
"""

from __future__ import annotations

from dataclasses import dataclass

from castq.shapes.rbln.buckets import decode_ceiling
from castq.shapes.refusals import ShapeError

__all__ = ["DecodeCaps", "decode_caps", "defers_drafts"]


@dataclass(frozen=True, slots=True)
class DecodeCaps:
    """`hard` is the compiled ceiling of one step, `soft` the share of the decodes that stand ready."""

    hard: int
    soft: int

    def admitted(self, *, soft: bool) -> int:
        """Decodes admitted to an empty step when each faces both caps, or the hard one alone."""
        return min(self.hard, self.soft) if soft else self.hard


def decode_caps(max_num_seqs: int, pipeline_parallel_size: int, demand: int) -> DecodeCaps:
    """The caps of a step with so many decodes ready.  Raises ShapeError with more stages than slots."""
    hard = decode_ceiling(max_num_seqs, pipeline_parallel_size)
    if hard < 1:
        raise ShapeError(
            "ceiling_below_one",
            f"max_num_seqs {max_num_seqs} is below pipeline_parallel_size {pipeline_parallel_size}",
            raised="AssertionError",
        )
    return DecodeCaps(hard, max(1, -(-demand // pipeline_parallel_size)))


def defers_drafts(num_spec_tokens: int, drafts_held: int, new_tokens: int) -> bool:
    """Whether a running request waits a step: no token that is no draft is there to verify against.

    `new_tokens` is what it wants before any clipping, drafts included; without drafts a negative count waits.
    """
    if num_spec_tokens <= 0:
        return False
    return new_tokens <= drafts_held if drafts_held else new_tokens < 0
