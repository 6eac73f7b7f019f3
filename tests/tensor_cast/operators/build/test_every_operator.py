"""Every constructor against the shapes and dtypes of the operator table (docs/facts/leaf-operators.md), by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast import LeafOp, Requests, TensorSpec
from tensor_cast.errors import InvalidValueError
from tensor_cast.operators import build
from tensor_cast.operators.signatures import assign_roles, known_operators, signature

DECODE = Requests((1, 1), (9, 40), None, (2, 4))
SAME = Requests((3, 3), (3, 40))
MLA = build.LatentSizes(heads=4, nope_dim=16, rope_dim=8, kv_lora_rank=32, v_dim=12, q_lora_rank=20)
RANKS = (0, 1)
Shapes = list[tuple[tuple[int, ...], str]]
F8, F4, E8 = "float8_e4m3fn", "float4_e2m1fn_x2", "float8_e8m0fnu"
BF, I8, F32, I64, I32 = "bfloat16", "int8", "float32", "int64", "int32"

# operator, constructor, tensors of the call, tensors it puts out
CASES: list[tuple[str, Callable[[], LeafOp], Shapes, Shapes]] = [
    (
        "tensor_cast.attention",
        lambda: build.attention(DECODE, heads=8, kv_heads=2, head_dim=16, blocks=5),
        [((2, 128), BF), ((5, 128, 2, 16), BF), ((5, 128, 2, 16), BF)],
        [((2, 128), BF)],
    ),
    (
        "tensor_cast.attention_quant",
        lambda: build.attention_quant(DECODE, heads=8, kv_heads=2, head_dim=16, blocks=5),
        [((2, 128), I8), ((5, 128, 2, 16), I8), ((5, 128, 2, 16), I8), *[((), F32)] * 3],
        [((2, 128), BF)],
    ),
    (
        "tensor_cast.reshape_and_cache",
        lambda: build.reshape_and_cache(7, kv_heads=2, head_dim=16, blocks=5),
        [((7, 32), BF), ((7, 32), BF), ((2, 5, 128, 2, 16), BF), ((7,), I64)],
        [],
    ),
    (
        "tensor_cast.concat_and_cache_mla",
        lambda: build.concat_and_cache_mla(7, kv_lora_rank=32, rope_dim=8, blocks=5),
        [((7, 32), BF), ((7, 8), BF), ((5, 128, 40), BF), ((7,), I64)],
        [],
    ),
    (
        "tensor_cast.kv_rmsnorm_rope_cache",
        lambda: build.kv_rmsnorm_rope_cache(7, kv_lora_rank=32, rope_dim=8, blocks=5),
        [((7, 40), BF), ((32,), BF), ((1, 7, 8), BF), ((1, 7, 8), BF), ((5, 128, 40), BF), ((7,), I64)],
        [((7, 8), BF), ((7, 32), BF)],
    ),
    (
        "tensor_cast.apply_rope",
        lambda: build.apply_rope(7, heads=4, kv_heads=2, head_dim=16),
        [((1, 4, 7, 16), BF), ((1, 2, 7, 16), BF), ((1, 7, 16), BF), ((1, 7, 16), BF)],
        [((1, 7, 4, 16), BF), ((1, 7, 2, 16), BF)],
    ),
    (
        "tensor_cast.apply_rope_single",
        lambda: build.apply_rope_single(7, heads=4, head_dim=16),
        [((1, 4, 7, 16), BF), ((1, 7, 16), BF), ((1, 7, 16), BF)],
        [((1, 7, 4, 16), BF)],
    ),
    (
        "tensor_cast.apply_rope_inplace",
        lambda: build.apply_rope_inplace(7, heads=4, head_dim=16, rope_dim=8),
        [((1, 7, 4, 16), BF), ((1, 7, 8), BF), ((1, 7, 8), BF)],
        [((1, 7, 4, 16), BF)],
    ),
    (
        "tensor_cast.fused_rope",
        lambda: build.fused_rope(7, heads=4, kv_heads=2, head_dim=16, rotary_dim=8),
        [((7, 4, 16), BF), ((7, 2, 16), BF), ((7, 16), BF)],
        [((7, 4, 16), BF), ((7, 2, 16), BF)],
    ),
    (
        "tensor_cast.mlapo",
        lambda: build.mlapo(7, hidden=64, latent=MLA),
        [
            ((7, 64), BF),
            ((1, 7, 8), BF),
            ((1, 7, 8), BF),
            ((20, 64), BF),
            ((20,), BF),
            ((96, 20), BF),
            ((40, 64), BF),
            ((32,), BF),
        ],
        [((7, 4, 24), BF), ((7, 32), BF), ((7, 8), BF), ((7, 20), BF)],
    ),
    (
        "tensor_cast.mlapo_quant",
        lambda: build.mlapo(7, hidden=64, latent=MLA, quant=True),
        [
            ((7, 64), BF),
            ((1, 7, 8), BF),
            ((1, 7, 8), BF),
            ((20, 64), I8),
            ((20,), BF),
            ((96, 20), I8),
            ((40, 64), I8),
            ((32,), BF),
            *[((), F32)] * 3,
        ],
        [((7, 4, 24), BF), ((7, 32), BF), ((7, 8), BF), ((7, 20), BF)],
    ),
    (
        "tensor_cast.multihead_latent_attention",
        lambda: build.multihead_latent_attention(DECODE, latent=MLA, blocks=5),
        [
            ((2, 4, 24), BF),
            ((5, 128, 40), BF),
            ((2, 4), I32),
            ((3,), I32),
            ((2,), I32),
            ((2,), I32),
            ((4, 16, 32), BF),
            ((4, 32, 12), BF),
        ],
        [((2, 4, 12), BF)],
    ),
    (
        "tensor_cast.mla_sparse_attention",
        lambda: build.mla_sparse_attention(DECODE, latent=MLA, blocks=5, topk=6),
        [
            ((2, 4, 24), BF),
            ((5, 128, 40), BF),
            ((2, 4), I32),
            ((3,), I32),
            ((2,), I32),
            ((2,), I32),
            ((4, 16, 32), BF),
            ((4, 32, 12), BF),
            ((2, 6), I64),
        ],
        [((2, 4, 12), BF)],
    ),
    (
        "tensor_cast.dsa_indexer",
        lambda: build.dsa_indexer(7, hidden=64, q_lora_rank=20, index_heads=2, rope_dim=8, topk=6, blocks=5),
        [
            ((1, 7, 64), BF),
            ((1, 7, 20), BF),
            ((1, 7, 8), BF),
            ((1, 7, 8), BF),
            ((5, 128, 128), BF),
            ((256, 20), BF),
            ((128, 64), BF),
            ((2, 64), BF),
            ((128,), BF),
        ],
        [((1, 7, 6), I64)],
    ),
    (
        "tensor_cast.quant_lightning_indexer",
        lambda: build.quant_lightning_indexer(SAME, index_heads=2, topk=64, blocks=5),
        [((2, 3, 2, 128), F8), ((2, 3, 2), F32), ((5, 128, 128), F8), ((2,), I32), ((2,), I32)],
        [((2, 3, 10), I64)],  # a quarter of the longest context, 40
    ),
    (
        "tensor_cast.sparse_attn_sharedkv",
        lambda: build.sparse_attn_sharedkv(SAME, heads=4, head_dim=32, chosen=6, blocks=5),
        [((2, 3, 4, 32), BF), ((5, 128, 32), BF), ((4,), F32), ((2, 3, 6), I32)],
        [((2, 3, 4, 32), BF)],
    ),
    (
        "tensor_cast.scatter_nd_update_mla",
        lambda: build.scatter_nd_update_mla(7, width=32, blocks=5),
        [((1, 7, 32), BF), ((5, 128, 1, 32), BF), ((7,), I64)],
        [((5, 128, 1, 32), BF)],
    ),
    (
        "tensor_cast.compressor",
        lambda: build.compressor(Requests((8,), (8,)), hidden=64, head_dim=32, rope_dim=8, ratio=4, blocks=5),
        [((1, 8, 64), BF), ((5, 128, 32), BF)],
        [((1, 2, 32), BF), ((5, 128, 32), BF)],
    ),
    (
        "tensor_cast.hc_pre_inv_rms",
        lambda: build.hc_pre_inv_rms(7, hidden=64, mult=2),
        [((1, 7, 2, 64), BF)],
        [((1, 7, 1), F32)],
    ),
    (
        "tensor_cast.hc_pre_sinkhorn",
        lambda: build.hc_pre_sinkhorn(7, hidden=64, mult=2),
        [((1, 7, 8), F32), ((1, 7, 2, 64), BF), ((3,), F32), ((8,), F32)],
        [((1, 7, 64), BF), ((1, 7, 2), F32), ((1, 7, 2, 2), F32)],
    ),
    (
        "tensor_cast.hc_post",
        lambda: build.hc_post(7, hidden=64, mult=2),
        [((1, 7, 64), BF), ((1, 7, 2, 64), BF)],
        [((1, 7, 2, 64), BF)],
    ),
    (
        "tensor_cast.hc_head",
        lambda: build.hc_head(7, hidden=64, mult=2),
        [((1, 7, 2, 64), BF), ((2, 128), F32), ((1,), F32), ((2,), F32)],
        [((1, 7, 64), BF)],
    ),
    (
        "tensor_cast.v4_clamped_swiglu",
        lambda: build.v4_clamped_swiglu(7, width=64, limit=7.0),
        [((7, 64), BF)] * 2,
        [((7, 64), BF)],
    ),
    ("aten.mm", lambda: build.mm(7, 64, 32), [((7, 64), BF), ((64, 32), BF)], [((7, 32), BF)]),
    ("aten.bmm", lambda: build.bmm(2, 7, 64, 32), [((2, 7, 64), BF), ((2, 64, 32), BF)], [((2, 7, 32), BF)]),
    ("aten.addmm", lambda: build.addmm(7, 64, 32), [((32,), BF), ((7, 64), BF), ((64, 32), BF)], [((7, 32), BF)]),
    (
        "tensor_cast.static_quant_linear",
        lambda: build.linear("static_quant_linear", 7, 64, 32),
        [((7, 64), I8), ((64, 32), I8), ((32,), F32), ((7, 1), F32)],
        [((7, 32), BF)],
    ),
    (
        "tensor_cast.static_quant_linear_int4",
        lambda: build.linear("static_quant_linear_int4", 7, 64, 32),
        [((7, 64), BF), ((32, 32), I8), ((32,), F32)],
        [((7, 32), BF)],
    ),
    (
        "tensor_cast.fp8_linear",
        lambda: build.linear("fp8_linear", 7, 64, 32),
        [((7, 64), F8), ((64, 32), F8), ((7, 1), F32), ((32,), F32)],
        [((7, 32), BF)],
    ),
    (
        "tensor_cast.mxfp4_linear_all_reduce",
        lambda: build.linear("mxfp4_linear", 7, 64, 32, rank_group=RANKS),
        [((7, 64), F4), ((64, 32), F4), ((7, 2), E8), ((32, 2), E8)],
        [((7, 32), BF)],
    ),
    (
        "tensor_cast.matmul_all_reduce",
        lambda: build.matmul_all_reduce(7, 64, 32, rank_group=RANKS),
        [((7, 64), BF), ((64, 32), BF)],
        [((7, 32), BF)],
    ),
    (
        "tensor_cast.quantize",
        lambda: build.quantize(7, 64),
        [((7, 64), BF), ((64,), F32), ((64,), I8)],
        [((7, 64), I8)],
    ),
    (
        "tensor_cast.dynamic_quantize_symmetric",
        lambda: build.dynamic_quantize(7, 64),
        [((7, 64), BF)],
        [((7, 64), I8), ((7, 1), F32)],
    ),
    (
        "tensor_cast.dynamic_quantize_asymmetric",
        lambda: build.dynamic_quantize(7, 64, scheme="asymmetric", per_tensor=True),
        [((7, 64), BF)],
        [((7, 64), I8), ((), F32), ((), I32)],
    ),
    (
        "tensor_cast.dynamic_quantize_mxfp4",
        lambda: build.dynamic_quantize(7, 65, scheme="mxfp4"),
        [((7, 65), BF)],
        [((7, 65), F4), ((7, 3), E8)],
    ),
    ("tensor_cast.rms_norm", lambda: build.rms_norm(7, 64), [((7, 64), BF), ((64,), BF)], [((7, 64), BF)]),
    (
        "tensor_cast.add_rms_norm2",
        lambda: build.add_rms_norm(7, 64),
        [((7, 64), BF), ((7, 64), BF), ((64,), BF)],
        [((7, 64), BF)] * 2,
    ),
    (
        "tensor_cast.add_rms_norm",
        lambda: build.add_rms_norm(7, 64, keeps_residual=False),
        [((7, 64), BF), ((7, 64), BF), ((64,), BF)],
        [((7, 64), BF)],
    ),
    (
        "tensor_cast.add_rms_norm_quant2",
        lambda: build.rms_norm_quant(7, 64, residual="kept"),
        [((7, 64), BF), ((7, 64), BF), ((64,), BF), ((64,), F32), ((64,), I8)],
        [((7, 64), I8), ((7, 64), BF)],
    ),
    (
        "tensor_cast.add_rms_norm_dynamic_quant2_asymmetric",
        lambda: build.rms_norm_dynamic_quant(7, 64, scheme="asymmetric", residual="kept"),
        [((7, 64), BF), ((7, 64), BF), ((64,), BF)],
        [((7, 64), I8), ((7, 1), F32), ((7, 1), I32), ((7, 64), BF)],
    ),
    (
        "aten.native_layer_norm",
        lambda: build.native_layer_norm(7, 64),
        [((7, 64), BF), ((64,), BF), ((64,), BF)],
        [((7, 64), BF), ((7, 1), F32), ((7, 1), F32)],
    ),
    ("tensor_cast.swiglu", lambda: build.swiglu(7, 64), [((7, 64), BF)] * 2, [((7, 64), BF)]),
    ("tensor_cast.silu", lambda: build.activation("silu", 7, 64), [((7, 64), BF)], [((7, 64), BF)]),
    ("tensor_cast.cat", lambda: build.cat([(7, 64), (2, 64)]), [((7, 64), BF), ((2, 64), BF)], [((9, 64), BF)]),
    (
        "aten.embedding",
        lambda: build.embedding(7, vocabulary=100, width=64),
        [((100, 64), BF), ((1, 7), I64)],
        [((1, 7, 64), BF)],
    ),
    ("aten.add", lambda: build.elementwise("add", (7, 64), (64,)), [((7, 64), BF), ((64,), BF)], [((7, 64), BF)]),
    ("aten.mul", lambda: build.elementwise("mul", (7, 64)), [((7, 64), BF)], [((7, 64), BF)]),
    (
        "tensor_cast.moe_gating_top_k_softmax",
        lambda: build.moe_gating("softmax", 7, experts=8, top_k=2),
        [((7, 8), BF)],
        [((7, 2), BF), ((7, 2), I64)],
    ),
    (
        "tensor_cast.moe_gating_top_k_hash",
        lambda: build.moe_gating("v4_hash", 7, experts=8, top_k=2),
        [((7, 8), BF), ((7,), I64), ((8,), I64)],
        [((7, 2), BF), ((7, 2), I64)],
    ),
    (
        "tensor_cast.init_routing_v2",
        lambda: build.init_routing_v2(7, hidden=64, top_k=2),
        [((7, 64), BF), ((7, 2), I64)],
        [((14, 64), BF)],
    ),
    (
        "tensor_cast.unpermute_tokens",
        lambda: build.unpermute_tokens(7, hidden=64, top_k=2),
        [((14, 64), BF), ((7, 2), I64)],
        [((7, 2, 64), BF)],
    ),
    (
        "tensor_cast.grouped_matmul",
        lambda: build.grouped_matmul([3, 5], 64, 32),
        [((3, 64), BF), ((5, 64), BF), ((64, 32), BF), ((64, 32), BF)],
        [((8, 32), BF)],
    ),
    (
        "tensor_cast.grouped_matmul_quant_swiglu",
        lambda: build.grouped_matmul([3, 5], 64, 32, kind="quant", swiglu=True),
        [
            ((3, 64), I8),
            ((5, 64), I8),
            ((64, 32), I8),
            ((64, 32), I8),
            ((32,), F32),
            ((32,), F32),
            ((3,), F32),
            ((5,), F32),
        ],
        [((8, 16), BF)],
    ),
    (
        "tensor_cast.dispatch_ffn_combine",
        lambda: build.dispatch_ffn_combine(7, hidden=64, intermediate=24, experts=2, top_k=2, rank_group=RANKS),
        [((7, 64), BF), ((7, 2), I64), ((64, 48), BF), ((64, 48), BF), ((24, 64), BF), ((24, 64), BF)],
        [((7, 2, 64), BF)],
    ),
    (
        "tensor_cast.dispatch_ffn_combine_quant",
        lambda: build.dispatch_ffn_combine(
            7, hidden=64, intermediate=24, experts=2, top_k=2, rank_group=RANKS, kind="quant", stacked=True
        ),
        [((7, 64), BF), ((7, 2), I64), ((2, 64, 48), I8), ((2, 48), F32), ((2, 24, 64), I8), ((2, 64), F32)],
        [((7, 2, 64), BF)],
    ),
    ("tensor_cast.all_reduce", lambda: build.all_reduce((7, 64), rank_group=RANKS), [((7, 64), BF)], [((7, 64), BF)]),
    ("tensor_cast.all_gather", lambda: build.all_gather((7, 64), rank_group=RANKS), [((7, 64), BF)], [((14, 64), BF)]),
    (
        "tensor_cast.reduce_scatter",
        lambda: build.reduce_scatter((8, 64), rank_group=RANKS),
        [((8, 64), BF)],
        [((4, 64), BF)],
    ),
    (
        "tensor_cast.all_to_all",
        lambda: build.all_to_all((7, 64), output_splits=(1, 2), input_splits=(3, 4), rank_group=RANKS),
        [((7, 64), BF)],
        [((3, 64), BF)],
    ),
]


@pytest.mark.parametrize(("name", "make", "inputs", "outputs"), CASES, ids=[case[0] for case in CASES])
def test_shapes_and_dtypes(name: str, make: Callable[[], LeafOp], inputs: Shapes, outputs: Shapes) -> None:
    leaf = make()
    assert leaf.name.rpartition(".")[0] == name
    assert [(spec.shape, spec.dtype) for spec in leaf.inputs] == inputs
    assert [(spec.shape, spec.dtype) for spec in leaf.outputs] == outputs


@pytest.mark.parametrize(("name", "make", "inputs", "outputs"), CASES, ids=[case[0] for case in CASES])
def test_roles_are_the_arguments_of_the_signature(
    name: str, make: Callable[[], LeafOp], inputs: Shapes, outputs: Shapes
) -> None:
    """Where the table knows the operator every role is one of its arguments, in its order."""
    leaf = make()
    arguments = signature(leaf.name)
    if arguments is None:
        assert name.partition(".")[2] not in known_operators()
        return
    names = [one.name for one in arguments]
    places = [names.index(spec.role) for spec in leaf.inputs]
    if not any(one.is_list for one in arguments):
        assert places == sorted(places)
    required = [one.name for one in arguments if one.is_tensor and not one.optional]
    assert set(required) - {spec.role for spec in leaf.inputs} <= {"seq_lens", "query_start_loc", "block_table"}


@pytest.mark.parametrize("name", ["aten.mm", "aten.bmm", "aten.addmm", "tensor_cast.rms_norm", "tensor_cast.swiglu"])
def test_roles_are_those_given_to_bare_tensors(name: str) -> None:
    [leaf] = [make() for known, make, *_ in CASES if known == name]
    bare = tuple(TensorSpec(spec.shape, spec.dtype) for spec in leaf.inputs)
    assert assign_roles(leaf.name, bare) == leaf.inputs


def test_every_operator_of_the_signature_table_has_a_constructor() -> None:
    made = {name for name, *_ in CASES}
    kinds = {
        *(
            f"tensor_cast.{kind}{form}"
            for kind in ("static_quant_linear", "static_quant_linear_int4", "fp8_linear", "mxfp4_linear")
            for form in ("", "_all_reduce")
        ),
        *(
            build.grouped_matmul([2], 64, 32, kind=kind, swiglu=fused).name.rpartition(".")[0]
            for kind in ("", "quant", "quant_int4", "fp8", "mxfp4")
            for fused in (False, True)
        ),
        *(
            build.dispatch_ffn_combine(
                7, hidden=64, intermediate=24, experts=2, top_k=2, rank_group=RANKS, kind=kind
            ).name.rpartition(".")[0]
            for kind in ("", "quant", "quant_int4", "fp8", "mxfp4")
        ),
        build.multihead_latent_attention(DECODE, latent=MLA, blocks=5, quant=True).name.rpartition(".")[0],
        build.mla_sparse_attention(DECODE, latent=MLA, blocks=5, topk=6, quant=True).name.rpartition(".")[0],
    }
    of_gpu_tables = {
        "tensor_cast.latent_attention_block",
        "tensor_cast.nvfp4_linear",
        "tensor_cast.latent_bmm",
        "tensor_cast.fused_experts",
        "aten.cat",
    }
    assert set(known_operators()) - made - kinds - of_gpu_tables == set()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: build.mm(0, 64, 32), "aten.mm: m must be at least 1, got 0"),
        (lambda: build.mm(7, 64, 1.5), "n must be a whole number, got 1.5"),  # type: ignore[arg-type]
        (
            lambda: build.attention(DECODE, heads=8, kv_heads=3, head_dim=16, blocks=5),
            "heads 8 is no multiple of kv_heads 3",
        ),
        (lambda: build.attention(Requests(None, (9,)), heads=8, kv_heads=8, head_dim=16, blocks=5), "need query_lens"),
        (lambda: build.linear("fp4_linear", 7, 64, 32), "did you mean"),
        (lambda: build.linear("static_quant_linear_int4", 7, 63, 32), "k 63 is no multiple of 2"),
        (lambda: build.moe_gating("softmax", 7, experts=8, top_k=9), "top_k 9 is above the 8 experts"),
        (lambda: build.grouped_matmul([2], 64, 33, swiglu=True), "n 33 is no multiple of 2"),
        (lambda: build.dynamic_quantize(7, 64, scheme="symetric"), "did you mean 'symmetric'"),
        (lambda: build.rms_norm_quant(7, 64, residual="lost"), "none, added or kept, got 'lost'"),
        (lambda: build.cat([(7, 64), (7, 32)]), "differ beside dimension 0"),
        (lambda: build.elementwise("add", (7, 64), (3,)), "do not broadcast"),
        (lambda: build.reduce_scatter((7, 64), rank_group=RANKS), "dimension 0 7 is no multiple of 2"),
        (
            lambda: build.all_to_all((7, 64), output_splits=(1, 2), input_splits=(3, 5), rank_group=RANKS),
            "do not make the rows",
        ),
        (lambda: build.sparse_attn_sharedkv(Requests((1, 2), (1, 2)), heads=4, chosen=6, blocks=5), "one query length"),
    ],
)
def test_sizes_that_are_none_are_refused_by_name(make: Callable[[], LeafOp], words: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        make()
    assert words in str(caught.value)


@given(m=st.integers(1, 500), k=st.integers(1, 500), n=st.integers(1, 500))
def test_a_product_has_the_rows_of_one_and_the_columns_of_the_other(m: int, k: int, n: int) -> None:
    leaf = build.mm(m, k, n)
    (rows, inner), (other, columns) = leaf.tensor_shapes
    assert inner == other
    assert leaf.outputs[0].shape == (rows, columns)
