"""Dtype spellings, widths and database names."""

from __future__ import annotations

import pytest

from tensor_cast.dtypes import (
    canonical_ascend_dtype,
    canonical_dtype,
    dtype_bytes,
    profile_dtype,
    profile_dtype_bytes,
)
from tensor_cast.errors import CastqError, UnknownNameError


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("torch.bfloat16", "bfloat16"),
        (" torch.BFloat16 ", "bfloat16"),
        ("bf16", "bfloat16"),
        ("half", "float16"),
        ("float", "float32"),
        ("double", "float64"),
        ("long", "int64"),
        ("int", "int32"),
        ("fp8", "float8_e4m3fn"),
        ("torch.float8_e5m2", "float8_e5m2"),
        ("mxfp4", "float4"),
        ("bool", "bool"),
    ],
)
def test_a_dtype_has_one_canonical_name(spelling: str, name: str) -> None:
    assert canonical_dtype(spelling) == name
    assert canonical_dtype(name) == name


def test_an_unknown_dtype_names_the_nearest_and_the_known() -> None:
    with pytest.raises(UnknownNameError) as caught:
        canonical_dtype("bfloat17")
    assert str(caught.value).startswith("unknown dtype 'bfloat17' (did you mean 'bfloat16'?); known: bfloat16, bool, ")
    assert isinstance(caught.value, CastqError)
    assert isinstance(caught.value, KeyError)
    with pytest.raises(UnknownNameError, match=r"^unknown dtype ''; known"):
        canonical_dtype("")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("float64", 8),
        ("float32", 4),
        ("bf16", 2),
        ("int8", 1),
        ("int4", 0.5),
        ("float4", 0.5),
        ("bool", 1),
        ("complex64", 8),
        ("uint16", 2),
    ],
)
def test_bytes_per_element(name: str, size: float) -> None:
    assert dtype_bytes(name) == size


@pytest.mark.parametrize(
    ("name", "database"),
    [
        ("bfloat16", "DT_BF16"),
        ("float16", "DT_BF16"),  # the simulator's default activation dtype
        ("float32", "FLOAT"),
        ("int8", "INT8"),
        ("int16", "INT16"),
        ("int32", "INT32"),
        ("int64", "INT64"),
        ("bool", "BOOL"),
        ("uint8", None),
        ("float64", None),
        ("float8_e4m3fn", "DT_FLOAT8_E4M3FN"),
        ("float8_e5m2", "DT_FLOAT8_E5M2"),
        ("float8_e8m0fnu", "DT_FLOAT8_E8M0"),
        ("int4", "DT_INT4"),
        ("float4", "DT_FLOAT4_E2M1"),
        ("float4_e2m1fn_x2", None),  # its shapes count pairs of values
        ("complex64", None),
    ],
)
def test_database_names(name: str, database: str | None) -> None:
    assert profile_dtype(name) == database


@pytest.mark.parametrize(
    ("spelling", "name", "size"),
    [
        ("DT_FLOAT", "FLOAT", 4),
        ("dt_int8", "INT8", 1),
        (" INT32 ", "INT32", 4),
        ("DT_INT64", "INT64", 8),
        ("DT_FP16", "DT_FLOAT16", 2),
        ("DT_BF16", "DT_BF16", 2),
        ("DT_BOOL", "BOOL", 0),
        ("INT4", "DT_INT4", 0),
        ("float8_e4m3fn", "DT_FLOAT8_E4M3FN", 0),
        ("DT_FLOAT8_E4M3", "DT_FLOAT8_E4M3FN", 0),
        ("FLOAT4_E2M1", "DT_FLOAT4_E2M1", 0),
        ("DT_FLOAT4_E1M2", "DT_FLOAT4_E1M2", 0),
        ("DT_UNDEFINED", "DT_UNDEFINED", 0),
    ],
)
def test_database_spellings(spelling: str, name: str, size: int) -> None:
    assert canonical_ascend_dtype(spelling) == name
    assert profile_dtype_bytes(name) == size
