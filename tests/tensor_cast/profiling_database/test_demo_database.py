"""The demo database: closed-form values, reproducible bytes, all-or-nothing writes."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tensor_cast.demo import DemoReport, write_demo_database, writer
from tensor_cast.demo.rows import roofline_us
from tensor_cast.errors import CastqError, InvalidValueError, WriteError
from tensor_cast.files.staging import locked
from tensor_cast.performance_model.profiling_database.catalogue import open_database
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.mapping import op_mapping
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import load_op_mapping
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable
from tensor_cast.performance_model.profiling_database.tables.shapes import parse_shape_slots

ALL = ("0.13", "0.15", "0.18")


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> DemoReport:
    """All versions, without noise."""
    return write_demo_database(tmp_path_factory.mktemp("demo") / "exact", noise=0.0, versions=ALL)


def _folder(report: DemoReport, version: str) -> Path:
    return next(database.path for database in report.databases if database.version == version)


def _rows(report: DemoReport, kernel: str, version: str = "0.18") -> list[dict[str, str]]:
    with (_folder(report, version) / f"{kernel}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _table(database: ProfilingDatabase, kernel: str) -> TensorTable:
    table = database.table(kernel)
    assert isinstance(table, TensorTable)
    return table


def _tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_roofline_takes_the_slower_side() -> None:
    assert roofline_us(376e6, 0, 2.0) == pytest.approx(3.0)
    assert roofline_us(376e6, 0, 2.0, "int8") == pytest.approx(2.5)
    assert roofline_us(376e6, 1.6 * 2**40 * 5e-6, 2.0) == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("kernel", "shapes", "column", "latency"),
    [
        # 2*4096*5120*768 flops / 376e12 = 85.6709 us, launch 4
        ("MatMulV2", "4096,5120;768,5120", "Average Duration(us)", 89.6709),
        # 3 * 1024*5120*2 bytes / 1.6 TiB/s = 17.8814 us, launch 1.6
        ("Add", "1024,5120;1024,5120", "Average Duration(us)", 19.4814),
        # profile only: 1.06 * (2.8 + (2*512*6144*2 + 6144*2 + 512*4)/1.6 TiB/s)
        ("RmsNorm", "512,6144;6144", "Profiling Average Duration(us)", 10.5583),
        # 2*256*128 gathered bytes twice plus 8-byte indices are nothing beside the launch
        ("GatherV2", "32000,4096;1;1", "Average Duration(us)", 2.6093),
    ],
)
def test_values_follow_the_stated_formula(exact: Any, kernel: Any, shapes: Any, column: Any, latency: Any) -> None:
    row = next(row for row in _rows(exact, kernel) if row["Input Shapes"] == shapes)
    assert float(row[column]) == pytest.approx(latency, abs=1e-4)


def test_every_row_is_usable_but_the_planned_ones(exact: Any) -> None:
    for version in ALL:
        database = open_database(_folder(exact, version))
        for kernel in database.kernels_on_disk():
            report = database.report(kernel)
            assert report.problems == []
            assert set(report.rejected) <= {"latency_blank"}, kernel
            assert report.rows_usable > 0


def test_size_and_coverage(exact: Any) -> None:
    rows = {database.version: database.rows for database in exact.databases}
    assert sum(rows["0.18"].values()) + sum(exact.communication_rows.values()) < 6000
    assert "LightningIndexer" not in rows["0.15"]
    assert "ConcatD" not in rows["0.15"]
    assert set(rows["0.13"]) < set(rows["0.18"])
    named = open_database(_folder(exact, "0.18")).mapping.kernel_names()
    device_internal = {"RealDiv", "CastAiCore", "AddAiCore", "MulAiCore"}
    assert set(rows["0.18"]) - device_internal <= set(named)


def test_rows_fill_one_latency_column_or_both_or_none(exact: Any) -> None:
    def filled(row: dict[str, str]) -> tuple[bool, bool]:
        return bool(row["Average Duration(us)"]), bool(row["Profiling Average Duration(us)"])

    kinds = {filled(row) for row in _rows(exact, "MatMulV2")}
    assert kinds == {(True, False), (False, True), (True, True), (False, False)}


def test_fused_attention_has_31_slots_in_doubled_quotes(exact: Any) -> None:
    raw = (_folder(exact, "0.18") / "FusedInferAttentionScore.csv").read_text(encoding="utf-8").splitlines()[1]
    assert raw.startswith('dynamic,MIX_AIC,"""')
    row = _rows(exact, "FusedInferAttentionScore")[0]
    slots = parse_shape_slots(row["Input Shapes"])
    assert len(slots) == len(row["Input Data Types"].split(";")) == 31
    assert [i for i, slot in enumerate(slots) if slot is not None] == [0, 1, 2, 4, 5, 6, 14]
    rows = _rows(exact, "FusedInferAttentionScore")
    layouts = {(row["Runtime input_layout"], row["Runtime sparse_mode"]) for row in rows}
    assert layouts == {("TND", "3"), ("BNSD_NBSD", "0")}


