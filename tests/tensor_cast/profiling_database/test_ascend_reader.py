"""The Ascend CSV reader, cell by cell: slots, quotes, alignment, latency columns and the load report."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from support import row, write_table
from tensor_cast import TensorSpec
from tensor_cast.errors import DataFileError
from tensor_cast.performance_model.profiling_database.evidence import row_details
from tensor_cast.performance_model.profiling_database.exact.attention import integer_cell
from tensor_cast.performance_model.profiling_database.tables.ascend_csv import WHOLE_COLUMNS, read_tensor_table
from tensor_cast.performance_model.profiling_database.tables.communication_csv import read_communication_table
from tensor_cast.performance_model.profiling_database.tables.kernel_table import LABELS, TensorTable
from tensor_cast.performance_model.profiling_database.tables.shapes import (
    ShapeTextError,
    parse_shape_slots,
    split_slots,
)

AVERAGE, PROFILING, PLAIN = "Average Duration(us)", "Profiling Average Duration(us)", "Duration(us)"
MEDIAN, PROFILING_MEDIAN, LEGACY = "Median Duration(us)", "Profiling Median Duration(us)", "MicroBench Duration(us)"


def table(folder: Path, *cells: dict[str, Any], kernel: str = "Kernel") -> TensorTable:
    return read_tensor_table(write_table(folder, kernel, cells))


def spec(shape: tuple[int, ...], dtype: str = "DT_BF16", storage: str = "ND") -> TensorSpec:
    return TensorSpec(shape, dtype, storage)


# --- shape cells ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "slots"),
    [
        ("136,5120;320,48,16,16", [(136, 5120), (320, 48, 16, 16)]),
        ('"136,5120;320,48,16,16"', [(136, 5120), (320, 48, 16, 16)]),
        (' " 4 , 8 ; 3 " ', [(4, 8), (3,)]),
        ("128", [(128,)]),
        ("4,8;;3;", [(4, 8), None, (3,), None]),
        ("4,8;();3", [(4, 8), (), (3,)]),
        ("", []),
        ('""', []),
        (f"{2**53}", [(2**53,)]),
    ],
)
def test_shape_cells(cell: str, slots: list[tuple[int, ...] | None]) -> None:
    assert parse_shape_slots(cell) == slots


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("4,x", "shape_unparsable"),
        ("4,", "shape_unparsable"),
        ("4.0", "shape_unparsable"),
        ("(4,8)", "shape_unparsable"),
        ("4_8", "shape_unparsable"),
        ("\u0664", "shape_unparsable"),  # a digit, but not an ASCII one
        (f"{2**53 + 1}", "shape_unparsable"),
        (f"{2**53},1025", "shape_unparsable"),
        ("4,0", "dimension_not_positive"),
        ("4;-1", "dimension_not_positive"),
    ],
)
def test_shape_cells_that_cannot_be_read(cell: str, code: str) -> None:
    with pytest.raises(ShapeTextError) as caught:
        parse_shape_slots(cell)
    assert caught.value.code == code


def test_slots_keep_their_places() -> None:
    assert split_slots('"DT_BF16;;INT8 ;"') == ["DT_BF16", "", "INT8", ""]
    assert split_slots("  ") == []


# --- tensors ----------------------------------------------------------------------------------------------------------


def test_fused_attention_keeps_its_31_slots(tmp_path: Path) -> None:
    shapes, dtypes, formats = [""] * 31, ["DT_UNDEFINED"] * 31, ["NULL"] * 31
    filled = {
        0: ("128,4,128", "DT_BF16"),
        1: ("12307,128,128", "DT_BF16"),
        2: ("12307,128,128", "DT_BF16"),
        4: ("2048,2048", "INT8"),
        5: ("128", "INT64"),
        6: ("128", "INT64"),
        14: ("128,512", "INT32"),
        24: ("128,4,64", "DT_BF16"),
    }
    for slot, (shape, dtype) in filled.items():
        shapes[slot], dtypes[slot], formats[slot] = shape, dtype, "ND"
    cells = row(
        f'"{";".join(shapes)}"',
        ";".join(dtypes),
        58.2,
        formats=";".join(formats),
        outputs='"128,4,128;"',
        output_dtypes="DT_BF16;FLOAT",
        output_formats="ND;ND",
        avg_seq_len=4096,
    )
    read = table(tmp_path, cells, kernel="FusedInferAttentionScore")
    assert '"""128,4,128;12307' in (tmp_path / "FusedInferAttentionScore.csv").read_text()
    [slots] = read.inputs
    assert len(slots) == 31
    assert {i: (slot.shape, slot.dtype) for i, slot in enumerate(slots) if slot is not None} == {
        0: ((128, 4, 128), "DT_BF16"),
        1: ((12307, 128, 128), "DT_BF16"),
        2: ((12307, 128, 128), "DT_BF16"),
        4: ((2048, 2048), "INT8"),
        5: ((128,), "INT64"),
        6: ((128,), "INT64"),
        14: ((128, 512), "INT32"),
        24: ((128, 4, 64), "DT_BF16"),
    }
    assert [item.shape for item in read.row_inputs(0)][3] == (2048, 2048)
    assert read.row_outputs(0) == (spec((128, 4, 128)),)
    assert read.cell(0, "avg_seq_len") == "4096"
    assert read.exact_latency.values.tolist() == [58.2]


