"""Tiny real databases for tests: rows written as CSV, mappings as YAML, read back by the product's own readers."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tensor_cast import (
    InterpolatingDataSource,
    LeafOp,
    Miss,
    ParallelConfig,
    ProfilingDataSource,
    QueryResult,
    Requests,
)
from tensor_cast.devices import device_profile
from tensor_cast.operators import build

DEVICE = "ATLAS_800_A3_752T_128G_DIE"
SHARED = Path(__file__).resolve().parents[2] / "shared"
COLUMNS = (
    "OP State",
    "Accelerator Core",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
)
Row = Mapping[str, Any]


def named(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns whose names are no identifiers, to be given by name."""
    return dict(columns)


def row(
    inputs: str,
    dtypes: str,
    latency: float | str | None = None,
    *,
    formats: str = "",
    outputs: str = "",
    output_dtypes: str = "",
    output_formats: str = "",
    **columns: Any,
) -> dict[str, Any]:
    """One row; `latency` fills `Duration(us)`, other latency columns and runtime columns go by name."""
    filled: dict[str, Any] = {
        "OP State": "dynamic",
        "Accelerator Core": "AI_CORE",
        "Input Shapes": inputs,
        "Input Data Types": dtypes,
        "Input Formats": formats or ";".join("ND" for _ in dtypes.split(";")),
        "Output Shapes": outputs,
        "Output Data Types": output_dtypes,
        "Output Formats": output_formats or ";".join("ND" for name in output_dtypes.split(";") if name),
    }
    if latency is not None:
        filled["Duration(us)"] = latency
    return filled | columns


def write_table(folder: Path, kernel: str, rows: Sequence[Row]) -> Path:
    """Write `<kernel>.csv` with the union of the rows' columns."""
    header = list(dict.fromkeys([*COLUMNS, *(name for item in rows for name in item)]))
    path = folder / f"{kernel}.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, header, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_database(
    folder: Path,
    tables: Mapping[str, Sequence[Row]],
    operators: Mapping[str, Mapping[str, Any]],
    policies: Mapping[str, Mapping[str, Any]] | None = None,
    **header: Any,
) -> Path:
    """A versioned database folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for kernel, rows in tables.items():
        write_table(folder, kernel, rows)
    document: dict[str, Any] = {"version": "test", **header, "operator_mappings": dict(operators)}
    if policies:
        document["interpolation_policy"] = {"kernel_overrides": dict(policies)}
    (folder / "op_mapping.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return folder


def base_source(folder: Path, **parallel: Any) -> ProfilingDataSource:
    return ProfilingDataSource(folder, device_profile(DEVICE), ParallelConfig(**parallel))


def source(folder: Path, **parallel: Any) -> InterpolatingDataSource:
    return InterpolatingDataSource(base_source(folder, **parallel))


def mm(m: int, k: int, n: int, dtype: str = "bfloat16") -> LeafOp:
    """`aten.mm` of (m, k) and (k, n)."""
    return build.mm(m, k, n, dtype=dtype)


def attention(
    tokens: int,
    heads: int,
    dim: int,
    kv_lens: Sequence[int],
    *,
    query_lens: Sequence[int] | None = None,
    kv_heads: int = 1,
    dtype: str = "bfloat16",
    query_shape: tuple[int, ...] | None = None,
) -> LeafOp:
    """Paged attention: query (tokens, heads*dim), cache (blocks, 128, kv_heads, dim)."""
    cache = ((64, 128, kv_heads, dim), dtype)
    query = query_shape or (tokens, heads * dim)
    return LeafOp.build(
        "tensor_cast.attention.default",
        [(query, dtype), cache, cache],
        [(query, dtype)],
        requests=Requests(None if query_lens is None else tuple(query_lens), tuple(kv_lens)),
    )


def hit(answer: QueryResult | Miss) -> QueryResult:
    assert isinstance(answer, QueryResult), str(answer)
    return answer


def miss(answer: QueryResult | Miss) -> Miss:
    assert isinstance(answer, Miss), str(answer)
    return answer


def comm_table(folder: Path, kernel: str, rows: list[tuple[int, int, int, float]]) -> None:
    lines = ["message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps"]
    lines += [f"{size},{devices},DT_BF16,{tier},{latency},1.0" for size, devices, tier, latency in rows]
    (folder / f"{kernel}.csv").write_text("\n".join(lines) + "\n")


def collective(op: str, numel: int, group: tuple[int, ...]) -> LeafOp:
    return LeafOp.build(f"tensor_cast.{op}.default", [((numel,), "bf16")], attrs={"rank": 0, "rank_group": group})