def test_tiled_weights_restore_to_the_logical_shape(exact: Any) -> None:
    tiled = [row for row in _rows(exact, "QuantBatchMatmulV3") if "66,448,16,32" in row["Input Shapes"]]
    assert tiled
    assert all(row["Output Shapes"].endswith(",2112") for row in tiled)
    assert all(row["Input Formats"].split(";")[1] == "FRACTAL_NZ" for row in tiled)


def test_expert_rows_carry_ep_size_from_018_on(exact: Any) -> None:
    sizes = [row["EP Size"] for row in _rows(exact, "DispatchFFNCombine")]
    assert {size: sizes.count(size) for size in set(sizes)} == {"16": 22, "32": 11, "": 3}
    assert "EP Size" not in _rows(exact, "DispatchFFNCombine", "0.15")[0]


def test_sparse_rows_with_equal_shapes_differ_in_request_metadata(exact: Any) -> None:
    twins = [row for row in _rows(exact, "SparseFlashAttention") if row["Runtime num_heads"] == "8"]
    assert len(twins) == 2
    assert len({row["Input Shapes"] for row in twins}) == 1
    assert {row["Runtime actual_seq_lengths_values"] for row in twins} == {"3,6", "1,6"}
    assert {row["Runtime metadata_completeness"] for row in twins} == {"complete"}


def test_documented_indexer_row_is_there(exact: Any) -> None:
    shapes = {row["Input Shapes"] for row in _rows(exact, "LightningIndexer")}
    assert "102,32,128;1766,128,1,128;102,32;34;34;34,1584" in shapes


def test_same_seed_same_bytes_and_kernels_do_not_disturb_each_other(tmp_path: Path) -> None:
    write_demo_database(tmp_path / "a", seed=3)
    write_demo_database(tmp_path / "b", seed=3, versions=("0.15", "0.18"))
    write_demo_database(tmp_path / "c", seed=4)
    first, second, third = (_tree(tmp_path / name) for name in "abc")
    assert {name: second[name] for name in first if name != "PROVENANCE.md"} == {
        name: text for name, text in first.items() if name != "PROVENANCE.md"
    }
    assert all(first[name] != third[name] for name in first if name.endswith(".csv"))


def test_noise_stays_within_three_deviations(tmp_path: Path, exact: Any) -> None:
    noisy = write_demo_database(tmp_path / "noisy", noise=0.1)
    column = "Average Duration(us)"
    pairs = zip(_rows(noisy, "Add"), _rows(exact, "Add"), strict=True)
    ratios = [float(a[column]) / float(b[column]) for a, b in pairs if a[column]]
    assert 0.74 < min(ratios) < 0.9
    assert 1.1 < max(ratios) < 1.351


