"""Phase, rank-0 vectors, and the base's own decomposition.  Expected values are worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composites import latent
from tensor_cast import LeafOp, ParallelConfig, Requests
from tensor_cast.operators.composites import canonical_leaf
from tensor_cast.operators.composites.leaf_parts import LackingError
from tensor_cast.operators.composites.phase import attention_form
from tensor_cast.operators.composites.sequence_parallel import (
    local_tokens,
    rank_zero_requests,
    splits_tokens,
)
from tensor_cast.performance_model.profiling_database.exact.children import decompose, is_decomposable

MLA = "multihead_latent_attention"


# --- rank 0 of a tensor-parallel group --------------------------------------------------------------------------------


def test_the_worked_example_of_a_prefill_chunk_on_history() -> None:
    """4096 new tokens on a context of 8192, 16 ranks: rank 0 holds tokens 0..255 and sees 8192 - (4096 - 256)."""
    local = rank_zero_requests(Requests((4096,), (8192,)), 4096, 16)
    assert local is not None
    assert local.cu_query_lens == (256,)
    assert local.kv_lens == (4352,)
    assert local.phase == "mixed"


@pytest.mark.parametrize(
    ("queries", "contexts", "ranks", "local_queries", "local_contexts"),
    [
        ((4096,), (4096,), 16, (256,), (256,)),  # 5.4: kernel T = 256
        ((3, 5), (3, 5), 2, (3, 1), (3, 1)),  # L = 4: the second request brings its first token
        ((3, 5), (10, 20), 4, (2, 0), (9, 0)),  # L = 2: one token short of the first request, none of the second
        ((2, 2, 3), (2, 9, 3), 2, (2, 2, 0), (2, 9, 0)),  # 7 tokens: L = ceil(7 / 2) = 4
        ((0, 4), (7, 4), 2, (0, 2), (0, 2)),  # a request that brings nothing has no context either
    ],
)
def test_requests_are_cut_where_rank_zero_ends(
    queries: tuple[int, ...],
    contexts: tuple[int, ...],
    ranks: int,
    local_queries: tuple[int, ...],
    local_contexts: tuple[int, ...],
) -> None:
    table = (len(queries), 33)
    local = rank_zero_requests(Requests(queries, contexts, block_table_shape=table), sum(queries), ranks)
    assert local == Requests(local_queries, local_contexts, block_table_shape=table)


def test_unknown_query_lengths_are_the_contexts_only_if_those_are_the_tokens() -> None:
    assert rank_zero_requests(Requests(None, (3, 5)), 8, 2) == Requests((3, 1), (3, 1))
    assert rank_zero_requests(Requests(None, (30, 50)), 8, 2) is None
    assert rank_zero_requests(Requests((3, 5), None), 8, 2) is None
    assert rank_zero_requests(Requests((3, 4), (3, 5)), 8, 2) is None  # 7 tokens are not the call's 8
    assert rank_zero_requests(Requests((4,), (2,)), 4, 1) is None  # a context shorter than its query


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6),
    st.integers(1, 16),
)
def test_rank_zero_holds_exactly_its_share(pairs: list[tuple[int, int]], ranks: int) -> None:
    queries = tuple(query for query, _ in pairs)
    contexts = tuple(query + history for query, history in pairs)
    local = rank_zero_requests(Requests(queries, contexts), sum(queries), ranks)
    assert local is not None
    assert local.query_lens is not None
    assert local.kv_lens is not None
    assert sum(local.query_lens) == local_tokens(sum(queries), ranks)
    for query, (whole, history), context in zip(local.query_lens, pairs, local.kv_lens, strict=True):
        assert query <= whole
        assert context == (query + history if query else 0)


def test_only_a_prefill_over_several_ranks_splits_its_tokens() -> None:
    on = ParallelConfig(tensor_parallel_size=4, sequence_parallel=True)
    assert splits_tokens(on, "prefill")
    assert not splits_tokens(on, "decode")
    assert not splits_tokens(ParallelConfig(tensor_parallel_size=4), "prefill")
    assert not splits_tokens(ParallelConfig(sequence_parallel=True), "prefill")


# --- phase ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "attrs", "form"),
    [
        (Requests((1, 1), (500, 500)), {}, "decode"),
        (Requests((1, 0), (500, 0)), {}, "decode"),
        (Requests((1, 1)), {}, "decode"),
        (Requests((300, 300), (300, 300)), {}, "prefill"),
        (Requests((300,), (900,)), {}, "prefill"),  # a chunk on history
        (Requests((1,), (1,)), {}, "prefill"),  # one on one fits both; prefill wins
        (Requests((1, 7), (1, 7)), {}, "prefill"),
        (Requests(explicit_phase="decode"), {}, "decode"),
        (Requests((4,), (9,), explicit_phase="decode"), {}, "decode"),
        (None, {"phase": "prefill"}, "prefill"),
        (None, {"is_decode_values": ("True", "True")}, "decode"),
        (None, {"is_decode_values": (0, 0)}, "prefill"),
        (Requests((4,), (9,)), {"is_decode_values": (True,)}, "decode"),
    ],
)
def test_the_form_follows_phase_then_flags_then_lengths(
    requests: Requests | None, attrs: dict[str, Any], form: str
) -> None:
    op = LeafOp("tensor_cast.x.default", (), attrs=tuple(attrs.items()), requests=requests)
    assert attention_form(op) == form


@pytest.mark.parametrize(
    ("requests", "attrs"),
    [
        (None, {}),
        (Requests(None, (500, 500)), {}),
        (Requests((1, 300), (500, 300)), {}),  # decode and prefill in one call
        (Requests((0, 0), (5, 5)), {}),
        (Requests((1,), (5,)), {"is_decode_values": ("True", "False")}),
        (Requests((1,), (5,)), {"is_decode_values": ()}),
        (Requests((1,), (5,)), {"is_decode_values": ("maybe",)}),
    ],
)
def test_a_phase_that_cannot_be_told_is_refused(requests: Requests | None, attrs: dict[str, Any]) -> None:
    op = LeafOp("tensor_cast.x.default", (), attrs=tuple(attrs.items()), requests=requests)
    with pytest.raises(LackingError):
        attention_form(op)


# --- the base's own decomposition -------------------------------------------------------------------------------------


def test_the_base_decomposition_stays_what_exact_lookup_knows() -> None:
    decode = decompose(latent(MLA, 2, Requests((1, 1), (500, 500))))
    assert [(part.kernels, part.leaf.tensor_shapes, part.sparse_mode) for part in decode] == [
        (("BatchMatMulV2", "BatchMatMulNd"), ((4, 2, 128), (4, 128, 512)), None),
        (("FusedInferAttentionScore",), ((2, 4, 512),), 0),
        (("TransposeBatchMatMul",), ((4, 2, 512), (4, 512, 128)), None),
    ]
    prefill = decompose(latent(MLA, 600, Requests((300, 300), (300, 300))))
    assert [(part.kernels, part.leaf.tensor_shapes, part.num_kv_heads) for part in prefill] == [
        (("MatMulV2",), ((600, 512), (512, 1024)), None),
        (("FusedInferAttentionScore",), ((600, 4, 128),), 4),
    ]
    assert decompose(latent(MLA, 2, Requests((1, 1), (5, 5)), without=("w_uv",))) == ()
    assert not is_decomposable("tensor_cast.dsa_indexer.default")


def test_a_leaf_that_is_canonical_or_incomplete_is_left_alone() -> None:
    mm = LeafOp.build("aten.mm.default", [((4, 8), "bf16"), ((8, 3), "bf16")])
    assert canonical_leaf(mm) is mm
    bare = LeafOp.build("tensor_cast.sparse_attn_sharedkv.default", [((4, 8, 512), "bf16")])
    assert canonical_leaf(bare) is bare
