"""Norms, plain and quantising, and quantisation by itself.  Source: docs/facts/leaf-operators.md."""

from __future__ import annotations

from tensor_cast.errors import InvalidValueError, nearest
from tensor_cast.operators.build.parts import leaf, like, sizes, tensor
from tensor_cast.operators.leaf import AttrValue, LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = [
    "SCHEMES",
    "add_rms_norm",
    "dynamic_quantize",
    "native_layer_norm",
    "quantize",
    "rms_norm",
    "rms_norm_dynamic_quant",
    "rms_norm_quant",
]

SCHEMES = ("symmetric", "asymmetric", "mxfp4")
_EPSILON = 1e-6


def rms_norm(tokens: int, width: int, *, dtype: str = "bfloat16", eps: float = _EPSILON) -> LeafOp:
    """`(T, D)` and a weight `(D)`; out like x."""
    x, weight = _normed("rms_norm", tokens, width, dtype)
    return leaf("rms_norm", (x, weight), [like(x)], {"eps": eps})


def add_rms_norm(
    tokens: int, width: int, *, keeps_residual: bool = True, dtype: str = "bfloat16", eps: float = _EPSILON
) -> LeafOp:
    """The residual added first; `add_rms_norm2` also puts the sum out, `add_rms_norm` the normed tensor alone."""
    name = "add_rms_norm2" if keeps_residual else "add_rms_norm"
    x, weight = _normed(name, tokens, width, dtype)
    outputs = [like(x)] * (2 if keeps_residual else 1)
    return leaf(name, (x, tensor("residual", x.shape, dtype), weight), outputs, {"eps": eps})


def rms_norm_quant(
    tokens: int, width: int, *, residual: str = "none", dtype: str = "bfloat16", out_dtype: str = "int8"
) -> LeafOp:
    """A norm quantised with a scale that exists: `rms_norm_quant`, or with a `residual` that is `added` or `kept`."""
    name = {"none": "rms_norm_quant", "added": "add_rms_norm_quant", "kept": "add_rms_norm_quant2"}.get(residual)
    if name is None:
        raise InvalidValueError(f"rms_norm_quant: residual is none, added or kept, got {residual!r}")
    x, weight = _normed(name, tokens, width, dtype)
    added = () if residual == "none" else (tensor("residual", x.shape, dtype),)
    scales = (tensor("quant_scale", (width,), "float32"), tensor("quant_offset", (width,), "int8"))
    outputs = [like(x, out_dtype), *([like(x)] if residual == "kept" else [])]
    return leaf(name, (x, *added, weight, *scales), outputs, {"eps": _EPSILON, "out_dtype": out_dtype})


def rms_norm_dynamic_quant(
    tokens: int,
    width: int,
    *,
    scheme: str = "symmetric",
    residual: str = "none",
    group_size: int = 32,
    dtype: str = "bfloat16",
) -> LeafOp:
    """A norm that finds its own scales, one for each token, or one for each group in MXFP4; out q, scale, [offset],
    [residual].
    """
    prefix = {"none": "rms_norm_dynamic_quant", "added": "add_rms_norm_dynamic_quant"}.get(residual)
    name = f"{prefix or 'add_rms_norm_dynamic_quant2'}_{_known(scheme)}"
    if residual not in ("none", "added", "kept"):
        raise InvalidValueError(f"rms_norm_dynamic_quant: residual is none, added or kept, got {residual!r}")
    x, weight = _normed(name, tokens, width, dtype)
    added = () if residual == "none" else (tensor("residual", x.shape, dtype),)
    outputs, attrs = _scaled(x, scheme, group_size)
    kept = [like(x)] if residual == "kept" else []
    return leaf(name, (x, *added, weight), [*outputs, *kept], {"eps": _EPSILON, **attrs})


def native_layer_norm(tokens: int, width: int, *, dtype: str = "bfloat16", eps: float = 1e-5) -> LeafOp:
    """`aten.native_layer_norm` with weight and bias; out the normed tensor, mean and inverse deviation."""
    x, weight = _normed("aten.native_layer_norm", tokens, width, dtype)
    statistics = [tensor("", (tokens, 1), "float32")] * 2
    inputs = (x, weight, tensor("bias", (width,), dtype))
    attrs: dict[str, AttrValue] = {"normalized_shape": (width,), "eps": eps}
    return leaf("aten.native_layer_norm.default", inputs, [like(x), *statistics], attrs)


def quantize(tokens: int, width: int, *, dtype: str = "bfloat16", out_dtype: str = "int8") -> LeafOp:
    """A scale that exists is applied; out like x."""
    sizes("quantize", tokens=tokens, width=width)
    x = tensor("x", (tokens, width), dtype)
    inputs = (x, tensor("scale", (width,), "float32"), tensor("offset", (width,), "int8"))
    return leaf("quantize", inputs, [like(x, out_dtype)], {"out_dtype": out_dtype})


def dynamic_quantize(
    tokens: int,
    width: int,
    *,
    scheme: str = "symmetric",
    per_tensor: bool = False,
    group_size: int = 32,
    dtype: str = "bfloat16",
) -> LeafOp:
    """Scales are found: one for each token, or one in all; MXFP4 has one for each group.  Out q, scale, [offset]."""
    name = f"dynamic_quantize_{_known(scheme)}"
    sizes(name, tokens=tokens, width=width)
    x = tensor("x", (tokens, width), dtype)
    outputs, attrs = _scaled(x, scheme, group_size, per_tensor=per_tensor)
    return leaf(name, (x,), outputs, attrs)


def _known(scheme: str) -> str:
    if scheme not in SCHEMES:
        raise InvalidValueError(f"scheme {scheme!r}: one of {', '.join(SCHEMES)}{nearest(scheme, SCHEMES)}")
    return scheme


def _scaled(
    x: TensorSpec, scheme: str, group_size: int, *, per_tensor: bool = False
) -> tuple[list[TensorSpec], dict[str, AttrValue]]:
    """What a dynamic quantisation puts out, and its attributes."""
    if scheme == "mxfp4":
        sizes("mxfp4", group_size=group_size)
        scale = (*x.shape[:-1], -(-x.shape[-1] // group_size))
        return [like(x, "float4_e2m1fn_x2"), tensor("", scale, "float8_e8m0fnu")], {"group_size": group_size}
    shape: Shape = () if per_tensor else (*x.shape[:-1], 1)
    found = [like(x, "int8"), tensor("", shape, "float32")]
    offset = [tensor("", shape, "int32")] if scheme == "asymmetric" else []
    dims: tuple[int, ...] = () if per_tensor else (-1,)
    return [*found, *offset], {"dims": dims, "scale_dtype": "float32", "out_dtype": "int8"}


def _normed(name: str, tokens: int, width: int, dtype: str) -> tuple[TensorSpec, TensorSpec]:
    sizes(name, tokens=tokens, width=width)
    return tensor("x", (tokens, width), dtype), tensor("weight", (width,), dtype)
