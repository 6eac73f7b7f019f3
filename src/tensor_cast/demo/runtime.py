"""The `Runtime ...` columns of attention rows: who asks, how long, through which cache."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

__all__ = ["ATTENTION_COLUMNS", "BLOCK", "SELECTED_COLUMNS", "TOPK", "Batch"]

BLOCK: Final = 128
TOPK: Final = 2048

ATTENTION_COLUMNS: Final = tuple(
    f"Runtime {name}"
    for name in (
        "source_profile",
        "actual_seq_lengths_shape",
        "actual_seq_lengths_values",
        "actual_seq_lengths_kv_shape",
        "actual_seq_lengths_kv_values",
        "avg_seq_len",
        "batch_size",
        "block_table_shape",
        "block_table_valid_blocks",
        "num_heads",
        "num_key_value_heads",
        "sparse_mode",
        "input_layout",
        "block_size",
        "attn_state",
        "phase",
        "kv_cache_mode",
        "metadata_completeness",
    )
)
SELECTED_COLUMNS: Final = (
    *ATTENTION_COLUMNS,
    "Runtime topk",
    "Runtime cache_layout",
    "Runtime sparse_block_size",
    "Runtime sparse_indices_pattern",
    "Runtime sparse_indices_valid_count",
    "Runtime case_id",
)


@dataclass(frozen=True, slots=True)
class Batch:
    """New tokens and total context of each request, and the width of their block table."""

    queries: tuple[int, ...]
    contexts: tuple[int, ...]
    table_width: int

    @classmethod
    def even(cls, count: int, query: int, context: int, table_width: int) -> Batch:
        """`count` equal requests."""
        return cls((query,) * count, (context,) * count, table_width)

    @property
    def count(self) -> int:
        return len(self.queries)

    @property
    def tokens(self) -> int:
        return sum(self.queries)

    @property
    def phase(self) -> str:
        """`prefill` if every query is its whole context, `decode` if every query is one token, else `mixed`."""
        if self.queries == self.contexts:
            return "prefill"
        return "decode" if set(self.queries) == {1} else "mixed"

    def columns(self, *, heads: int, kv_heads: int, sparse_mode: int, layout: str) -> dict[str, str]:
        """The runtime columns every attention kernel shares, complete."""
        blocks = [math.ceil(context / BLOCK) for context in self.contexts]
        values = {
            "source_profile": "demo",
            "actual_seq_lengths_shape": str(self.count),
            "actual_seq_lengths_values": _list(tuple(accumulate(self.queries))),
            "actual_seq_lengths_kv_shape": str(self.count),
            "actual_seq_lengths_kv_values": _list(self.contexts),
            "avg_seq_len": str(sum(self.contexts) // self.count),
            "batch_size": str(self.count),
            "block_table_shape": f"{self.count},{self.table_width}",
            "block_table_valid_blocks": _list(tuple(blocks)),
            "num_heads": str(heads),
            "num_key_value_heads": str(kv_heads),
            "sparse_mode": str(sparse_mode),
            "input_layout": layout,
            "block_size": str(BLOCK),
            "attn_state": "chunked" if self.phase == "mixed" else self.phase,
            "phase": self.phase,
            "kv_cache_mode": "paged",
            "metadata_completeness": "complete",
        }
        return {f"Runtime {name}": value for name, value in values.items()}

    def selected_columns(self, *, heads: int, case: str, sparse: bool) -> dict[str, str]:
        """The columns of the indexer and of sparse attention."""
        columns = self.columns(heads=heads, kv_heads=1, sparse_mode=3, layout="TND")
        columns |= {"Runtime topk": str(TOPK), "Runtime cache_layout": "PA_BSND", "Runtime case_id": case}
        if sparse:
            columns |= {
                "Runtime sparse_block_size": "1",
                "Runtime sparse_indices_pattern": "uniform",
                "Runtime sparse_indices_valid_count": str(min(TOPK, max(self.contexts))),
            }
        return columns

    def shape_columns(self) -> dict[str, str]:
        """What a profile without runtime values knows: shapes alone."""
        return {
            "Runtime source_profile": "demo",
            "Runtime actual_seq_lengths_shape": str(self.count),
            "Runtime actual_seq_lengths_kv_shape": str(self.count),
            "Runtime block_table_shape": f"{self.count},{self.table_width}",
            "Runtime metadata_completeness": "profile_shapes_only",
        }


def _list(values: tuple[int, ...]) -> str:
    return ",".join(str(value) for value in values)
