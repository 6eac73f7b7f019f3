"""Bad tables and rows have a named outcome and cost nothing else: every other row and kernel still gets its answer."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import base_source, mm, row, source, write_database
from tensor_cast import InterpolatingDataSource, LeafOp, Miss, ProfilingDataSource
from tensor_cast.errors import DataFileError, InvalidValueError
from tensor_cast.files import text as text_source
from tensor_cast.files.text import TextLines
from two_products import BF16, BMM, HEADER, LFS, LINE, MM, code, latency, with_file

# --- files that cannot be used at all ---------------------------------------------------------------------------------

BAD_FILES = {
    "lfs_pointer": (LFS, "BatchMatMulV2.csv:1: is a Git-LFS pointer, not data: fetch it with 'git lfs pull'"),
    "no_header": (b"", "BatchMatMulV2.csv: is empty: expected a header line"),
    "missing_column": (
        b'Input Shapes,Duration(us)\n"4,8",1\n',
        "BatchMatMulV2.csv:1: column 'Input Data Types' is missing",
    ),
    "missing_column-latency": (
        b'Input Shapes,Input Data Types,Cycles\n"4,8",INT8,1\n',
        "BatchMatMulV2.csv:1: no latency column; expected one of Average Duration(us), "
        "Profiling Average Duration(us), Duration(us)",
    ),
    "duplicate_column": (
        b"Input Shapes,Input Data Types, Duration(us),Duration(us)\n" + LINE,
        "BatchMatMulV2.csv:1: column 'Duration(us)' appears twice",
    ),
    "encoding": (HEADER + LINE + "größe".encode("latin-1") + b",INT8,1\n", "BatchMatMulV2.csv:3: not UTF-8 text"),
    "encoding-utf16": ("Input Shapes".encode("utf-16"), "BatchMatMulV2.csv:1: not UTF-8 text"),
    "csv_syntax": (HEADER.replace(b"\n", b"\r") + LINE, "BatchMatMulV2.csv:1: new-line character seen"),
    "csv_syntax-header": (b"x" * 200_000, "BatchMatMulV2.csv:1: field larger than field limit"),
    "csv_syntax-quote": (HEADER + b'"4,8\n' + b"1,1,1\n" * 50_000, "field larger than field limit"),
    "line_too_long": (HEADER + b"1" * (3 << 20), "BatchMatMulV2.csv:2: line longer than 1048576 bytes"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_an_unusable_file_is_an_absent_table_with_the_reason(tmp_path: Path, name: str) -> None:
    raw, message = BAD_FILES[name]
    base = with_file(tmp_path, raw)
    answer = base.query(BMM)
    assert code(answer) == "csv_not_found"
    [problem] = base.database.report("BatchMatMulV2").problems
    assert problem.startswith(name.partition("-")[0] + ": ")
    assert message in problem
    assert isinstance(answer, Miss)
    assert answer.details["tables"] == {"BatchMatMulV2": [problem]}
    assert latency(base.query(mm(4, 8, 3))) == 1.5


def test_a_gigabyte_without_a_newline_is_not_read_whole(tmp_path: Path) -> None:
    base = with_file(tmp_path, HEADER)
    os.truncate(tmp_path / "BatchMatMulV2.csv", 1 << 30)
    tracemalloc.start()
    try:
        status = base.database.report("BatchMatMulV2").status
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert status == "line_too_long"
    assert peak < 8 << 20
    assert latency(base.query(mm(4, 8, 3))) == 1.5


def append(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(LINE)


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


@pytest.mark.parametrize(
    ("change", "expected"), [(append, "file_changed"), (replace, "file_changed"), (Path.unlink, "unreadable")]
)
def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, change: Callable[[Path], None], expected: str
) -> None:
    path = tmp_path / "BatchMatMulV2.csv"
    path.write_bytes(HEADER + LINE)
    lines = iter(TextLines(path))
    next(lines)
    change(path)
    with pytest.raises(DataFileError) as caught:
        list(lines)
    assert caught.value.code == expected


def test_a_change_during_the_load_is_reported_with_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = with_file(tmp_path, HEADER + LINE)
    assert latency(base.query(mm(4, 8, 3))) == 1.5
    sizes = iter(range(10))
    monkeypatch.setattr(text_source, "_identity", lambda target: (0, next(sizes), 0))
    assert base.database.report("BatchMatMulV2").status == "file_changed"
    assert code(base.query(BMM)) == "csv_not_found"


@pytest.mark.parametrize(
    "raw",
    [
        b"\xef\xbb\xbf" + HEADER + LINE,
        (HEADER + LINE).replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + (HEADER + LINE).replace(b"\n", b"\r\n"),
        HEADER + b"\n\n" + LINE + b"\n",
        (HEADER + LINE).removesuffix(b"\n"),
        HEADER + LINE.replace(b"2.5", b" 2.5 "),
        HEADER + LINE.removesuffix(b"\n") + b",,\n",
    ],
    ids=["bom", "crlf", "bom-crlf", "blank-lines", "no-last-newline", "blanks", "trailing-commas"],
)
def test_marks_and_line_ends_change_nothing(tmp_path: Path, raw: bytes) -> None:
    assert latency(with_file(tmp_path, raw).query(BMM)) == 2.5


def test_a_file_cut_in_its_last_line_loses_that_line_only(tmp_path: Path) -> None:
    base = with_file(tmp_path, HEADER + LINE + b'"2,5,8;2,8,3",DT_BF16;DT')
    report = base.database.report("BatchMatMulV2")
    assert (dict(report.rejected), dict(report.examples)) == ({"short_row": 1}, {"short_row": "BatchMatMulV2.csv:3"})
    assert latency(base.query(BMM)) == 2.5


def test_a_header_without_rows_is_an_empty_table(tmp_path: Path) -> None:
    base = with_file(tmp_path, HEADER)
    assert base.database.report("BatchMatMulV2").status == "empty"
    assert code(base.query(BMM)) == "shape_mismatch"
    assert latency(base.query(mm(4, 8, 3))) == 1.5


def test_a_folder_in_the_place_of_a_table_is_no_table(tmp_path: Path) -> None:
    base = with_file(tmp_path, HEADER)
    (tmp_path / "BatchMatMulV2.csv").unlink()
    (tmp_path / "BatchMatMulV2.csv").mkdir()
    [problem] = base.database.report("BatchMatMulV2").problems
    assert problem == f"unreadable: {tmp_path / 'BatchMatMulV2.csv'}: is a directory, not a file"
    assert str(base.query(BMM)).endswith("table unreadable: is a directory, not a file (BatchMatMulV2.csv)")


def test_a_pipe_in_the_place_of_a_table_is_not_waited_for(tmp_path: Path) -> None:
    base = with_file(tmp_path, HEADER)
    (tmp_path / "BatchMatMulV2.csv").unlink()
    os.mkfifo(tmp_path / "BatchMatMulV2.csv")
    assert base.database.report("BatchMatMulV2").status == "unreadable"


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    base = with_file(tmp_path, HEADER)
    (tmp_path / "BatchMatMulV2.csv").unlink()
    (tmp_path / "BatchMatMulV2.csv").symlink_to(tmp_path / "gone.csv")
    assert "No such file" in base.database.report("BatchMatMulV2").unreadable


LOAD_PROBLEMS = [
    (LFS, "Git-LFS pointer"),
    (b"", "empty file"),
    (HEADER.decode().encode("utf-16"), "not UTF-8 text but UTF-16 or binary: save it as UTF-8"),
    (HEADER.decode().encode("utf-16-be"), "not UTF-8 text but UTF-16 or binary: save it as UTF-8"),
    (HEADER.replace(b",", b"\t") + LINE, "columns are separated by tabs; expected commas"),
    (HEADER.replace(b",", b";") + LINE, "columns are separated by semicolons; expected commas"),
    (b'Input Shapes,Duration(us)\n"4,8",1\n', "column 'Input Data Types' is missing"),
    (
        HEADER.replace(b"(us)", b"(ms)") + LINE,
        "no latency column; expected one of Average Duration(us), Profiling Average Duration(us), Duration(us); "
        "Duration(ms): durations must be in microseconds, (us)",
    ),
]


@pytest.mark.parametrize(("raw", "cause"), LOAD_PROBLEMS)
@pytest.mark.parametrize("interpolated", [False, True])
def test_the_one_line_answer_names_why_a_table_cannot_be_read(
    tmp_path: Path, raw: bytes, cause: str, interpolated: bool
) -> None:
    base = with_file(tmp_path, raw)
    answer = (InterpolatingDataSource(base) if interpolated else base).query(BMM)
    assert f"table unreadable: {cause} (BatchMatMulV2.csv)" in str(answer)


def test_an_absent_table_is_not_called_unreadable(tmp_path: Path) -> None:
    base = with_file(tmp_path, HEADER)
    (tmp_path / "BatchMatMulV2.csv").unlink()
    assert "unreadable" not in str(base.query(BMM))


# --- rows that cannot be used -----------------------------------------------------------------------------------------

BAD_SHAPES = [
    ("5,8;8,x", "shape_unparsable"),
    ("5,8;8,,3", "shape_unparsable"),
    ("5,8;8,3.0", "shape_unparsable"),
    ("5_8;8,3", "shape_unparsable"),
    ("5,8;9007199254740993,3", "shape_unparsable"),
    ("5,8;" + "9" * 5000, "shape_unparsable"),
    ("5,8;9007199254740992,9007199254740992", "shape_unparsable"),
    ("5,8;8,-3", "dimension_not_positive"),
    ("5,0;8,3", "dimension_not_positive"),
    ("", "input_shapes_missing"),
    (";;", "dtype_count_mismatch"),
]
BAD_LATENCIES = [
    ("nan", "latency_invalid"),
    ("inf", "latency_invalid"),
    ("-inf", "latency_invalid"),
    ("1e400", "latency_invalid"),
    ("-1.5", "latency_invalid"),
    ("fast", "latency_invalid"),
    ("1_0", "latency_invalid"),
    ("12,5", "latency_invalid"),
    ("0", "latency_zero"),
    ("-0.0", "latency_zero"),
    ("", "latency_blank"),
    ("  ", "latency_blank"),
    ("N/A", "latency_blank"),
]


def between_good_rows(folder: Path, bad: dict[str, Any], reason: str) -> ProfilingDataSource:
    """Checks that the middle row alone is counted under `reason` and that its neighbours answer."""
    rows = [row("4,8;8,3", BF16, 1.5), bad, row("6,8;8,3", BF16, 3.5)]
    base = base_source(write_database(folder, {"MatMulV2": rows}, MM))
    report = base.database.report("MatMulV2")
    assert dict(report.rejected) == {reason: 1}
    assert dict(report.examples) == {reason: "MatMulV2.csv:3"}
    assert (report.rows_read, report.rows_usable, report.status) == (3, 2, "ok")
    assert (latency(base.query(mm(4, 8, 3))), latency(base.query(mm(6, 8, 3)))) == (1.5, 3.5)
    assert code(base.query(mm(5, 8, 3))) == "shape_mismatch"
    return base


@pytest.mark.parametrize(("shapes", "reason"), BAD_SHAPES)
def test_a_bad_shape_costs_its_row(tmp_path: Path, shapes: str, reason: str) -> None:
    names = {"Input Data Types": BF16, "Input Formats": "ND;ND"} if shapes else {"Input Formats": ""}
    between_good_rows(tmp_path, row(shapes, "", 2.5, **names), reason)


@pytest.mark.parametrize(("cell", "reason"), BAD_LATENCIES)
def test_a_bad_latency_costs_its_row(tmp_path: Path, cell: str, reason: str) -> None:
    between_good_rows(tmp_path, row("5,8;8,3", BF16, cell), reason)


@pytest.mark.parametrize(
    ("dtypes", "formats", "reason"),
    [
        ("DT_BF16", "ND;ND", "dtype_count_mismatch"),
        ("DT_BF16;DT_BF16;DT_BF16", "ND;ND", "dtype_count_mismatch"),
        ("", "ND;ND", "dtype_count_mismatch"),
        (BF16, "ND", "format_count_mismatch"),
        (BF16, "ND;ND;ND", "format_count_mismatch"),
    ],
)
def test_names_that_do_not_fit_the_tensors_cost_their_row(
    tmp_path: Path, dtypes: str, formats: str, reason: str
) -> None:
    between_good_rows(tmp_path, row("5,8;8,3", dtypes, 2.5, formats=formats), reason)


@pytest.mark.parametrize(
    ("line", "reason"),
    [(b'"5,8;8,3",DT_BF16;DT_BF16\n', "short_row"), (b"5,8;8,3,DT_BF16;DT_BF16,2.5\n", "long_row")],
)
def test_a_row_of_the_wrong_width_is_counted(tmp_path: Path, line: bytes, reason: str) -> None:
    """An unquoted shape shifts every later cell; reading on would take a dimension for a latency."""
    base = with_file(tmp_path, HEADER + LINE + line + LINE.replace(b"4,8;", b"6,8;").replace(b"2.5", b"3.5"))
    assert dict(base.database.report("BatchMatMulV2").rejected) == {reason: 1}
    assert dict(base.database.report("BatchMatMulV2").examples) == {reason: "BatchMatMulV2.csv:3"}
    wide = LeafOp.build("aten.bmm.default", [((2, 6, 8), "bf16"), ((2, 8, 3), "bf16")])
    assert (latency(base.query(BMM)), latency(base.query(wide))) == (2.5, 3.5)


def test_interpolation_counts_the_same_rejections(tmp_path: Path) -> None:
    rows = [row("4,8;8,3", BF16, 10.0), row("5,8;8,3", BF16, "nan"), row("8,8;8,3", BF16, 20.0)]
    wrapped = source(write_database(tmp_path, {"MatMulV2": rows}, MM))
    assert latency(wrapped.query(mm(6, 8, 3))) == 15.0
    far = wrapped.query(mm(9, 8, 3))
    assert isinstance(far, Miss)
    assert far.details["attempts"][0]["rejected_rows"] == {"latency_invalid": 1}


def test_a_huge_operator_is_a_miss_and_an_impossible_one_an_error(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {"MatMulV2": [row("4,8;8,3", BF16, 1.5), row("8,8;8,3", BF16, 2.5)]}, MM)
    assert code(source(folder).query(mm(2**59, 8, 3))) == "outside_axis_boundary"
    with pytest.raises(InvalidValueError, match=r"6976, 8\): tensor shape has more than 2\*\*63 - 1 elements"):
        mm(2**60, 8, 3)
    with pytest.raises(InvalidValueError, match="more than"):
        mm(10**400, 8, 3)


# --- communication tables ---------------------------------------------------------------------------------------------

HCOM = "message_bytes,num_devices,dtype,topology_tier,Duration(us)\n"
REDUCE = {"tensor_cast.all_reduce.default": {"kernel_type": "hcom_allReduce_", "category": "communication"}}


def all_reduce(size_bytes: int) -> LeafOp:
    """Over sixteen ranks of one server: tier 1."""
    return LeafOp.build(
        "tensor_cast.all_reduce.default", [((size_bytes,), "int8")], attrs={"rank_group": tuple(range(16))}
    )


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("many,16,DT_BF16,1,9.0", "number_unparsable"),
        ("256,few,DT_BF16,1,9.0", "number_unparsable"),
        ("256,16,DT_BF16,top,9.0", "number_unparsable"),
        ("0,16,DT_BF16,1,9.0", "dimension_not_positive"),
        ("256,-16,DT_BF16,1,9.0", "dimension_not_positive"),
        ("256,16,DT_BF16,1,", "latency_blank"),
        ("256,16,DT_BF16,1,0", "latency_zero"),
        ("256,16,DT_BF16,1,nan", "latency_invalid"),
        ("256,16,DT_BF16,1,-9", "latency_invalid"),
        ("256,16,DT_BF16,1,slow", "latency_invalid"),
        ("256,16,DT_BF16,1", "short_row"),
    ],
)
def test_a_bad_communication_row_costs_itself(tmp_path: Path, cells: str, reason: str) -> None:
    write_database(tmp_path, {}, REDUCE)
    text = HCOM + f"128,16,DT_BF16,1,5.0\n{cells}\n512,16,DT_BF16,1,7.0\n"
    (tmp_path / "hcom_allReduce_.csv").write_text(text)
    base = base_source(tmp_path)
    report = base.database.report("hcom_allReduce_")
    assert dict(report.examples) == {reason: "hcom_allReduce_.csv:3"}
    assert (report.rows_read, report.rows_usable) == (3, 2)
    assert (latency(base.query(all_reduce(128))), latency(base.query(all_reduce(512)))) == (5.0, 7.0)
    assert latency(base.query(all_reduce(256))) == pytest.approx(5 + 2 / 3)  # the line through both rows, not 9.0


def test_a_collective_in_another_unit_is_named(tmp_path: Path) -> None:
    (tmp_path / "hcom_allReduce_.csv").write_text("message_bytes,num_devices,Duration(ms)\n1000,8,1\n")
    base = base_source(write_database(tmp_path, {}, REDUCE))
    [problem] = base.database.report("hcom_allReduce_").problems
    assert problem.endswith("column 'Duration(us)' is missing; Duration(ms): durations must be in microseconds, (us)")


def test_a_raw_communication_export_is_named(tmp_path: Path) -> None:
    write_database(tmp_path, {"hcom_allReduce_": [row("64", "DT_BF16", 1.0)]}, REDUCE)
    base = base_source(tmp_path)
    assert code(base.query(all_reduce(128))) == "csv_format_raw"
    [problem] = base.database.report("hcom_allReduce_").problems
    assert problem.startswith("missing_column: ")
    assert "'message_bytes'" in problem


@pytest.mark.parametrize(
    ("reference", "expected"),
    [("../../hccl", 5.0), ("../../absent", 7.0), ("../../../other", 7.0), ("../../hccl/../../other", 7.0)],
)
def test_a_communication_folder_outside_the_device_is_ignored(tmp_path: Path, reference: str, expected: float) -> None:
    folder = tmp_path / "device" / "framework" / "version"
    write_database(folder, {}, REDUCE, communication_data_ref=reference)
    places = {folder: 7.0, tmp_path / "device" / "hccl": 5.0, tmp_path / "other": 99.0}
    for place, value in places.items():
        place.mkdir(exist_ok=True)
        (place / "hcom_allReduce_.csv").write_text(HCOM + f"128,16,DT_BF16,1,{value}\n")
    assert latency(base_source(folder).query(all_reduce(128))) == expected


def test_an_absolute_communication_folder_is_ignored(tmp_path: Path) -> None:
    outside = tmp_path / "other"
    outside.mkdir()
    (outside / "hcom_allReduce_.csv").write_text(HCOM + "128,16,DT_BF16,1,99.0\n")
    folder = tmp_path / "device" / "framework" / "version"
    write_database(folder, {}, REDUCE, communication_data_ref=str(outside))
    assert code(base_source(folder).query(all_reduce(128))) == "csv_not_found"
