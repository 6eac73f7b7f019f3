"""Latent attention (MLA), its preprocessing, and the indexer that selects for its sparse form (DSA).

T tokens, B requests, h heads of this rank.  The cache is paged, `(blocks, block_size, lora+rope)`, its block table and
the vectors of lengths follow from the requests.
Source: docs/facts/leaf-operators.md "Attention"; names and order of the scales from the operators' public declarations;
docs/facts/gpu-tables.md for the forms of GPU tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tensor_cast.dtypes import canonical_dtype
from tensor_cast.operators.build.batch import BLOCK_SIZE, check_tokens, lengths, metadata, paged
from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.sizes import one_of, positive
from tensor_cast.operators.leaf import AttrValue, LeafOp, Requests
from tensor_cast.operators.tensor import TensorSpec

__all__ = [
    "LatentSizes",
    "latent_attention_block",
    "latent_bmm",
    "mla_sparse_attention",
    "mla_sparse_attention_quant",
    "mlapo",
    "mlapo_quant",
    "multihead_latent_attention",
    "multihead_latent_attention_quant",
]

_SCALED: Final = ("query", "kv", "kv_projected", "qk", "v", "attention_prob", "kv_b_proj")


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """Heads of this rank and widths, by their names in a model's configuration; refuses sizes below 1.

    A model without `q_lora_rank` (0) projects its queries in one step.
    """

    num_heads: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    kv_lora_rank: int
    v_head_dim: int
    q_lora_rank: int = 0

    def __post_init__(self) -> None:
        positive(
            num_heads=self.num_heads,
            qk_nope_head_dim=self.qk_nope_head_dim,
            qk_rope_head_dim=self.qk_rope_head_dim,
            kv_lora_rank=self.kv_lora_rank,
            v_head_dim=self.v_head_dim,
        )
        if self.q_lora_rank != 0:
            positive(q_lora_rank=self.q_lora_rank)

    @property
    def qk_head_dim(self) -> int:
        """Width of a query head: `nope + rope`."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def cache_width(self) -> int:
        """Width of a cached token: `lora + rope`."""
        return self.kv_lora_rank + self.qk_rope_head_dim


def mlapo(
    tokens: int, hidden: int, sizes: LatentSizes, *, dtype: str = BF16, weight_dtype: str | None = None
) -> LeafOp:
    """Preprocessing: queries `(T, h, qk)`, latents `(T, lora)`, their rotary part `(T, rope)`, and the normed query
    latent `(T, q_lora)`, of width 0 where the model has none; the query's weights are absent then.
    """
    inputs = _preprocessing(tokens, hidden, sizes, dtype, weight_dtype or dtype)
    return call("mlapo", inputs, _preprocessed(tokens, sizes, dtype), **_widths(sizes))


def mlapo_quant(
    tokens: int,
    hidden: int,
    sizes: LatentSizes,
    *,
    offsets: bool = False,
    dtype: str = BF16,
    weight_dtype: str = "int8",
) -> LeafOp:
    """`mlapo` with quantised weights: a float32 scale per row of each, int32 offsets where asked for.

    Refuses a model without `q_lora_rank`: its scales are not optional.
    """
    positive(q_lora_rank=sizes.q_lora_rank)
    rows = {"q_a": sizes.q_lora_rank, "q_b": sizes.num_heads * sizes.qk_head_dim, "kv_a": sizes.cache_width}
    inputs = _preprocessing(tokens, hidden, sizes, dtype, weight_dtype)
    for name, count in rows.items():
        inputs[f"{name}_scale"] = tensor("float32", count)
        inputs[f"{name}_offset"] = tensor("int32", count) if offsets else None
    return call("mlapo_quant", inputs, _preprocessed(tokens, sizes, dtype), **_widths(sizes))


def _preprocessing(
    tokens: int, hidden: int, sizes: LatentSizes, dtype: str, weight_dtype: str
) -> dict[str, TensorSpec | None]:
    positive(tokens=tokens, hidden=hidden)
    angles, q_lora = tensor(dtype, 1, tokens, sizes.qk_rope_head_dim), sizes.q_lora_rank
    return {
        "hidden": tensor(dtype, tokens, hidden),
        "cos": angles,
        "sin": angles,
        "q_a_weight": tensor(weight_dtype, q_lora, hidden) if q_lora else None,
        "q_a_norm": tensor(dtype, q_lora) if q_lora else None,
        "q_b_weight": tensor(weight_dtype, sizes.num_heads * sizes.qk_head_dim, q_lora) if q_lora else None,
        "kv_a_weight": tensor(weight_dtype, sizes.cache_width, hidden),
        "kv_a_norm": tensor(dtype, sizes.kv_lora_rank),
    }


