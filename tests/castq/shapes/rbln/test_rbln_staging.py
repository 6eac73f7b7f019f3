"""Staging of a step on RBLN: its phase, its rectangle, and the chunks of a prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.rbln.staging import (
    Chunk,
    Staged,
    base_tokens,
    chunks_of,
    request_is_prefill,
    stage_decodes,
    stage_prefill,
    step_is_prefill,
)
from castq.shapes.refusals import ShapeError


@pytest.mark.parametrize(("chunk", "padding"), [(1, 127), (17, 111), (127, 1), (128, 0)])
def test_a_prefill_is_one_row_of_the_width_whatever_its_chunk(chunk: int, padding: int) -> None:
    staged = stage_prefill(128, chunk)
    assert staged == Staged(rows=1, query_len=128, valid=(1, chunk))
    assert (staged.physical_tokens, staged.padded_tokens) == (128, padding)


def test_a_chunk_longer_than_the_width_cannot_be_staged() -> None:
    with pytest.raises(ShapeError, match="129 tokens: the compiled width is 128") as refusal:
        stage_prefill(128, 129)
    assert (refusal.value.reason, refusal.value.raised) == ("chunk_exceeds_compiled_width", "RuntimeError")


@pytest.mark.parametrize(
    ("decodes", "rows", "query_len", "physical", "padding"), [(3, 4, 1, 4, 1), (3, 4, 4, 16, 4), (8, 8, 2, 16, 0)]
)
def test_decodes_fill_the_first_rows_of_their_bucket(
    decodes: int, rows: int, query_len: int, physical: int, padding: int
) -> None:
    staged = stage_decodes(decodes, rows, query_len)
    assert staged.valid == (decodes, query_len)
    assert (staged.physical_tokens, staged.padded_tokens) == (physical, padding)


@pytest.mark.parametrize(
    ("computed", "known", "prefill"), [(0, 1, False), (0, 2, True), (98, 100, True), (99, 100, False), (5, 5, False)]
)
def test_a_request_with_more_than_its_last_known_token_to_compute_prefills(
    computed: int, known: int, prefill: bool
) -> None:
    assert request_is_prefill(computed, known) is prefill


def test_drafts_do_not_make_a_step_a_prefill() -> None:
    scheduled, drafts = {"a": 4, "b": 1}, {"a": 3}
    assert base_tokens(scheduled, drafts) == {"a": 1, "b": 1}
    assert step_is_prefill(scheduled, drafts) is False
    assert step_is_prefill(scheduled, {"a": 2}) is True


@pytest.mark.parametrize(
    ("prompt", "cached", "steps"),
    [
        (100, 0, (Chunk("prefill", 0, 100),)),
        (300, 0, (Chunk("prefill", 0, 128), Chunk("prefill", 128, 128), Chunk("prefill", 256, 44))),
        (256, 0, (Chunk("prefill", 0, 128), Chunk("prefill", 128, 128))),
        (257, 0, (Chunk("prefill", 0, 128), Chunk("prefill", 128, 128), Chunk("decode", 256, 1))),
        (1, 0, (Chunk("decode", 0, 1),)),
        (500, 384, (Chunk("prefill", 384, 116),)),
        (385, 384, (Chunk("decode", 384, 1),)),
    ],
)
def test_a_prompt_in_chunks_of_128(prompt: int, cached: int, steps: tuple[Chunk, ...]) -> None:
    assert chunks_of(128, prompt, cached) == steps


@given(st.integers(2, 64), st.integers(1, 500), st.data())
def test_chunks_cover_the_prompt_once_and_a_decode_is_its_last_token(
    width: int, prompt: int, data: st.DataObject
) -> None:
    cached = data.draw(st.integers(0, prompt - 1))
    steps = chunks_of(width, prompt, cached)
    covered = [at for step in steps for at in range(step.start, step.start + step.tokens)]
    assert covered == list(range(cached, prompt))
    assert all(stage_prefill(width, step.tokens).padded_tokens >= 0 for step in steps)
    assert [step.phase for step in steps[:-1]] == ["prefill"] * (len(steps) - 1)
    assert (steps[-1].phase == "decode") == (steps[-1].tokens == 1)
