"""The cache of column tables: same answers with and without it, and no trust in a file that is not the right one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from column_leaves import REAL, REAL_ROWS
from tensor_cast import InterpolatingDataSource, ProfilingDataSource
from tensor_cast.performance_model.profiling_database.catalogue import open_database
from tensor_cast.performance_model.profiling_database.columns import table_cache
from tensor_cast.performance_model.profiling_database.columns.column_tables import ReadOptions
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

GEMM: dict[str, list[Any]] = {
    "kernel_source": ["a", "b", "a", "a", "b"],
    "gemm_dtype": ["bfloat16", "bfloat16", "fp8", "bfloat16", "fp8"],
    "m": [1, 2, 4, 1, 2**40],
    "n": [3, 3, 3, 3, 5],
    "k": [8, 8, 8, 8, 9],
    "latency": [0.002, 0.0031, 0.5, 0.0021, 1e-7],
}


def write(root: Path, columns: dict[str, list[Any]]) -> Path:
    folder = root / "gpu1" / "gemm" / "vllm" / "1.0"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "gemm_perf.parquet")
    return folder / "gemm_perf.parquet"


def load(root: Path, cache: Path | None, max_rows: int = 1000) -> ColumnTable | None:
    table = open_database(root, options=ReadOptions(max_rows, cache)).table("QuantMatmul")
    assert table is None or isinstance(table, ColumnTable)
    return table


def same(first: ColumnTable | None, second: ColumnTable | None) -> bool:
    """Every field equal: values, types and order; the report as well."""
    if first is None or second is None:
        return first is second
    for field in fields(ColumnTable):
        mine, theirs = getattr(first, field.name), getattr(second, field.name)
        if isinstance(mine, np.ndarray):
            if mine.dtype != theirs.dtype or mine.tobytes() != theirs.tobytes():
                return False
        elif field.name == "axes":
            if any(mine[axis].tobytes() != theirs[axis].tobytes() for axis in {*mine, *theirs}):
                return False
        elif field.name == "report":
            if mine.to_json() != theirs.to_json():
                return False
        elif repr(mine) != repr(theirs):
            return False
    return True


def kept(cache: Path) -> Path:
    [path] = cache.glob("*.table")
    return path


def test_a_kept_table_is_the_table(tmp_path: Path) -> None:
    write(tmp_path / "root", GEMM)
    plain = load(tmp_path / "root", None)
    assert plain is not None
    assert same(load(tmp_path / "root", tmp_path / "cache"), plain)
    assert same(load(tmp_path / "root", tmp_path / "cache"), plain)
    assert not list((tmp_path / "cache").glob(".*")), "no temporary file is left"


CELLS = st.fixed_dictionaries(
    {
        "kernel_source": st.sampled_from(["a", "b", None]),
        "gemm_dtype": st.sampled_from(["bfloat16", "fp8", None]),
        "m": st.sampled_from([0, 1, 2, 300, 2**33, None]),
        "n": st.sampled_from([1, 2]),
        "k": st.sampled_from([7]),
        "latency": st.sampled_from([0.0, 0.001, 0.00105, 7.25, 1e-9, float("nan")]),
    }
)


@settings(deadline=None)
@given(st.lists(CELLS, min_size=1, max_size=12))
def test_whatever_the_rows_the_kept_table_is_the_table(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    columns = {name: [cells[name] for cells in rows] for name in rows[0]}
    types = {"kernel_source": pa.string(), "gemm_dtype": pa.string(), "m": pa.int64()}
    place = folder / "gpu1" / "gemm" / "vllm" / "1.0"
    place.mkdir(parents=True)
    arrays = {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    pq.write_table(pa.table(arrays), place / "gemm_perf.parquet")
    plain = load(folder, None)
    assert same(load(folder, folder / "cache"), plain)
    assert same(load(folder, folder / "cache"), plain)


@pytest.mark.parametrize("where", [0, 5, 19, 23, 31, 60, -1, -9])
@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_damaged_file_is_ignored_and_written_anew(tmp_path: Path, where: int, damage: str) -> None:
    write(tmp_path / "root", GEMM)
    plain = load(tmp_path / "root", tmp_path / "cache")
    path = kept(tmp_path / "cache")
    sound = path.read_bytes()
    broken = bytearray(sound)
    broken[where] ^= 0x11
    path.write_bytes(bytes(broken) if damage == "flip" else sound[:where])
    assert same(load(tmp_path / "root", tmp_path / "cache"), plain)
    assert path.read_bytes() == sound


def test_a_table_of_other_files_rows_code_or_layout_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "root", GEMM)
    load(tmp_path / "root", tmp_path / "cache")
    old = os.stat(file)
    changed = {**GEMM, "latency": [0.003, 0.0031, 0.5, 0.0021, 1e-7]}
    write(tmp_path / "root", changed)
    os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns + 1))
    assert same(load(tmp_path / "root", tmp_path / "cache"), load(tmp_path / "root", None))
    blob = kept(tmp_path / "cache").read_bytes()
    monkeypatch.setattr(table_cache, "_code", lambda: 1)
    assert same(load(tmp_path / "root", tmp_path / "cache"), load(tmp_path / "root", None))
    assert kept(tmp_path / "cache").read_bytes() != blob


def test_a_kept_table_does_not_get_round_the_row_limit(tmp_path: Path) -> None:
    write(tmp_path / "root", GEMM)
    assert load(tmp_path / "root", tmp_path / "cache") is not None
    options = ReadOptions(4, tmp_path / "cache")
    database = open_database(tmp_path / "root", options=options)
    assert database.table("QuantMatmul") is None
    assert database.report("QuantMatmul").status == "too_many_rows"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    write(tmp_path / "root", GEMM)
    (tmp_path / "cache").mkdir(mode=0o555)
    assert load(tmp_path / "root", tmp_path / "cache" / "deeper") is not None


def test_a_file_in_place_of_the_folder_is_no_error(tmp_path: Path) -> None:
    write(tmp_path / "root", GEMM)
    (tmp_path / "cache").write_text("")
    assert load(tmp_path / "root", tmp_path / "cache") is not None


@pytest.mark.skipif(not REAL.is_dir(), reason="the shared GPU tables are not on this machine")
def test_answers_are_the_same_with_and_without_it(tmp_path: Path) -> None:
    for database in {database for database, *_ in REAL_ROWS}:
        where = f"{REAL}::{database}"
        first = InterpolatingDataSource(ProfilingDataSource(open_database(where, options=ReadOptions())))
        kept = ReadOptions(cache=tmp_path)
        ProfilingDataSource(open_database(where, options=kept))
        for name, op, *_ in REAL_ROWS:
            if name == database:
                for _ in range(2):
                    second = InterpolatingDataSource(ProfilingDataSource(open_database(where, options=kept)))
                    assert second.query(op).to_json() == first.query(op).to_json()


def test_a_cold_answer_imports_neither_pandas_nor_pyarrow(tmp_path: Path) -> None:
    write(tmp_path / "root", GEMM)
    load(tmp_path / "root", tmp_path / "cache" / "castq" / "tables", 5_000_000)
    program = (
        "import sys; from tensor_cast import open_database\n"
        f"table = open_database({str(tmp_path / 'root')!r}).table('QuantMatmul')\n"
        "print(len(table), *sorted({'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("CASTQ_NO_CACHE", None)
    for options, expected in (({}, "4"), ({"CASTQ_NO_CACHE": "1"}, "4 pyarrow")):
        ran = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True, env={**environment, **options}
        )
        assert ran.stdout.strip() == expected