def _preprocessed(tokens: int, sizes: LatentSizes, dtype: str) -> tuple[TensorSpec, ...]:
    widths = (sizes.kv_lora_rank, sizes.qk_rope_head_dim, sizes.q_lora_rank)
    query = tensor(dtype, tokens, sizes.num_heads, sizes.qk_head_dim)
    return query, *(tensor(dtype, tokens, width) for width in widths)


def _widths(sizes: LatentSizes) -> dict[str, AttrValue]:
    return {
        "num_heads": sizes.num_heads,
        "qk_head_dim": sizes.qk_head_dim,
        "qk_nope_dim": sizes.qk_nope_head_dim,
        "qk_rope_dim": sizes.qk_rope_head_dim,
        "kv_lora_rank": sizes.kv_lora_rank,
        "q_lora_rank": sizes.q_lora_rank,
    }


def multihead_latent_attention(
    tokens: int,
    sizes: LatentSizes,
    requests: Requests,
    *,
    blocks: int,
    block_size: int = BLOCK_SIZE,
    dtype: str = BF16,
    cache_dtype: str | None = None,
    weight_dtype: str | None = None,
) -> LeafOp:
    """Dense latent attention: queries `(T, h, nope+rope)` to `(T, h, v)`.

    Both forms' weights come along: `w_uk_t` and `w_uv` for decode, `kv_b_proj` for prefill.
    """
    cache = _Paged(tokens, requests, blocks, block_size, cache_dtype or dtype)
    return _attended("multihead_latent_attention", sizes, cache, (dtype, weight_dtype or dtype, dtype))


def multihead_latent_attention_quant(
    tokens: int,
    sizes: LatentSizes,
    requests: Requests,
    *,
    blocks: int,
    block_size: int = BLOCK_SIZE,
    offsets: bool = False,
    out_scale: bool = False,
    dtype: str = "int8",
    cache_dtype: str | None = None,
    weight_dtype: str = "int8",
    out_dtype: str | None = None,
) -> LeafOp:
    """Dense latent attention on quantised tensors: every scale is 0-d float32, every offset 0-d int32.

    The output has `out_dtype`, without it the query's.
    """
    cache = _Paged(tokens, requests, blocks, block_size, cache_dtype or dtype)
    kinds = (dtype, weight_dtype, out_dtype or dtype)
    scales, out = _scales(offsets, out_scale), out_dtype and canonical_dtype(out_dtype)
    return _attended("multihead_latent_attention_quant", sizes, cache, kinds, scales, out_dtype=out)


def mla_sparse_attention(
    tokens: int,
    sizes: LatentSizes,
    requests: Requests,
    *,
    topk_limit: int,
    blocks: int,
    block_size: int = BLOCK_SIZE,
    is_decode_values: Iterable[bool] | None = None,
    dtype: str = BF16,
    cache_dtype: str | None = None,
    weight_dtype: str | None = None,
) -> LeafOp:
    """Latent attention over the positions that int64 indices `(1, T, topk_limit)` select.

    `is_decode_values` says for each request whether it decodes.
    """
    cache = _Paged(tokens, requests, blocks, block_size, cache_dtype or dtype)
    kinds, attrs = (dtype, weight_dtype or dtype, dtype), {"topk_limit": topk_limit, **_flags(is_decode_values)}
    return _attended("mla_sparse_attention", sizes, cache, kinds, _selected(tokens, topk_limit), **attrs)


def mla_sparse_attention_quant(
    tokens: int,
    sizes: LatentSizes,
    requests: Requests,
    *,
    topk_limit: int,
    blocks: int,
    block_size: int = BLOCK_SIZE,
    offsets: bool = False,
    out_scale: bool = False,
    is_decode_values: Iterable[bool] | None = None,
    dtype: str = "int8",
    cache_dtype: str | None = None,
    weight_dtype: str = "int8",
    out_dtype: str | None = None,
) -> LeafOp:
    """The sparse form on quantised tensors, with the scales of `multihead_latent_attention_quant`."""
    cache = _Paged(tokens, requests, blocks, block_size, cache_dtype or dtype)
    kinds, more = (dtype, weight_dtype, out_dtype or dtype), _selected(tokens, topk_limit) | _scales(offsets, out_scale)
    attrs = {"topk_limit": topk_limit, "out_dtype": out_dtype and canonical_dtype(out_dtype)}
    return _attended("mla_sparse_attention_quant", sizes, cache, kinds, more, **attrs, **_flags(is_decode_values))


