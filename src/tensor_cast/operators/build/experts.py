"""Mixture of experts: gates, routing, grouped products, and the fused form.  Source: docs/facts/leaf-operators.md."""

from __future__ import annotations

from collections.abc import Sequence

from tensor_cast.errors import InvalidValueError, nearest
from tensor_cast.operators.build.parts import divided, leaf, like, sizes, tensor
from tensor_cast.operators.leaf import AttrValue, LeafOp
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["FUSED", "GATES", "GROUPED", "dispatch_ffn_combine", "grouped_matmul", "init_routing_v2", "moe_gating"]
__all__ += ["unpermute_tokens"]

GATES = ("softmax", "sigmoid", "v4", "v4_hash")
GROUPED = ("", "quant", "quant_int4", "fp8", "mxfp4")
FUSED = ("", "quant", "quant_int4", "fp8", "mxfp4")
_NAMES = {
    "softmax": "moe_gating_top_k_softmax",
    "sigmoid": "moe_gating_top_k_sigmoid",
    "v4": "moe_gating_top_k",
    "v4_hash": "moe_gating_top_k_hash",
}
_WEIGHTS = {"": "", "quant": "int8", "quant_int4": "int8", "fp8": "float8_e4m3fn", "mxfp4": "float4_e2m1fn_x2"}
_GROUP = 32


def moe_gating(kind: str, tokens: int, *, experts: int, top_k: int, dtype: str = "bfloat16") -> LeafOp:
    """Scores `(T, experts)`; out the weights and the indices `(T, top_k)` of the chosen experts."""
    if kind not in GATES:
        raise InvalidValueError(f"gate {kind!r}: one of {', '.join(GATES)}{nearest(kind, GATES)}")
    name = _NAMES[kind]
    sizes(name, tokens=tokens, experts=experts, top_k=top_k)
    if top_k > experts:
        raise InvalidValueError(f"{name}: top_k {top_k} is above the {experts} experts")
    scores = tensor("x" if kind in ("softmax", "sigmoid") else "scores", (tokens, experts), dtype)
    inputs = [scores]
    if kind == "v4_hash":
        inputs += [tensor("input_ids", (tokens,), "int64"), tensor("tid2eid", (experts,), "int64")]
    outputs = [tensor("", (tokens, top_k), dtype), tensor("", (tokens, top_k), "int64")]
    return leaf(name, inputs, outputs, {"top_k": top_k})


def init_routing_v2(tokens: int, *, hidden: int, top_k: int, dtype: str = "bfloat16") -> LeafOp:
    """Tokens copied for each of their experts: `(T x top_k, H)`."""
    sizes("init_routing_v2", tokens=tokens, hidden=hidden, top_k=top_k)
    inputs = (tensor("x", (tokens, hidden), dtype), tensor("topk_indices", (tokens, top_k), "int64"))
    return leaf("init_routing_v2", inputs, [tensor("", (tokens * top_k, hidden), dtype)])


def unpermute_tokens(tokens: int, *, hidden: int, top_k: int, dtype: str = "bfloat16") -> LeafOp:
    """Back from the experts' order: `(T, top_k, H)`."""
    sizes("unpermute_tokens", tokens=tokens, hidden=hidden, top_k=top_k)
    inputs = (tensor("x", (tokens * top_k, hidden), dtype), tensor("topk_indices", (tokens, top_k), "int64"))
    return leaf("unpermute_tokens", inputs, [tensor("", (tokens, top_k, hidden), dtype)])