@pytest.mark.parametrize(
    ("dtypes", "formats"),
    [
        ("DT_BF16;INT8", "ND;FRACTAL_NZ"),
        ("DT_BF16;DT_UNDEFINED;INT8;DT_UNDEFINED", "ND;NULL;FRACTAL_NZ;NULL"),
        ("DT_BF16;;DT_INT8;", "nd; ;fractal_nz;"),
        ("DT_BF16;INT8;;", "ND;FRACTAL_NZ;;"),
        ("DT_BF16;INT8", "ND;NULL;FRACTAL_NZ;NULL"),
        ("DT_BF16;INT8;;;;;", "ND;FRACTAL_NZ"),
        ('"DT_BF16;INT8"', '"ND;FRACTAL_NZ"'),
    ],
    ids=["non-empty", "all", "all-blank", "non-empty-then-blank", "each-its-own", "trailing", "quoted"],
)
def test_names_align_with_the_non_empty_slots_or_with_all(tmp_path: Path, dtypes: str, formats: str) -> None:
    read = table(tmp_path, row("4,8;;2,1,16,32;", dtypes, 1.0, formats=formats))
    assert dict(read.report.rejected) == {}
    assert tuple(read.inputs) == ((spec((4, 8)), None, spec((2, 1, 16, 32), "INT8", "FRACTAL_NZ"), None),)


def test_a_table_without_formats_is_nd(tmp_path: Path) -> None:
    path = tmp_path / "Kernel.csv"
    path.write_text('Input Shapes,Input Data Types,Duration(us)\n"4,8;3",DT_BF16;INT8,1\n')
    read = read_tensor_table(path)
    assert tuple(read.inputs) == ((spec((4, 8)), spec((3,), "INT8")),)
    assert read.row_outputs(0) == ()


def test_a_scalar_slot_is_a_tensor_of_rank_0(tmp_path: Path) -> None:
    read = table(tmp_path, row("4,8;4;()", "DT_BF16;INT32;FLOAT", 1.0))
    assert read.row_inputs(0) == (spec((4, 8)), spec((4,), "INT32"), spec((), "FLOAT"))


def test_an_output_that_cannot_be_read_leaves_the_row_usable(tmp_path: Path) -> None:
    read = table(tmp_path, row("4,8", "DT_BF16", 1.0, outputs="4,x", output_dtypes="DT_BF16"))
    assert read.report.rows_usable == 1
    assert read.row_outputs(0) is None


def test_a_scalar_output_is_known_and_an_empty_one_is_left_out(tmp_path: Path) -> None:
    read = table(tmp_path, row("4,8", "DT_BF16", 1.0, outputs="4,8;();", output_dtypes="INT8;FLOAT"))
    assert read.row_outputs(0) == (spec((4, 8), "INT8"), spec((), "FLOAT"))