@dataclass(frozen=True, slots=True)
class _Paged:
    """The batch that attention serves, and the paged cache that it reads."""

    tokens: int
    requests: Requests
    blocks: int
    block_size: int
    dtype: str


def _attended(
    operator: str,
    sizes: LatentSizes,
    cache: _Paged,
    dtypes: tuple[str, str, str],
    more: Mapping[str, TensorSpec | None] | None = None,
    **attrs: AttrValue,
) -> LeafOp:
    """Attention with its weights, whose tensors every form has, before those (`more`) of one form.

    `dtypes` are those of query, weights and output.
    """
    positive(tokens=cache.tokens, blocks=cache.blocks, block_size=cache.block_size)
    check_tokens(cache.tokens, cache.requests)
    requests = paged(cache.requests, cache.block_size)
    heads, nope, lora, width = sizes.num_heads, sizes.qk_nope_head_dim, sizes.kv_lora_rank, sizes.v_head_dim
    query, weight, out = dtypes
    inputs = {
        "query": tensor(query, cache.tokens, heads, sizes.qk_head_dim),
        "kv_cache": tensor(cache.dtype, cache.blocks, cache.block_size, sizes.cache_width),
        **metadata(requests),
        "w_uk_t": tensor(weight, heads, nope, lora),
        "w_uv": tensor(weight, heads, lora, width),
        "kv_b_proj": tensor(weight, lora, heads * (nope + width)),
        **(more or {}),
    }
    values = tensor(out, cache.tokens, heads, width)
    return call(operator, inputs, (values,), requests, v_head_dim=width, **attrs)


def _selected(tokens: int, topk_limit: int) -> dict[str, TensorSpec | None]:
    positive(topk_limit=topk_limit)
    return {"topk_indices": tensor("int64", 1, tokens, topk_limit)}


def _scales(offsets: bool, out_scale: bool) -> dict[str, TensorSpec | None]:
    found: dict[str, TensorSpec | None] = {}
    for name in (*_SCALED, "out") if out_scale else _SCALED:
        found[f"{name}_scale"] = tensor("float32")
        found[f"{name}_offset"] = tensor("int32") if offsets else None
    return found


def _flags(is_decode_values: Iterable[bool] | None) -> Mapping[str, AttrValue]:
    """As a recorded call has them: words, which JSON hands back unchanged."""
    return {} if is_decode_values is None else {"is_decode_values": tuple(str(flag) for flag in is_decode_values)}


def latent_bmm(heads: int, tokens: int, k: int, n: int, *, stage: Literal["pre", "post"], dtype: str = BF16) -> LeafOp:
    """A batched projection around decode attention, `(h, T, K) x (h, K, N)`: `pre` into the latent space, `post` out
    of it.  Asked of GPU tables.
    """
    positive(heads=heads, tokens=tokens, k=k, n=n)
    one_of(("pre", "post"), stage=stage)
    inputs = {"x": tensor(dtype, heads, tokens, k), "weight": tensor(dtype, heads, k, n)}
    return call("latent_bmm", inputs, (tensor(dtype, heads, tokens, n),), stage=stage)


def latent_attention_block(
    tokens: int,
    hidden: int,
    requests: Requests,
    *,
    num_heads: int,
    cache_width: int,
    blocks: int,
    model: str,
    gemm_type: str,
    block_size: int = BLOCK_SIZE,
    dtype: str = BF16,
    cache_dtype: str | None = None,
) -> LeafOp:
    """Projections and attention in one, `(T, H)` to `(T, H)`.  Asked of GPU tables, which know sizes by `model`."""
    sizes = {"tokens": tokens, "hidden": hidden, "num_heads": num_heads, "cache_width": cache_width}
    positive(**sizes, blocks=blocks, block_size=block_size)
    check_tokens(tokens, requests)
    x = tensor(dtype, tokens, hidden)
    inputs = {
        "hidden": x,
        "kv_cache": tensor(cache_dtype or dtype, blocks, block_size, cache_width),
        **lengths(requests),
    }
    attrs: dict[str, AttrValue] = {"num_heads": num_heads, "model": model, "gemm_type": gemm_type}
    return call("latent_attention_block", inputs, (x,), requests, **attrs)
