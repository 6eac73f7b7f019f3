"""Bad input has a named outcome and costs nothing else: every other row, kernel and thread still gets its answer."""

from __future__ import annotations

import os
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import base_source, mm, row, source, write_database, write_table
from tensor_cast import LeafOp, Miss, ProfilingDataSource, QueryResult, open_database
from tensor_cast.errors import CastqError, DataFileError, InvalidValueError
from tensor_cast.performance_model.profiling_database.op_mapping import OpMapping, load_op_mapping
from tensor_cast.performance_model.profiling_database.readers import text_source
from tensor_cast.performance_model.profiling_database.readers.text_source import read_lines

BF16 = "DT_BF16;DT_BF16"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
MM = {"aten.mm.default": {"kernel_type": "MatMulV2"}}
TWO = {**MM, "aten.bmm.default": {"kernel_type": "BatchMatMulV2"}}
HEADER = b"Input Shapes,Input Data Types,Duration(us)\n"
LINE = b'"2,4,8;2,8,3",DT_BF16;DT_BF16,2.5\n'
BMM = LeafOp.build("aten.bmm.default", [((2, 4, 8), "bf16"), ((2, 8, 3), "bf16")], [((2, 4, 3), "bf16")])


def latency(answer: QueryResult | Miss) -> float:
    assert isinstance(answer, QueryResult), str(answer)
    return answer.latency_us


def code(answer: QueryResult | Miss) -> str:
    assert isinstance(answer, Miss), str(answer)
    return answer.code


def with_file(folder: Path, raw: bytes) -> ProfilingDataSource:
    """A database of a good `MatMulV2.csv` and a `BatchMatMulV2.csv` of these bytes."""
    write_database(folder, {"MatMulV2": [row("4,8;8,3", BF16, 1.5)]}, TWO)
    (folder / "BatchMatMulV2.csv").write_bytes(raw)
    return base_source(folder)


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
    lines = read_lines(path)
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
    assert base.database.report("BatchMatMulV2").problems == ["csv_not_found: no BatchMatMulV2.csv"]


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
    with pytest.raises(InvalidValueError, match=r"inputs\[0\]: tensor shape has more than 2\*\*63 - 1 elements"):
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


# --- folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("empty", "is empty; expected op_mapping.yaml and one CSV per kernel"),
        ("file", "is a file; expected the folder that holds op_mapping.yaml"),
        ("missing", "no such folder; expected a folder that holds op_mapping.yaml"),
    ],
)
def test_a_path_that_is_no_database_says_what_is_expected(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValueError) as caught:
        open_database(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: {message}"


@pytest.mark.parametrize("mapping", [None, "", "# nothing\n", "version: test\n"])
def test_without_mapped_operators_every_operator_is_unmapped(tmp_path: Path, mapping: str | None) -> None:
    write_table(tmp_path, "MatMulV2", [row("4,8;8,3", BF16, 1.5)])
    if mapping is not None:
        (tmp_path / "op_mapping.yaml").write_text(mapping)
    base = base_source(tmp_path)
    assert code(base.query(mm(4, 8, 3))) == "unmapped:aten.mm.default"
    assert code(source(tmp_path).query(mm(4, 8, 3))) == "wrapper_unmapped:aten.mm.default"
    assert base.database.kernels_on_disk() == ("MatMulV2",)
    assert base.database.report("MatMulV2").rows_usable == 1


def test_a_missing_mapping_is_said(tmp_path: Path) -> None:
    write_table(tmp_path, "MatMulV2", [row("4,8;8,3", BF16, 1.5)])
    assert open_database(tmp_path).mapping.header["notes"] == f"no op_mapping.yaml in {tmp_path.name}"


def test_lookups_write_nothing(tmp_path: Path) -> None:
    folder = write_database(tmp_path / "db", {"MatMulV2": [row("4,8;8,3", BF16, 10.0), row("8,8;8,3", BF16, 20.0)]}, MM)

    def snapshot() -> list[tuple[str, int, int]]:
        paths = [Path(root) / name for root, folders, files in os.walk(tmp_path) for name in (*folders, *files)]
        return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths)

    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    before = snapshot()
    try:
        wrapped = source(folder)
        assert (latency(wrapped.query(mm(4, 8, 3))), latency(wrapped.query(mm(6, 8, 3)))) == (10.0, 15.0)
        assert wrapped.lookup(BMM) is None
        assert snapshot() == before
    finally:
        folder.chmod(0o755)


