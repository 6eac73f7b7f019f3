"""Decode caps of a pipeline on RBLN."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.rbln.pipeline import DecodeCaps, decode_caps, defers_drafts
from castq.shapes.refusals import ShapeError


@pytest.mark.parametrize(
    ("slots", "stages", "demand", "hard", "soft", "admitted"),
    [
        (8, 2, 3, 4, 2, 2),
        (8, 2, 8, 4, 4, 4),
        (8, 2, 12, 4, 6, 4),
        (4, 4, 4, 1, 1, 1),
        (9, 2, 5, 4, 3, 3),
        (8, 1, 5, 8, 5, 5),
        (8, 2, 0, 4, 1, 1),
    ],
)
def test_caps(slots: int, stages: int, demand: int, hard: int, soft: int, admitted: int) -> None:
    caps = decode_caps(slots, stages, demand)
    assert caps == DecodeCaps(hard, soft)
    assert caps.admitted(soft=True) == admitted
    assert caps.admitted(soft=False) == hard


@given(st.integers(1, 64), st.data())
def test_with_one_stage_the_soft_cap_never_binds(slots: int, data: st.DataObject) -> None:
    demand = data.draw(st.integers(1, slots))
    assert decode_caps(slots, 1, demand).admitted(soft=True) == demand


@given(st.integers(1, 8), st.integers(1, 8), st.data())
def test_rounds_of_a_pipeline_serve_all_that_stand_ready(stages: int, rows: int, data: st.DataObject) -> None:
    demand = data.draw(st.integers(1, stages * rows))
    caps = decode_caps(stages * rows, stages, demand)
    assert caps.admitted(soft=True) * stages >= demand


def test_more_stages_than_slots_are_refused() -> None:
    with pytest.raises(ShapeError, match="max_num_seqs 3 is below pipeline_parallel_size 4") as refusal:
        decode_caps(3, 4, 1)
    assert (refusal.value.reason, refusal.value.raised) == ("ceiling_below_one", "AssertionError")


@pytest.mark.parametrize(
    ("drafts", "held", "new_tokens", "defers"),
    [(3, 3, 4, False), (3, 3, 3, True), (3, 0, 1, False), (3, 1, 4, False), (3, 0, -1, True)],
)
def test_a_request_waits_where_its_drafts_would_be_cut(drafts: int, held: int, new_tokens: int, defers: bool) -> None:
    assert defers_drafts(drafts, held, new_tokens) is defers
