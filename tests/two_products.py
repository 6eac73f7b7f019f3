"""Folders of two matrix products, one of which is good and the other as a test wants it."""

from __future__ import annotations

from pathlib import Path

from support import base_source, row, write_database
from tensor_cast import Miss, ProfilingDataSource, QueryResult
from tensor_cast.operators import build

BF16 = "DT_BF16;DT_BF16"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
MM = {"aten.mm.default": {"kernel_type": "MatMulV2"}}
TWO = {**MM, "aten.bmm.default": {"kernel_type": "BatchMatMulV2"}}
HEADER = b"Input Shapes,Input Data Types,Duration(us)\n"
LINE = b'"2,4,8;2,8,3",DT_BF16;DT_BF16,2.5\n'
BMM = build.bmm(2, 4, 8, 3)


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