@pytest.mark.parametrize(
    "kernel",
    ["../MatMulV2", "../outside/MatMulV2", "sub/MatMulV2", "..\\MatMulV2", "..", ".MatMulV2", "absolute", "x" * 300],
)
def test_a_kernel_name_cannot_leave_the_folder(tmp_path: Path, kernel: str) -> None:
    inside = tmp_path / "inside"
    for place in (tmp_path, tmp_path / "outside", inside / "sub"):
        place.mkdir(parents=True, exist_ok=True)
        write_table(place, "MatMulV2", [row("4,8;8,3", BF16, 99.0)])
    write_table(inside, ".MatMulV2", [row("4,8;8,3", BF16, 99.0)])
    name = str(tmp_path / "MatMulV2") if kernel == "absolute" else kernel
    good = {"BatchMatMulV2": [row("2,4,8;2,8,3", BF16, 2.5)]}
    base = base_source(write_database(inside, good, {**TWO, "aten.mm.default": {"kernel_type": name}}))
    assert code(base.query(mm(4, 8, 3))) == "csv_not_found"
    assert base.database.report(name).problems == [f"csv_not_found: no {name}.csv"]
    assert base.database.communication_table(name) is None
    assert latency(base.query(BMM)) == 2.5


def test_a_kernel_without_a_table_leaves_its_alternates(tmp_path: Path) -> None:
    mapping = {"aten.mm.default": {"kernel_type": "MatMulV3", "alternate_kernel_types": ["MatMulV2"]}}
    base = base_source(write_database(tmp_path, {"MatMulV2": [row("4,8;8,3", BF16, 1.5)]}, mapping))
    assert latency(base.query(mm(4, 8, 3))) == 1.5
    assert base.database.report("MatMulV3").problems == ["csv_not_found: no MatMulV3.csv"]
    assert base.database.report("MatMulV3").status == "csv_not_found"


# --- the mapping file -------------------------------------------------------------------------------------------------


def refused(folder: Path, text: str | bytes) -> DataFileError:
    path = folder / "op_mapping.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataFileError) as caught:
        open_database(folder)
    assert isinstance(caught.value, CastqError)
    assert caught.value.path == str(path)
    return caught.value


def loaded(folder: Path, text: str) -> OpMapping:
    path = folder / "op_mapping.yaml"
    path.write_text(text)
    return load_op_mapping(path)


LAUGHS = "a0: &a0 [ha, ha]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
BAD_YAML = {
    "lfs_pointer": (LFS, None, "is a Git-LFS pointer, not data: fetch it with 'git lfs pull'"),
    "duplicate_key": ("version: a\ndevice: b\nversion: c\n", 3, "op_mapping.yaml:3: duplicate key 'version'"),
    "duplicate_key-operator": (
        "operator_mappings:\n  aten.mm.default: {kernel_type: A}\n  aten.mm.default: {kernel_type: B}\n",
        3,
        "duplicate key 'aten.mm.default'",
    ),
    "yaml_tag": ("version: a\nnotes: !!python/object/apply:os.getcwd []\n", 2, "python/object/apply:os.getcwd"),
    "yaml_tag-custom": ("version: a\nnotes: !custom x\n", 2, "tag '!custom' is not allowed"),
    "yaml_tag-collection": ("version: !!seq x\n", 1, "tag 'tag:yaml.org,2002:seq' is not allowed"),
    "yaml_value": ("version: !!bool maybe\n", 1, "cannot read 'maybe' as bool"),
    "yaml_value-date": ("version: 2026-13-45\n", 1, "cannot read '2026-13-45' as timestamp"),
    "yaml_value-time": ("version: !!timestamp soon\n", 1, "cannot read 'soon' as timestamp"),
    "yaml_value-int": ("version: a\nnotes: !!int ''\n", 2, "cannot read '' as int"),
    "too_large": (LAUGHS, None, "too many nested or aliased values"),
    "too_large-self": ("&a [*a, *a]\n", 1, "too many nested or aliased values"),
    "too_large-deep": ("[" * 2000, None, "too many nested values"),
    "encoding": ("version: größe\n".encode("latin-1"), None, "not UTF-8 text (byte 11)"),
    "yaml_syntax": ("version: a\nnotes:\n\t- b\n", 3, "found character '\\t' that cannot start any token"),
    "yaml_syntax-two": ("a: 1\n---\nb: 2\n", 2, "but found another document"),
    "yaml_syntax-key": ("? [a]\n: 1\n", 1, "a mapping key must be a scalar"),
    "invalid": ("- a\n- b\n", None, "expected a mapping at the top, got list"),
}


