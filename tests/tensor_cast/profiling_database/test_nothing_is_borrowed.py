"""Low precision beyond the linear operators: grouped products, quantising operators and KV caches.

Source: decisions 002.11 and 002.29.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composites import latent
from support import Row, comm_table, hit, miss, named, row, write_database
from tensor_cast import (
    InterpolatingDataSource,
    LeafOp,
    Miss,
    ProfilingDataSource,
    QueryResult,
    QuerySource,
    Requests,
    TensorSpec,
)
from tensor_cast.demo.writer import DEVICE, FRAMEWORK, VERSIONS
from tensor_cast.performance_model.profiling_database.exact.low_precision import PRODUCTS, weight_forms
from tensor_cast.performance_model.profiling_database.mapping import op_mapping
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import load_op_mapping

GMM, FUSED, QBMM = "GroupedMatmul", "GroupedMatmulSwigluQuant", "QuantBatchMatmulV3"
# operator -> dtypes of a call, dtypes of its rows
GROUPED = {
    "grouped_matmul": (("bf16", "bf16"), "DT_BF16;DT_BF16"),
    "grouped_matmul_quant": (("int8", "int8"), "INT8;INT8"),
    "grouped_matmul_quant_int4": (("int8", "int8"), "INT8;DT_INT4"),
    "grouped_matmul_fp8": (("fp8", "fp8"), "DT_FLOAT8_E4M3FN;DT_FLOAT8_E4M3FN"),
    "grouped_matmul_mxfp4": (("int4", "int4"), "DT_FLOAT4_E2M1;DT_FLOAT4_E2M1"),
}
KINDS = {
    "base, compatible": ("compatible", False),
    "base, strict": ("strict", False),
    "compatible": ("compatible", True),
    "strict": ("strict", True),
}
Ask = Callable[[LeafOp], "QueryResult | Miss"]


@pytest.fixture(params=KINDS)
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Ask]:
    """Asks a database of these tables in one of the four ways there are."""
    matching, wrapped = KINDS[request.param]

    def source(tables: Mapping[str, Sequence[Row]], entries: Mapping[str, Mapping[str, Any]], where: str = "db") -> Ask:
        base = ProfilingDataSource(write_database(tmp_path / where, tables, entries), exact_match=matching)
        return InterpolatingDataSource(base).query if wrapped else base.query

    return source


def op(name: str) -> str:
    return f"tensor_cast.{name}.default"


def experts_row(m: int, dtypes: str, latency: float, weight: str = "8,64,128", n: int = 128) -> dict[str, Any]:
    return row(f"{m},64;{weight}", dtypes, latency, outputs=f"{m},{n}", output_dtypes="DT_BF16")


def experts_rows(dtypes: str, weight: str = "8,64,128", n: int = 128) -> list[dict[str, Any]]:
    """16 tokens: 4 us, 528 tokens: 132 us; no block of 64 joins them."""
    return [experts_row(m, dtypes, m / 4, weight, n) for m in (16, 528)]


def experts(
    name: str, m: int, dtypes: tuple[str, str], weight: tuple[int, ...] = (8, 64, 128), n: int | None = 128
) -> LeafOp:
    outputs = [] if n is None else [((m, n), "bf16")]
    return LeafOp.build(op(name), [((m, 64), dtypes[0]), (weight, dtypes[1])], outputs)


@pytest.mark.parametrize("form", ["", "_swiglu"])
@pytest.mark.parametrize("held", GROUPED)
@pytest.mark.parametrize("name", GROUPED)
def test_grouped_products_answer_from_their_own_rows_only(
    asked: Callable[..., Ask], name: str, held: str, form: str
) -> None:
    """Every operator against every kind of row, at a measured coordinate and between two."""
    kernel = FUSED if form else GMM
    query = asked({kernel: experts_rows(GROUPED[held][1])}, {op(name + form): {"kernel_type": kernel}})
    packed = name.endswith("int4")
    weight, n = ((8, 32, 128) if packed else (8, 64, 128)), (64 if form else 128)
    exact, between = (query(experts(name + form, m, GROUPED[name][0], weight, n)) for m in (16, 272))
    if name != held:
        assert not exact, str(exact)
        assert not between, str(between)
        return
    assert (hit(exact).latency_us, hit(exact).source) == (4.0, QuerySource.MEASURED)
    if isinstance(between, QueryResult):
        assert (between.latency_us, between.source) == (68.0, QuerySource.INTERPOLATED)


def test_the_wrapper_says_in_which_dtypes_rows_differ(tmp_path: Path) -> None:
    where = write_database(tmp_path, {GMM: experts_rows("INT8;INT8")}, {op(INT4): {"kernel_type": GMM}})
    answer = miss(
        InterpolatingDataSource(ProfilingDataSource(where)).query(experts(INT4, 16, ("int8", "int8"), PACKED))
    )
    assert answer.details["regime_differs_in"]["input_dtypes"] == {
        "asked": ("INT8", "DT_INT4"),
        "measured": ("INT8", "INT8"),
    }


INT4, PACKED = "grouped_matmul_quant_int4", (8, 32, 128)


@pytest.mark.parametrize(
    ("stored", "held"),
    [
        ((8, 32, 128), "8,64,128"),  # (K/2, N) against values counted
        ((8, 128, 32), "8,128,64"),  # turned
        ((8, 32, 128), "8,32,128"),  # against a row that stores pairs too
        ((8, 64, 128), "8,64,128"),  # whole on both sides
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4"])
def test_packed_experts_meet_rows_however_both_are_stored(
    asked: Callable[..., Ask], dtype: str, stored: tuple[int, ...], held: str
) -> None:
    query = asked({GMM: experts_rows("INT8;DT_INT4", held)}, {op(INT4): {"kernel_type": GMM}})
    assert hit(query(experts(INT4, 16, ("int8", dtype), stored))).latency_us == 4.0


@pytest.mark.parametrize(("n", "found"), [(256, 4.0), (512, None), (None, None)])
def test_a_packed_square_is_not_the_product_of_half_its_width(
    asked: Callable[..., Ask], n: int | None, found: float | None
) -> None:
    """(K/2, K) with K = 512: two values in one make N = 512, one in each, turned, N = 256; the rows are the latter."""
    rows = [row("16,512;8,256,512", "INT8;DT_INT4", 4.0, outputs="16,256", output_dtypes="DT_BF16")]
    query = asked({GMM: rows}, {op(INT4): {"kernel_type": GMM}})
    outputs = [] if n is None else [((16, n), "bf16")]
    answer = query(LeafOp.build(op(INT4), [((16, 512), "int8"), ((8, 256, 512), "int8")], outputs))
    assert (answer.latency_us if isinstance(answer, QueryResult) else None) == found


@pytest.mark.parametrize("stored", [(8, 30, 128), (8, 16, 128)])
def test_weights_that_fit_no_reading_are_refused(asked: Callable[..., Ask], stored: tuple[int, ...]) -> None:
    rows = experts_rows("INT8;DT_INT4", ",".join(map(str, stored)))
    assert not asked({GMM: rows}, {op(INT4): {"kernel_type": GMM}})(experts(INT4, 16, ("int8", "int8"), stored))


@pytest.mark.parametrize("name", ["grouped_matmul_fp8", "grouped_matmul_mxfp4", "grouped_matmul_quant_int4"])
def test_a_call_without_roles_borrows_nothing_either(asked: Callable[..., Ask], name: str) -> None:
    """Whatever the operator, a call of INT8 matrices is an INT8 product: only that operator has rows for it."""
    entries = {op(each): {"kernel_type": GMM} for each in GROUPED}
    query = asked({GMM: experts_rows("INT8;INT8")}, entries)
    bare = LeafOp(op(name), (TensorSpec((16, 64), "int8"), TensorSpec((8, 64, 128), "int8")))
    assert not query(bare)
    assert hit(query(replace(bare, name=op("grouped_matmul_quant")))).latency_us == 4.0


@given(st.integers(1, 32), st.integers(1, 64), st.booleans(), st.booleans(), st.booleans())
def test_stored_weights_are_read_back(half_k: int, n: int, packed: bool, turned: bool, told: bool) -> None:
    """Whole and halved, in both orientations: the product that was stored, or no reading where the output is silent."""
    k = 2 * half_k
    stored = (half_k if packed else k, n)
    weight = stored[::-1] if turned else stored
    outputs = [((3, n), "bf16")] if told else []
    forms = weight_forms(LeafOp.build(op(INT4), [((3, k), "int8"), (weight, "int8")], outputs))
    shapes = [form.inputs[1].shape for form in forms]
    if told or shapes:
        assert shapes[0] in ((k, n), (n, k)), shapes
    assert all(k in shape or shape == weight for shape in shapes)


# --- every product of the shipped mappings ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_no_shipped_operator_of_another_precision_meets_int8_rows(tmp_path: Path, version: str) -> None:
    data = op_mapping.SHIPPED_MAPPINGS / DEVICE / FRAMEWORK / VERSIONS[version] / "op_mapping.yaml"
    mapping = load_op_mapping(data)
    wanted = [name for name in PRODUCTS if name in mapping.operators and not mapping.operators[name].composite]
    assert len(wanted) == 12
    plain = {QBMM: "64,128", GMM: "8,64,128", FUSED: "8,64,128"}
    for kernel, weight in plain.items():
        write_database(tmp_path, {kernel: experts_rows("INT8;INT8", weight)}, {})
    base = ProfilingDataSource(tmp_path, mapping=data, exact_match="compatible")
    for name in wanted:
        entry = mapping.operators[name]
        linear = entry.kernel_type == QBMM
        for inner in (32, 64):
            shape = (inner, 128) if linear else (8, inner, 128)
            n = 64 if "swiglu" in name else 128
            leaf = LeafOp.build(name, [((16, 64), "int8"), (shape, "int8")], [((16, n), "bf16")])
            own = PRODUCTS[name] == ("INT8", "INT8") and inner == 64
            assert bool(base.query(leaf)) == own, name
            assert bool(InterpolatingDataSource(base).query(leaf)) == own, name


# --- linear operators, asked of the base ------------------------------------------------------------------------------

LINEAR = {"kernel_type": QBMM, "compute_subcategory": "quantized_matmul", "tc_input_count": 2}


def linear(name: str, k: int, weight: tuple[int, int], n: int) -> LeafOp:
    return LeafOp.build(op(name), [((16, k), "int8"), (weight, "int8")], [((16, n), "bf16")])


def test_a_linear_operator_of_other_matrices_is_refused(asked: Callable[..., Ask]) -> None:
    query = asked({QBMM: experts_rows("INT8;INT8", "64,128")}, {op("fp8_linear"): LINEAR})
    assert not query(linear("fp8_linear", 64, (64, 128), 128))


def test_a_packed_linear_weight_is_the_product_it_stores(asked: Callable[..., Ask]) -> None:
    """A row of K = 512, N = 256: (256, 512) in pairs is N = 512 and no row; (256, 256) in pairs is this row."""
    rows = [row("16,512;512,256", "INT8;DT_INT4", 4.0, outputs="16,256", output_dtypes="DT_BF16")]
    query = asked({QBMM: rows}, {op("static_quant_linear_int4"): LINEAR})
    assert not query(linear("static_quant_linear_int4", 512, (256, 512), 512))
    assert hit(query(linear("static_quant_linear_int4", 512, (256, 256), 256))).latency_us == 4.0


@pytest.mark.parametrize(("held", "found"), [("INT8;DT_INT4", 4.0 + 9.0), ("INT8;INT8", None)])
def test_a_product_with_its_collective_borrows_nothing(tmp_path: Path, held: str, found: float | None) -> None:
    """16 x 128 outputs of two bytes: 4096 bytes are reduced in 9 us."""
    name = "static_quant_linear_int4_all_reduce"
    entry = {"tc_input_count": 2, "composite": True, "sub_kernels": [QBMM, "hcom_allReduce_"]}
    folder = write_database(tmp_path, {QBMM: experts_rows(held, "64,128")}, {op(name): entry})
    comm_table(folder, "hcom_allReduce_", [(4096, 2, 1, 9.0)])
    inputs = [((16, 64), "int8"), ((32, 128), "int8")]
    leaf = LeafOp.build(op(name), inputs, [((16, 128), "bf16")], attrs={"rank": 0, "rank_group": (0, 1)})
    answer = ProfilingDataSource(folder).query(leaf)
    assert (answer.latency_us if isinstance(answer, QueryResult) else None) == found


# --- what an operator quantises to ------------------------------------------------------------------------------------

QUANTISING = {
    "quantize": ("AscendQuantV2", "16,64"),
    "rms_norm_quant": ("RmsNormQuant", "16,64;64"),
    "add_rms_norm_quant2": ("AddRmsNormQuant", "16,64;16,64;64"),
    "add_rms_norm_dynamic_quant_symmetric": ("AddRmsNormDynamicQuant", "16,64;16,64;64"),
    "add_rms_norm_dynamic_quant2_mxfp4": ("AddRmsNormDynamicQuant", "16,64;16,64;64"),
}
OUTPUTS = {"int8": "INT8", "fp8": "DT_FLOAT8_E4M3FN", "int4": "DT_INT4", "fp4": "DT_FLOAT4_E2M1"}


@pytest.mark.parametrize("held", OUTPUTS)
@pytest.mark.parametrize("to", OUTPUTS)
@pytest.mark.parametrize("name", QUANTISING)
def test_a_quantising_operator_answers_from_rows_of_its_output(
    asked: Callable[..., Ask], name: str, to: str, held: str
) -> None:
    """The inputs are equal whatever comes out; an mxfp4 operator's int4 is mxfp4."""
    kernel, shapes = QUANTISING[name]
    dtypes = ";".join("DT_BF16" for _ in shapes.split(";"))
    table = [
        row(shapes.replace("16", m), dtypes, float(m) / 4, outputs=f"{m},64", output_dtypes=OUTPUTS[held])
        for m in ("16", "528")
    ]
    query = asked({kernel: table}, {op(name): {"kernel_type": kernel}})
    kind = "fp4" if "mxfp4" in name and to == "int4" else to

    def leaf(m: int, outputs: bool = True) -> LeafOp:
        inputs = [
            (tuple(int(d) for d in shape.replace("16", str(m)).split(",")), "bf16") for shape in shapes.split(";")
        ]
        return LeafOp.build(op(name), inputs, [((m, 64), to)] if outputs else [])

    assert bool(query(leaf(16))) == (kind == held)
    between = query(leaf(272))
    assert not between or (kind == held and hit(between).latency_us == 68.0)
    assert hit(query(leaf(16, outputs=False))).latency_us == 4.0, "a call that is silent is answered as before"


