"""Every printed spelling of a database opens it, in any case and without its last parts; errors list what is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import mm, row, write_database
from tensor_cast import ProfilingDataSource, QueryResult, open_database
from tensor_cast.errors import InvalidValueError, UnknownNameError
from tensor_cast.performance_model.profiling_database.catalogue import find_databases
from two_products import BF16

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

GEMM = {"kernel_source": ["a"], "gemm_dtype": ["bfloat16"], "m": [4], "n": [3], "k": [8], "latency": [0.002]}


def add(root: Path, name: str) -> None:
    system, framework, version = name.split("/")
    folder = root / system / "gemm" / framework / version
    folder.mkdir(parents=True)
    pq.write_table(pa.table(GEMM), folder / "gemm_perf.parquet")


def answers(where: object) -> float:
    found = ProfilingDataSource(where).query(mm(4, 8, 3))  # type: ignore[arg-type]
    assert isinstance(found, QueryResult), found
    return found.latency_us


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """A root with exactly one database, a stray CSV and an empty system beside it."""
    root = tmp_path / "tables"
    add(root, "gpu1/vllm/1.0")
    (root / "notes.csv").write_text("a,b\n1,2\n")
    (root / "gpu2").mkdir()
    return root


def test_every_printed_spelling_opens(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [name] = find_databases(one)
    opened = open_database(one)
    assert name.spelling == opened.name == f"{one}::gpu1/vllm/1.0"
    monkeypatch.chdir(one.parent)
    spellings = (
        *(name.spelling, name.path, one, one.parent, "tables", "tables/", Path("tables"), "tables/gpu1"),
        *("tables::gpu1/vllm/1.0", "tables::gpu1/vllm", "tables::gpu1", "tables::GPU1/vLLM/1.0", f"{one}{os.sep}"),
    )
    assert [answers(where) for where in spellings] == [2.0] * len(spellings)


def test_a_folder_above_an_ascend_database(tmp_path: Path) -> None:
    folder = write_database(
        tmp_path / "demo" / "npu" / "vllm_ascend" / "1",
        {"MatMulV2": [row("4,8;8,3", BF16, 1.5)]},
        {"aten.mm.default": {"kernel_type": "MatMulV2"}},
    )
    (tmp_path / "demo" / "stray.csv").write_text("x\n")
    [name] = find_databases(tmp_path)
    spellings = (folder, tmp_path, tmp_path / "demo", name.spelling, f"{tmp_path}::{name}")
    assert [answers(where) for where in spellings] == [1.5] * len(spellings)


def test_several_databases_are_listed(one: Path) -> None:
    add(one, "gpu1/vllm/2.0")
    add(one, "gpu1/sglang/1.0")
    with pytest.raises(InvalidValueError, match=r"holds 3 databases; name one of them: .*::gpu1/sglang/1.0"):
        open_database(one)
    two = r"'gpu1/vllm' stands for 2 databases; name one of them: .*::gpu1/vllm/1\.0, .*::gpu1/vllm/2\.0"
    with pytest.raises(InvalidValueError, match=two):
        open_database(f"{one}::gpu1/vllm")
    assert answers(f"{one}::gpu1/sglang") == 2.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu7/vllm/1.0", r"no system 'gpu7' \(did you mean 'gpu1'\?\); known: gpu1"),
        ("gpu1/nccl/1.0", "no framework 'nccl' of gpu1; known: vllm"),
        ("gpu1/vllm/latest", r"no version 'latest' of gpu1/vllm; known: 1\.0"),
        ("gpu1/vllm/1.0/gemm", "expected system/framework/version"),
    ],
)
def test_an_unknown_part_is_named_with_what_is_known(one: Path, name: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        open_database(f"{one}::{name}")


def test_a_mistaken_folder_says_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "readme.txt").write_text("")
    with pytest.raises(InvalidValueError, match=r"holds no database; .*, found readme.txt, sub/"):
        open_database(tmp_path)


def test_a_mapping_at_the_root_is_the_roots_own(one: Path) -> None:
    mapping = (
        "tables:\n  Product:\n    files: [gemm/gemm_perf]\n    axes: {M: m, K: k, N: n}\n"
        "    regime: {quant: gemm_dtype}\n"
        "operator_mappings:\n  aten.mm.default: {kernel_type: Product, facts: {family: matmul}}\n"
    )
    (one / "notes.csv").unlink()
    (one / "op_mapping.yaml").write_text(mapping)
    for where in (one, f"{one}::gpu1/vllm/1.0"):
        found = ProfilingDataSource(where).query(mm(4, 8, 3))
        assert isinstance(found, QueryResult)
        assert (found.latency_us, found.details["kernel_type"]) == (2.0, "Product")
