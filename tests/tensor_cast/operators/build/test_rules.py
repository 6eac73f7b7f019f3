"""Rules that hold for any sizes: what goes in comes out, in bytes, rows and columns."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast import LeafOp, Requests
from tensor_cast.operators import build
from tensor_cast.operators.build import AttentionSizes, ExpertSizes, LatentSizes
from tensor_cast.operators.build.precision import Quant
from tensor_cast.operators.build.quantise import DynamicForm
from tensor_cast.operators.build.sizes import Rows
from tensor_cast.operators.signatures import signature

sizes = st.integers(1, 300)
few = st.integers(1, 5)
rows = st.one_of(sizes, st.tuples(few, sizes), st.tuples(few, few, sizes))
quants = st.sampled_from(["plain", "w8a8", "int4", "fp8", "mxfp4"])
forms = st.sampled_from(["symmetric", "asymmetric", "mxfp4"])
batches = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 500)), min_size=1, max_size=5)


def batch(pairs: list[tuple[int, int]]) -> Requests:
    """Requests of new tokens on earlier ones."""
    return Requests(tuple(new for new, _ in pairs), tuple(new + old for new, old in pairs))


def elements(leaf: LeafOp, role: str) -> int:
    return sum(spec.numel for spec in leaf.roles(role))


def known(leaf: LeafOp) -> bool:
    """Whether every tensor and attribute is an argument of the operator."""
    names = {argument.name for argument in signature(leaf.name) or ()}
    return {spec.role for spec in leaf.inputs} | set(leaf.attributes) <= names


@given(sizes, sizes, sizes)
def test_a_product_has_the_rows_of_one_and_the_columns_of_the_other(m: int, k: int, n: int) -> None:
    for leaf in (build.mm(m, k, n), build.static_quant_linear(m, 2 * k, n, packed=True), build.mxfp4_linear(m, k, n)):
        assert leaf.outputs[0].shape == (m, n)
        assert leaf.inputs[0].shape[0] == m
        assert leaf.inputs[1].shape[1] == n
    assert elements(build.static_quant_linear(m, 2 * k, n, packed=True), "weight") == k * n


@given(rows, sizes, st.booleans())
def test_norms_and_activations_keep_the_shape(tokens: Rows, width: int, residual_out: bool) -> None:
    shape = (*((tokens,) if isinstance(tokens, int) else tokens), width)
    kept = (
        build.rms_norm(tokens, width),
        build.add_rms_norm(tokens, width, residual_out=residual_out),
        build.add_rms_norm_quant(tokens, width, residual_out=residual_out),
        build.swiglu(tokens, width),
        build.quantize(tokens, width),
        build.silu(tokens, width),
    )
    assert all(spec.shape == shape for leaf in kept for spec in leaf.outputs)
    assert [len(leaf.outputs) for leaf in kept[1:3]] == [2 if residual_out else 1] * 2
    assert all(known(leaf) for leaf in kept)


@given(rows, sizes, forms, st.integers(1, 64))
def test_scales_cover_every_value_once(tokens: Rows, k: int, form: DynamicForm, group: int) -> None:
    leaf = build.dynamic_quantize(tokens, k, form=form, group_size=group)
    made, scale, *offsets = leaf.outputs
    assert made.shape == leaf.inputs[0].shape
    assert scale.shape[:-1] == made.shape[:-1]
    groups = scale.shape[-1]
    assert groups == 1 if form != "mxfp4" else (groups - 1) * group < k <= groups * group
    assert [spec.shape for spec in offsets] == ([scale.shape] if form == "asymmetric" else [])


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(any), few, few, quants, st.booleans(), st.booleans())
def test_grouped_products_lose_no_row(
    counts: list[int], k: int, n: int, quant: Quant, swiglu: bool, stacked: bool
) -> None:
    wide = 2 * n
    leaf = build.grouped_matmul(counts, 2 * k, wide, experts=len(counts), quant=quant, swiglu=swiglu, stacked=stacked)
    assert leaf.outputs[0].shape == (sum(counts), n if swiglu else wide)
    assert elements(leaf, "x") == sum(counts) * 2 * k
    assert elements(leaf, "weight") == len(counts) * (k if quant == "int4" else 2 * k) * wide
    assert known(leaf)


@given(few, few, few, few, quants, st.booleans(), few)
def test_dispatch_gives_every_token_its_experts(
    experts: int, hidden: int, inner: int, tokens: int, quant: Quant, stacked: bool, ranks: int
) -> None:
    sizes = ExpertSizes(experts, 2 * hidden, 2 * inner, min(2, experts * ranks))
    leaf = build.dispatch_ffn_combine(tokens, sizes, rank_group=range(ranks), quant=quant, stacked=stacked)
    assert leaf.outputs[0].shape == (tokens, sizes.top_k, 2 * hidden)
    assert elements(leaf, "gmm1_weight") == 2 * elements(leaf, "gmm2_weight")
    assert len(leaf.roles("gmm1_weight")) == len(leaf.roles("gmm2_weight")) == (1 if stacked else experts)
    assert known(leaf)


@given(batches, few, few, st.sampled_from([16, 128]))
def test_attention_is_like_its_query_and_its_block_table_holds_every_context(
    pairs: list[tuple[int, int]], kv_heads: int, shared: int, block: int
) -> None:
    requests = batch(pairs)
    tokens = sum(new for new, _ in pairs)
    layer = AttentionSizes(kv_heads * shared, kv_heads, 64, build.cache_blocks(requests, block), block)
    leaf = build.attention(tokens, layer, requests)
    assert leaf.outputs[0].shape == leaf.inputs[0].shape
    table = leaf.role("block_table")
    assert table is not None
    assert table.shape[0] == len(pairs)
    assert (table.shape[1] - 1) * block < max(new + old for new, old in pairs) <= table.shape[1] * block
    assert leaf.requests is not None
    assert leaf.requests.block_table_shape == table.shape
    assert layer.blocks is not None
    assert (layer.blocks - 1) * block <= sum(new + old for new, old in pairs) < layer.blocks * block


@given(batches, few, few, few, few, few)
def test_latent_weights_fit_query_and_cache(
    pairs: list[tuple[int, int]], heads: int, nope: int, rope: int, lora: int, value: int
) -> None:
    found = LatentSizes(heads, nope, rope, lora, value, 3)
    tokens = sum(new for new, _ in pairs)
    leaf = build.multihead_latent_attention(tokens, found, batch(pairs), blocks=4)
    shapes = {spec.role: spec.shape for spec in leaf.inputs}
    _, into, latent = shapes["w_uk_t"]
    assert shapes["query"][-1] - into == shapes["kv_cache"][-1] - latent == rope
    assert shapes["kv_b_proj"] == (latent, heads * (nope + value))
    assert leaf.outputs[0].shape == (tokens, heads, value)
    assert build.mlapo(tokens, 7, found).outputs[0].shape == shapes["query"]


@given(sizes, st.integers(1, 9), sizes, st.integers(0, 3000))
def test_no_more_is_selected_than_there_is(tokens: int, heads: int, limit: int, earlier: int) -> None:
    requests = Requests((tokens,), (tokens + earlier,))
    leaf = build.quant_lightning_indexer(tokens, heads, topk_limit=limit, blocks=4, requests=requests)
    width = leaf.outputs[0].shape[-1]
    assert 1 <= width <= limit
    assert width == 1 or 4 * width <= tokens + earlier


@given(st.lists(few, min_size=1, max_size=4), few, st.data())
def test_collectives_keep_the_elements(shape: list[int], ranks: int, data: st.DataObject) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    wide = tuple(size * ranks if at == dim % len(shape) else size for at, size in enumerate(shape))
    gathered = build.all_gather(tuple(shape), rank_group=range(ranks), dim=dim)
    scattered = build.reduce_scatter(wide, rank_group=range(ranks), dim=dim)
    assert gathered.outputs[0].shape == wide
    assert scattered.outputs[0].shape == tuple(shape)
    exchanged = build.all_to_all((shape[0] * ranks, *shape[1:]), rank_group=range(ranks))
    assert exchanged.outputs[0].numel == exchanged.inputs[0].numel == math.prod(shape) * ranks


@pytest.mark.parametrize(
    ("contexts", "blocks", "table"),
    [((4096,), 33, (1, 32)), ((4097,) * 16, 513, (16, 33)), ((4104,) * 10, 321, (10, 33))],
)
def test_the_pool_and_the_table_of_a_batch(contexts: tuple[int, ...], blocks: int, table: tuple[int, int]) -> None:
    """What the vectors and shapes of every call must satisfy together."""
    requests = Requests(kv_lens=contexts)
    assert build.cache_blocks(requests) == blocks
    assert build.block_table_shape(requests) == table