@pytest.mark.parametrize("name", BAD_YAML)
def test_a_mapping_that_is_not_plain_yaml_is_refused(tmp_path: Path, name: str) -> None:
    text, line, message = BAD_YAML[name]
    error = refused(tmp_path, text)
    assert error.code == name.partition("-")[0]
    assert message in str(error)
    assert line is None or error.line == line


def test_a_mapping_larger_than_any_mapping_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "op_mapping.yaml"
    path.write_text("version: a\n")
    os.truncate(path, 1 << 30)
    with pytest.raises(DataFileError, match="larger than 16777216 bytes") as caught:
        open_database(tmp_path)
    assert caught.value.code == "too_large"


def test_a_mapping_may_have_a_mark_and_windows_line_ends(tmp_path: Path) -> None:
    write_table(tmp_path, "MatMulV2", [row("4,8;8,3", BF16, 1.5)])
    text = b"\xef\xbb\xbfversion: a\r\noperator_mappings:\r\n  aten.mm.default:\r\n    kernel_type: MatMulV2\r\n"
    (tmp_path / "op_mapping.yaml").write_bytes(text)
    assert latency(base_source(tmp_path).query(mm(4, 8, 3))) == 1.5


WRONG_FIELDS = [
    ("kernel_type", "[A]", "expected str, got list ['A']"),
    ("query_mode", "3", "expected str, got int 3"),
    ("compute_subcategory", "{a: 1}", "expected str, got dict {'a': 1}"),
    ("accepted_miss", "true", "expected str, got bool True"),
    ("category", "2026-01-01", "expected str, got date"),
    ("quant_mode", "1.5", "expected str, got float 1.5"),
    ("alternate_kernel_types", "MatMulV3", "expected list, got str 'MatMulV3'"),
    ("sub_kernels", "{a: 1}", "expected list, got dict"),
    ("expected_input_formats", "ND", "expected list, got str 'ND'"),
    ("tc_input_count", "true", "expected int, got bool True"),
    ("tc_input_count", "'2'", "expected int, got str '2'"),
    ("tc_input_count", "2.0", "expected int, got float 2.0"),
    ("tc_input_count", "0", "must be at least 1, got 0"),
    ("tc_input_count", "-1", "must be at least 1, got -1"),
    ("zero_cost", "1", "expected bool, got int 1"),
    ("composite", "'true'", "expected bool, got str 'true'"),
    ("require_all_sub_kernels", "[]", "expected bool, got list []"),
    ("decomposer", "1", "expected bool or str, got int 1"),
    ("decomposer_options", "[a]", "expected dict, got list ['a']"),
    ("facts", "dense", "expected dict, got str 'dense'"),
    ("notes", "1", "expected str or list, got int 1"),
]


@pytest.mark.parametrize(("field", "value", "message"), WRONG_FIELDS)
def test_a_wrong_type_in_an_entry_names_file_line_and_field(
    tmp_path: Path, field: str, value: str, message: str
) -> None:
    text = f"version: a\noperator_mappings:\n  aten.mm.default:\n    api_path: x\n    {field}: {value}\n"
    error = refused(tmp_path, text)
    assert error.line == 5
    assert f"op_mapping.yaml:5: operator_mappings.aten.mm.default.{field}: {message}" in str(error)


WRONG_POLICIES = [
    ("max_interpolation_dim", "7", "must be 0 to 3, got 7"),
    ("max_interpolation_dim", "-1", "must be 0 to 3, got -1"),
    ("max_interpolation_dim", "true", "expected int, got bool True"),
    ("axis_transform", "[sqrt]", "expected str, got list ['sqrt']"),
    ("frontier_guard", "1", "expected bool, got int 1"),
    ("generic_compute", "axis_0", "expected dict, got str 'axis_0'"),
    ("method", "simplx", "expected one of simplex, bracket_blend; got 'simplx' (did you mean 'simplex'?)"),
    ("axis_order", "widest", "expected one of listed, tightest; got 'widest'"),
]