def test_extra_columns_are_text_or_none(tmp_path: Path) -> None:
    first = row(
        "4,8", "DT_BF16", 1.0, **{"EP Size": " 16 ", "Runtime topk": "2048", "aiv_time(us)": "0.5", "Junk": "x"}
    )
    read = table(tmp_path, first, row("5,8", "DT_BF16", 1.0))
    assert (read.cell(0, "EP Size"), read.cell(1, "EP Size")) == ("16", None)
    assert read.cell(0, "Runtime topk") == "2048"
    assert read.cell(0, "Runtime absent") is None
    assert set(read.extra) == {"Accelerator Core", "EP Size", "Runtime topk", "aiv_time(us)"}


# --- latency columns (docs/facts/database-layout.md, "Latency columns") -----------------------------------------------


def picked(read: TensorTable) -> tuple[list[tuple[float, str, str]], list[tuple[float, str, str]]]:
    """Value, column and label of every row, for exact lookup and for candidates; 0 stands for none."""
    return tuple(
        [
            (0.0 if math.isnan(value) else value, choice.columns[choice.column_index[i]], LABELS[choice.label(i)])
            for i, value in enumerate(choice.values.tolist())
        ]
        for choice in (read.exact_latency, read.candidate_latency)
    )  # type: ignore[return-value]


def test_each_row_takes_the_preferred_column_then_the_others_in_order(tmp_path: Path) -> None:
    read = table(
        tmp_path,
        row("1", "INT8", **{AVERAGE: "1", PROFILING: "2", PLAIN: "3"}),
        row("2", "INT8", **{AVERAGE: "", PROFILING: "2", PLAIN: "3"}),
        row("3", "INT8", **{AVERAGE: "0", PROFILING: "nan", PLAIN: "3"}),
    )
    exact, candidate = picked(read)
    assert exact == candidate
    assert exact == [
        (1.0, AVERAGE, "selected_column"),
        (2.0, PROFILING, "fallback_column"),
        (3.0, PLAIN, "fallback_column"),
    ]
    assert row_details(read.row_ref(1, read.exact_latency)) == {
        "file": "Kernel.csv",
        "line": 3,
        "row_index": 1,
        "latency_us": 2.0,
        "latency_column": PROFILING,
        "latency_selection": "fallback_column",
    }


@pytest.mark.parametrize(
    ("columns", "preferred"),
    [((AVERAGE, PROFILING, PLAIN), AVERAGE), ((PLAIN, PROFILING), PROFILING), ((PLAIN, MEDIAN), PLAIN)],
)
def test_the_preferred_column_is_that_of_the_file(tmp_path: Path, columns: tuple[str, ...], preferred: str) -> None:
    read = table(tmp_path, row("1", "INT8", **dict.fromkeys(columns, "5")))
    assert read.exact_latency.preferred == read.candidate_latency.preferred == preferred


def test_medians_count_for_candidates_only(tmp_path: Path) -> None:
    """Candidates: preferred, profiling average, profiling median, average, median, duration."""
    every = dict(zip((AVERAGE, PROFILING, PROFILING_MEDIAN, MEDIAN, PLAIN), "12345", strict=True))
    drops = [(), (AVERAGE,), (AVERAGE, PROFILING), (AVERAGE, PROFILING, PROFILING_MEDIAN)]
    only_median = dict.fromkeys(every, "") | {MEDIAN: "4"}
    rows = [row(str(i + 1), "INT8", **(every | dict.fromkeys(names, ""))) for i, names in enumerate(drops)]
    read = table(tmp_path, *rows, row("9", "INT8", **only_median))
    exact, candidate = picked(read)
    assert [(value, column) for value, column, _ in exact] == [
        (1.0, AVERAGE),
        (2.0, PROFILING),
        (5.0, PLAIN),
        (5.0, PLAIN),
        (0.0, AVERAGE),
    ]
    assert [(value, column) for value, column, _ in candidate] == [
        (1.0, AVERAGE),
        (2.0, PROFILING),
        (3.0, PROFILING_MEDIAN),
        (4.0, MEDIAN),
        (4.0, MEDIAN),
    ]
    assert read.report.rows_usable == 5


def test_a_file_of_medians_has_no_preferred_column(tmp_path: Path) -> None:
    read = table(tmp_path, row("1", "INT8", **{MEDIAN: "4"}))
    assert read.exact_latency.preferred is None
    assert math.isnan(read.exact_latency.values[0])
    choice = read.candidate_latency
    assert (choice.values.tolist(), choice.columns, choice.preferred) == ([4.0], (MEDIAN,), None)
    assert LABELS[choice.label(0)] == "fallback_column"