def test_rows_that_do_not_say_what_they_put_out_still_answer(asked: Callable[..., Ask]) -> None:
    query = asked({"AscendQuantV2": [row("16,64", "DT_BF16", 4.0)]}, {op("quantize"): {"kernel_type": "AscendQuantV2"}})
    assert hit(query(LeafOp.build(op("quantize"), [((16, 64), "bf16")], [((16, 64), "fp8")]))).latency_us == 4.0


# --- KV caches --------------------------------------------------------------------------------------------------------

FIA = "FusedInferAttentionScore"
CACHES = {"bf16": "DT_BF16", "int8": "INT8", "fp8": "DT_FLOAT8_E4M3FN"}


@pytest.mark.parametrize("held", CACHES)
@pytest.mark.parametrize("cache", [*CACHES, "fp16", "uint8"])
def test_a_quantised_cache_is_read_from_its_own_rows(asked: Callable[..., Ask], cache: str, held: str) -> None:
    """Queries of one dtype, caches of several; float16 is taken for BF16 as everywhere, and is wide in any case."""
    runtime = {"Runtime sparse_mode": 3, "Runtime num_key_value_heads": 1, "Runtime input_layout": "TND"}
    rows = [
        row(
            "4,8,128;99,128,128;99,128,128",
            f"DT_BF16;{CACHES[held]};{CACHES[held]}",
            seq / 10,
            **named(runtime),
            **named({"Runtime avg_seq_len": seq}),
        )
        for seq in (100, 300)
    ]
    entry = {"kernel_type": FIA, "query_mode": "attention_special"}
    query = asked({FIA: rows}, {op("attention_quant"): entry})

    def leaf(seq: int) -> LeafOp:
        kv = ((99, 128, 1, 128), cache)
        return LeafOp.build(
            op("attention_quant"), [((4, 8, 128), "bf16"), kv, kv], requests=Requests((1,) * 4, (seq,) * 4)
        )

    wide = ("bf16", "fp16")
    own = cache == held or (cache in wide and held in wide)
    assert bool(query(leaf(100))) == own
    between = query(leaf(200))
    assert not between or (own and hit(between).latency_us == 20.0)


