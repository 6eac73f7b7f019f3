"""From a row of a CSV table to the very question it answers, read from the cells without the product's readers."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tensor_cast import LeafOp, Requests, TensorSpec
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry

Cells = Mapping[str, str]
DTYPES: Final = {
    "DT_BF16": "bfloat16",
    "DT_FLOAT16": "float16",
    "FLOAT": "float32",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "DT_INT4": "int4",
}
LATENCIES: Final = ("Average Duration(us)", "Profiling Average Duration(us)", "Duration(us)")


@dataclass(frozen=True)
class Question:
    """The question of a row, and the ranks its experts lie on."""

    leaf: LeafOp
    ep_size: int | None = None


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))


def measured(row: Cells) -> bool:
    """Whether the row has a latency."""
    return any(_number(row.get(name, "")) > 0 for name in LATENCIES)


def _number(text: str) -> float:
    return float(text) if text.strip() else 0.0


def numbers(text: str | None) -> tuple[int, ...]:
    return tuple(
        int(float(part)) for part in (text or "").replace(";", ",").replace('"', "").split(",") if part.strip()
    )


def slots(row: Cells, side: str) -> list[TensorSpec | None]:
    """The tensors of `Input` or `Output`, None for an empty slot; tiles as the matrix they hold."""
    shapes = row.get(f"{side} Shapes", "").strip('"')
    if not shapes:
        return []
    dtypes = row.get(f"{side} Data Types", "").split(";")
    formats = row.get(f"{side} Formats", "").split(";")
    found: list[TensorSpec | None] = []
    filled = iter(zip(dtypes, formats, strict=False)) if len(dtypes) < len(shapes.split(";")) else None
    for at, text in enumerate(shapes.split(";")):
        if not text or (filled is None and (at >= len(dtypes) or dtypes[at] in ("", "DT_UNDEFINED"))):
            found.append(None)
            continue
        dtype, layout = (
            next(filled) if filled is not None else (dtypes[at], (formats[at] if at < len(formats) else "ND"))
        )
        shape = () if text == "()" else tuple(int(part) for part in text.split(","))
        if layout == "FRACTAL_NZ" and len(shape) == 4:
            shape = (shape[1] * shape[2], shape[0] * shape[3])
        found.append(TensorSpec(shape, DTYPES.get(dtype, dtype)))
    return found


def tensors(row: Cells, side: str) -> list[TensorSpec]:
    return [spec for spec in slots(row, side) if spec is not None]


def _role(spec: TensorSpec, role: str, shape: Sequence[int] | None = None) -> TensorSpec:
    return TensorSpec(spec.shape if shape is None else tuple(shape), spec.dtype, role=role)


def question(entry: OperatorEntry, row: Cells) -> Question | None:
    """The question whose coordinates are the row's; None where the operator cannot ask for such a row."""
    builders = {
        "attention_special": _attention,
        "attention_sparse_sharedkv": _sparse,
        "attention_lightning_indexer": _indexer,
        "moe_fused": _experts,
        "scatter_nd_update_mla": _scatter,
    }
    ep = numbers(row.get("EP Size"))
    if entry.category == "communication":
        return _collective(entry, row)
    leaf = builders.get(entry.query_mode or "", _plain)(entry, row)
    return None if leaf is None else Question(leaf, ep[0] if ep else None)