def test_the_legacy_spelling_reads_as_the_average(tmp_path: Path) -> None:
    read = table(tmp_path, row("1", "INT8", **{LEGACY: "1", PROFILING: "2"}))
    assert picked(read)[0] == [(1.0, AVERAGE, "selected_column")]


@pytest.mark.parametrize("order", [(LEGACY, AVERAGE), (AVERAGE, LEGACY)])
def test_the_legacy_spelling_never_replaces_the_current_one(tmp_path: Path, order: tuple[str, str]) -> None:
    values = {LEGACY: "7", AVERAGE: "1"}
    read = table(tmp_path, row("1", "INT8", **{name: values[name] for name in order}))
    assert picked(read)[0] == [(1.0, AVERAGE, "selected_column")]


def test_std_and_counters_are_no_latency(tmp_path: Path) -> None:
    path = write_table(tmp_path, "Kernel", [row("1", "INT8", **{"Std Duration(us)": "1", "aicore_time(us)": "1"})])
    with pytest.raises(DataFileError, match="no latency column") as caught:
        read_tensor_table(path)
    assert (caught.value.code, caught.value.line) == ("missing_column", 1)


# --- numbers and kernels ----------------------------------------------------------------------------------------------

DIGITS = "\uff11\uff16"  # full-width 16


@pytest.mark.parametrize("cell", ["1_6", DIGITS, "\u0661", "64.9", "1e-1", "x", "inf"])
@pytest.mark.parametrize("column", WHOLE_COLUMNS)
def test_a_whole_number_that_is_none_costs_its_row(tmp_path: Path, column: str, cell: str) -> None:
    read = table(tmp_path, row("4", "INT8", 1.0, **{column: "16"}), row("5", "INT8", 1.0, **{column: cell}))
    assert (read.lines, dict(read.report.rejected)) == ((2,), {"number_invalid": 1})
    assert read.report.examples == {"number_invalid": f"Kernel.csv:3: {column} {cell!r}"}


@pytest.mark.parametrize("cell", ["16", "16.0", "1.6e1", " 16 ", "", "nan", "N/A"])
def test_whole_numbers_and_blanks_are_kept(tmp_path: Path, cell: str) -> None:
    read = table(tmp_path, row("4", "INT8", 1.0, **{"Runtime topk": cell}))
    assert integer_cell(read, 0, "Runtime topk") == (16 if "6" in cell else None)


@pytest.mark.parametrize("cell", ["1_6", DIGITS, "-1", "nan", "1e400"])
def test_a_latency_in_other_digits_is_no_latency(tmp_path: Path, cell: str) -> None:
    assert dict(table(tmp_path, row("4", "INT8", cell)).report.rejected) == {"latency_invalid": 1}


@pytest.mark.parametrize("column", ["Type", "OP Type"])
def test_rows_of_another_kernel_are_rejected_with_a_count(tmp_path: Path, column: str) -> None:
    """A profiler's export holds every kernel of a step; the product of an `Add` row is no product."""
    own = [row("4,8", "INT8", 1.0, **{column: name}) for name in ("Kernel", "Kernel_0", "Kernel_12", " Kernel ", "")]
    other = [row("4,8", "INT8", 1.0, **{column: name}) for name in ("Add", "KernelV2", "Kernel_x")]
    report = table(tmp_path, *own, *other).report
    assert (report.rows_usable, dict(report.rejected)) == (5, {"other_kernel": 3})
    assert report.examples == {"other_kernel": "Kernel.csv:7"}


@pytest.mark.parametrize(
    ("shapes", "dtypes", "formats"),
    [
        ("4,8;3", "DT_BF16;INT8;DT_UNDEFINED;DT_UNDEFINED", "ND;ND;NULL;NULL"),
        ("4,8;3;", "DT_BF16;INT8;DT_UNDEFINED;DT_UNDEFINED", "ND;ND;NULL"),
        ("4,8;3;;;", "DT_BF16;INT8;DT_UNDEFINED", "ND;ND"),
        ("4,8;3;;;", "DT_BF16;INT8", "ND;ND;NULL;NULL;NULL;NULL;NULL"),
    ],
)
def test_trailing_empty_slots_may_be_left_out_on_either_side(
    tmp_path: Path, shapes: str, dtypes: str, formats: str
) -> None:
    read = table(tmp_path, row(shapes, dtypes, 1.0, formats=formats))
    assert dict(read.report.rejected) == {}
    assert read.row_inputs(0) == (spec((4, 8)), spec((3,), "INT8"))


