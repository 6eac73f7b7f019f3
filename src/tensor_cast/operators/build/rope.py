"""Rotary embedding.

B sequences of S tokens (the simulator packs a batch as one sequence), h and hk heads of query and key, d their width.
Source: docs/facts/leaf-operators.md "Attention".
"""

from __future__ import annotations

from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.sizes import at_most, positive
from tensor_cast.operators.leaf import LeafOp

__all__ = ["apply_rope", "apply_rope_inplace", "apply_rope_single", "fused_rope"]


def apply_rope(
    tokens: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    batch: int = 1,
    key_first: bool = True,
    is_neox: bool = True,
    dtype: str = BF16,
) -> LeafOp:
    """`(B, h, S, d)` and `(B, hk, S, d)` to `(B, S, h, d)` and `(B, S, hk, d)`.

    Compiled graphs hand the key over as the first argument, and rows are matched that way;
    `key_first` False gives the order of the declaration.
    """
    positive(tokens=tokens, heads=heads, kv_heads=kv_heads, head_dim=head_dim, batch=batch)
    first, second = (kv_heads, heads) if key_first else (heads, kv_heads)
    angles = tensor(dtype, batch, tokens, head_dim)
    inputs = {
        "query": tensor(dtype, batch, first, tokens, head_dim),
        "key": tensor(dtype, batch, second, tokens, head_dim),
        "cos": angles,
        "sin": angles,
    }
    outputs = tensor(dtype, batch, tokens, first, head_dim), tensor(dtype, batch, tokens, second, head_dim)
    return call("apply_rope", inputs, outputs, is_neox=is_neox)


def apply_rope_single(
    tokens: int,
    heads: int,
    head_dim: int,
    *,
    batch: int = 1,
    is_neox: bool = True,
    transpose_output: bool = True,
    dtype: str = BF16,
) -> LeafOp:
    """`(B, h, S, d)` to `(B, S, h, d)`, or to its own shape."""
    positive(tokens=tokens, heads=heads, head_dim=head_dim, batch=batch)
    x, angles = tensor(dtype, batch, heads, tokens, head_dim), tensor(dtype, batch, tokens, head_dim)
    output = tensor(dtype, batch, tokens, heads, head_dim) if transpose_output else x
    inputs = {"x": x, "cos": angles, "sin": angles}
    return call("apply_rope_single", inputs, (output,), is_neox=is_neox, transpose_output=transpose_output)


def apply_rope_inplace(
    tokens: int,
    heads: int | None,
    head_dim: int,
    *,
    rope_head_dim: int = -1,
    batch: int = 1,
    is_neox: bool = True,
    inverse: bool = False,
    dtype: str = BF16,
) -> LeafOp:
    """`(B, S, h, d)`, or `(B, S, d)` for `heads` None, changed where it lies.

    The last `rope_head_dim` values of a head turn, all of them for -1; refuses more than there are.
    """
    positive(tokens=tokens, head_dim=head_dim, batch=batch)
    if heads is not None:
        positive(heads=heads)
    if rope_head_dim != -1:
        positive(rope_head_dim=rope_head_dim)
        at_most(head_dim, "head_dim", rope_head_dim=rope_head_dim)
    x = tensor(dtype, batch, tokens, *(() if heads is None else (heads,)), head_dim)
    angles = tensor(dtype, batch, tokens, head_dim if rope_head_dim == -1 else rope_head_dim)
    inputs = {"x": x, "cos": angles, "sin": angles}
    return call("apply_rope_inplace", inputs, (x,), is_neox=is_neox, inverse=inverse, rope_head_dim=rope_head_dim)


def fused_rope(
    tokens: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    rotary_dim: int | None = None,
    is_neox_style: bool = True,
    dtype: str = BF16,
) -> LeafOp:
    """`(T, h, d)` and `(T, hk, d)` with one table of angles `(T, 2*rotary_dim)`; `rotary_dim` is d unless given."""
    positive(tokens=tokens, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    turned = head_dim if rotary_dim is None else rotary_dim
    positive(rotary_dim=turned)
    at_most(head_dim, "head_dim", rotary_dim=turned)
    query, key = tensor(dtype, tokens, heads, head_dim), tensor(dtype, tokens, kv_heads, head_dim)
    inputs = {"query": query, "key": key, "cos_sin": tensor(dtype, tokens, 2 * turned)}
    return call("fused_rope", inputs, (query, key), rotary_dim=turned, is_neox_style=is_neox_style)
