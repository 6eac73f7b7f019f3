"""Rows and windows that the attention kernel of RBLN is told of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.rbln.metadata import (
    RowMetadata,
    Window,
    decode_metadata,
    decode_window,
    prefill_metadata,
    prefill_window,
)
from castq.shapes.refusals import ShapeError


def test_dummy_rows_start_at_zero_in_the_null_block() -> None:
    found = decode_metadata([70, 5, 900], rows=8)
    assert found == RowMetadata((70, 5, 900, 0, 0, 0, 0, 0), block_table_dims=2, dummy_rows=5)
    assert found.dummy_row_block_ids == (0,)


def test_a_full_bucket_has_no_dummy_row() -> None:
    found = decode_metadata([70, 5], rows=2)
    assert found == RowMetadata((70, 5), block_table_dims=2, dummy_rows=0)
    assert found.dummy_row_block_ids == ()


def test_a_prefill_has_a_block_table_of_one_dimension() -> None:
    assert prefill_metadata(256) == RowMetadata((256,), block_table_dims=1, dummy_rows=0)


def test_a_chunk_is_its_own_window_and_sampled_at_its_last_token() -> None:
    found = prefill_window(computed=128, chunk=17)
    assert found == Window((17,), (0,), (0,), (128,), (145,), (16,))
    assert found.query_start_loc == (0, 17)


def test_without_drafts_a_decode_is_one_token() -> None:
    found = decode_window([9, 4], [1, 1], [0, 0], num_spec_tokens=3, max_model_len=64, fixed=False)
    assert found == Window((1, 1), (0, 0), (0, 0), (9, 4), (10, 5), (0, 1))


def test_one_draft_anywhere_stages_every_request_at_the_window() -> None:
    found = decode_window([9, 4], [3, 1], [2, 0], num_spec_tokens=3, max_model_len=64, fixed=False)
    assert found == Window((4, 4), (0, 0), (1, 3), (9, 4), (12, 5), (0, 1, 2, 4))
    assert found.query_start_loc == (0, 4, 8)


def test_a_fixed_window_is_staged_without_drafts_too() -> None:
    found = decode_window([9], [1], [0], num_spec_tokens=2, max_model_len=64, fixed=True)
    assert found == Window((3,), (0,), (2,), (9,), (10,), (0,))


@pytest.mark.parametrize(
    ("computed", "front", "back", "first", "row"),
    [(60, 0, 3, 60, 0), (61, 1, 2, 60, 1), (62, 2, 1, 60, 2), (63, 3, 0, 60, 3)],
)
def test_at_the_longest_sequence_the_window_shifts_back_by_what_it_would_pass(
    computed: int, front: int, back: int, first: int, row: int
) -> None:
    found = decode_window([computed], [1], [0], num_spec_tokens=3, max_model_len=64, fixed=True)
    assert found == Window((4,), (front,), (back,), (first,), (computed + 1,), (row,))


def test_release_0_11_0_slides_the_whole_slack_over_past_tokens() -> None:
    found = decode_window([9, 2], [1, 1], [0, 0], num_spec_tokens=3, max_model_len=64, fixed=True, slides_back=True)
    assert found == Window((4, 4), (3, 2), (0, 1), (6, 0), (10, 3), (3, 6))


def test_a_request_that_schedules_more_than_its_window_is_named() -> None:
    with pytest.raises(ShapeError, match="request 1 schedules 5 tokens: the window has 4") as refusal:
        decode_window([9, 4], [1, 5], [0, 4], num_spec_tokens=3, max_model_len=64, fixed=True)
    assert (refusal.value.reason, refusal.value.raised) == ("scheduled_exceeds_decode_window", "AssertionError")


@given(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 57), st.integers(1, 7)), min_size=1, max_size=6))
def test_windows_stay_inside_the_sequence_and_sample_the_scheduled_positions(
    num_spec_tokens: int, rows: list[tuple[int, int]]
) -> None:
    width = num_spec_tokens + 1
    computed = [start for start, _ in rows]
    scheduled = [min(tokens, width, 64 - start) for start, tokens in rows]
    found = decode_window(
        computed, scheduled, [0] * len(rows), num_spec_tokens=num_spec_tokens, max_model_len=64, fixed=True
    )
    positions = [first + at for first in found.first_positions for at in range(width)]
    assert min(positions) >= 0
    assert max(positions) < 64
    sampled = [positions[row] for row in found.logits_rows]
    assert sampled == [start + at for start, tokens in zip(computed, scheduled, strict=True) for at in range(tokens)]
    padded = sum(found.query_lens)
    assert padded == sum(scheduled) + sum(found.front_pad) + sum(found.back_pad)
    assert min(found.front_pad + found.back_pad) >= 0


@given(st.lists(st.integers(0, 5000), max_size=8), st.integers(0, 8))
def test_dummy_rows_leave_real_rows_alone_and_write_to_the_null_block_only(computed: list[int], more: int) -> None:
    found = decode_metadata(computed, len(computed) + more)
    assert found.start_positions[: len(computed)] == tuple(computed)
    assert set(found.start_positions[len(computed) :]) <= {0}
    assert found.dummy_rows == more
    assert set(found.dummy_row_block_ids) <= {0}