@pytest.mark.parametrize("dtypes", ["DT_BF16;DT_UNDEFINED;INT8", "DT_BF16;INT8;INT8", "DT_BF16"])
def test_names_that_stand_for_other_tensors_are_no_trailing_slots(tmp_path: Path, dtypes: str) -> None:
    read = table(tmp_path, row("4,8;3", dtypes, 1.0, formats="ND;ND"))
    assert dict(read.report.rejected) == {"dtype_count_mismatch": 1}


# --- the load report --------------------------------------------------------------------------------------------------


def test_the_report_counts_every_row_once_and_keeps_first_examples(tmp_path: Path) -> None:
    good, blank = row("4,8", "DT_BF16", 1.0), row("5,8", "DT_BF16", "")
    bad = row("6,x", "DT_BF16", "")
    report = table(tmp_path, good, blank, blank, bad, good, row("7,8", "INT8;INT8", 1.0), bad).report
    assert report.to_json() == {
        "kernel": "Kernel",
        "source": "Kernel.csv",
        "status": "ok",
        "rows_read": 7,
        "rows_usable": 2,
        "rejected": {"latency_blank": 2, "shape_unparsable": 2, "dtype_count_mismatch": 1},
        "examples": {
            "latency_blank": "Kernel.csv:3",
            "shape_unparsable": "Kernel.csv:5",
            "dtype_count_mismatch": "Kernel.csv:7",
        },
        "repeats_merged": 0,
        "regimes": 0,
        "points_per_regime": None,
        "problems": [],
        "notes": [],
    }


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "Kernel.csv"
    path.write_text('Input Shapes,Input Data Types,Note,Duration(us)\n4,INT8,,1\n\n5,INT8,"two\nlines",2\n6,INT8,,3\n')
    assert read_tensor_table(path).lines == (2, 5, 6)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({PLAIN: "", AVERAGE: "0"}, "latency_zero"),
        ({PLAIN: "0", AVERAGE: ""}, "latency_zero"),
        ({PLAIN: "nan", AVERAGE: ""}, "latency_invalid"),
        ({PLAIN: "N/A", AVERAGE: ""}, "latency_blank"),
    ],
)
def test_a_row_without_latency_is_counted_under_what_it_has(tmp_path: Path, cells: dict[str, str], reason: str) -> None:
    report = table(tmp_path, row("4,8", "DT_BF16", **cells)).report
    assert (report.status, dict(report.rejected)) == ("empty", {reason: 1})


# --- communication tables ---------------------------------------------------------------------------------------------


def test_communication_rows_are_grouped_and_sorted(tmp_path: Path) -> None:
    path = tmp_path / "hcom_allReduce_.csv"
    path.write_text(
        "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps\n"
        "512,16,DT_BF16,1,7.0,1\n128,16,DT_BF16,1,5.0,1\n128,16,DT_FP16,1,5.5,1\n128,16,DT_BF16,0,9.0,1\n64,2,DT_BF16,2,1.0,1\n"
    )
    read = read_communication_table(path)
    assert [(row.message_bytes, row.latency_us, row.line) for row in read.rows(16, 1)] == [
        (128, 5.0, 3),
        (128, 5.5, 4),
        (512, 7.0, 2),
    ]
    assert [row.latency_us for row in read.rows(16, None)] == [5.0, 5.5, 9.0, 7.0]
    assert read.rows(16, 2) == read.rows(4, None) == ()
    assert read.rows(2, 2)[0].dtype == "DT_BF16"


def test_without_a_tier_column_every_tier_may_use_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "hcom_allReduce_.csv"
    path.write_text("message_bytes,num_devices,Duration(us)\n128,16,5.0\n")
    read = read_communication_table(path)
    assert not read.has_tier
    assert [row.latency_us for row in read.rows(16, 1)] == [5.0]
