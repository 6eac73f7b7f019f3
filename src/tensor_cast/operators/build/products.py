"""Matrix products, plain and quantised, and those that all-reduce what they make.

`(M, K) x (K, N) -> (M, N)` with M the tokens.  A `rank_group` makes the `..._all_reduce` variant over its ranks, of
which `rank` is this one (by default the first).
Source: docs/facts/leaf-operators.md "Products and quantisation"; docs/facts/gpu-tables.md for NVFP4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tensor_cast.operators.build.call import BF16, Inputs, call, tensor
from tensor_cast.operators.build.collectives import group_attrs
from tensor_cast.operators.build.precision import precision
from tensor_cast.operators.build.sizes import one_of, positive
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec

__all__ = [
    "addmm",
    "bmm",
    "fp8_linear",
    "matmul_all_reduce",
    "mm",
    "mxfp4_linear",
    "nvfp4_linear",
    "static_quant_linear",
]


def mm(tokens: int, k: int, n: int, *, dtype: str = BF16) -> LeafOp:
    """`aten.mm` of `(M, K)` and `(K, N)`."""
    positive(tokens=tokens, k=k, n=n)
    return call("aten.mm.default", _operands(dtype, tokens, k, n), (tensor(dtype, tokens, n),))


def addmm(tokens: int, k: int, n: int, *, dtype: str = BF16) -> LeafOp:
    """`aten.addmm`: a bias `(N)` in front of the two matrices."""
    positive(tokens=tokens, k=k, n=n)
    inputs = {"bias": tensor(dtype, n), **_operands(dtype, tokens, k, n)}
    return call("aten.addmm.default", inputs, (tensor(dtype, tokens, n),))


def bmm(batch: int, m: int, k: int, n: int, *, dtype: str = BF16) -> LeafOp:
    """`aten.bmm`: `batch` products of `(M, K)` and `(K, N)`."""
    positive(batch=batch, m=m, k=k, n=n)
    inputs = {"x": tensor(dtype, batch, m, k), "weight": tensor(dtype, batch, k, n)}
    return call("aten.bmm.default", inputs, (tensor(dtype, batch, m, n),))


def matmul_all_reduce(
    tokens: int,
    k: int,
    n: int,
    *,
    rank_group: Sequence[int],
    rank: int | None = None,
    bias: bool = False,
    dtype: str = BF16,
) -> LeafOp:
    """A plain product and the sum of its output over the ranks."""
    positive(tokens=tokens, k=k, n=n)
    inputs = {**_operands(dtype, tokens, k, n), "bias": tensor(dtype, n) if bias else None}
    return _linear("matmul", inputs, tensor(dtype, tokens, n), rank_group, rank)


def static_quant_linear(
    tokens: int,
    k: int,
    n: int,
    *,
    packed: bool = False,
    w_scale: Literal["channel", "tensor"] = "channel",
    x_scale: Literal["token", "tensor"] | None = "token",
    offsets: bool = False,
    bias: bool = False,
    x_dtype: str = "int8",
    out_dtype: str | None = None,
    rank_group: Sequence[int] | None = None,
    rank: int | None = None,
) -> LeafOp:
    """An INT8 product; `packed`: of INT4 weights `(K/2, N)`, refused for an odd K.

    Scales are float32: `(N)` per channel, `(M, 1)` per token, 0-d per tensor, `x_scale` None for an activation without
    one.  `offsets` come as int32, one for each scale.  Without `out_dtype` the output has the activation's dtype.
    """
    positive(tokens=tokens, k=k, n=n)
    one_of(("channel", "tensor"), w_scale=w_scale)
    one_of(("token", "tensor"), x_scale=x_scale or "token")
    columns = (n,) if w_scale == "channel" else ()
    rows = (tokens, 1) if x_scale == "token" else ()
    made = out_dtype or x_dtype
    inputs = {
        "x": tensor(x_dtype, tokens, k),
        "weight": precision("int4" if packed else "w8a8").weight(k, n),
        "w_scale": tensor("float32", *columns),
        "w_offset": tensor("int32", *columns) if offsets else None,
        "x_scale": tensor("float32", *rows) if x_scale else None,
        "x_offset": tensor("int32", *rows) if offsets and x_scale else None,
        "bias": tensor(made, n) if bias else None,
    }
    name = "static_quant_linear_int4" if packed else "static_quant_linear"
    return _linear(name, inputs, tensor(made, tokens, n), rank_group, rank, out_dtype)


def fp8_linear(
    tokens: int,
    k: int,
    n: int,
    *,
    scale: Literal["channel", "tensor"] | int = "channel",
    bias: bool = False,
    out_dtype: str = "float16",
    rank_group: Sequence[int] | None = None,
    rank: int | None = None,
) -> LeafOp:
    """An FP8 product; the activation's scale comes first.

    `scale`: `channel` is one per token `(M, 1)` and per column `(N)`, `tensor` one for each operand, a number the side
    of the blocks that share one: `(M, K/side)` and `(K/side, N/side)`, rounded up.
    """
    positive(tokens=tokens, k=k, n=n)
    if isinstance(scale, int):
        positive(scale=scale)
        groups = -(-k // scale)
        scales = tensor("float32", tokens, groups), tensor("float32", groups, -(-n // scale))
    else:
        one_of(("channel", "tensor"), scale=scale)
        whole = scale == "tensor"
        scales = tensor("float32", *(() if whole else (tokens, 1))), tensor("float32", *(() if whole else (n,)))
    return _scaled("fp8_linear", (tokens, k, n), "fp8", scales, bias, out_dtype, rank_group, rank)


def mxfp4_linear(
    tokens: int,
    k: int,
    n: int,
    *,
    group_size: int = 32,
    bias: bool = False,
    out_dtype: str = "float16",
    rank_group: Sequence[int] | None = None,
    rank: int | None = None,
) -> LeafOp:
    """An MXFP4 product of logical 4-bit values, with E8M0 scales `(M, K/group)` and `(N, K/group)`, rounded up."""
    positive(tokens=tokens, k=k, n=n, group_size=group_size)
    groups = -(-k // group_size)
    scales = tensor("float8_e8m0fnu", tokens, groups), tensor("float8_e8m0fnu", n, groups)
    return _scaled("mxfp4_linear", (tokens, k, n), "mxfp4", scales, bias, out_dtype, rank_group, rank)


def nvfp4_linear(tokens: int, k: int, n: int, *, group_size: int = 16, out_dtype: str = BF16) -> LeafOp:
    """An NVFP4 product, as GPUs have it: FP8 scales `(M, K/group)` and `(N, K/group)`, rounded up."""
    positive(tokens=tokens, k=k, n=n, group_size=group_size)
    groups = -(-k // group_size)
    scales = tensor("float8_e4m3fn", tokens, groups), tensor("float8_e4m3fn", n, groups)
    return _scaled("nvfp4_linear", (tokens, k, n), "mxfp4", scales, False, out_dtype, None, None)


def _operands(dtype: str, tokens: int, k: int, n: int) -> dict[str, TensorSpec]:
    return {"x": tensor(dtype, tokens, k), "weight": tensor(dtype, k, n)}


def _scaled(
    name: str,
    sizes: tuple[int, int, int],
    quant: Literal["fp8", "mxfp4"],
    scales: tuple[TensorSpec, TensorSpec],
    bias: bool,
    out_dtype: str,
    rank_group: Sequence[int] | None,
    rank: int | None,
) -> LeafOp:
    tokens, k, n = sizes
    held = precision(quant)
    inputs = {
        "x": tensor(held.activation, tokens, k),
        "weight": held.weight(k, n),
        "x_scale": scales[0],
        "w_scale": scales[1],
        "bias": tensor(out_dtype, n) if bias else None,
    }
    return _linear(name, inputs, tensor(out_dtype, tokens, n), rank_group, rank, out_dtype)


def _linear(
    name: str,
    inputs: Inputs,
    output: TensorSpec,
    rank_group: Sequence[int] | None,
    rank: int | None,
    out_dtype: str | None = None,
) -> LeafOp:
    if rank_group is None:
        return call(name, inputs, (output,), out_dtype=out_dtype and output.dtype)
    group = group_attrs(rank_group, rank)
    return call(f"{name}_all_reduce", inputs, (output,), out_dtype=out_dtype and output.dtype, **group)
