"""Column tables of one's own: CSV or parquet beside a mapping, each with its unit stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import mm, row, write_table
from tensor_cast import InterpolatingDataSource, LeafOp, Miss, ProfilingDataSource, QueryResult
from tensor_cast.errors import DataFileError, InvalidValueError
from tensor_cast.performance_model.profiling_database.catalogue import open_database
from tensor_cast.performance_model.profiling_database.columns.column_tables import ReadOptions
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import load_op_mapping
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable
from two_products import BF16

MAPPING = """
tables:
  Product:
    files: [gemm]
    axes: {{M: m, K: k, N: n}}
    regime: {{quant: dtype}}
    latency: time
    {unit}
operator_mappings:
  aten.mm.default: {{kernel_type: Product, facts: {{family: matmul}}}}
  aten.bmm.default: {{kernel_type: BatchMatMulV2}}
"""
TABLE = "dtype,m,k,n,time\nbfloat16,4,8,3,1.5\nbfloat16,8,8,3,2.5\n\nbfloat16,16,8,3,\n"


def own(folder: Path, table: str = TABLE, unit: str = "latency_unit: us") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "op_mapping.yaml").write_text(MAPPING.format(unit=unit))
    (folder / "gemm.csv").write_text(table)
    return folder


def status(where: Path, **options: Any) -> str:
    database: ProfilingDatabase = open_database(where, options=ReadOptions(**options))
    assert database.table("Product") is None
    return database.report("Product").status


@pytest.mark.parametrize(("unit", "factor"), [("us", 1.0), ("ms", 1000.0)])
def test_a_csv_answers_in_the_unit_it_states(tmp_path: Path, unit: str, factor: float) -> None:
    source = InterpolatingDataSource(ProfilingDataSource(own(tmp_path / "own", unit=f"latency_unit: {unit}")))
    measured, between = source.query(mm(4, 8, 3)), source.query(mm(5, 8, 3))
    assert isinstance(measured, QueryResult)
    assert isinstance(between, QueryResult)
    assert measured.latency_us == 1.5 * factor
    assert between.latency_us == pytest.approx(1.75 * factor, rel=1e-12)
    assert measured.details["matched_row_meta"][0] | {"latency_us": 0} == {
        "file": "gemm.csv",
        "row": 0,
        "latency_us": 0,
        "latency_column": "latency",
    }


def test_parquet_and_csv_read_alike(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    text = open_database(own(tmp_path / "csv"), options=ReadOptions()).table("Product")
    folder = own(tmp_path / "parquet")
    (folder / "gemm.csv").unlink()
    columns = {"dtype": ["bfloat16"] * 3, "m": [4, 8, 16], "k": [8] * 3, "n": [3] * 3, "time": [1.5, 2.5, None]}
    pq.write_table(pa.table(columns), folder / "gemm.parquet")
    binary = open_database(folder, options=ReadOptions()).table("Product")
    assert isinstance(text, ColumnTable)
    assert isinstance(binary, ColumnTable)
    assert text.regime_keys == binary.regime_keys
    assert text.latency_us.tolist() == binary.latency_us.tolist() == [1.5, 2.5]
    assert text.report.rejected == binary.report.rejected == {"latency_invalid": 1}


def test_a_table_without_a_unit_is_refused(tmp_path: Path) -> None:
    folder = own(tmp_path / "own", unit="notes: none")
    assert status(folder) == "unit_missing"
    problem = open_database(folder).report("Product").problems[0]
    assert "in which unit is column 'time'?  Give tables.Product.latency_unit: us or ms" in problem


def test_another_unit_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="latency_unit: expected one of us, ms; got 's'"):
        open_database(own(tmp_path / "own", unit="latency_unit: s"))


@pytest.mark.parametrize(
    ("table", "options", "expected"),
    [
        ("", {}, "no_header"),
        ("dtype,m,k,time\n", {}, "missing_column"),
        ("dtype,m,k,n,n,time\nbfloat16,1,2,3,3,1\n", {}, "duplicate_column"),
        ("dtype,m,k,n,time\nbfloat16,1,2,3\n", {}, "row_length"),
        ("dtype,m,k,n,time\nbfloat16,x,2,3,1\n", {}, "column_type"),
        ("dtype,m,k,n,time\nbfloat16,١,2,3,1\n", {}, "column_type"),
        ("dtype,m,k,n,time\nbfloat16,1,2,3,nan\n", {}, "column_type"),
        ('dtype,m,k,n,time\n"bfloat16,1,2,3,1\n', {}, "csv_syntax"),
        (TABLE, {"max_rows": 2}, "too_many_rows"),
        ("version https://git-lfs.github.com/spec/v1\n", {}, "lfs_pointer"),
    ],
)
def test_what_is_no_table_is_named(tmp_path: Path, table: str, options: dict[str, int], expected: str) -> None:
    assert status(own(tmp_path / "own", table), **options) == expected


def test_cells_are_numbers_truths_or_text(tmp_path: Path) -> None:
    mapping = (
        "tables:\n  K:\n    files: [t]\n    latency_unit: us\n    axes: {M: m}\n    regime: {a: a, b: b, c: c, d: d}\n"
    )
    (tmp_path / "op_mapping.yaml").write_text(mapping)
    (tmp_path / "t.csv").write_text("m,a,b,c,d,latency\n1,8,0.5,true,8x,1\n2,16,1,false,8,1\n")
    table = open_database(tmp_path).table("K")
    assert isinstance(table, ColumnTable)
    assert table.regime_keys == ((8, 0.5, True, "8x"), (16, 1.0, False, "8"))


def test_tensor_tables_stand_beside_column_tables(tmp_path: Path) -> None:
    folder = own(tmp_path / "own")
    write_table(folder, "BatchMatMulV2", [row("2,4,8;2,8,3", BF16, 2.5)])
    source = ProfilingDataSource(folder)
    batched = source.query(LeafOp.build("aten.bmm.default", [((2, 4, 8), "bf16"), ((2, 8, 3), "bf16")]))
    assert isinstance(batched, QueryResult)
    assert batched.latency_us == 2.5
    assert source.database.kernels_on_disk() == ("BatchMatMulV2", "Product")


def test_a_mapping_from_elsewhere_takes_the_place_of_the_databases_own(tmp_path: Path) -> None:
    folder = own(tmp_path / "own")
    text = (folder / "op_mapping.yaml").read_text()
    (folder / "op_mapping.yaml").write_text("version: none\n")
    (tmp_path / "mine.yaml").write_text(text)
    assert isinstance(ProfilingDataSource(folder).query(mm(4, 8, 3)), Miss)
    found = ProfilingDataSource(folder, mapping=tmp_path / "mine.yaml").query(mm(4, 8, 3))
    assert isinstance(found, QueryResult)
    assert found.latency_us == 1.5


@pytest.mark.parametrize("name", ["../outside", "/elsewhere/outside"])
def test_a_table_outside_the_folder_is_not_read(tmp_path: Path, name: str) -> None:
    folder = own(tmp_path / "own")
    (tmp_path / "outside.csv").write_text(TABLE)
    text = (folder / "op_mapping.yaml").read_text().replace("[gemm]", f"[{name}]")
    (folder / "op_mapping.yaml").write_text(text)
    assert status(folder) == "outside_folder"


def test_the_row_limit_is_set_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = own(tmp_path / "own")
    monkeypatch.setenv("CASTQ_MAX_ROWS", "2")
    assert open_database(folder).report("Product").status == "too_many_rows"
    for wrong in ("0", "-1", "many", "٣"):
        monkeypatch.setenv("CASTQ_MAX_ROWS", wrong)
        with pytest.raises(InvalidValueError, match="CASTQ_MAX_ROWS: expected a whole number above 0"):
            open_database(folder)


def test_a_mapping_of_ones_own_may_extend_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "extends: gpu/vllm.yaml\noperator_mappings: {aten.mm.default: {zero_cost: true}}\n"
    )
    mapping = load_op_mapping(tmp_path / "mine.yaml")
    assert mapping.operators["aten.mm.default"].zero_cost
    assert "tensor_cast.fp8_linear.default" in mapping.operators
    assert "QuantMatmul" in mapping.layouts
