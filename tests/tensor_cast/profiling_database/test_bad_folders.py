"""Paths, folders and kernel names that do not hold what was asked: said plainly, and nothing is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import base_source, mm, row, source, write_database, write_table
from tensor_cast import open_database
from tensor_cast.errors import InvalidValueError
from two_products import BF16, BMM, MM, TWO, code, latency


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