@pytest.mark.parametrize(("field", "value", "message"), WRONG_POLICIES)
def test_a_wrong_policy_names_file_line_and_field(tmp_path: Path, field: str, value: str, message: str) -> None:
    text = f"interpolation_policy:\n  kernel_overrides:\n    MatMulV2:\n      quant_mode: a\n      {field}: {value}\n"
    error = refused(tmp_path, text)
    assert f"op_mapping.yaml:5: interpolation_policy.kernel_overrides.MatMulV2.{field}: {message}" in str(error)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operator_mappings: [a]\n", ":1: operator_mappings: expected a mapping, got list"),
        ("operator_mappings:\n  aten.mm.default: MatMulV2\n", ":2: operator_mappings.aten.mm.default: expected a map"),
        ("version: [1]\n", ":1: version: expected text, got list"),
        ("communication_data_ref: {a: 1}\n", ":1: communication_data_ref: expected text, got dict"),
        ("interpolation_policy: 3\n", ":1: interpolation_policy: expected a mapping, got int"),
        ("interpolation_policy:\n  kernel_overrides: [a]\n", ":2: interpolation_policy.kernel_overrides: expected"),
        (
            "latency_policy:\n  kernel_overrides: 3\n",
            ":2: latency_policy.kernel_overrides: expected a mapping",
        ),
        ("operator_mappings:\n  a.b.c:\n    sub_kernels: [A, 3]\n", ":3: operator_mappings.a.b.c.sub_kernels.1: expec"),
        ("tables: [a]\n", ":1: tables: expected a mapping, got list"),
        (
            "interpolation_policy:\n  kernel_overrides:\n    Index:\n      generic_compute:\n        axis: axis_1\n",
            ":5: interpolation_policy.kernel_overrides.Index.generic_compute.axis: expected one of axis_0, "
            "output_numel; got 'axis_1' (did you mean 'axis_0'?)",
        ),
    ],
)
def test_a_section_of_the_wrong_type_is_located(tmp_path: Path, text: str, message: str) -> None:
    assert f"op_mapping.yaml{message}" in str(refused(tmp_path, text))


def test_unknown_keys_are_kept_and_reported(tmp_path: Path) -> None:
    mapping = loaded(
        tmp_path,
        "colour: red\n"
        "operator_mappings:\n"
        "  aten.mm.default: {kernel_type: MatMulV2, kernel_typo: B, nested: {a: 1}}\n"
        "interpolation_policy:\n"
        "  default_dim: 2\n"
        "  kernel_overrides:\n"
        "    MatMulV2: {max_dim: 2, generic_compute: {axes: axis_0}}\n"
        "latency_policy:\n"
        "  kernel_overrides: {ScatterNdUpdate: {prefer_profiling_rows: true}}\n",
    )
    assert mapping.unknown_keys == (
        "colour",
        "operator_mappings.aten.mm.default.kernel_typo",
        "operator_mappings.aten.mm.default.nested",
        "interpolation_policy.default_dim",
        "interpolation_policy.kernel_overrides.MatMulV2.max_dim",
        "interpolation_policy.kernel_overrides.MatMulV2.generic_compute.axes",
    )
    assert dict(mapping.operators["aten.mm.default"].extra) == {"kernel_typo": "B", "nested": {"a": 1}}
    assert mapping.operators["aten.mm.default"].kernels == ("MatMulV2",)
    assert mapping.inert_policies == ("latency_policy.ScatterNdUpdate",)


@pytest.mark.parametrize("reference", ["../outside.yaml", "/etc/hosts", "sub/../../outside.yaml"])
def test_extends_cannot_leave_the_folder(tmp_path: Path, reference: str) -> None:
    (tmp_path / "outside.yaml").write_text("operator_mappings: {aten.mm.default: {kernel_type: Outside}}\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    error = refused(inside, f"version: a\nextends: {reference}\n")
    assert f"op_mapping.yaml:2: extends: {reference!r} lies outside the mapping's own folder" in str(error)


def test_extends_takes_what_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "device: x\noperator_mappings: {aten.mm.default: {kernel_type: A}, aten.bmm.default: {kernel_type: B}}\n"
    )
    mapping = loaded(tmp_path, "extends: base.yaml\noperator_mappings: {aten.mm.default: {kernel_type: C}}\n")
    kernels = {name: entry.kernel_type for name, entry in mapping.operators.items()}
    assert kernels == {"aten.mm.default": "C", "aten.bmm.default": "B"}
    assert mapping.header["device"] == "x"