@pytest.mark.parametrize("cache", ["bfloat16", "int8"])
def test_latent_attention_reads_its_cache_from_rows_of_one(tmp_path: Path, cache: str) -> None:
    """The base's own sum of a decode, 10 + 20 + 30 us: its attention child reads the parent's cache as it is."""
    products = [row("4,2,128;4,128,512", "DT_BF16;DT_BF16", 10.0), row("4,2,512;4,512,128", "DT_BF16;DT_BF16", 30.0)]
    runtime = {"Runtime avg_seq_len": 300, "Runtime sparse_mode": 0, "Runtime num_key_value_heads": 1}
    tables = {
        "BatchMatMulV2": products,
        "TransposeBatchMatMul": products,
        FIA: [row("2,4,512;9,128,512;9,128,512", "DT_BF16;DT_BF16;DT_BF16", 20.0, **named(runtime))],
    }
    entry = {"kernel_type": FIA, "composite": True, "require_all_sub_kernels": True}
    leaf = latent("multihead_latent_attention", 2, Requests((1, 1), (300, 300)))
    inputs = [replace(spec, dtype=cache) if spec.role == "kv_cache" else spec for spec in leaf.inputs]
    where = write_database(tmp_path, tables, {op("multihead_latent_attention"): entry})
    answer = ProfilingDataSource(where).query(replace(leaf, inputs=tuple(inputs)))
    if cache == "bfloat16":
        assert hit(answer).latency_us == 60.0
    else:
        assert miss(answer).code == f"attention_sub_kernel_miss:{FIA}"
