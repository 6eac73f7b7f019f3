"""The settings that decide on captured graphs, whoever's device they run on."""

from __future__ import annotations

from dataclasses import dataclass

from castq.shapes.vllm.graph_modes import AttentionSupport, GraphMode

__all__ = ["GraphSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSettings:
    """Names and defaults are vLLM's; `capture_sizes` None derives the list."""

    max_num_seqs: int
    max_num_batched_tokens: int = 2048
    num_spec_tokens: int = 0
    mode: GraphMode = GraphMode.FULL_AND_PIECEWISE
    attention_support: AttentionSupport = AttentionSupport.ALWAYS
    capture_sizes: tuple[int, ...] | None = None
    max_capture_size: int | None = None
    enforce_eager: bool = False

    @property
    def query_len(self) -> int:
        """Tokens of a decode: one, and its drafts."""
        return 1 + self.num_spec_tokens