def _plain(entry: OperatorEntry, row: Cells) -> LeafOp | None:
    inputs, outputs = tensors(row, "Input"), tensors(row, "Output")
    if entry.name.startswith("tensor_cast.swiglu") and len(inputs) == 1:
        half = (*inputs[0].shape[:-1], inputs[0].shape[-1] // 2)
        inputs = [TensorSpec(half, inputs[0].dtype)] * 2
    if entry.name.startswith("aten.addmm"):
        inputs = [inputs[2], *inputs[:2]] if len(inputs) == 3 else []
    return LeafOp.build(entry.name, inputs, outputs, requests=_requests(row)) if inputs else None


def _requests(row: Cells) -> Requests | None:
    """Complete lengths, else what block table, phase, batch and mean context say."""
    totals, contexts = (numbers(row.get(f"Runtime actual_seq_lengths_{name}values")) for name in ("", "kv_"))
    table = numbers(row.get("Runtime block_table_shape")) or None
    phase: Any = row.get("Runtime phase") or None
    if totals and contexts and row.get("Runtime metadata_completeness") in (None, "complete"):
        lengths = tuple(high - low for low, high in pairwise((0, *totals)))
        return Requests(lengths, contexts, phase, table)
    batch, mean = numbers(row.get("Runtime batch_size")), numbers(row.get("Runtime avg_seq_len"))
    if batch and mean and mean[0] > 0:
        tokens = _tokens(row)
        queries = (tokens // batch[0],) * batch[0] if tokens % batch[0] == 0 else None
        return Requests(queries, mean * batch[0], phase, table)
    return Requests(None, None, phase, table) if phase or table else None


def _tokens(row: Cells) -> int:
    query = tensors(row, "Input")[0].shape
    return query[0] * (query[2] if len(query) == 4 else 1)


def _attention(entry: OperatorEntry, row: Cells) -> LeafOp | None:
    """Paged key and value show their heads, however the row folds them."""
    query, key, value = slots(row, "Input")[:3]
    requests = _requests(row)
    if query is None or key is None or value is None or requests is None or requests.kv_lens is None:
        return None
    heads, width = numbers(row.get("Runtime num_key_value_heads")) or (1,), query.shape[-1]
    paged = (key.shape[0], 128, heads[0], width)
    if len(query.shape) == 4:
        paged = (key.shape[0], heads[0], 128, width)
    inputs = (_role(query, "query"), _role(key, "key", paged), _role(value, "value", paged))
    sparse = numbers(row.get("Runtime sparse_mode"))
    attrs = (("sparse_mode", sparse[0]),) if sparse else ()
    return LeafOp(entry.name, inputs, (_role(query, ""),), attrs, requests)


def _sparse(entry: OperatorEntry, row: Cells) -> LeafOp | None:
    query, cache, _, indices, table, *_ = slots(row, "Input")
    if query is None or cache is None or indices is None or table is None:
        return None
    return LeafOp(
        entry.name,
        (_role(query, "query"), _role(cache, "kv"), _role(indices, "topk_indices")),
        (_role(query, ""),),
        requests=_grouped(row, table),
    )


def _indexer(entry: OperatorEntry, row: Cells) -> LeafOp | None:
    query, cache, weights, _, _, table = slots(row, "Input")[:6]
    if query is None or cache is None or weights is None or table is None:
        return None
    inputs = (_role(query, "query"), _role(weights, "weights"), _role(cache, "indexer_cache"))
    return LeafOp(entry.name, inputs, tuple(tensors(row, "Output")[:1]), requests=_grouped(row, table))


def _grouped(row: Cells, table: TensorSpec) -> Requests:
    """Lengths and block table of a row whose record is complete, else its block table and phase."""
    known = _requests(row)
    if known is not None and known.query_lens is not None and row.get("Runtime metadata_completeness") == "complete":
        return Requests(known.query_lens, known.kv_lens, known.explicit_phase, (table.shape[0], table.shape[1]))
    phase: Any = row.get("Runtime phase") or None
    return Requests(None, None, phase, (table.shape[0], table.shape[1]))


def _experts(entry: OperatorEntry, row: Cells) -> LeafOp | None:
    x, gmm1, gmm2, ids = tensors(row, "Input")[:4]
    roles = (_role(x, "x"), _role(ids, "expert_indices"), _role(gmm1, "gmm1_weight"), _role(gmm2, "gmm2_weight"))
    return LeafOp(entry.name, roles, (_role(x, ""),))


def _scatter(entry: OperatorEntry, row: Cells) -> LeafOp | None:
    cache, index, update = tensors(row, "Input")[:3]
    return LeafOp(
        entry.name, (_role(update, "update"), _role(cache, "cache"), _role(index, "index")), (_role(cache, ""),)
    )


def _collective(entry: OperatorEntry, row: Cells) -> Question | None:
    """A tensor of as many bytes over as many ranks: those of a card (tier 2), a server (1), several servers (0)."""
    size, devices = int(row["message_bytes"]), int(row["num_devices"])
    tier = row.get("topology_tier", "")
    dtype = DTYPES.get(row.get("dtype", ""), {"DT_FP16": "float16", "FLOAT16": "float16"}.get(row.get("dtype", ""), ""))
    if size % 2 or not dtype:
        return None
    step = {"2": 1, "1": 2, "0": 16}.get(tier, 1) if devices == 2 else 1
    group = tuple(range(0, devices * step, step))
    if tier == "0" and devices > 2:
        group = tuple(range(0, devices * 16, 16))
    count = size // 2 * (devices if entry.name.startswith("tensor_cast.reduce_scatter") else 1)
    shape = ((count,), dtype)
    return Question(LeafOp.build(entry.name, [shape], [shape], {"rank": 0, "rank_group": group}))


def spread(rows: Sequence[Any], most: int) -> Iterator[Any]:
    """At most so many of the rows, evenly from the first to the last."""
    count = min(len(rows), most)
    for at in range(count):
        yield rows[at * (len(rows) - 1) // max(count - 1, 1)]
