"""Choosing experts, and bringing token rows to them and back.

T tokens, k experts each.  Gates make weights `(T, k)` like the scores and int64 expert ids `(T, k)`.
Source: docs/facts/leaf-operators.md "Experts and collectives".
"""

from __future__ import annotations

from collections.abc import Mapping

from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.sizes import at_most, positive
from tensor_cast.operators.leaf import AttrValue, LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = [
    "init_routing_v2",
    "moe_gating_top_k",
    "moe_gating_top_k_hash",
    "moe_gating_top_k_sigmoid",
    "moe_gating_top_k_softmax",
    "unpermute_tokens",
]


def moe_gating_top_k_softmax(tokens: int, experts: int, top_k: int, *, dtype: str = BF16) -> LeafOp:
    """The `top_k` of a softmax over all `experts` of the layer; refuses more than there are."""
    return _gate("moe_gating_top_k_softmax", "x", (tokens, experts, top_k), dtype, {}, {})


def moe_gating_top_k_sigmoid(
    tokens: int,
    experts: int,
    top_k: int,
    *,
    routed_scaling_factor: float = 1.0,
    correction_bias: bool = False,
    dtype: str = BF16,
) -> LeafOp:
    """The `top_k` of a sigmoid, chosen with a float32 correction `(experts)` where there is one."""
    bias = {"correction_bias": ("float32", (experts,))} if correction_bias else {}
    attrs = {"routed_scaling_factor": routed_scaling_factor}
    return _gate("moe_gating_top_k_sigmoid", "x", (tokens, experts, top_k), dtype, bias, attrs)


def moe_gating_top_k(
    tokens: int,
    experts: int,
    top_k: int,
    *,
    normalize_weights: bool = True,
    route_scale: float = 1.0,
    bias: bool = False,
    dtype: str = "float32",
) -> LeafOp:
    """DeepSeek-V4's gate over scores computed in float32, with a float32 bias `(experts)` where there is one."""
    inputs = {"bias": ("float32", (experts,))} if bias else {}
    attrs = {"normalize_weights": normalize_weights, "route_scale": route_scale}
    return _gate("moe_gating_top_k", "scores", (tokens, experts, top_k), dtype, inputs, attrs)


def moe_gating_top_k_hash(
    tokens: int,
    experts: int,
    top_k: int,
    *,
    vocabulary: int,
    normalize_weights: bool = True,
    route_scale: float = 1.0,
    dtype: str = "float32",
) -> LeafOp:
    """DeepSeek-V4's gate of the first layers: a table `(vocabulary, k)` gives each token id its experts."""
    positive(vocabulary=vocabulary)
    inputs = {"input_ids": ("int64", (tokens,)), "tid2eid": ("int64", (vocabulary, top_k))}
    attrs = {"normalize_weights": normalize_weights, "route_scale": route_scale}
    return _gate("moe_gating_top_k_hash", "scores", (tokens, experts, top_k), dtype, inputs, attrs)


def _gate(
    name: str,
    scores: str,
    sizes: tuple[int, int, int],
    dtype: str,
    more: Mapping[str, tuple[str, Shape]],
    attrs: Mapping[str, AttrValue],
) -> LeafOp:
    tokens, experts, top_k = sizes
    positive(tokens=tokens, experts=experts, top_k=top_k)
    at_most(experts, "experts", top_k=top_k)
    rest = {role: tensor(held, *shape) for role, (held, shape) in more.items()}
    outputs = tensor(dtype, tokens, top_k), tensor("int64", tokens, top_k)
    return call(name, {scores: tensor(dtype, tokens, experts), **rest}, outputs, top_k=top_k, **attrs)


def init_routing_v2(tokens: int, hidden: int, top_k: int, *, dtype: str = BF16) -> LeafOp:
    """Token rows `(T, H)` in the order of their experts, `(T*k, H)`."""
    inputs = _routed(tokens, tokens, hidden, top_k, dtype)
    return call("init_routing_v2", inputs, (tensor(dtype, tokens * top_k, hidden),))


def unpermute_tokens(tokens: int, hidden: int, top_k: int, *, dtype: str = BF16) -> LeafOp:
    """Expert rows `(T*k, H)` back in the order of the tokens, `(T, k, H)`."""
    inputs = _routed(tokens * top_k, tokens, hidden, top_k, dtype)
    return call("unpermute_tokens", inputs, (tensor(dtype, tokens, top_k, hidden),))


def _routed(rows: int, tokens: int, hidden: int, top_k: int, dtype: str) -> dict[str, TensorSpec]:
    positive(tokens=tokens, hidden=hidden, top_k=top_k)
    return {"x": tensor(dtype, rows, hidden), "topk_indices": tensor("int64", tokens, top_k)}
