"""Canonical leaves of latent-attention preprocessing: two projections, then norm, rotary embedding and cache write.

Source: docs/facts/leaf-operators.md, "Attention", "Leaves of a composite".
"""

from __future__ import annotations

from tensor_cast.operators.composites.leaf_parts import (
    LackingError,
    integer,
    is_quantised,
    numbered,
    output_dtype,
    product,
    rows_of,
    tensor,
)
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.parallel import ParallelConfig

__all__ = ["preprocess_leaves"]


def preprocess_leaves(leaf: LeafOp, parallel: ParallelConfig) -> tuple[LeafOp, ...]:
    """`(T, H) x (H, q_lora+lora+rope)`, `(T, q_lora) x (q_lora, h*qk)`, and `kv_rmsnorm_rope_cache` on
    `(T, 1, 1, lora+rope)`, the form its kernel records.

    `mlapo_quant` rebuilds the second weight from the integer arguments, because it may be recorded sliced.
    """
    hidden = tensor(leaf, "hidden")
    tokens, width = rows_of(hidden)
    q_lora, lora, rope = (integer(leaf, name) for name in ("q_lora_rank", "kv_lora_rank", "qk_rope_dim"))
    dtype = output_dtype(leaf, hidden.dtype)
    weight_dtype, columns = _up_projection(leaf, q_lora)
    down = product((tokens, width), (width, q_lora + lora + rope), weight_dtype, dtype)
    up = product((tokens, q_lora), (q_lora, columns), weight_dtype, dtype)
    return numbered(leaf, (down, up, _norm_rope_cache(tokens, lora, rope, dtype)))


def _up_projection(leaf: LeafOp, q_lora: int) -> tuple[str, int]:
    """Dtype of both weights and the columns `h*qk` of the second; a quantised call without weights is INT8."""
    first = leaf.role("q_a_weight") or leaf.role("q_b_weight")
    if is_quantised(leaf):
        columns = integer(leaf, "num_heads") * integer(leaf, "qk_head_dim")
        return ("int8" if first is None else first.dtype), columns
    weight = tensor(leaf, "q_b_weight", 2)
    if weight.shape[1] != q_lora:
        raise LackingError(f"q_b_weight (h*qk, {q_lora})")
    return weight.dtype, weight.shape[0]


def _norm_rope_cache(tokens: int, lora: int, rope: int, dtype: str) -> LeafOp:
    inputs = (
        TensorSpec((tokens, 1, 1, lora + rope), dtype, role="kv"),
        TensorSpec((lora,), dtype, role="gamma"),
        TensorSpec((tokens, 1, 1, rope), dtype, role="cos"),
        TensorSpec((tokens, 1, 1, rope), dtype, role="sin"),
    )
    outputs = (TensorSpec((tokens, 1, 1, rope), dtype), TensorSpec((tokens, 1, 1, lora), dtype))
    attrs = (("kv_lora_rank", lora), ("qk_rope_dim", rope))
    return LeafOp("tensor_cast.kv_rmsnorm_rope_cache.default", inputs, outputs, attrs)
