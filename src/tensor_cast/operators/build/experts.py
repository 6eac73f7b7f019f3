"""The products of routed experts: one launch over all local ones, and dispatch, experts and combine in one.

Weights come as one tensor per local expert, or `stacked` as one with the experts in front.
Source: docs/facts/leaf-operators.md "Experts and collectives"; docs/facts/gpu-tables.md for `fused_experts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.call import BF16, Inputs, call, copies, tensor
from tensor_cast.operators.build.collectives import group_attrs
from tensor_cast.operators.build.precision import Precision, Quant, precision
from tensor_cast.operators.build.sizes import Rows, at_most, leading, multiple, positive
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["ExpertSizes", "dispatch_ffn_combine", "fused_experts", "grouped_matmul"]

Tensors = tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """The `experts` of this rank: `(hidden, 2*intermediate)` and `(intermediate, hidden)` each, `top_k` for a token."""

    experts: int
    hidden: int
    intermediate: int
    top_k: int

    def __post_init__(self) -> None:
        positive(experts=self.experts, hidden=self.hidden, intermediate=self.intermediate, top_k=self.top_k)


def grouped_matmul(
    rows: int | Sequence[int],
    k: int,
    n: int,
    *,
    experts: int,
    quant: Quant = "plain",
    swiglu: bool = False,
    stacked: bool = False,
    bias: bool = False,
    offsets: bool = False,
    dtype: str | None = None,
    out_dtype: str | None = None,
) -> LeafOp:
    """`(m, K) x (K, N)` of each expert, together `(rows in all, N)`, or `(..., N/2)` with `swiglu`.

    `rows` is the same number for every expert or one each, 0 allowed; `dtype` the activation's where it differs from
    the quantisation's own.  The output has `out_dtype`, without it the activation's dtype, for FP8 and MXFP4 float16.
    Refuses rows that are not one per expert or none at all, and an odd N with `swiglu`.
    """
    held = precision(quant)
    if dtype is not None:
        held = replace(held, activation=dtype, stored=dtype if quant == "plain" else held.stored)
    positive(k=k, n=n, experts=experts)
    if swiglu:
        multiple(2, "gate and up lie side by side", n=n)
    counts = _rows(rows, experts)
    inputs = _grouped(held, (sum(counts),) if stacked else counts, (k, n), experts if stacked else None)
    if offsets and quant in ("w8a8", "int4"):
        inputs = _with_offsets(inputs)
    made = tensor(out_dtype or held.made or held.activation, sum(counts), n // 2 if swiglu else n)
    column = tensor(made.dtype, *((experts, n) if stacked else (n,)))
    inputs = {**inputs, "bias": copies(1 if stacked else experts, column) if bias else ()}
    name = f"grouped_matmul{held.suffix}{'_swiglu' if swiglu else ''}"
    return call(name, inputs, (made,), out_dtype=made.dtype if out_dtype and quant != "plain" else None)


def _rows(rows: int | Sequence[int], experts: int) -> tuple[int, ...]:
    counts = (rows,) * experts if isinstance(rows, int) else tuple(rows)
    if len(counts) != experts or any(type(count) is not int or count < 0 for count in counts) or not sum(counts):
        raise InvalidValueError(f"rows: expected {experts} whole numbers >= 0, one per expert, not all 0, got {rows}")
    return counts


def _grouped(held: Precision, rows: tuple[int, ...], sizes: tuple[int, int], stack: int | None) -> dict[str, Tensors]:
    """Activations, weights and their scales; a stack of experts is one weight with one scale."""
    k, n = sizes
    lead = () if stack is None else (stack,)
    lists = {"x": tuple(tensor(held.activation, m, k) for m in rows)}
    lists["weight"] = copies(len(rows), held.weight(k, n, *lead))
    column = held.weight_scale(k, n, *lead)
    if column is None:
        return lists
    scales = (held.activation_scale(m, k) for m in rows)
    return {**lists, "w_scale": copies(len(rows), column), "x_scale": tuple(spec for spec in scales if spec)}


def _with_offsets(inputs: dict[str, Tensors]) -> dict[str, Tensors]:
    """An int32 offset behind each scale."""
    found: dict[str, Tensors] = {}
    for role, specs in inputs.items():
        found[role] = specs
        if role.endswith("_scale"):
            found[role.replace("scale", "offset")] = tuple(tensor("int32", *spec.shape) for spec in specs)
    return found


def dispatch_ffn_combine(
    tokens: Rows,
    sizes: ExpertSizes,
    *,
    rank_group: Sequence[int],
    rank: int | None = None,
    quant: Quant = "plain",
    stacked: bool = False,
    scales: bool = True,
    dtype: str = BF16,
    gmm1_out_dtype: str | None = None,
    gmm2_out_dtype: str | None = None,
) -> LeafOp:
    """Tokens `(..., H)` to their experts on all ranks, the feed-forward, and back: `(..., k, H)` like the tokens.

    Expert ids are int64 `(..., k)`.  Quantised weights come with a scale per column (MXFP4: per 32 of K as well);
    `scales` False leaves them out, for tables measured without.  Refuses a `top_k` above the experts of all ranks.
    """
    group = group_attrs(rank_group, rank)
    at_most(sizes.experts * len(rank_group), "the experts of all ranks", top_k=sizes.top_k)
    held, lead = precision(quant), leading(tokens)
    if quant == "plain":
        held = replace(held, stored=dtype)
    inputs: Inputs = {
        "x": tensor(dtype, *lead, sizes.hidden),
        "expert_indices": tensor("int64", *lead, sizes.top_k),
        **_side("gmm1", held, sizes, stacked, scales),
        **_side("gmm2", held, sizes, stacked, scales),
    }
    output = tensor(dtype, *lead, sizes.top_k, sizes.hidden)
    dtypes = {"gmm1_out_dtype": gmm1_out_dtype, "gmm2_out_dtype": gmm2_out_dtype} if quant != "plain" else {}
    return call(f"dispatch_ffn_combine{held.suffix}", inputs, (output,), **dtypes, **group)


def fused_experts(
    tokens: int, sizes: ExpertSizes, *, stacked: bool = True, dtype: str = BF16, weight_dtype: str | None = None
) -> LeafOp:
    """The feed-forward of a layer's routed experts, `(T, H)` to `(T, H)`.  Asked of GPU tables."""
    positive(tokens=tokens)
    held = replace(precision("plain"), stored=weight_dtype or dtype)
    x = tensor(dtype, tokens, sizes.hidden)
    inputs: Inputs = {
        "x": x,
        "topk_indices": tensor("int64", tokens, sizes.top_k),
        **_side("gmm1", held, sizes, stacked, scales=False),
        **_side("gmm2", held, sizes, stacked, scales=False),
    }
    return call("fused_experts", inputs, (x,))


def _side(product: str, held: Precision, sizes: ExpertSizes, stacked: bool, scales: bool) -> dict[str, Tensors]:
    """Weights and scales of the first product `(H, 2*intermediate)` or the second `(intermediate, H)`."""
    first = product == "gmm1"
    k, n = (sizes.hidden, 2 * sizes.intermediate) if first else (sizes.intermediate, sizes.hidden)
    lead, count = ((sizes.experts,), 1) if stacked else ((), sizes.experts)
    column = held.weight_scale(k, n, *lead) if scales else None
    weights = {f"{product}_weight": copies(count, held.weight(k, n, *lead))}
    return weights if column is None else {**weights, f"{product}_scale": copies(count, column)}
