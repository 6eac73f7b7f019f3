"""Tiny databases written by hand, and one question for each reason why a database cannot answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from castq.ask import Answer, Setting, ask
from specialized_rows import (
    ADD,
    DFC,
    DFC_OP,
    INDEXER,
    INDEXER_OP,
    QBMM,
    QBMM_OP,
    QUANT,
    SCATTER,
    SPARSE,
    SPARSE_OP,
    binary_row,
    dfc,
    dfc_row,
    indexer,
    indexer_row,
    qbmm,
    qbmm_row,
    quant_row,
    request_columns,
    scatter_row,
    sparse,
    sparse_row,
)
from support import attention, collective, named, row, write_database
from tensor_cast import LeafOp, Requests, TensorSpec

Rows = list[dict[str, Any]]
EXACT: Final = Setting(interpolate=False)
STRICT: Final = Setting(strict=True)
EXACT_STRICT: Final = Setting(interpolate=False, strict=True)
RANKS: Final = Setting(ep_size=16)


@dataclass(frozen=True)
class Asked:
    """A question, the entry of its operator (or of another), and the tables and files it is put to."""

    leaf: LeafOp
    entry: Mapping[str, Any]
    tables: Mapping[str, Rows] = field(default_factory=dict)
    setting: Setting = field(default_factory=Setting)
    files: Mapping[str, str] = field(default_factory=dict)
    layouts: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] | None = None
    operator: str | None = None

    def answer(self, folder: Path) -> Answer:
        """What `castq lookup` answers from a database written into the folder."""
        policies = {str(self.entry.get("kernel_type")): self.policy} if self.policy is not None else None
        entries = {self.operator or self.leaf.name: self.entry}
        where = write_database(folder / "tiny", self.tables, entries, policies)
        with (where / "op_mapping.yaml").open("a", encoding="utf-8") as mapping:
            mapping.write(f"tables: {json.dumps(self.layouts)}\n")
        for name, text in self.files.items():
            (where / name).write_text(text, encoding="utf-8")
        (answer,) = ask(where, [self.leaf], self.setting)
        return answer


# --- matrix products -------------------------------------------------------------------------------------------------

MM, MM_OP = {"kernel_type": "MatMulV2"}, "aten.mm.default"


def mm_row(m: int, latency: float, k: int = 64) -> dict[str, Any]:
    return row(f"{m},{k};{k},32", "DT_BF16;DT_BF16", latency)


LFS: Final = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
LINE: Final = [mm_row(16, 10.0), mm_row(64, 20.0)]
TRIANGLE: Final = [mm_row(16, 1.0, 64), mm_row(64, 2.0, 64), mm_row(16, 3.0, 256)]


def product(leaf: LeafOp, rows: Rows = LINE, **more: Any) -> Asked:
    return Asked(leaf, MM, {"MatMulV2": rows}, **more)


def quantised(leaf: LeafOp, **more: Any) -> Asked:
    entry = {"kernel_type": QBMM, "compute_subcategory": "quantized_matmul"}
    return Asked(leaf, entry, {QBMM: [qbmm_row(16, 64, 32, 1.0)]}, **more)


def no_output() -> LeafOp:
    return LeafOp(QBMM_OP, qbmm(16, 64, 32).inputs)


def fp8_of_int8() -> LeafOp:
    return replace(qbmm(16, 64, 32), name="tensor_cast.fp8_linear.default")


# --- other compute ---------------------------------------------------------------------------------------------------

NORM_OP: Final = "tensor_cast.rms_norm.default"
NUMEL: Final = {"generic_compute": {"axis": "output_numel"}}


def norm(leaf: LeafOp, **more: Any) -> Asked:
    rows = [
        row(f"{tokens},64;64", "DT_BF16;DT_BF16", us, outputs=f"{tokens},64", output_dtypes="DT_BF16")
        for tokens, us in ((16, 10.0), (64, 20.0))
    ]
    return Asked(leaf, {"kernel_type": "RmsNorm"}, {"RmsNorm": rows}, **more)


def norm_leaf(*outputs: tuple[int, ...], width: int = 64, dtype: str = "bf16") -> LeafOp:
    return LeafOp.build(NORM_OP, [((40, width), dtype), ((width,), dtype)], [(shape, dtype) for shape in outputs])


def added(leaf: LeafOp, tables: Mapping[str, Rows] | None = None, **more: Any) -> Asked:
    rows = [binary_row((n, 64), (n, 64), (n, 64), float(n)) for n in (16, 64)]
    return Asked(
        leaf, {"kernel_type": ADD, "query_mode": "elementwise"}, {ADD: rows} if tables is None else tables, **more
    )


def rounded(leaf: LeafOp, **more: Any) -> Asked:
    entry = {"kernel_type": QUANT, "compute_subcategory": "compute_scale"}
    return Asked(leaf, entry, {QUANT: [quant_row(16, 64, 1.0)]}, **more)


def written(leaf: LeafOp, **more: Any) -> Asked:
    entry = {"kernel_type": SCATTER, "query_mode": "scatter_nd_update_mla"}
    return Asked(leaf, entry, {SCATTER: [scatter_row(16, 1.0)]}, **more)


# --- experts ---------------------------------------------------------------------------------------------------------


def moe(leaf: LeafOp, rows: Rows | None = None, **more: Any) -> Asked:
    entry = {"kernel_type": DFC, "query_mode": "moe_fused", "tc_input_count": 1}
    return Asked(leaf, entry, {DFC: rows or [dfc_row(16, 10.0), dfc_row(64, 20.0)]}, **more)


def without_weights() -> LeafOp:
    return LeafOp(DFC_OP, dfc(16).inputs[:2])


def for_other_tokens() -> LeafOp:
    x, ids, *weights = dfc(16).inputs
    return LeafOp(DFC_OP, (x, replace(ids, shape=(8, 4)), *weights))


# --- attention -------------------------------------------------------------------------------------------------------

FIA, FIA_OP = "FusedInferAttentionScore", "tensor_cast.attention.default"


def fia_row(tokens: int, context: int, latency: float, batch: int | None = None) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "Runtime avg_seq_len": context,
        "Runtime num_key_value_heads": 1,
        "Runtime sparse_mode": 3,
        "Runtime input_layout": "TND",
    }
    if batch is not None:
        columns["Runtime batch_size"] = batch
    return row(f"{tokens},8,128;64,128,1,128;64,128,1,128", "DT_BF16;DT_BF16;DT_BF16", latency, **columns)


def dense(leaf: LeafOp, rows: Rows | None = None, **more: Any) -> Asked:
    default = [fia_row(4, 1024, 10.0), fia_row(4, 2048, 20.0)]
    return Asked(leaf, {"kernel_type": FIA, "query_mode": "attention_special"}, {FIA: rows or default}, **more)


def decode(context: int = 512, count: int = 4, **more: Any) -> LeafOp:
    return attention(count, 8, 128, [context] * count, **more)


def parts(*shapes: tuple[str, tuple[int, ...]], lengths: bool = True) -> LeafOp:
    """Attention of some of its tensors only."""
    inputs = tuple(
        TensorSpec(shape, "int64" if role == "seq_lens" else "bfloat16", role=role) for role, shape in shapes
    )
    return LeafOp(FIA_OP, inputs, requests=Requests((1,) * 4, (512,) * 4) if lengths else None)


QUERY, KEY, VALUE = ("query", (4, 1024)), ("key", (64, 128, 1, 128)), ("value", (64, 128, 1, 128))


def selected(leaf: LeafOp, **more: Any) -> Asked:
    rows = [sparse_row(n, float(n), **request_columns((n // 2,) * 2, (3000,) * 2)) for n in (16, 64)]
    return Asked(leaf, {"kernel_type": SPARSE, "query_mode": "attention_sparse_sharedkv"}, {SPARSE: rows}, **more)


def sparse_parts(*roles: str) -> LeafOp:
    return LeafOp(SPARSE_OP, tuple(spec for spec in sparse(40).inputs if spec.role in roles))


def indexed(leaf: LeafOp, rows: Rows | None = None, **more: Any) -> Asked:
    default = [indexer_row(n, 1000, float(n)) for n in (16, 64)]
    entry = {"kernel_type": INDEXER, "query_mode": "attention_lightning_indexer"}
    return Asked(leaf, entry, {INDEXER: rows or default}, **more)


def indexer_without_output() -> LeafOp:
    return LeafOp(INDEXER_OP, indexer(40, 1000).inputs, requests=Requests(block_table_shape=(2, 64)))


# --- communication and composites ------------------------------------------------------------------------------------

REDUCE: Final = {"kernel_type": "hcom_allReduce_", "category": "communication"}


def collected(ranks: int | None = None, leaf: LeafOp | None = None, dtype: str = "DT_BF16", **more: Any) -> Asked:
    """512 bf16 values over two ranks, put to sizes of 2048 and 4096 bytes over `ranks`."""
    rows = "".join(f"{size},{ranks},{dtype},{us}\n" for size, us in ((2048, 5), (4096, 7)))
    files = {} if ranks is None else {"hcom_allReduce_.csv": f"message_bytes,num_devices,dtype,Duration(us)\n{rows}"}
    return Asked(leaf or collective("all_reduce", 512, (0, 1)), REDUCE, files=files, **more)


def reduced() -> Asked:
    operator = "tensor_cast.matmul_all_reduce.default"
    leaf = LeafOp.build(
        operator, [((16, 64), "bf16"), ((64, 32), "bf16")], [((16, 32), "bf16")], {"rank_group": (0, 1)}
    )
    entry = {"composite": True, "sub_kernels": ["MatMulV2", "hcom_allReduce_"]}
    return Asked(leaf, entry, {"MatMulV2": LINE}, files=collected(2).files)


def latent(tables: Mapping[str, Rows] | None = None, roles: tuple[str, ...] = (), **entry: Any) -> Asked:
    shapes = {"query": (4, 8, 192), "kv_cache": (64, 128, 576), "w_uk_t": (8, 128, 512), "w_uv": (8, 512, 128)}
    inputs = tuple(TensorSpec(shape, "bfloat16", role=role) for role, shape in shapes.items() if role not in roles)
    operator = "tensor_cast.multihead_latent_attention.default"
    leaf = LeafOp(operator, inputs, requests=Requests((1,) * 4, (64,) * 4, "decode"))
    return Asked(leaf, {"composite": True, "decomposer": True, **entry}, tables or {})


ABSORBED: Final = {
    FIA: [
        row(
            "4,8,512;64,128,1,512",
            "DT_BF16;DT_BF16",
            9.0,
            **named({"Runtime avg_seq_len": 64, "Runtime num_key_value_heads": 1, "Runtime sparse_mode": 0}),
        )
    ]
}


# --- column tables ---------------------------------------------------------------------------------------------------

PRODUCTS: Final = {"axes": {"M": "m", "K": "k", "N": "n"}, "variant": "kernel", "regime": {"quant": "quant"}}
TWO_KERNELS: Final = (
    "quant,kernel,m,k,n,latency\n"
    "bfloat16,a,16,64,32,10\nbfloat16,b,64,64,32,20\nbfloat16,a,128,64,32,30\nbfloat16,b,128,64,32,31\n"
)
ONE_KERNEL: Final = (
    "quant,kernel,m,k,n,latency\nbfloat16,a,16,64,32,10\nbfloat16,a,64,128,32,20\nbfloat16,a,16,256,32,30\n"
)


def columns(
    leaf: LeafOp, text: str = TWO_KERNELS, layout: Mapping[str, Any] | None = None, family: str = "matmul", **more: Any
) -> Asked:
    """A question to a column table `table.csv` of kernel `Rows`."""
    layouts = {"Rows": {"files": ["table"], "latency_unit": "us", **(layout or PRODUCTS)}}
    entry = {"kernel_type": "Rows", "facts": {"family": family}}
    return Asked(leaf, entry, layouts=layouts, files={"table.csv": text} if text else {}, **more)


def prefills(leaf: LeafOp) -> Asked:
    layout = {"axes": {"isl": "isl", "batch_size": "batch"}, "constants": {"phase": "prefill"}}
    return columns(leaf, "isl,batch,latency\n1024,2,10\n2048,2,20\n", layout, "attention")


def roundings(leaf: LeafOp) -> Asked:
    return columns(
        leaf,
        "m,k,quant,latency\n16,64,fp8,1\n",
        {"axes": {"M": "m", "K": "k"}, "regime": {"quant": "quant"}},
        "quantize",
    )
