"""One rank's step on Ascend: boundaries, dummies, KV lengths (rules A-a to A-f), and the label of a batch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.ascend.attention import AttentionState, batch_label, split_decodes
from castq.shapes.ascend.graphs import ascend_graphs
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.ascend.step import AscendStep, Scheduled, ascend_step, is_uniform_decode
from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.graph_dispatch import Descriptor
from castq.shapes.vllm.graph_modes import GraphMode, RunMode

NONE, PIECEWISE, FULL = RunMode.NONE, RunMode.PIECEWISE, RunMode.FULL
DECODE = Scheduled(computed=40, tokens=1, prompt=8)


def step(*requests: Scheduled, run: Descriptor | None = None, slots: int = 16, **settings: Any) -> AscendStep:
    given_ = AscendSettings(max_num_seqs=slots, **settings)
    return ascend_step(requests, given_, ascend_graphs(given_), run=run)


def test_a_a_boundaries_of_a_full_graph_end_at_its_tokens() -> None:
    found = step(DECODE, DECODE, DECODE)
    assert found.run == Descriptor(FULL, 4, 4, True)
    assert found.boundaries == (0, 1, 2, 3, 4)
    assert found.covers_padding
    assert found.kv_lens == (41, 41, 41, 0)


def test_a_b_pieces_and_eager_batches_tell_attention_of_real_tokens_only() -> None:
    mixed = step(DECODE, Scheduled(0, 5, 5))
    assert mixed.run == Descriptor(PIECEWISE, 8)
    assert (mixed.boundary_padded, mixed.boundaries, mixed.covers_padding) == (False, (0, 1, 6), False)
    assert (mixed.kv_write_tokens, mixed.padded_slots, mixed.dummy_requests) == (6, 2, 0)
    eager = step(DECODE, Scheduled(0, 5, 5), enforce_eager=True)
    assert eager.run == Descriptor(NONE, 6)
    assert (eager.boundaries, eager.covers_padding, eager.padded_slots) == ((0, 1, 6), True, 0)


def test_a_b_with_sequence_parallelism_one_dummy_holds_all_padding() -> None:
    found = step(DECODE, Scheduled(0, 5, 5), sp=True, tensor_parallel_size=4)
    assert found.run == Descriptor(PIECEWISE, 8)
    assert (found.boundaries, found.dummy_requests, found.kv_lens) == ((0, 1, 6, 8), 1, (41, 5, 0))
    exact = step(DECODE, Scheduled(0, 7, 7), sp=True, tensor_parallel_size=4)
    assert (exact.boundaries, exact.dummy_requests) == ((0, 1, 8), 0)


def test_a_b_dummies_of_a_uniform_batch_have_the_tokens_of_a_decode() -> None:
    found = step(Scheduled(40, 4, 8), Scheduled(9, 4, 8), Scheduled(30, 4, 8), num_spec_tokens=3)
    assert found.run == Descriptor(FULL, 16, 4, True)
    assert found.boundaries == (0, 4, 8, 12, 16)
    assert (found.dummy_requests, found.kv_write_tokens, found.padded_slots) == (1, 12, 4)


def test_a_c_padding_that_happens_to_be_a_decode_adds_no_boundary() -> None:
    found = step(DECODE, num_spec_tokens=3, sp=True, tensor_parallel_size=4, enforce_eager=True)
    assert (found.sp_tokens, found.run) == (4, Descriptor(NONE, 4))
    assert (found.boundaries, found.covers_padding, found.dummy_requests) == ((0, 1), False, 0)


def test_a_d_a_dummy_beyond_the_slots_has_length_one() -> None:
    full = step(*[DECODE] * 5, slots=5, sp=True, tensor_parallel_size=4, enforce_eager=True)
    assert (full.boundaries, full.kv_lens) == ((0, 1, 2, 3, 4, 5, 8), (41, 41, 41, 41, 41, 1))
    free = step(*[DECODE] * 5, slots=6, sp=True, tensor_parallel_size=4, enforce_eager=True)
    assert (free.boundaries, free.kv_lens) == ((0, 1, 2, 3, 4, 5, 8), (41, 41, 41, 41, 41, 0))
    assert full.dummy_row_block_ids == free.dummy_row_block_ids == (0,)


def test_a_full_graph_of_mixed_batches_has_one_dummy() -> None:
    found = step(DECODE, Scheduled(0, 4, 4), mode=GraphMode.FULL)
    assert found.run == Descriptor(FULL, 8, 8)
    assert (found.boundaries, found.dummy_requests) == ((0, 1, 5, 8), 1)


def test_rows_that_the_batch_does_not_have_are_refused() -> None:
    with pytest.raises(ShapeError, match="4 padded requests for 2 in a batch that is not uniform") as refusal:
        step(DECODE, DECODE, run=Descriptor(FULL, 8, 4, True))
    assert (refusal.value.reason, refusal.value.raised) == ("padded_requests_differ", "AssertionError")


def test_what_the_ranks_agreed_on_replaces_the_ranks_own_graph() -> None:
    found = step(DECODE, DECODE, run=Descriptor(NONE, 100))
    assert (found.run.tokens, found.boundaries, found.kv_write_tokens, found.padded_slots) == (100, (0, 1, 2), 2, 98)


def test_decodes_and_prefills_are_told_apart_by_their_tokens() -> None:
    mixed = step(DECODE, DECODE, Scheduled(0, 5, 5))
    assert (mixed.decodes, mixed.prefills) == (2, 1)
    padded = step(DECODE, DECODE, DECODE)
    assert (padded.decodes, padded.prefills) == (4, 0)


@pytest.mark.parametrize("version", ["0.23.0", "0.25.1rc1", "182b75ea"])
def test_a_new_request_of_one_token_is_no_decode_by_now(version: str) -> None:
    requests = [DECODE, Scheduled(0, 1, 1)]
    assert not is_uniform_decode(requests, AscendSettings(max_num_seqs=8))
    assert is_uniform_decode(requests, AscendSettings(max_num_seqs=8, version=version))
    drafts = [Scheduled(40, 2, 8), Scheduled(0, 2, 2)]
    assert not is_uniform_decode(drafts, AscendSettings(max_num_seqs=8, num_spec_tokens=1, version=version))


def test_a_partly_drafted_batch_is_not_uniform() -> None:
    settings = AscendSettings(max_num_seqs=8, num_spec_tokens=1)
    assert is_uniform_decode([Scheduled(40, 2), Scheduled(41, 2)], settings)
    assert not is_uniform_decode([Scheduled(40, 2), Scheduled(41, 1)], settings)
    assert not is_uniform_decode([], settings)


STATE = AttentionState


@pytest.mark.parametrize(
    ("computed", "scheduled", "valid", "method", "chunked", "state", "kernels"),
    [
        ([0, 0], [5, 7], [5, 7], None, True, STATE.PREFILL_NO_CACHE, STATE.PREFILL_NO_CACHE),
        ([9, 4], [1, 1], [1, 1], None, True, STATE.DECODE_ONLY, STATE.DECODE_ONLY),
        ([9, 4], [1, 1], [1, 1], "mtp", True, STATE.SPEC_DECODING, STATE.SPEC_DECODING),
        ([9, 4], [3, 2], [1, 1], "eagle", True, STATE.SPEC_DECODING, STATE.CHUNKED_PREFILL),
        ([9, 4], [3, 2], [1, 1], "mtp", True, STATE.SPEC_DECODING, STATE.SPEC_DECODING),
        ([9, 0], [1, 7], [1, 7], None, True, STATE.CHUNKED_PREFILL, STATE.CHUNKED_PREFILL),
        ([9, 0], [1, 7], [1, 7], None, False, STATE.PREFILL_CACHE_HIT, STATE.PREFILL_CACHE_HIT),
    ],
)
def test_the_label_of_a_batch(
    computed: list[int],
    scheduled: list[int],
    valid: list[int],
    method: str | None,
    chunked: bool,
    state: AttentionState,
    kernels: AttentionState,
) -> None:
    found = batch_label(computed, scheduled, valid, method=method, chunked=chunked)
    assert (found.state, found.kernels) == (state, kernels)
    assert found.with_prefill == (state not in (STATE.DECODE_ONLY, STATE.SPEC_DECODING))


@pytest.mark.parametrize(
    ("queries", "threshold", "uniform", "split"),
    [
        ([1, 1, 5], 1, False, (2, 1, 2, 5)),
        ([2, 1, 5], 2, False, (2, 1, 3, 5)),
        ([2, 1, 5], 2, True, (1, 2, 2, 6)),
        ([2, 2, 0], 2, True, (3, 0, 4, 0)),
        ([5, 1], 1, False, (0, 2, 0, 6)),
        ([], 1, False, (0, 0, 0, 0)),
    ],
)
def test_where_decodes_end(queries: list[int], threshold: int, uniform: bool, split: tuple[int, int, int, int]) -> None:
    assert split_decodes(queries, threshold, require_uniform=uniform) == split


requests_ = st.lists(st.builds(Scheduled, st.integers(0, 90), st.integers(1, 20)), min_size=1, max_size=12)
settings_ = st.builds(
    AscendSettings,
    max_num_seqs=st.integers(12, 40),
    tensor_parallel_size=st.sampled_from([1, 2, 4]),
    sp=st.booleans(),
    num_spec_tokens=st.sampled_from([0, 1, 3]),
    mode=st.sampled_from(GraphMode),
)


@given(settings_, requests_, st.booleans())
def test_padding_changes_no_request_and_writes_no_kv(
    settings: AscendSettings, requests: list[Scheduled], decodes: bool
) -> None:
    if decodes:
        requests = [Scheduled(one.computed + 1, settings.query_len) for one in requests]
    found = ascend_step(requests, settings, ascend_graphs(settings))
    real = sum(one.tokens for one in requests)
    assert found.run.tokens >= found.sp_tokens >= real == found.kv_write_tokens
    assert found.padded_slots == found.run.tokens - real
    assert list(found.boundaries) == sorted(found.boundaries)
    lengths = [high - low for low, high in zip(found.boundaries, found.boundaries[1:], strict=False)]
    assert lengths[: len(requests)] == [one.tokens for one in requests]
    assert found.kv_lens[: len(requests)] == tuple(one.computed + one.tokens for one in requests)
    assert len(found.kv_lens) == len(lengths) == len(requests) + found.dummy_requests
    assert set(found.kv_lens[len(requests) :]) <= {0, 1}
    assert set(found.dummy_row_block_ids) <= {0}
    assert found.decodes + found.prefills == found.requests_padded
    assert found == ascend_step(requests, settings, ascend_graphs(settings))
