"""What rank 0 of a tensor-parallel group sees when a prefill's tokens are spread over the group.

Source: docs/facts/leaf-operators.md, "Rank 0 under sequence parallelism".
"""

from __future__ import annotations

from dataclasses import replace

from tensor_cast.operators.leaf import Requests
from tensor_cast.parallel import ParallelConfig

__all__ = ["local_tokens", "rank_zero_requests", "splits_tokens"]


def splits_tokens(parallel: ParallelConfig, form: str) -> bool:
    """Whether attention kernels see a share of the tokens: sequence parallelism in a prefill over several ranks."""
    return parallel.sequence_parallel and parallel.tensor_parallel_size > 1 and form == "prefill"


def local_tokens(tokens: int, tensor_parallel_size: int) -> int:
    """Tokens of rank 0: `ceil(tokens / tensor_parallel_size)`."""
    return -(-tokens // tensor_parallel_size)


def rank_zero_requests(requests: Requests, tokens: int, tensor_parallel_size: int) -> Requests | None:
    """The requests as rank 0 sees them; None where the lengths do not account for the `tokens` of the call.

    Rank 0 holds the first `L = ceil(tokens / tensor_parallel_size)` tokens.  A request's local tokens are those before
    L; its context ends where they end, and a request without local tokens has none.  Query lengths that are unknown
    are the contexts if those add up to `tokens` (a prefill from the start); nothing else is assumed.

    >>> rank_zero_requests(Requests((4096,), (8192,)), 4096, 16)
    Requests(query_lens=(256,), kv_lens=(4352,), explicit_phase=None, block_table_shape=None)
    """
    contexts = requests.kv_lens
    queries = requests.query_lens or contexts
    if contexts is None or queries is None or sum(queries) != tokens:
        return None
    limit = local_tokens(tokens, tensor_parallel_size)
    local_queries, local_contexts, start = [], [], 0
    for query, context in zip(queries, contexts, strict=True):
        end = start + query
        local = max(0, min(end, limit) - start)
        local_queries.append(local)
        local_contexts.append(context - (end - min(end, limit)) if local else 0)
        start = end
    if any(context < query for query, context in zip(local_queries, local_contexts, strict=True)):
        return None
    return replace(requests, query_lens=tuple(local_queries), kv_lens=tuple(local_contexts))
