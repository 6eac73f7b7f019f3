"""Coordinates of tensor tables measured several times: which rows, and how far apart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tensor_cast.performance_model.profiling_database as database_package
from castq.repeated_rows import COMPARED_COLUMNS

HEADER = "Input Shapes,Input Data Types,Input Formats"
BF16 = "DT_BF16;DT_BF16,ND;ND"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "op_mapping.yaml").write_text("operator_mappings: {aten.mm.default: {kernel_type: MatMulV2}}\n")
    return tmp_path


def table(folder: Path, *lines: str, columns: str = "Duration(us)", name: str = "MatMulV2") -> None:
    (folder / f"{name}.csv").write_text("\n".join((f"{HEADER},{columns}", *lines)) + "\n")


def found(castq: Any, folder: Path) -> list[dict[str, Any]]:
    ran = castq("db", "check", str(folder), "--json")
    assert ran.code == 0, "a repeat is no fault"
    repeats: list[dict[str, Any]] = json.loads(ran.out)["repeats"]
    return repeats


def test_repeats_name_file_rows_coordinate_count_and_spread(castq: Any, folder: Any) -> None:
    """Four launches, the first of them cold: 11.9, 12, 12.1, 38.66, so half of 12 + 12.1; and two of 10.5, 9.5."""
    cells = ("38.66", "12.1", "11.9", "12.0")
    table(
        folder,
        f'"4,8;8,2",{BF16},10.5',
        *(f'"2,8;8,2",{BF16},{cell}' for cell in cells),
        f'"4,8;8,2",{BF16},9.5',
        f'"6,8;8,2",{BF16},7.0',
    )
    cold, pair = found(castq, folder)
    assert cold == {
        "kernel": "MatMulV2",
        "file": "MatMulV2.csv",
        "lines": [3, 4, 5, 6],
        "coordinate": {
            "Input Shapes": "2,8;8,2",
            "Input Data Types": "DT_BF16;DT_BF16",
            "Input Formats": "ND;ND",
        },
        "count": 4,
        "min_us": 11.9,
        "median_us": 12.05,
        "max_us": 38.66,
        "latencies_us": [38.66, 12.1, 11.9, 12.0],
    }
    assert (pair["lines"], pair["min_us"], pair["median_us"], pair["max_us"]) == ([2, 7], 9.5, 10.0, 10.5)
    shown = castq("db", "check", str(folder)).out.splitlines()
    assert shown[1:3] == [
        "kernel\tstatus\trows\tusable\tmerged\tregimes\tpoints\trejected",
        "MatMulV2\tok\t7\t7\t4\t1\t7/7/7\t0",
    ]
    assert shown[3:] == [
        "coordinates measured several times with different latencies (2), the widest first:",
        "file\trows\tcount\tmin us\tmedian us\tmax us\tcoordinate",
        "MatMulV2.csv\t3,4,5,6\t4\t11.9\t12.05\t38.66\t2,8;8,2 DT_BF16;DT_BF16",
        "MatMulV2.csv\t2,7\t2\t9.5\t10\t10.5\t4,8;8,2 DT_BF16;DT_BF16",
    ]


def test_a_table_without_differing_repeats_says_nothing(castq: Any, folder: Any) -> None:
    """Equal latencies are counted as merged, and no news."""
    table(folder, f'"4,8;8,2",{BF16},3.5', f'"4,8;8,2",{BF16},3.5', f'"8,8;8,2",{BF16},4.5')
    assert found(castq, folder) == []
    out = castq("db", "check", str(folder)).out
    assert "MatMulV2\tok\t3\t3\t1\t" in out
    assert "several times" not in out


@pytest.mark.parametrize(
    ("second", "joined"),
    [
        (f'"4,8;8,2",{BF16},4.5,decode,a', True),
        (f'"4,8;8,2",{BF16},4.5,decode,b', True),  # where a row comes from is never compared
        (f'"4,8;8,2;",{BF16},4.5,decode,a', True),  # a trailing empty slot
        (f'"4,8;8,2",{BF16},4.5,prefill,a', False),
        (f'"4,8;8,4",{BF16},4.5,decode,a', False),
        ('"4,8;8,2",DT_BF16;INT8,ND;ND,4.5,decode,a', False),
        ('"4,8;1,1,16,16",DT_BF16;DT_BF16,ND;FRACTAL_NZ,4.5,decode,a', False),
        (f'"4,8;8,2",{BF16},,decode,a', False),  # no latency, no measurement
    ],
)
def test_rows_agree_in_tensors_and_in_what_lookups_compare(castq: Any, folder: Any, second: Any, joined: Any) -> None:
    first = f'"4,8;8,2",{BF16},3.5,decode,a'
    table(folder, first, second, columns="Duration(us),Runtime phase,Runtime case_id")
    assert [repeats["lines"] for repeats in found(castq, folder)] == ([[2, 3]] if joined else [])


def test_the_coordinate_tells_facts_and_formats(castq: Any, folder: Any) -> None:
    tiled = '"4,8;1,1,16,16",DT_BF16;DT_BF16,ND;FRACTAL_NZ'
    table(folder, f"{tiled},3.5,decode", f"{tiled},7,decode", columns="Duration(us),Runtime phase")
    assert found(castq, folder)[0]["coordinate"]["Runtime phase"] == "decode"
    shown = castq("db", "check", str(folder)).out
    assert "4,8;1,1,16,16 DT_BF16;DT_BF16 ND;FRACTAL_NZ Runtime phase=decode" in shown


def test_the_preferred_column_decides_as_in_answers(castq: Any, folder: Any) -> None:
    """Of three rows the two with an average count: 10 and 30; the duration of the third is another source."""
    rows = (f'"4,8;8,2",{BF16},10,', f'"4,8;8,2",{BF16},,99', f'"4,8;8,2",{BF16},30,')
    table(folder, *rows, columns="Average Duration(us),Duration(us)")
    [one] = found(castq, folder)
    assert (one["lines"], one["median_us"], one["max_us"]) == ([2, 4], 20.0, 30.0)
    answer = castq(
        "lookup", "-d", str(folder), "--op", "aten.mm.default", "--input", "4,8:bf16", "--input", "8,2:bf16", "--strict"
    )
    assert answer.out.startswith("20 us; MEASURED")
    assert "repeats 2 of 10..30" in answer.out


def test_outputs_keep_rows_apart(castq: Any, folder: Any) -> None:
    """A symmetric and an asymmetric quantisation of one input are no repeats of one another."""
    columns = "Duration(us),Output Shapes,Output Data Types,Output Formats"
    table(folder, f'"4,8;8,2",{BF16},3,"4,2",INT8,ND', f'"4,8;8,2",{BF16},4,"4,2",DT_BF16,ND', columns=columns)
    assert found(castq, folder) == []


def test_collectives_are_told_by_size_ranks_tier_and_dtype(castq: Any, folder: Any) -> None:
    rows = ("1000,2,1,DT_BF16,10", "1000,2,1,DT_BF16,40", "1000,4,1,DT_BF16,50", "1000,2,0,DT_BF16,60")
    text = "\n".join(("message_bytes,num_devices,topology_tier,dtype,Duration(us)", *rows, "1000,2,1,DT_FP16,70"))
    (folder / "hcom_allReduce_.csv").write_text(text + "\n")
    [one] = found(castq, folder)
    assert (one["file"], one["lines"], one["median_us"]) == ("hcom_allReduce_.csv", [2, 3], 25.0)
    assert one["coordinate"] == {
        "message_bytes": "1000",
        "num_devices": "2",
        "topology_tier": "1",
        "dtype": "DT_BF16",
    }


def test_long_lists_are_cut_in_the_table_and_whole_in_json(castq: Any, folder: Any) -> None:
    """Twelve coordinates twice, one ten times."""
    pairs = [f'"{m},8;8,2",{BF16},{cell}' for m in range(1, 13) for cell in (10, 11)]
    table(folder, *(f'"64,8;8,2",{BF16},{10 + i}' for i in range(10)), *pairs)
    whole = found(castq, folder)
    assert [len(one["lines"]) for one in whole] == [10] + [2] * 12
    lines = castq("db", "check", str(folder)).out.splitlines()
    assert lines[-1] == "3 more, see --json"
    assert len(lines) == 3 + 2 + 10 + 1
    assert lines[5].split("\t")[1] == "2,3,4,5,6,7,8,9 and 2 more"


def test_the_compared_columns_are_those_that_lookups_read() -> None:
    """Whatever a path or the base reads of a row is part of its coordinate."""
    root = Path(database_package.__file__).parent
    files = [*root.glob("exact/*.py"), *root.glob("paths/*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    read = set(re.findall(r'"(Runtime [a-z_]+|EP Size|API Path|avg_seq_len)"', text))
    assert len(read) >= 12
    assert read == set(COMPARED_COLUMNS)
