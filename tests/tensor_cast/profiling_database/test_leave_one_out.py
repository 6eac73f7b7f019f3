"""Without its own row nothing is MEASURED: strict matching takes no other operator's row (decision 002.30).

Each row's own question, its row and its repeats taken out of the table: what is left may bracket it or miss.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from owners import Owners
from row_questions import Cells, Question, measured, question, read_rows, spread, tensors
from support import Row, hit, miss, row, write_database
from tensor_cast import LeafOp, QueryResult, QuerySource
from tensor_cast.demo import write_demo_database
from tensor_cast.performance_model.profiling_database import open_database
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry

FAULTS = Path(__file__).parents[4] / "shared" / "faults" / "ascend"
ROWS = 4  # of each table, evenly from the first to the last
OF_ONE_RUN = ("Name", "Type", "OP Count", "Count", "Op Name")
ENTRIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "aten.mm.default": {"kernel_type": "MatMulV2"},
    "aten.addmm.default": {"kernel_type": "MatMulV2"},
    "tensor_cast.scaled.default": {"kernel_type": "Scaled", "tc_input_count": 1},
    "aten._to_copy.default": {"kernel_type": "Cast"},
    "tensor_cast.quantize.default": {"kernel_type": "DynamicQuant", "tc_input_count": 1},
}
TIMES = ("uration", "Time", "atency", "count", "std")


def kind(cells: Cells, entry: OperatorEntry) -> object:
    """What a row measured: every cell but names, counts and times; a product however its weight is stored."""
    facts = {name: text for name, text in cells.items() if name and not any(word in name for word in TIMES)}
    for name in OF_ONE_RUN:
        facts.pop(name, None)
    if (entry.kernel_type or "").startswith("MatMul"):
        (m, k), weight = tensors(cells, "Input")[0].shape[-2:], tensors(cells, "Input")[1].shape[-2:]
        facts.pop("Input Formats", None)
        facts["Input Shapes"] = f"{m},{k},{weight[1] if weight[0] == k else weight[0]}"
    return tuple(sorted(facts.items()))


def questions(database: ProfilingDatabase) -> Iterator[tuple[OperatorEntry, Path, list[dict[str, str]], int]]:
    """Some rows of every table that an operator asks by itself."""
    folders = (database.path / (database.mapping.communication_data_ref or "."), database.path)
    for entry in database.mapping.operators.values():
        if entry.composite or entry.zero_cost or entry.accepted_miss:
            continue
        for kernel in entry.kernels:
            path = next((path for folder in folders if (path := folder / f"{kernel}.csv").exists()), None)
            if path is None:
                continue
            rows = read_rows(path)
            usable = [at for at, cells in enumerate(rows) if entry.category == "communication" or measured(cells)]
            yield from ((entry, path, rows, at) for at in spread(usable, ROWS))


def without(database: ProfilingDatabase, path: Path, rows: Sequence[Cells], folder: Path) -> ProfilingDatabase:
    """The same mapping over one table with these rows."""
    where = folder.joinpath(*database.path.parts[-3:])
    shutil.rmtree(folder, ignore_errors=True)
    where.mkdir(parents=True)
    table = (where / path.relative_to(database.path)).resolve()
    table.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(database.path / "op_mapping.yaml", where)
    with table.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return open_database(where)


def borrowed(database: ProfilingDatabase, folder: Path) -> tuple[int, list[str]]:
    """How many questions were asked, and those that another row answered as measured."""
    asked, found = 0, []
    for entry, path, rows, at in questions(database):
        own = question(entry, rows[at])
        kept = [cells for cells in rows if kind(cells, entry) != kind(rows[at], entry)]
        if own is None or not kept:
            continue
        asked += 1
        answer = ask(without(database, path, kept, folder), own)
        if isinstance(answer, QueryResult) and answer.source is QuerySource.MEASURED:
            found.append(f"{entry.name} {path.name} {own.leaf.tensors} {own.leaf.outputs}: {answer.details}")
    return asked, found


def ask(database: ProfilingDatabase, own: Question) -> object:
    return Owners(database, "strict", own.ep_size).wrapper.query(own.leaf)


def test_no_row_of_the_demo_answers_for_another(tmp_path: Path) -> None:
    report = write_demo_database(tmp_path / "demo", noise=0.05, versions=("0.18",))
    asked, found = borrowed(open_database(report.databases[0].path), tmp_path / "left")
    assert asked > 150
    assert found == []


@pytest.mark.skipif(not FAULTS.is_dir(), reason="the public Ascend tables lie beside the checkout, in ../shared")
def test_no_row_of_the_public_tables_answers_for_another(tmp_path: Path) -> None:
    unreadable = ("15", "16", "17")  # raw columns, UTF-16, another separator: refused as whole tables
    folders = [place for place in sorted(FAULTS.glob("*/dev/fw/v")) if place.parts[-4] not in unreadable]
    counts = [borrowed(open_database(place), tmp_path / place.parts[-4]) for place in folders]
    assert sum(asked for asked, _ in counts) > 20
    assert [line for _, found in counts for line in found] == []


def test_a_row_left_alone_with_its_question_is_found(tmp_path: Path) -> None:
    """The check can fail: with its own row in place a question is measured."""
    place = write_database(tmp_path, {"MatMulV2": [row("8,64;64,32", "DT_BF16;DT_BF16", 5.0)]}, ENTRIES)
    asked = Question(LeafOp.build("aten.mm.default", [((8, 64), "bf16"), ((64, 32), "bf16")]))
    answer = ask(open_database(place), asked)
    assert isinstance(answer, QueryResult)
    assert answer.source is QuerySource.MEASURED


def launched(kernel: str, *rows: Row) -> dict[str, Sequence[Row]]:
    return {kernel: rows}


def scaled(rest: str, latency: float, outputs: str = "16,64") -> Row:
    return row(f"16,64;{rest}", "DT_BF16;DT_BF16", latency, outputs=outputs, output_dtypes="DT_BF16")


X = ((16, 64), "bf16")


@pytest.mark.parametrize("other", [scaled("128", 9.0), scaled("64", 9.0, outputs="16,128")])
def test_rows_that_differ_beyond_the_counted_inputs_are_not_merged(tmp_path: Path, other: Row) -> None:
    place = write_database(tmp_path, launched("Scaled", scaled("64", 5.0), other), ENTRIES)
    leaf = LeafOp.build("tensor_cast.scaled.default", [X])
    owners = Owners(open_database(place), "strict")
    for source in (owners.base, owners.wrapper):
        assert miss(source.query(leaf)).code == "ambiguous_duplicate_coordinate"
    assert hit(Owners(open_database(place), "compatible").base.query(leaf)).latency_us == 5.0


def test_repeats_of_one_launch_are_their_median(tmp_path: Path) -> None:
    place = write_database(tmp_path, launched("Scaled", scaled("64", 5.0), scaled("64", 7.0)), ENTRIES)
    answer = hit(Owners(open_database(place), "strict").wrapper.query(LeafOp.build("tensor_cast.scaled.default", [X])))
    assert (answer.latency_us, answer.source) == (6.0, QuerySource.MEASURED)


@pytest.mark.parametrize(("dtype", "latency"), [("fp32", 5.0), ("fp16", None), ("int8", None)])
def test_a_copy_to_another_dtype_is_another_operator(tmp_path: Path, dtype: str, latency: float | None) -> None:
    rows = [row(f"{m},64", "DT_BF16", m / 4 + 1, outputs=f"{m},64", output_dtypes="FLOAT") for m in (8, 16, 32)]
    place = write_database(tmp_path, launched("Cast", *rows), ENTRIES)
    answer = Owners(open_database(place), "strict").wrapper.query(
        LeafOp.build("aten._to_copy.default", [X], [((16, 64), dtype)])
    )
    assert (answer.latency_us if isinstance(answer, QueryResult) else None) == latency


@pytest.mark.parametrize(("outputs", "latency"), [(1, None), (2, 5.0), (3, 7.0)])
def test_a_quantisation_with_offsets_is_another_operator(tmp_path: Path, outputs: int, latency: float | None) -> None:
    rows = [
        row("16,64", "DT_BF16", 5.0, outputs="16,64;16", output_dtypes="INT8;FLOAT"),
        row("16,64", "DT_BF16", 7.0, outputs="16,64;16;16", output_dtypes="INT8;FLOAT;INT32"),
    ]
    place = write_database(tmp_path, launched("DynamicQuant", *rows), ENTRIES)
    made = [((16, 64), "int8"), ((16,), "fp32"), ((16,), "int32")][:outputs]
    answer = Owners(open_database(place), "strict").wrapper.query(
        LeafOp.build("tensor_cast.quantize.default", [X], made)
    )
    assert (answer.latency_us if isinstance(answer, QueryResult) else None) == latency


BIASED = [row(f"{m},64;64,32;32", "DT_BF16;DT_BF16;DT_BF16", m / 8) for m in (8, 16, 32)]


@pytest.mark.parametrize("matching", ["strict", "compatible"])
@pytest.mark.parametrize(("m", "latency"), [(16, 2.0), (24, 3.0)])
def test_a_product_with_a_bias_finds_the_rows_that_have_one(
    tmp_path: Path, matching: str, m: int, latency: float
) -> None:
    rows = [*BIASED, row("24,64;64,32", "DT_BF16;DT_BF16", 9.0)]
    place = write_database(tmp_path, launched("MatMulV2", *rows), ENTRIES)
    leaf = LeafOp.build("aten.addmm.default", [((32,), "bf16"), ((m, 64), "bf16"), ((64, 32), "bf16")])
    assert hit(Owners(open_database(place), matching).wrapper.query(leaf)).latency_us == latency