def grouped_matmul(
    rows: Sequence[int], k: int, n: int, *, kind: str = "", swiglu: bool = False, out_dtype: str = "bfloat16"
) -> LeafOp:
    """One product for each local expert, `rows` tokens of it by `(K, N)`; out all rows, N halved by a fused SwiGLU.

    `kind` is one of `GROUPED`: plain, int8, packed INT4, FP8 or MXFP4 weights.
    """
    if kind not in GROUPED:
        raise InvalidValueError(f"grouped_matmul {kind!r}: one of {', '.join(filter(None, GROUPED))}, or plain")
    name = "grouped_matmul" + (f"_{kind}" if kind else "") + ("_swiglu" if swiglu else "")
    sizes(name, k=k, n=n, experts=len(rows), **{f"rows[{at}]": count for at, count in enumerate(rows)})
    width = divided(name, "n", n, 2) if swiglu else n
    held = {"": out_dtype, "quant": "int8", "fp8": "float8_e4m3fn", "mxfp4": "float4_e2m1fn_x2"}.get(kind, out_dtype)
    stored = _WEIGHTS[kind] or out_dtype
    weight = (divided(name, "k", k, 2), n) if kind == "quant_int4" else (k, n)
    inputs = [
        *(tensor("x", (count, k), held) for count in rows),
        *(tensor("weight", weight, stored) for _ in rows),
        *_group_scales(kind, rows, k, n),
    ]
    attrs: dict[str, AttrValue] = {"out_dtype": out_dtype} if kind else {}
    return leaf(name, inputs, [tensor("", (sum(rows), width), out_dtype)], attrs)


def _group_scales(kind: str, rows: Sequence[int], k: int, n: int) -> list[TensorSpec]:
    if not kind:
        return []
    if kind == "mxfp4":
        groups = -(-k // _GROUP)
        weights = [tensor("w_scale", (n, groups), "float8_e8m0fnu") for _ in rows]
        return [*weights, *(tensor("x_scale", (count, groups), "float8_e8m0fnu") for count in rows)]
    weights = [tensor("w_scale", (n,), "float32") for _ in rows]
    return [*weights, *(tensor("x_scale", (count,), "float32") for count in rows)]


def dispatch_ffn_combine(
    tokens: int,
    *,
    hidden: int,
    intermediate: int,
    experts: int,
    top_k: int,
    rank_group: tuple[int, ...],
    kind: str = "",
    stacked: bool = False,
    dtype: str = "bfloat16",
) -> LeafOp:
    """Dispatch, both products with SwiGLU between, and combine; `experts` are those of this rank; out `(T, top_k, H)`.

    One weight for each expert, or with `stacked` one tensor of all; `kind` is one of `FUSED`.
    """
    if kind not in FUSED:
        raise InvalidValueError(f"dispatch_ffn_combine {kind!r}: one of {', '.join(filter(None, FUSED))}, or plain")
    name = "dispatch_ffn_combine" + (f"_{kind}" if kind else "")
    sizes(name, tokens=tokens, hidden=hidden, intermediate=intermediate, experts=experts, top_k=top_k)
    sizes(name, ranks=len(rank_group))
    if top_k > experts * len(rank_group):
        raise InvalidValueError(f"{name}: top_k {top_k} is above the {experts * len(rank_group)} experts of all ranks")
    x = tensor("x", (tokens, hidden), dtype)
    inputs = [x, tensor("expert_indices", (tokens, top_k), "int64")]
    for part, (k, n) in (("gmm1", (hidden, 2 * intermediate)), ("gmm2", (intermediate, hidden))):
        inputs += _expert_weights(name, part, kind, k, n, experts, stacked, dtype)
    attrs: dict[str, AttrValue] = {"rank": rank_group[0], "rank_group": rank_group}
    return leaf(name, inputs, [tensor("", (tokens, top_k, hidden), like(x).dtype)], attrs)


def _expert_weights(
    name: str, part: str, kind: str, k: int, n: int, experts: int, stacked: bool, dtype: str
) -> list[TensorSpec]:
    shape = (divided(name, "k", k, 2), n) if kind == "quant_int4" else (k, n)
    stored = _WEIGHTS[kind] or dtype
    count = 1 if stacked else experts
    weights = [tensor(f"{part}_weight", (experts, *shape) if stacked else shape, stored) for _ in range(count)]
    if not kind:
        return weights
    scale = (experts, n) if stacked else (n,)
    return [*weights, *(tensor(f"{part}_scale", scale, "float32") for _ in range(count))]