def test_mapping_is_the_shipped_one_marked_synthetic(exact: Any) -> None:
    for version in ALL:
        folder = _folder(exact, version)
        shipped = op_mapping.SHIPPED_MAPPINGS / Path(*folder.parts[-3:])
        written, original = load_op_mapping(folder / "op_mapping.yaml"), load_op_mapping(shipped / "op_mapping.yaml")
        assert dict(written.operators) == dict(original.operators)
        assert (written.synthetic, original.synthetic) == (True, False)
        assert written.header["provenance"] == "synthetic: generated by castq db demo, seed 0"
    text = (exact.root / "PROVENANCE.md").read_text(encoding="utf-8")
    assert "No number here was measured" in text
    assert "| MatMulV2 | 4 | flops = 2*M*K*N" in text


def test_collectives_are_found_from_the_versioned_folder(exact: Any) -> None:
    table = open_database(_folder(exact, "0.18")).communication_table("hcom_allReduce_")
    assert table is not None
    assert set(table.groups) == {(2, 2), (2, 1), (8, 1), (16, 1), (16, 0)}
    assert [row.message_bytes for row in table.rows(8, 1)] == [2**power for power in range(7, 30)]


def test_non_empty_target_needs_force_and_keeps_other_files(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    write_demo_database(out, seed=1)
    (out / "mine.txt").write_text("keep")
    with pytest.raises(InvalidValueError, match="is not empty"):
        write_demo_database(out, seed=2)
    write_demo_database(out, seed=2, force=True)
    assert (out / "mine.txt").read_text() == "keep"
    assert "seed 2" in (out / "PROVENANCE.md").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo"]


def test_force_never_replaces_data_no_demo_wrote(tmp_path: Path) -> None:
    measured = tmp_path / "ATLAS_800_A3_752T_128G_DIE"
    measured.mkdir()
    with pytest.raises(InvalidValueError, match="holds data that no demo wrote"):
        write_demo_database(tmp_path, force=True)
    assert list(tmp_path.iterdir()) == [measured]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"noise": -0.1}, "noise must lie between 0 and 0.5, got -0.1"),
        ({"noise": float("nan")}, "noise must lie between 0 and 0.5, got nan"),
        ({"versions": ("0.19",)}, r"unknown version '0.19' \(did you mean '0.1\d'\?\); known: 0.13, 0.15, 0.18"),
        ({"versions": ()}, "expected at least one of"),
    ],
)
def test_bad_arguments_write_nothing(tmp_path: Path, options: Any, said: Any) -> None:
    with pytest.raises(InvalidValueError, match=said):
        write_demo_database(tmp_path / "demo", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InvalidValueError, match="is a file"):
        write_demo_database(tmp_path / "file")
    with pytest.raises(CastqError, match="cannot be written"):
        write_demo_database(tmp_path / "file" / "demo")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(CastqError, match="cannot be written: Permission denied"):
        write_demo_database(tmp_path / "demo")


def test_a_failure_half_way_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(CastqError, match="No space left on device"):
        write_demo_database(tmp_path / "demo")
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from tensor_cast.demo import write_demo_database
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_demo_database(Path(sys.argv[1]))
"""


def test_what_a_killed_run_left_goes_with_the_next(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    subprocess.run([sys.executable, "-c", KILLED, str(out)], check=False, timeout=60)
    assert [path.name[:6] for path in tmp_path.iterdir()] == [".demo."]
    write_demo_database(out)
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_of_two_runs_into_one_folder_one_says_that_it_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "demo"
    write = writer._write_tree

    def meanwhile(*args: Any) -> DemoReport:
        report = write(*args)
        if not out.exists():
            out.mkdir()
            (out / "of the other run").touch()
        return report

    monkeypatch.setattr(writer, "_write_tree", meanwhile)
    with pytest.raises(WriteError, match="another run has written it meanwhile"):
        write_demo_database(out)
    assert [path.name for path in out.iterdir()] == ["of the other run"]
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_an_earlier_demo_is_replaced_by_one_run_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    write_demo_database(out, seed=1)
    with locked(out), pytest.raises(WriteError, match="another run is writing it"):
        write_demo_database(out, seed=2, force=True)
    assert "seed 1" in (out / "PROVENANCE.md").read_text(encoding="utf-8")
