"""The graphs that start-up compiles: every shape the runner can serve without a new compilation.

Source: vllm_rbln/v1/worker/rbln_model_runner.py, warm-up, at 0.11.3a21.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["FIXED_WINDOW", "GRAPH_BYTES", "REBEL_CHIPLETS", "Graph", "reserved_bytes", "warmup_graphs"]

FIXED_WINDOW = ("mtp", "eagle", "eagle3")
"""Speculation that always stages the whole window."""
GRAPH_BYTES = 256 << 20
"""Bytes that the static estimate reserves for a graph on each device."""
REBEL_CHIPLETS = 4


@dataclass(frozen=True, slots=True)
class Graph:
    """One compiled shape; `tokens` is a pinned token dimension, None where it follows from the rest."""

    phase: Literal["prefill", "decode"]
    rows: int
    query_len: int
    tokens: int | None = None


def warmup_graphs(
    buckets: Sequence[int],
    width: int,
    *,
    num_spec_tokens: int = 0,
    method: str | None = None,
    specialized: bool = False,
) -> tuple[Graph, ...]:
    """One prefill graph, a decode graph for each bucket and query length, and for specialised MoE decode the top bucket
    again with the token dimension pinned to the width; with windows of variable length also to the top bucket's tokens.
    """
    window = num_spec_tokens + 1
    variable = num_spec_tokens > 0 and method not in FIXED_WINDOW
    queries = (1, window) if variable else (window,)
    top = buckets[-1]
    graphs = [Graph("prefill", 1, width), *(Graph("decode", rows, query) for rows in buckets for query in queries)]
    if specialized:
        graphs += [Graph("decode", top, query, width) for query in queries]
        if variable:
            graphs.append(Graph("decode", top, 1, top * window))
    return tuple(graphs)


def reserved_bytes(graphs: int, *, devices_per_rank: int = 1, rebel: bool = False) -> int:
    """Bytes that so many graphs take from the KV cache of a rank, where it is sized by the static estimate."""
    return graphs * GRAPH_BYTES * (REBEL_CHIPLETS if rebel else devices_per_rank)
