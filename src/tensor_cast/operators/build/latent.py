"""Multi-head latent attention and the indexer before it.  Source: docs/facts/leaf-operators.md."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.operators.build.parts import BLOCK, leaf, new_tokens, sizes, tensor
from tensor_cast.operators.leaf import LeafOp, Requests
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["LatentSizes", "dsa_indexer", "mla_sparse_attention", "mlapo", "multihead_latent_attention"]

_INDEX_DIM = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentSizes:
    """The widths of latent attention on one rank; `q_lora_rank` is None where the query has no latent."""

    heads: int
    nope_dim: int
    rope_dim: int
    kv_lora_rank: int
    v_dim: int
    q_lora_rank: int | None = None

    @property
    def qk_dim(self) -> int:
        return self.nope_dim + self.rope_dim

    @property
    def cache_width(self) -> int:
        return self.kv_lora_rank + self.rope_dim

    def check(self, operator: str) -> None:
        """Raises InvalidValueError for a width below 1."""
        given = {"heads": self.heads, "nope_dim": self.nope_dim, "rope_dim": self.rope_dim, "v_dim": self.v_dim}
        sizes(operator, **given, kv_lora_rank=self.kv_lora_rank)
        if self.q_lora_rank is not None:
            sizes(operator, q_lora_rank=self.q_lora_rank)


def mlapo(tokens: int, *, hidden: int, latent: LatentSizes, quant: bool = False, dtype: str = "bfloat16") -> LeafOp:
    """Everything before latent attention; out q, kv_c, k_rot and the normed latent of q (width 0 without one).

    With `quant` it is `mlapo_quant`: int8 weights and a scale for each of the three products.
    """
    name = "mlapo_quant" if quant else "mlapo"
    sizes(name, tokens=tokens, hidden=hidden)
    latent.check(name)
    stored = "int8" if quant else dtype
    q, turn = latent.q_lora_rank, (1, tokens, latent.rope_dim)
    width = latent.heads * latent.qk_dim
    inputs = [tensor("hidden", (tokens, hidden), dtype), tensor("cos", turn, dtype), tensor("sin", turn, dtype)]
    if q is not None:
        inputs += [tensor("q_a_weight", (q, hidden), stored), tensor("q_a_norm", (q,), dtype)]
    inputs.append(tensor("q_b_weight", (width, hidden if q is None else q), stored))
    inputs += [
        tensor("kv_a_weight", (latent.cache_width, hidden), stored),
        tensor("kv_a_norm", (latent.kv_lora_rank,), dtype),
    ]
    if quant:
        inputs += [tensor(f"{part}_scale", (), "float32") for part in ("q_a", "q_b", "kv_a")]
    attrs = {
        "num_heads": latent.heads,
        "qk_head_dim": latent.qk_dim,
        "qk_nope_dim": latent.nope_dim,
        "qk_rope_dim": latent.rope_dim,
        "kv_lora_rank": latent.kv_lora_rank,
        "q_lora_rank": q or 0,
    }
    shapes = ((latent.heads, latent.qk_dim), (latent.kv_lora_rank,), (latent.rope_dim,))
    outputs = [tensor("", (tokens, *shape), dtype) for shape in shapes]
    if q is not None:
        outputs.append(tensor("", (tokens, q), dtype))
    return leaf(name, inputs, outputs, attrs)


def multihead_latent_attention(
    requests: Requests,
    *,
    latent: LatentSizes,
    blocks: int,
    block_size: int = BLOCK,
    quant: bool = False,
    dtype: str = "bfloat16",
) -> LeafOp:
    """Query `(T, heads, nope + rope)` over the latent cache; out `(T, heads, v)`.  `quant`: the int8 form."""
    name = "multihead_latent_attention" + ("_quant" if quant else "")
    inputs, output = _latent(name, requests, latent, blocks, block_size, quant, dtype)
    return leaf(name, inputs, [output], {"v_head_dim": latent.v_dim}, requests)


def mla_sparse_attention(
    requests: Requests,
    *,
    latent: LatentSizes,
    blocks: int,
    topk: int,
    block_size: int = BLOCK,
    quant: bool = False,
    dtype: str = "bfloat16",
) -> LeafOp:
    """The same over the `topk` positions that the indexer chose for each token."""
    name = "mla_sparse_attention" + ("_quant" if quant else "")
    sizes(name, topk=topk)
    inputs, output = _latent(name, requests, latent, blocks, block_size, quant, dtype)
    chosen = tensor("topk_indices", (inputs[0].shape[0], topk), "int64")
    return leaf(name, (*inputs, chosen), [output], {"v_head_dim": latent.v_dim, "topk_limit": topk}, requests)


def _latent(
    name: str, requests: Requests, latent: LatentSizes, blocks: int, block_size: int, quant: bool, dtype: str
) -> tuple[tuple[TensorSpec, ...], TensorSpec]:
    latent.check(name)
    sizes(name, blocks=blocks, block_size=block_size)
    tokens, count = new_tokens(name, requests), len(requests.query_lens or ())
    held = "int8" if quant else dtype
    width = (requests.block_table_shape or (count, 1))[-1]
    inputs = (
        tensor("query", (tokens, latent.heads, latent.qk_dim), held),
        tensor("kv_cache", (blocks, block_size, latent.cache_width), held),
        tensor("block_table", (count, width), "int32"),
        tensor("query_start_loc", (count + 1,), "int32"),
        tensor("seq_lens", (count,), "int32"),
        tensor("query_lens", (count,), "int32"),
        tensor("w_uk_t", (latent.heads, latent.nope_dim, latent.kv_lora_rank), dtype),
        tensor("w_uv", (latent.heads, latent.kv_lora_rank, latent.v_dim), dtype),
    )
    return inputs, tensor("", (tokens, latent.heads, latent.v_dim), dtype)


def dsa_indexer(
    tokens: int,
    *,
    hidden: int,
    q_lora_rank: int,
    index_heads: int,
    rope_dim: int,
    topk: int,
    blocks: int,
    block_size: int = BLOCK,
    dtype: str = "bfloat16",
    requests: Requests | None = None,
) -> LeafOp:
    """Scores of every cached position; out the indices `(1, T, topk)` of the best."""
    name = "dsa_indexer"
    sizes(name, tokens=tokens, hidden=hidden, q_lora_rank=q_lora_rank, index_heads=index_heads, rope_dim=rope_dim)
    sizes(name, topk=topk, blocks=blocks, block_size=block_size)
    turn = (1, tokens, rope_dim)
    inputs = (
        tensor("hidden", (1, tokens, hidden), dtype),
        tensor("qa_normed", (1, tokens, q_lora_rank), dtype),
        tensor("cos", turn, dtype),
        tensor("sin", turn, dtype),
        tensor("indexer_cache", (blocks, block_size, _INDEX_DIM), dtype),
        tensor("wq_b", (index_heads * _INDEX_DIM, q_lora_rank), dtype),
        tensor("wk", (_INDEX_DIM, hidden), dtype),
        tensor("weights_proj", (index_heads, hidden), dtype),
        tensor("k_norm", (_INDEX_DIM,), dtype),
    )
    attrs = {"num_heads": index_heads, "head_dim": _INDEX_DIM, "qk_rope_dim": rope_dim, "topk_limit": topk}
    return leaf(name, inputs, [tensor("", (1, tokens, topk), "int64")], attrs, requests)