def test_extends_in_a_circle_or_into_nothing_is_an_error(tmp_path: Path) -> None:
    assert "extends: 'op_mapping.yaml' leads back to this file" in str(refused(tmp_path, "extends: op_mapping.yaml\n"))
    (tmp_path / "a.yaml").write_text("extends: op_mapping.yaml\n")
    (tmp_path / "op_mapping.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(DataFileError, match=r"a\.yaml:1: extends: 'op_mapping\.yaml' leads back"):
        open_database(tmp_path)
    (tmp_path / "op_mapping.yaml").write_text("extends: absent.yaml\n")
    with pytest.raises(DataFileError, match="cannot be read: No such file") as caught:
        open_database(tmp_path)
    assert caught.value.code == "unreadable"


# --- many threads -----------------------------------------------------------------------------------------------------

THREADS, ROUNDS = 8, 60


@pytest.fixture
def busy() -> Iterator[None]:
    """Threads change over as often as the interpreter can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def ask_from_many_threads(questions: Callable[[int], Iterator[tuple[str, str]]]) -> list[str]:
    """Every thread runs its questions `ROUNDS` times; returns what differed from what was expected."""
    start, wrong = threading.Barrier(THREADS), []

    def work(number: int) -> None:
        start.wait()
        for _ in range(ROUNDS):
            wrong.extend(f"{number}: {got} not {expected}" for got, expected in questions(number) if got != expected)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def thread_database(folder: Path) -> Path:
    """Thread n has its own table `K<n>` with M = 4 in 10 + n us and M = 8 in 20 + n us."""
    tables = {f"K{n}": [row("4,8;8,3", BF16, 10.0 + n), row("8,8;8,3", BF16, 20.0 + n)] for n in range(THREADS)}
    operators: dict[str, dict[str, Any]] = {f"test.op{n}.default": {"kernel_type": f"K{n}"} for n in range(THREADS)}
    operators |= {f"test.absent{n}.default": {"kernel_type": f"Absent{n}"} for n in range(THREADS)}
    return write_database(folder, tables, operators)


def product(name: str, m: int) -> LeafOp:
    return LeafOp.build(name, [((m, 8), "bf16"), ((8, 3), "bf16")], [((m, 3), "bf16")])


@pytest.mark.usefixtures("busy")
def test_threads_never_see_each_others_answers_or_reasons(tmp_path: Path) -> None:
    base = base_source(thread_database(tmp_path))

    def questions(n: int) -> Iterator[tuple[str, str]]:
        hit = base.lookup(product(f"test.op{n}.default", 4))
        yield ("none" if hit is None else str(hit.latency_us)), str(10.0 + n)
        yield str(base.lookup(product(f"test.unknown{n}.default", 4))), "None"
        yield base.last_miss_reason, f"unmapped:test.unknown{n}.default"
        yield str(base.lookup(product(f"test.op{n}.default", 5 if n % 2 else 6))), "None"
        yield base.last_miss_reason, "shape_mismatch"
        yield str(base.lookup(product(f"test.absent{n}.default", 4))), "None"
        yield base.last_miss_reason, "csv_not_found"

    assert ask_from_many_threads(questions) == []


@pytest.mark.usefixtures("busy")
def test_threads_never_see_each_others_interpolations_or_details(tmp_path: Path) -> None:
    wrapped = source(thread_database(tmp_path))

    def questions(n: int) -> Iterator[tuple[str, str]]:
        between = wrapped.lookup(product(f"test.op{n}.default", 6))
        yield ("none" if between is None else str(between.latency_us)), str(15.0 + n)
        yield str(wrapped.lookup(product(f"test.unknown{n}.default", 4))), "None"
        yield wrapped.last_miss_reason, f"wrapper_unmapped:test.unknown{n}.default"
        measured = wrapped.lookup(product(f"test.op{n}.default", 8))
        yield ("none" if measured is None else str(measured.latency_us)), str(20.0 + n)
        yield str(wrapped.lookup(product(f"test.op{n}.default", 17 + n))), "None"
        yield wrapped.last_miss_reason, "outside_axis_boundary"
        yield str(wrapped.last_miss_details.get("target_axes", {}).get("axis_0")), str(17.0 + n)

    assert ask_from_many_threads(questions) == []
