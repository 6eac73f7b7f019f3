"""Matrix products, quantised ones, and products with their collective.  Source: docs/facts/leaf-operators.md."""

from __future__ import annotations

from tensor_cast.errors import InvalidValueError, nearest
from tensor_cast.operators.build.parts import divided, leaf, sizes, tensor
from tensor_cast.operators.leaf import AttrValue, LeafOp
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["LINEARS", "addmm", "bmm", "linear", "matmul_all_reduce", "mm"]

LINEARS = ("static_quant_linear", "static_quant_linear_int4", "fp8_linear", "mxfp4_linear")
_GROUP = 32


def mm(m: int, k: int, n: int, *, dtype: str = "bfloat16") -> LeafOp:
    """`(M, K)` by `(K, N)`."""
    sizes("aten.mm", m=m, k=k, n=n)
    inputs = (tensor("x", (m, k), dtype), tensor("weight", (k, n), dtype))
    return leaf("aten.mm.default", inputs, [tensor("", (m, n), dtype)])


def bmm(batch: int, m: int, k: int, n: int, *, dtype: str = "bfloat16") -> LeafOp:
    """`(B, M, K)` by `(B, K, N)`."""
    sizes("aten.bmm", batch=batch, m=m, k=k, n=n)
    inputs = (tensor("x", (batch, m, k), dtype), tensor("weight", (batch, k, n), dtype))
    return leaf("aten.bmm.default", inputs, [tensor("", (batch, m, n), dtype)])


def addmm(m: int, k: int, n: int, *, dtype: str = "bfloat16") -> LeafOp:
    """A bias `(N)` added to `(M, K)` by `(K, N)`."""
    sizes("aten.addmm", m=m, k=k, n=n)
    inputs = (tensor("bias", (n,), dtype), tensor("x", (m, k), dtype), tensor("weight", (k, n), dtype))
    return leaf("aten.addmm.default", inputs, [tensor("", (m, n), dtype)])


def linear(
    kind: str,
    m: int,
    k: int,
    n: int,
    *,
    rank_group: tuple[int, ...] | None = None,
    bias: bool = False,
    dtype: str | None = None,
    out_dtype: str = "bfloat16",
) -> LeafOp:
    """One of `LINEARS`; with a `rank_group` the form that is followed by an all-reduce.

    `dtype` is that of the activation: int8 or fp8 by default, bfloat16 before 4-bit weights.  INT4 weights are stored
    `(K/2, N)`, two values in one int8.
    """
    if kind not in LINEARS:
        raise InvalidValueError(f"linear {kind!r}: one of {', '.join(LINEARS)}{nearest(kind, LINEARS)}")
    sizes(kind, m=m, k=k, n=n)
    inputs = [*_operands(kind, m, k, n, dtype), *([tensor("bias", (n,), "float32")] if bias else [])]
    attrs: dict[str, AttrValue] = {"out_dtype": out_dtype}
    output = [tensor("", (m, n), out_dtype)]
    if rank_group is None:
        return leaf(kind, inputs, output, attrs)
    return leaf(f"{kind}_all_reduce", inputs, output, {**attrs, "rank": rank_group[0], "rank_group": rank_group})


def _operands(kind: str, m: int, k: int, n: int, dtype: str | None) -> list[TensorSpec]:
    """Activation, weight and scales in the operator's own order."""
    if kind == "fp8_linear":
        held = dtype or "float8_e4m3fn"
        operands = [tensor("x", (m, k), held), tensor("weight", (k, n), "float8_e4m3fn")]
        return [*operands, tensor("x_scale", (m, 1), "float32"), tensor("w_scale", (n,), "float32")]
    if kind == "mxfp4_linear":
        groups = -(-k // _GROUP)
        scales = [tensor(f"{side}_scale", (rows, groups), "float8_e8m0fnu") for side, rows in (("x", m), ("w", n))]
        return [tensor("x", (m, k), dtype or "float4_e2m1fn_x2"), tensor("weight", (k, n), "float4_e2m1fn_x2"), *scales]
    packed = kind.endswith("_int4")
    weight = (divided(kind, "k", k, 2), n) if packed else (k, n)
    held = dtype or ("bfloat16" if packed else "int8")
    scales = [tensor("w_scale", (n,), "float32"), *([] if packed else [tensor("x_scale", (m, 1), "float32")])]
    return [tensor("x", (m, k), held), tensor("weight", weight, "int8"), *scales]


def matmul_all_reduce(m: int, k: int, n: int, *, rank_group: tuple[int, ...], dtype: str = "bfloat16") -> LeafOp:
    """`(M, K)` by `(K, N)`, summed over the ranks."""
    if len(rank_group) < 1:
        raise InvalidValueError("matmul_all_reduce: rank_group names at least one rank")
    found = mm(m, k, n, dtype=dtype)
    attrs: dict[str, AttrValue] = {"rank": rank_group[0], "rank_group": rank_group}
    return leaf("matmul_all_reduce", found.inputs, found.outputs, attrs)
