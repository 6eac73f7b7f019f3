"""What each composite becomes: operators, shapes, dtypes, request grouping; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from composites import BF16, children, indexer, lacking, latent, names, preprocess
from tensor_cast import LeafOp, ParallelConfig, Requests, TensorSpec
from tensor_cast.operators.composites import NotDecomposable, canonical_leaf, canonical_leaves

MLA, SPARSE_MLA = "multihead_latent_attention", "mla_sparse_attention"
DECODE = Requests((1, 1), (500, 500))
PREFILL = Requests((300, 300), (300, 300))
SPLIT = ParallelConfig(tensor_parallel_size=16, sequence_parallel=True)


def shapes(leaf: LeafOp) -> tuple[tuple[int, ...], ...]:
    return leaf.tensor_shapes


def role(leaf: LeafOp, name: str) -> TensorSpec:
    spec = leaf.role(name)
    assert spec is not None, f"{leaf.name} has no {name}"
    return spec


# --- leaves -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "aten.mm.default",
        "tensor_cast.attention.default",
        "tensor_cast.sparse_attn_sharedkv.default",
        "tensor_cast.quant_lightning_indexer.default",
        "tensor_cast.scatter_nd_update_mla.default",
        "tensor_cast.dispatch_ffn_combine_quant.default",
        "tensor_cast.never_heard_of.default",
    ],
)
def test_a_leaf_has_no_children(name: str) -> None:
    assert canonical_leaves(LeafOp(name, ()), ParallelConfig()) is None


def test_children_name_their_parent_and_place_and_keep_the_model() -> None:
    op = latent(MLA, 2, DECODE, model="deepseek-v3")
    parent = "child:tensor_cast.multihead_latent_attention.default"
    assert [leaf.source for leaf in children(op)] == [f"{parent}#0", f"{parent}#1", f"{parent}#2"]
    assert {leaf.attributes["model"] for leaf in children(op)} == {"deepseek-v3"}


# --- dense latent attention -------------------------------------------------------------------------------------------


def test_decode_absorbs_attends_on_one_latent_head_and_projects_back() -> None:
    absorb, attention, project = children(latent(MLA, 2, DECODE))
    assert (absorb.name, shapes(absorb), absorb.outputs) == (
        "aten.bmm.default",
        ((4, 2, 128), (4, 128, 512)),
        (TensorSpec((4, 2, 512), BF16),),
    )
    assert attention.name == "tensor_cast.attention.default"
    assert role(attention, "query") == TensorSpec((2, 4, 1, 512), BF16, role="query")
    assert role(attention, "key").shape == role(attention, "value").shape == (9, 1, 128, 512)
    assert attention.attributes["sparse_mode"] == 0
    assert attention.requests == Requests((1, 1), (500, 500), block_table_shape=(2, 8))
    assert role(attention, "block_table").shape == (2, 8)
    assert (project.name, shapes(project), project.outputs) == (
        "aten.bmm.default",
        ((4, 2, 512), (4, 512, 128)),
        (TensorSpec((4, 2, 128), BF16),),
    )


def test_prefill_expands_keys_and_values() -> None:
    expand, attention = children(latent(MLA, 600, PREFILL, value=64))
    assert (expand.name, shapes(expand)) == ("aten.mm.default", ((600, 512), (512, 768)))  # 4 heads of 128 + 64
    assert role(attention, "query").shape == role(attention, "key").shape == (600, 4, 128)
    assert role(attention, "value").shape == (600, 4, 64)
    assert attention.outputs == (TensorSpec((600, 4, 64), BF16),)
    assert attention.attributes["sparse_mode"] == 3


def test_quantised_latent_attention_takes_its_products_from_the_weights() -> None:
    quantised = children(latent(f"{MLA}_quant", 2, DECODE, weights="int8"))
    linear = "tensor_cast.static_quant_linear.default"
    assert names(quantised) == [linear, "tensor_cast.attention_quant.default", linear]
    assert quantised[0].tensor_dtypes == ("int8", "int8")
    assert quantised[0].outputs == (TensorSpec((4, 2, 512), BF16),)
    assert names(children(latent(f"{MLA}_quant", 2, DECODE)))[0] == "aten.bmm.default"
    expand, _ = children(latent(f"{MLA}_quant", 600, PREFILL, weights="float8_e4m3fn"))
    assert expand.name == "tensor_cast.fp8_linear.default"


@pytest.mark.parametrize(
    ("tokens", "requests", "without", "missing"),
    [
        (2, DECODE, ("w_uv",), "w_uv of rank 3"),
        (2, DECODE, ("w_uk_t",), "w_uk_t of rank 3"),
        (2, DECODE, ("kv_cache",), "kv_cache"),
        (2, DECODE, ("query",), "query of rank 3"),
        (600, PREFILL, ("kv_b_proj",), "kv_b_proj of rank 2"),
        (2, None, (), "phase or query_lens"),
        (2, Requests(None, (500, 500)), (), "phase or query_lens"),
        (301, Requests((1, 300), (500, 300)), (), "one phase for all requests"),
        (4, Requests((2, 2), (500, 500), explicit_phase="decode"), (), "one query token for each of 4 requests"),
        (3, DECODE, (), "one query token for each of 3 requests"),
    ],
)
def test_dense_latent_attention_refuses_what_it_cannot_know(
    tokens: int, requests: Requests | None, without: tuple[str, ...], missing: str
) -> None:
    assert lacking(latent(MLA, tokens, requests, without=without)) == (missing,)


def test_weights_that_do_not_fit_are_refused() -> None:
    assert lacking(latent(MLA, 2, DECODE, nope=100, weights="uint8"))[0].startswith("a projection weight")
    op = latent(MLA, 600, PREFILL)
    inputs = tuple(spec if spec.role != "kv_b_proj" else TensorSpec((512, 1022), BF16, role="kv_b_proj") for spec in op)
    assert lacking(LeafOp(op.name, inputs, op.outputs, op.attrs, op.requests))[0].startswith("kv_b_proj (lora, 4*")


# --- sparse latent attention ------------------------------------------------------------------------------------------


def test_sparse_decode_is_two_products_around_the_sparse_leaf() -> None:
    """GLM-5 at TP16: four heads of 192 + 64, values of 256."""
    op = latent(SPARSE_MLA, 2, DECODE, nope=192, value=256, blocks=1766, table=(2, 64), topk=2048, topk_limit=2048)
    absorb, attention, project = children(op)
    assert shapes(absorb) == ((4, 2, 192), (4, 192, 512))
    assert shapes(project) == ((4, 2, 512), (4, 512, 256))
    assert attention.name == "tensor_cast.sparse_attn_sharedkv.default"
    assert attention.inputs == (
        TensorSpec((2, 4, 512), BF16, role="query"),
        TensorSpec((1766, 128, 512), BF16, role="kv"),
        TensorSpec((2, 1, 2048), "int32", role="topk_indices"),
    )
    assert attention.requests == Requests((1, 1), (500, 500), block_table_shape=(2, 64))
    assert attention.requests is not None
    assert attention.requests.phase == "decode"


def test_the_index_width_wins_over_the_limit_and_one_of_them_is_needed() -> None:
    _, by_width, _ = children(latent(SPARSE_MLA, 2, DECODE, topk=640, topk_limit=2048))
    assert role(by_width, "topk_indices").shape == (2, 1, 640)
    _, by_limit, _ = children(latent(SPARSE_MLA, 2, DECODE, topk_limit=2048))
    assert role(by_limit, "topk_indices").shape == (2, 1, 2048)
    assert lacking(latent(SPARSE_MLA, 2, DECODE)) == ("topk_indices or topk_limit",)


def test_sparse_prefill_expands_and_still_attends_on_the_latent_cache() -> None:
    expand, attention = children(latent(SPARSE_MLA, 600, PREFILL, topk=2048))
    assert (expand.name, shapes(expand)) == ("aten.mm.default", ((600, 512), (512, 1024)))
    assert shapes(attention) == ((600, 4, 512), (9, 128, 512), (600, 1, 2048))


def test_sequence_parallel_prefill_attends_with_the_share_of_rank_zero() -> None:
    """4096 tokens on 16 ranks with replicated weights: 256 tokens, all 64 heads, context 8192 - 3840."""
    requests = Requests((4096,), (8192,))
    op = latent(SPARSE_MLA, 4096, requests, heads=64, table=(1, 64), topk=2048)
    expand, attention = children(op, SPLIT)
    assert shapes(expand)[0] == (4096, 512)
    assert shapes(attention) == ((256, 64, 512), (9, 128, 512), (256, 1, 2048))
    assert attention.requests == Requests((256,), (4352,), block_table_shape=(1, 64))
    local = latent(SPARSE_MLA, 4096, requests, table=(1, 64), topk=2048, attention_heads_already_global=False)
    assert role(children(local, SPLIT)[1], "query").shape == (256, 64, 512)  # 4 heads on each of 16 ranks
    decode = latent(SPARSE_MLA, 2, DECODE, topk=2048)
    assert children(decode, SPLIT) == children(decode)
    unknown = latent(SPARSE_MLA, 4096, Requests((4000,), (8192,)), table=(1, 64), topk=2048)
    assert lacking(unknown, SPLIT) == ("query_lens and kv_lens that account for the 4096 tokens",)


# --- preprocessing ----------------------------------------------------------------------------------------------------


def test_preprocessing_is_two_products_and_the_cache_kernel() -> None:
    down, up, cache = children(preprocess())
    assert (down.name, shapes(down)) == ("aten.mm.default", ((16, 7168), (7168, 2112)))  # 1536 + 512 + 64
    assert (up.name, shapes(up)) == ("aten.mm.default", ((16, 1536), (1536, 384)))
    assert cache.name == "tensor_cast.kv_rmsnorm_rope_cache.default"
    assert shapes(cache) == ((16, 1, 1, 576), (512,), (16, 1, 1, 64), (16, 1, 1, 64))


def test_quantised_preprocessing_rebuilds_the_sliced_weight() -> None:
    down, up, _ = children(preprocess("mlapo_quant", weights="int8"))
    assert names((down, up)) == ["tensor_cast.static_quant_linear.default"] * 2
    assert shapes(up) == ((16, 1536), (1536, 1536))  # 8 heads of 192
    assert up.tensor_dtypes == ("int8", "int8")
    assert up.outputs == (TensorSpec((16, 1536), BF16),)
    bare = preprocess("mlapo_quant", without=("q_a_weight", "q_b_weight"))
    assert children(bare)[0].tensor_dtypes == ("int8", "int8")


@pytest.mark.parametrize(
    ("name", "without", "attrs", "missing"),
    [
        ("mlapo", ("q_b_weight",), {}, "q_b_weight of rank 2"),
        ("mlapo", ("hidden",), {}, "hidden"),
        ("mlapo", (), {"q_lora_rank": None}, "q_lora_rank"),
        ("mlapo", (), {"q_lora_rank": 768}, "q_b_weight (h*qk, 768)"),
        ("mlapo_quant", (), {"num_heads": None}, "num_heads"),
        ("mlapo_quant", (), {"kv_lora_rank": True}, "kv_lora_rank"),
    ],
)
def test_preprocessing_refuses_unknown_widths(
    name: str, without: tuple[str, ...], attrs: dict[str, Any], missing: str
) -> None:
    assert lacking(preprocess(name, without=without, **attrs)) == (missing,)


# --- the indexer ------------------------------------------------------------------------------------------------------

PLAIN_INDEXER = [
    ("aten.mm.default", ((2, 6144), (6144, 128))),
    ("aten.to.dtype", ((2, 128),)),
    ("aten.native_layer_norm.default", ((2, 128), (128,), (128,))),
    ("aten.to.dtype", ((2, 128),)),
    ("aten.mm.default", ((2, 6144), (6144, 32))),
    ("aten.mm.default", ((2, 2048), (2048, 4096))),
    ("tensor_cast.scatter_nd_update_mla.default", ((2, 128), (226048, 128), (2, 1))),
    ("tensor_cast.quant_lightning_indexer.default", ((2, 32, 128), (2, 32), (1766, 128, 128))),
]


def test_the_indexer_is_eight_leaves() -> None:
    leaves = children(indexer(2, DECODE))
    assert [(leaf.name, shapes(leaf)) for leaf in leaves] == PLAIN_INDEXER
    up, norm, down = leaves[1:4]
    assert (up.inputs[0].dtype, up.outputs[0].dtype) == (BF16, "float32")
    assert norm.tensor_dtypes == ("float32",) * 3
    assert (down.inputs[0].dtype, down.outputs[0].dtype) == ("float32", BF16)
    assert leaves[6].tensor_dtypes == (BF16, BF16, "int32")
    assert leaves[7].outputs == (TensorSpec((2, 1, 2048), "int32"),)
    assert leaves[7].requests == Requests((1, 1), (500, 500), block_table_shape=(2, 64))


def test_an_int8_query_projection_quantises_its_input_first() -> None:
    leaves = children(indexer(2, DECODE, wq_b="int8"))
    assert len(leaves) == 9
    assert names(leaves)[5:7] == ["tensor_cast.quantize.default", "tensor_cast.static_quant_linear.default"]
    assert (shapes(leaves[5]), leaves[5].outputs[0].dtype) == (((2, 2048),), "int8")
    assert leaves[6].outputs == (TensorSpec((2, 4096), BF16),)


def test_the_indexer_selects_for_the_share_of_rank_zero() -> None:
    leaves = children(indexer(4096, Requests((4096,), (8192,)), table=(1, 64)), SPLIT)
    assert shapes(leaves[-1]) == ((256, 32, 128), (256, 32), (1766, 128, 128))
    assert leaves[-1].requests == Requests((256,), (4352,), block_table_shape=(1, 64))
    assert shapes(leaves[0])[0] == (4096, 6144)


@pytest.mark.parametrize(
    ("without", "attrs", "missing"),
    [
        (("wk",), {}, "wk of rank 2"),
        (("indexer_cache",), {}, "indexer_cache"),
        (("k_norm",), {}, "k_norm"),
        ((), {"num_heads": 16}, "weights_proj (16, 6144)"),
        ((), {"head_dim": 64}, "wk (64, 6144)"),
        ((), {"head_dim": None}, "head_dim"),
    ],
)
def test_the_indexer_refuses_what_does_not_fit(without: tuple[str, ...], attrs: dict[str, Any], missing: str) -> None:
    assert lacking(indexer(2, DECODE, without=without, **attrs)) == (missing,)


@pytest.mark.parametrize(
    ("hidden", "missing"),
    [
        (TensorSpec((1, 0, 6144), BF16, role="hidden"), "hidden (..., T, K)"),
        (TensorSpec((1, 2, 6144), "quint8", role="hidden"), "hidden of a known dtype (got quint8)"),
    ],
    ids=["no tokens", "a dtype of no table"],
)
def test_the_indexer_refuses_rows_it_cannot_describe(hidden: TensorSpec, missing: str) -> None:
    op = indexer(2, DECODE)
    assert lacking(LeafOp(op.name, (hidden, *op.inputs[1:]), op.outputs, op.attrs, op.requests)) == (missing,)


def test_the_phase_of_the_indexer_matters_only_where_tokens_may_be_split() -> None:
    assert len(children(indexer(2, None))) == 8
    assert lacking(indexer(2, None), SPLIT) == ("phase or query_lens",)


# --- one descriptor for both models -----------------------------------------------------------------------------------

GROUPS = Requests((1, 1), (500, 500), block_table_shape=(2, 64))


def test_fresh_values_of_other_tokens_are_left_for_whoever_is_asked() -> None:
    """Three new tokens with the fresh values of seven: the canonical form would hide the contradiction."""
    shapes = {"query": (3, 4, 512), "kv": (7, 512), "topk_indices": (3, 1, 64), "kv_dependency": (9, 128, 512)}
    inputs = tuple(TensorSpec(shape, BF16, role=role) for role, shape in shapes.items())
    op = LeafOp("tensor_cast.sparse_attn_sharedkv.default", inputs)
    assert canonical_leaf(op) is op
    fitting = LeafOp(op.name, (inputs[0], TensorSpec((3, 512), BF16, role="kv"), *inputs[2:]))
    assert [spec.role for spec in canonical_leaf(fitting).inputs] == ["query", "kv", "topk_indices"]


def test_deepseek_v4_and_glm5_meet_in_one_sparse_descriptor() -> None:
    query, cache = ((2, 1, 4, 512), BF16), ((1766, 128, 1, 512), BF16)
    direct = LeafOp.build(
        "tensor_cast.sparse_attn_sharedkv.default",
        [query, cache, ((4,), "float32"), ((2, 1, 2048), "int64")],
        [query],
        {"head_dim": 512, "softmax_scale": 0.1},
        GROUPS,
    )
    fresh = LeafOp.build(
        direct.name,
        [query, ((2, 1, 512), BF16), ((4,), "float32"), ((2, 1, 2048), "int32"), cache],
        [query],
        {"head_dim": 512},
        GROUPS,
    )
    _, child, _ = children(latent(SPARSE_MLA, 2, DECODE, blocks=1766, table=(2, 64), topk=2048))
    for call in (direct, fresh):
        leaf = canonical_leaf(call)
        assert (leaf.name, leaf.inputs, leaf.outputs, leaf.requests) == (
            child.name,
            child.inputs,
            child.outputs,
            child.requests,
        )
    assert canonical_leaf(direct).attributes == {"head_dim": 512, "softmax_scale": 0.1}
    assert canonical_leaf(child) == child


def test_deepseek_v4_and_glm5_meet_in_one_indexer_descriptor() -> None:
    direct = LeafOp.build(
        "tensor_cast.quant_lightning_indexer.default",
        [((2, 1, 32, 128), BF16), ((2, 1, 32), BF16), ((1766, 128, 1, 128), BF16)],
        [((2, 1, 2048), "int64")],
        {"topk_limit": 2048},
        GROUPS,
    )
    child = children(indexer(2, DECODE))[-1]
    leaf = canonical_leaf(direct)
    assert (leaf.inputs, leaf.outputs, leaf.attrs, leaf.requests) == (
        child.inputs,
        child.outputs,
        child.attrs,
        child.requests,
    )
    assert (leaf.source, canonical_leaf(child)) == ("direct", child)


def test_deepseek_v4_and_glm5_meet_in_one_cache_update() -> None:
    direct = LeafOp.build(
        "tensor_cast.scatter_nd_update_mla.default",
        [((1, 2, 128), BF16), ((1766, 128, 128), BF16), ((4,), "int64")],
        attrs={"window_size": 128},
    )
    leaf, child = canonical_leaf(direct), children(indexer(2, DECODE))[6]
    assert (leaf.inputs, leaf.outputs) == (child.inputs, child.outputs)


# --- products with an all-reduce --------------------------------------------------------------------------------------


def reduced(name: str, tensors: list[Any], outputs: object = (), **attrs: Any) -> LeafOp:
    group = {"rank": 0, "rank_group": (0, 1), **attrs}
    return LeafOp.build(f"tensor_cast.{name}.default", tensors, outputs, group)


def test_a_product_and_its_collective_are_two_leaves() -> None:
    compute, collective = children(reduced("matmul_all_reduce", [((4, 8), BF16), ((8, 10), BF16)]))
    assert compute.name == "aten.mm.default"
    assert compute.attrs == ()
    assert (shapes(compute), compute.outputs) == (((4, 8), (8, 10)), (TensorSpec((4, 10), BF16),))
    assert collective.name == "tensor_cast.all_reduce.default"
    assert collective.inputs == (TensorSpec((4, 10), BF16, role="x"),)
    assert collective.attributes == {"rank": 0, "rank_group": (0, 1)}


def test_a_bias_makes_it_addmm() -> None:
    compute, _ = children(reduced("matmul_all_reduce", [((4, 8), BF16), ((8, 10), BF16), ((10,), BF16)]))
    assert (compute.name, shapes(compute)) == ("aten.addmm.default", ((10,), (4, 8), (8, 10)))


def test_quantised_products_keep_every_tensor_and_say_what_they_hand_on() -> None:
    tensors = [((4, 8), "int8"), ((8, 10), "int8"), ((10,), "float32")]
    compute, collective = children(reduced("static_quant_linear_all_reduce", tensors, out_dtype="torch.bfloat16"))
    assert compute.name == "tensor_cast.static_quant_linear.default"
    assert role(compute, "w_scale").shape == (10,)
    assert collective.inputs[0] == TensorSpec((4, 10), BF16, role="x")
    assert lacking(reduced("static_quant_linear_all_reduce", tensors)) == ("outputs or out_dtype",)
    packed = [((4, 8), "int8"), ((4, 10), "int8"), ((10,), "float32")]
    int4, _ = children(reduced("static_quant_linear_int4_all_reduce", packed, out_dtype="bfloat16"))
    assert int4.name == "tensor_cast.static_quant_linear_int4.default"
    assert int4.outputs == (TensorSpec((4, 10), BF16),)


def test_a_group_of_one_reduces_nothing_and_an_unknown_group_is_refused() -> None:
    tensors = [((4, 8), BF16), ((8, 10), BF16)]
    assert names(children(reduced("matmul_all_reduce", tensors, rank_group=(0,)))) == ["aten.mm.default"]
    assert lacking(reduced("matmul_all_reduce", tensors, rank_group=None)) == ("rank_group",)
    assert lacking(reduced("matmul_all_reduce", [((4, 8), BF16), ((9, 10), BF16)]))[0].startswith("x (..., M, K)")


def test_a_refusal_reads_as_one_line_and_as_json() -> None:
    refusal = NotDecomposable("tensor_cast.mlapo.default", ("q_lora_rank",))
    assert str(refusal) == "tensor_cast.mlapo.default cannot be decomposed: q_lora_rank needed"
    assert refusal.to_json() == {"operator": "tensor_cast.mlapo.default", "missing": ["q_lora_rank"]}
