"""FP8, MXFP4 and INT4 rows answer by their own names and by nothing else (decisions 002.11 and 002.29)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import hit, miss, row, source, write_database
from tensor_cast import LeafOp, QuerySource
from tensor_cast.performance_model.profiling_database.paths.packing import whole_experts, whole_weight

NAMES = {"fp8": "DT_FLOAT8_E4M3FN", "fp8_e5m2": "DT_FLOAT8_E5M2", "fp4": "DT_FLOAT4_E2M1", "int4": "DT_INT4"}
LINEARS = {
    "static_quant_linear": ("int8", "INT8;INT8"),
    "static_quant_linear_int4": ("int4", "INT8;DT_INT4"),
    "fp8_linear": ("fp8", "DT_FLOAT8_E4M3FN;DT_FLOAT8_E4M3FN"),
    "mxfp4_linear": ("fp4", "DT_FLOAT4_E2M1;DT_FLOAT4_E2M1"),
}
ENTRY = {"kernel_type": "QuantBatchMatmulV3", "compute_subcategory": "quantized_matmul", "tc_input_count": 2}
OPS = {f"tensor_cast.{name}.default": ENTRY for name in LINEARS}


def product_row(m: int, dtypes: str, latency: float, weight: str = "256,128") -> dict[str, Any]:
    return row(f"{m},256;{weight}", dtypes, latency, outputs=f"{m},128", output_dtypes="DT_BF16")


def linear(name: str, m: int, dtypes: tuple[str, str], weight: tuple[int, int] = (256, 128), n: int = 128) -> LeafOp:
    inputs = [((m, 256), dtypes[0]), (weight, dtypes[1]), ((n,), "float32"), ((n,), "float32")]
    return LeafOp.build(f"tensor_cast.{name}.default", inputs, [((m, n), "bf16")])


def table(folder: Path, dtypes: str, weight: str = "256,128") -> Path:
    rows = [product_row(64, dtypes, 10.0, weight), product_row(128, dtypes, 20.0, weight)]
    return write_database(folder, {"QuantBatchMatmulV3": rows}, OPS)


@pytest.mark.parametrize("asked", LINEARS)
@pytest.mark.parametrize("held", LINEARS)
def test_a_linear_answers_from_its_own_rows_only(tmp_path: Path, asked: str, held: str) -> None:
    """Every operator against every kind of row: halfway between 10 and 20, or nothing."""
    own = LINEARS[asked][0]
    data = source(table(tmp_path, LINEARS[held][1]))
    leaves = [linear(asked, m, ("int8" if asked == "static_quant_linear_int4" else own, own)) for m in (64, 96)]
    if asked != held:
        assert [miss(data.query(leaf)).code for leaf in leaves] == ["regime_key_unmatched"] * 2
        return
    exact, between = (hit(data.query(leaf)) for leaf in leaves)
    assert (exact.latency_us, exact.source) == (10.0, QuerySource.MEASURED)
    assert (between.latency_us, between.source) == (15.0, QuerySource.INTERPOLATED)


@pytest.mark.parametrize(
    ("dtype", "weight"),
    [("int8", (128, 128)), ("uint8", (128, 128)), ("int4", (128, 128)), ("int4", (256, 128)), ("int4", (128, 256))],
)
def test_an_int4_weight_is_met_packed_and_whole(tmp_path: Path, dtype: str, weight: tuple[int, int]) -> None:
    """K = 256 stands in the activation: 128 stored rows hold two values each, 256 one each."""
    answer = hit(source(table(tmp_path, "INT8;DT_INT4")).query(linear(INT4, 96, ("int8", dtype), weight)))
    assert (answer.latency_us, answer.details["packed"]) == (15.0, "int4")


INT4 = "static_quant_linear_int4"


def test_a_packed_square_is_not_the_product_of_half_its_width(tmp_path: Path) -> None:
    """(K/2, N) with N = K reads as (N, K) of N = K/2 too: the output says which it is."""
    data = source(table(tmp_path, "INT8;DT_INT4"))  # rows of K = 256, N = 128
    answer = miss(data.query(linear(INT4, 96, ("int8", "int8"), (128, 256), n=256)))
    assert answer.details["target_axes"] == {"M": 96.0, "K": 256.0, "N": 256.0}


def test_a_row_that_stores_int4_packed_is_the_same_product(tmp_path: Path) -> None:
    data = source(table(tmp_path, "INT8;INT4", weight="128,128"))
    assert hit(data.query(linear(INT4, 96, ("int8", "int8"), (128, 128)))).latency_us == 15.0


def test_int4_storage_of_mxfp4_meets_mxfp4_rows_only(tmp_path: Path) -> None:
    """The simulator keeps 4-bit floats in int4 tensors; the operator says which they are."""
    leaf = linear("mxfp4_linear", 96, ("int4", "int4"))
    assert hit(source(table(tmp_path / "own", "DT_FLOAT4_E2M1;DT_FLOAT4_E2M1")).query(leaf)).latency_us == 15.0
    for i, names in enumerate(("DT_INT4;DT_INT4", "DT_FLOAT4_E1M2;DT_FLOAT4_E1M2", "INT8;INT8")):
        assert miss(source(table(tmp_path / str(i), names)).query(leaf)).code == "regime_key_unmatched"


@pytest.mark.parametrize("held", ["DT_FLOAT8_E4M3FN", "DT_FLOAT8_E5M2", "INT8", "DT_BF16"])
@pytest.mark.parametrize("asked", ["fp8", "fp8_e5m2"])
def test_the_two_eight_bit_floats_are_two_dtypes(tmp_path: Path, asked: str, held: str) -> None:
    answer = source(table(tmp_path, f"{held};{held}")).query(linear("fp8_linear", 96, (asked, asked)))
    assert bool(answer) == (NAMES[asked] == held)


def test_a_product_of_other_matrices_than_its_operator_multiplies_is_refused(tmp_path: Path) -> None:
    answer = miss(source(table(tmp_path, "INT8;INT8")).query(linear("fp8_linear", 96, ("int8", "int8"))))
    attempt = answer.details["attempts"][0]
    assert (attempt["cause"], attempt["input_dtypes"]) == ("operand_dtypes_are_not_the_operators", ["INT8", "INT8"])


@given(st.integers(1, 64), st.integers(1, 64), st.booleans(), st.booleans())
def test_a_stored_weight_is_read_back(half_k: int, n: int, packed: bool, turned: bool) -> None:
    stored = (half_k if packed else 2 * half_k, n)
    assert whole_weight(stored[::-1] if turned else stored, 2 * half_k, n) == (2 * half_k, n)


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([(1, 1), (2, 1), (1, 2)]))
def test_stored_experts_are_read_back_or_refused(half_h: int, half_inner: int, packing: tuple[int, int]) -> None:
    """(H, N) and (N/2, H), rows or columns halved: never another N than the one that was stored."""
    h, inner = 2 * half_h, 2 * half_inner
    rows, columns = packing
    stored = (h // rows, 2 * inner // columns), (inner // rows, h // columns)
    assert whole_experts(*stored, h) in (((h, 2 * inner), (inner, h)), None)


@pytest.mark.parametrize(
    ("stored", "whole"),
    [
        (((7168, 4096), (2048, 7168)), ((7168, 4096), (2048, 7168))),
        (((3584, 4096), (1024, 7168)), ((7168, 4096), (2048, 7168))),
        (((7168, 2048), (2048, 3584)), ((7168, 4096), (2048, 7168))),
        (((3584, 4096), (2048, 7168)), None),  # one halved, the other not
        (((100, 4096), (2048, 7168)), None),
    ],
)
def test_experts_of_a_known_model(stored: tuple[Any, Any], whole: Any) -> None:
    assert whole_experts(*stored, 7168) == whole
