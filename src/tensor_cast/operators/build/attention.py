"""Dense attention over fresh or paged keys and values.

T tokens, B requests, h and hk heads of query and key, d their width.
Source: docs/facts/leaf-operators.md "Attention".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.batch import BLOCK_SIZE, check_tokens, metadata, paged
from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.sizes import multiple, one_of, positive
from tensor_cast.operators.leaf import LeafOp, Requests
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = ["AttentionSizes", "Layout", "attention", "attention_quant"]

Layout = Literal["TH", "TND", "BNSD"]


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Heads of this rank and the cache they read.

    `blocks` None: keys and values are the call's own, `(T, hk, d)`; else the pool's, `(blocks, block_size, hk, d)`.
    `layout` of the query: `TH` `(T, h*d)`, `TND` `(T, h, d)`, `BNSD` `(B, h, 1, d)` with one token a request and, as
    its kernel has them, heads before the block in the pool.
    Refuses sizes below 1 and heads that `kv_heads` does not divide.
    """

    heads: int
    kv_heads: int
    head_dim: int
    blocks: int | None = None
    block_size: int = BLOCK_SIZE
    layout: Layout = "TH"

    def __post_init__(self) -> None:
        positive(heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim, block_size=self.block_size)
        multiple(self.kv_heads, "kv_heads", heads=self.heads)
        if self.blocks is not None:
            positive(blocks=self.blocks)
        one_of(("TH", "TND", "BNSD"), layout=self.layout)

    def query(self, tokens: int) -> Shape:
        if self.layout == "TH":
            return tokens, self.heads * self.head_dim
        return (tokens, self.heads, *((1,) if self.layout == "BNSD" else ()), self.head_dim)

    def key(self, tokens: int) -> Shape:
        if self.blocks is None:
            return tokens, self.kv_heads, self.head_dim
        if self.layout == "BNSD":
            return self.blocks, self.kv_heads, self.block_size, self.head_dim
        return self.blocks, self.block_size, self.kv_heads, self.head_dim


def attention(
    tokens: int,
    sizes: AttentionSizes,
    requests: Requests | None = None,
    *,
    mask: Shape | None = None,
    dtype: str = BF16,
    kv_dtype: str | None = None,
) -> LeafOp:
    """Attention of the batch's tokens; the output is like the query.

    What `requests` know comes along as int32 vectors, with a block table where keys are paged.  Refuses query lengths
    that do not add up to `tokens`, and paged keys whose block table does not follow from the requests.
    """
    found = _batch(tokens, sizes, requests)
    inputs = _operands(tokens, sizes, found, mask, dtype, kv_dtype or dtype)
    return call("attention", inputs, (tensor(dtype, *sizes.query(tokens)),), found)


def attention_quant(
    tokens: int,
    sizes: AttentionSizes,
    requests: Requests | None = None,
    *,
    mask: Shape | None = None,
    offsets: bool = False,
    dtype: str = "int8",
    kv_dtype: str | None = None,
    out_dtype: str | None = None,
) -> LeafOp:
    """Attention on quantised tensors: a 0-d float32 scale for query, cache and probabilities, with `offsets` int32
    ones too.  The output has `out_dtype`, without it the query's.
    """
    found = _batch(tokens, sizes, requests)
    scale, offset = tensor("float32"), tensor("int32") if offsets else None
    inputs = {
        **_operands(tokens, sizes, found, mask, dtype, kv_dtype or dtype),
        "query_scale": scale,
        "query_offset": offset,
        "kv_scale": scale,
        "kv_offset": offset,
        "attention_prob_scale": scale,
        "attention_prob_offset": offset,
    }
    output = tensor(out_dtype or dtype, *sizes.query(tokens))
    return call("attention_quant", inputs, (output,), found, out_dtype=out_dtype and output.dtype)


def _batch(tokens: int, sizes: AttentionSizes, requests: Requests | None) -> Requests | None:
    positive(tokens=tokens)
    check_tokens(tokens, requests)
    if sizes.layout == "BNSD" and requests is not None and requests.count not in (None, tokens):
        raise InvalidValueError(f"tokens: expected one for each of {requests.count} requests (BNSD), got {tokens}")
    return requests if requests is None or sizes.blocks is None else paged(requests, sizes.block_size)


def _operands(
    tokens: int, sizes: AttentionSizes, requests: Requests | None, mask: Shape | None, dtype: str, kv_dtype: str
) -> dict[str, TensorSpec | None]:
    key = tensor(kv_dtype, *sizes.key(tokens))
    given = None if mask is None else tensor("bool", *mask)
    known = metadata(requests)
    if sizes.blocks is None:
        known.pop("block_table", None)
    return {"query": tensor(dtype, *sizes.query(tokens)), "key": key, "value": key, "attention_mask": given, **known}
