"""Experts under data parallelism: every rank's slot is gathered, the mask says which tokens are real.

Source: vllm_rbln MoE token mask at 0.11.3a21.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["GatheredTokens", "gathered"]


@dataclass(frozen=True, slots=True)
class GatheredTokens:
    """Rows that enter router and experts, and how many of each rank's slot are real."""

    rows: int
    valid_by_rank: tuple[int, ...]

    @property
    def valid(self) -> int:
        """Rows whose mask is 1; no other row reaches an expert."""
        return sum(self.valid_by_rank)


def gathered(tokens_across_ranks: Sequence[int], token_dimension: int) -> GatheredTokens:
    """The rows of a step: one slot of the agreed token dimension for each rank, its first tokens real."""
    valid = tuple(min(tokens, token_dimension) for tokens in tokens_across_ranks)
    return GatheredTokens(len(valid) * token_dimension, valid)
