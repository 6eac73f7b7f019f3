"""Semantic dtypes, their byte widths and their names in the Ascend profiling database.

`float16` maps to `DT_BF16` because the simulator's default activation dtype is float16 and the device measures both
alike; only the dynamic-quantisation path, which has FP16 rows of its own, asks for `DT_FLOAT16`.
Source: docs/facts/database-layout.md, "Names of dtypes"; decision 002.29 for 8-bit floats and 4-bit types.
"""

from __future__ import annotations

from typing import Final

from tensor_cast.errors import UnknownNameError, nearest

__all__ = [
    "ASCEND_NAMES",
    "canonical_ascend_dtype",
    "canonical_dtype",
    "dtype_bytes",
    "operand_dtype",
    "profile_dtype",
    "profile_dtype_bytes",
    "semantic_dtype",
    "stored_bytes",
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
    "int4": "DT_INT4",
    "float4": "DT_FLOAT4_E2M1",
    "float8_e4m3fn": "DT_FLOAT8_E4M3FN",
    "float8_e5m2": "DT_FLOAT8_E5M2",
    "float8_e8m0fnu": "DT_FLOAT8_E8M0",
    "float8_e4m3fnuz": "DT_FLOAT8_E4M3FNUZ",
    "float8_e5m2fnuz": "DT_FLOAT8_E5M2FNUZ",
}  # float4_e2m1fn_x2 has none: its shapes count pairs, those of a row count values

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
    "INT4": "DT_INT4",
    "FLOAT4_E2M1": "DT_FLOAT4_E2M1",
    "DT_FLOAT4_E2M1FN": "DT_FLOAT4_E2M1",
    "FLOAT8_E4M3FN": "DT_FLOAT8_E4M3FN",
    "FLOAT8_E4M3": "DT_FLOAT8_E4M3FN",
    "DT_FLOAT8_E4M3": "DT_FLOAT8_E4M3FN",
    "FLOAT8_E5M2": "DT_FLOAT8_E5M2",
    "FLOAT8_E8M0": "DT_FLOAT8_E8M0",
    "DT_FLOAT8_E8M0FNU": "DT_FLOAT8_E8M0",
}

_WEIGHTS: Final = ("weight", "gmm1_weight", "gmm2_weight")

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


def semantic_dtype(name: str) -> str:
    """As `canonical_dtype`, but a dtype outside the table (torch's `quint8`, `bits8`) keeps its own bare name.

    Such a dtype has no database name, so a lookup misses instead of failing.
    """
    try:
        return canonical_dtype(name)
    except UnknownNameError:
        return name.strip().lower().removeprefix("torch.")


def operand_dtype(operator: str, role: str, dtype: str) -> str:
    """The dtype that an operand holds in a call of `operator`, whatever the framework stores it in.

    An `int4` operator keeps its weights as int8 or uint8, an `mxfp4` operator its 4-bit floats as int4.
    """
    if dtype == "int4" and "mxfp4" in operator:
        return "float4"
    if dtype in ("int8", "uint8") and role in _WEIGHTS and "_int4" in operator:
        return "int4"
    return dtype


def dtype_bytes(name: str) -> float:
    """Bytes per element of a semantic dtype (0.5 for packed 4-bit types)."""
    return _BYTES[canonical_dtype(name)]


def stored_bytes(dtype: str) -> float | None:
    """Bytes per element of a dtype as a `TensorSpec` carries it, or None for one outside the table."""
    return _BYTES.get(dtype)


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
