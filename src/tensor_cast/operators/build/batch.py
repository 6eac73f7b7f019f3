"""What the requests of a batch say of its tensors: paged blocks, the block table, the vectors of lengths.

Source: docs/facts/leaf-operators.md "Attention"; paged blocks of 128, the pool of a whole batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.call import tensor
from tensor_cast.operators.build.sizes import positive
from tensor_cast.operators.leaf import Requests
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = ["BLOCK_SIZE", "block_table_shape", "cache_blocks", "check_tokens", "lengths", "metadata", "paged"]

BLOCK_SIZE: Final = 128


def cache_blocks(requests: Requests, block_size: int = BLOCK_SIZE) -> int:
    """Blocks of the pool that holds the whole batch: `floor(sum of contexts / block_size) + 1`.

    Refuses requests of unknown context.

    >>> cache_blocks(Requests(kv_lens=(4096,)))
    33
    """
    positive(block_size=block_size)
    return sum(_contexts(requests)) // block_size + 1


def block_table_shape(requests: Requests, block_size: int = BLOCK_SIZE) -> Shape:
    """`(requests, blocks of the longest context)`.  Refuses requests of unknown context.

    >>> block_table_shape(Requests(kv_lens=(4097,) * 16))
    (16, 33)
    """
    positive(block_size=block_size)
    contexts = _contexts(requests)
    return len(contexts), max(-(-length // block_size) for length in contexts)


def _contexts(requests: Requests) -> tuple[int, ...]:
    if not requests.kv_lens:
        raise InvalidValueError("requests: a paged cache needs kv_lens, got none")
    return requests.kv_lens


def paged(requests: Requests, block_size: int) -> Requests:
    """The requests with the shape of their block table, given or following from the contexts."""
    table = requests.block_table_shape
    if table is None:
        return replace(requests, block_table_shape=block_table_shape(requests, block_size))
    if len(table) != 2 or (requests.count is not None and table[0] != requests.count):
        count = "B" if requests.count is None else requests.count
        raise InvalidValueError(f"block_table_shape: expected ({count}, blocks), got {table}")
    return requests


def check_tokens(tokens: int, requests: Requests | None) -> None:
    """Refuses query lengths that do not add up to the tokens of the call."""
    if requests is not None and requests.query_lens is not None and sum(requests.query_lens) != tokens:
        total = sum(requests.query_lens)
        raise InvalidValueError(f"tokens: expected the sum of query_lens, {total}, got {tokens}")


def metadata(requests: Requests | None) -> dict[str, TensorSpec]:
    """`block_table`, `query_start_loc`, `seq_lens`, `query_lens` as int32, as far as the requests are known."""
    if requests is None:
        return {}
    table = requests.block_table_shape
    count = requests.count if requests.count is not None else table[0] if table else None
    found = {"block_table": tensor("int32", *table)} if table else {}
    if count is None:
        return found
    vector = tensor("int32", count)
    return {**found, "query_start_loc": tensor("int32", count + 1), "seq_lens": vector, "query_lens": vector}


def lengths(requests: Requests | None) -> dict[str, TensorSpec]:
    """The vectors `seq_lens` and `query_lens` alone, as far as the requests are known."""
    return {name: spec for name, spec in metadata(requests).items() if name in ("seq_lens", "query_lens")}
