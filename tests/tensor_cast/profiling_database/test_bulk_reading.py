"""Reading many rows at once gives what reading them one by one gives: same rows, same rejections, same order."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import mm, row, source, write_database
from tensor_cast.files import text as text_source
from tensor_cast.files.text import MAX_LINE_BYTES, TextLines
from tensor_cast.performance_model.profiling_database.tables import csv_file
from tensor_cast.performance_model.profiling_database.tables.ascend_csv import (
    _TensorRows,
    parse_latency,
    read_latencies,
    read_tensor_table,
)
from tensor_cast.performance_model.profiling_database.tables.kernel_table import LoadReport, TensorTable

HEADER = ["Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types"]
HEADER += ["Average Duration(us)", "Profiling Average Duration(us)", "Type", "Runtime topk", "EP Size"]
SHAPES = [
    "4,8;8,3",
    '"4,8;8,3"',
    "1,8;8,3",
    "4,8;2,1,16,32",
    "4,8;;8,3",
    "4,8;()",
    "4,x;3",
    "4,0;3",
    " 4 , 8;3",
    "4,8",
    "",
]
DTYPES = ["DT_BF16;DT_BF16", "INT8;INT8", "DT_BF16", "DT_BF16;DT_UNDEFINED;INT8", "INT8;INT8;DT_UNDEFINED", ""]
FORMATS = ["ND;ND", "ND;FRACTAL_NZ", "ND", "", "ND;NULL;ND"]
LATENCIES = ["1.5", "2", "", "0", "-1", "nan", "1_6", "N/A", " 3 ", "1e400", "\uff11"]
RECORDS = st.tuples(
    st.sampled_from(SHAPES),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.sampled_from(["4,3", "", "4,x", "4,3;4"]),
    st.sampled_from(["DT_BF16", "INT8;FLOAT", ""]),
    st.sampled_from(LATENCIES),
    st.sampled_from(LATENCIES),
    st.sampled_from(["Kernel", "Kernel_3", "", "Add"]),
    st.sampled_from(["2048", "64.9", "", "1_6"]),
    st.sampled_from(["16", " 8 ", ""]),
)


def one_by_one(lines: list[int], records: list[list[str]]) -> TensorTable:
    reader = _TensorRows("Kernel", HEADER, LoadReport("Kernel", "Kernel.csv"))
    for line, cells in zip(lines, records, strict=True):
        reader.add(line, cells)
    return reader.table(False, None)


def facts(table: TensorTable) -> tuple[object, ...]:
    latencies = {
        name: [None if math.isnan(v) else v for v in values.tolist()] for name, values in table.latencies.items()
    }
    rows = (table.lines, tuple(table.inputs), tuple(table.outputs), tuple(table.logical_inputs))
    return (*rows, latencies, dict(table.extra), table.report.to_json())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(RECORDS, min_size=1, max_size=12), repeats=st.integers(1, 3), chunk=st.sampled_from([1, 3, 99]))
def test_any_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: list[tuple[str, ...]], repeats: int, chunk: int
) -> None:
    rows = [list(record) for record in records for _ in range(repeats)]
    monkeypatch.setattr(csv_file, "_CHUNK", chunk)
    path = tmp_path / "Kernel.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([HEADER, *rows])
    expected = one_by_one([i + 2 for i in range(len(rows))], rows)
    assert facts(read_tensor_table(path)) == facts(expected)


@given(st.lists(st.sampled_from(LATENCIES), min_size=1, max_size=6))
def test_latencies_of_a_column(cells: list[str]) -> None:
    assert read_latencies(cells) == [0.0 if math.isnan(v := parse_latency(cell)[0]) else v for cell in cells]


def test_lines_of_records_with_line_ends_inside(tmp_path: Path) -> None:
    path = tmp_path / "Kernel.csv"
    path.write_text(
        'Input Shapes,Input Data Types,Duration(us),Note\n"4,8",INT8,1,"a\nb"\n\n"5,8",INT8,2,c\n"6,8",INT8,3,d'
    )
    read = read_tensor_table(path)
    assert (read.lines, dict(read.suspect)) == ((3, 5, 6), {2: "no line end: the row may be cut off"})


@pytest.mark.parametrize("size", [1, 5, 64])
@given(
    text=st.text(st.sampled_from("ab\u00e4\u2028\x0b\x1c,"), max_size=40), ends=st.lists(st.integers(0, 40), max_size=6)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
def test_lines_end_at_line_feeds_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, text: str, ends: list[int]
) -> None:
    """A file is read in blocks; where they end, and what else Unicode calls a line end, changes nothing."""
    for end in sorted(ends, reverse=True):
        text = text[:end] + "\n" + text[end:]
    (tmp_path / "t").write_bytes(text.encode())
    longest = max((len(line.encode()) for line in text.split("\n")), default=0)
    monkeypatch.setattr(text_source, "MAX_LINE_BYTES", max(size, longest))
    lines = TextLines(tmp_path / "t")
    parts = text.split("\n")
    assert list(lines) == [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    assert lines.cut_line == (len(parts) if parts[-1] else None)


def test_a_line_of_just_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"a" * MAX_LINE_BYTES + b"\n" + b"b" * MAX_LINE_BYTES + b"\n")
    assert [len(line) for line in TextLines(tmp_path / "t")] == [MAX_LINE_BYTES + 1] * 2


def test_products_in_bulk_interpolate_as_they_lie(tmp_path: Path) -> None:
    """(N, K) weights, tiles and a batch of one beside plain rows: 2 us per row of M, whatever their form."""
    plain = [row(f"{m},64;128,64", "DT_BF16;DT_BF16", 2.0 * m) for m in (10, 30)]
    other = [
        row("1,20,64;128,64", "DT_BF16;DT_BF16", 40.0),
        row("20,64;4,8,16,16", "DT_BF16;DT_BF16", 900.0, formats="ND;FRACTAL_NZ"),
        row("20,64;99,33", "DT_BF16;DT_BF16", 1.0),
    ]
    folder = write_database(tmp_path, {"MatMulV2": [*plain, *other]}, {"aten.mm.default": {"kernel_type": "MatMulV2"}})
    data = source(folder)
    answer = data.query(mm(25, 64, 128))
    assert answer.latency_us == 50.0  # type: ignore[union-attr]
    assert [meta["line"] for meta in answer.details["matched_row_meta"]] == [4, 3]
