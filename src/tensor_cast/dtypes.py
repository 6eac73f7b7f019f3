"""Semantic dtypes, their byte widths and their names in the Ascend profiling database.

Source: profiling database facts, section 2.2.  `float16` maps to `DT_BF16` because the simulator's default
activation dtype is float16 and the device measures both alike; only the dynamic-quantisation path, which has
FP16 rows of its own, asks for `DT_FLOAT16`.
"""

from __future__ import annotations

from typing import Final

from tensor_cast.errors import UnknownNameError, nearest

__all__ = [
    "ASCEND_NAMES",
    "canonical_ascend_dtype",
    "canonical_dtype",
    "dtype_bytes",
    "profile_dtype",
    "profile_dtype_bytes",
]

_BYTES: Final[dict[str, float]] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e8m0fnu": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float4_e2m1fn_x2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "int4": 0.5,
    "float4": 0.5,
    "bool": 1,
}

_ALIASES: Final[dict[str, str]] = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "f16": "float16",
    "fp32": "float32",
    "float": "float32",
    "f32": "float32",
    "double": "float64",
    "fp64": "float64",
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "float8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "long": "int64",
    "int": "int32",
    "i32": "int32",
    "i64": "int64",
    "i8": "int8",
    "fp4": "float4",
    "nvfp4": "float4",
    "mxfp4": "float4",
}

ASCEND_NAMES: Final[dict[str, str]] = {
    "bfloat16": "DT_BF16",
    "float16": "DT_BF16",
    "float32": "FLOAT",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "bool": "BOOL",
}

_ASCEND_SPELLINGS: Final[dict[str, str]] = {
    "DT_FLOAT": "FLOAT",
    "DT_INT8": "INT8",
    "DT_INT16": "INT16",
    "DT_INT32": "INT32",
    "DT_INT64": "INT64",
    "DT_BOOL": "BOOL",
    "DT_FP16": "DT_FLOAT16",
    "FLOAT16": "DT_FLOAT16",
    "BF16": "DT_BF16",
}

_ASCEND_BYTES: Final[dict[str, int]] = {
    "DT_BF16": 2,
    "DT_FLOAT16": 2,
    "FLOAT": 4,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
}


def canonical_dtype(name: str) -> str:
    """The semantic dtype behind a spelling such as `torch.bfloat16`, `bf16` or `BFloat16`.

    Raises UnknownNameError for a spelling that names no dtype.
    """
    bare = name.strip().lower().removeprefix("torch.")
    bare = _ALIASES.get(bare, bare)
    if bare in _BYTES:
        return bare
    known = (*_BYTES, *_ALIASES)
    raise UnknownNameError(f"unknown dtype {name!r}{nearest(bare, known)}; known: {', '.join(sorted(_BYTES))}")


def dtype_bytes(name: str) -> float:
    """Bytes per element of a semantic dtype (0.5 for packed 4-bit types)."""
    return _BYTES[canonical_dtype(name)]


def profile_dtype(name: str, *, strict: bool = False) -> str | None:
    """The Ascend database's name of a semantic dtype, or None where the database has no such dtype.

    Under strict matching `float16` is `DT_FLOAT16`, never the rows of `bfloat16`.
    """
    return "DT_FLOAT16" if strict and name == "float16" else ASCEND_NAMES.get(name)


def canonical_ascend_dtype(name: str) -> str:
    """One spelling per database dtype: `DT_INT8` and `INT8` are the same."""
    bare = name.strip().upper()
    return _ASCEND_SPELLINGS.get(bare, bare)


def profile_dtype_bytes(name: str) -> int:
    """Bytes per element of a database dtype; 0 where the byte table has no entry (`BOOL`, unknown names)."""
    return _ASCEND_BYTES.get(name, 0)
