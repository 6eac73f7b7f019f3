"""Decode buckets of vllm-rbln: the layout below the ceiling, and the smallest that covers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.rbln.buckets import BucketLayout, DecodeRows, covering, decode_ceiling, decode_rows
from castq.shapes.refusals import ShapeError


def test_the_default_is_one_bucket_of_every_slot() -> None:
    assert BucketLayout().buckets(8) == (8,)
    assert decode_rows((8,), 1) == DecodeRows(rows=8, dummy_rows=7)


@pytest.mark.parametrize(
    ("layout", "ceiling", "buckets"),
    [
        (BucketLayout(limit=4), 8, (1, 2, 4, 8)),
        (BucketLayout(limit=3), 8, (2, 4, 8)),
        (BucketLayout(limit=32), 8, (1, 2, 4, 8)),
        (BucketLayout(limit=32), 12, (1, 3, 6, 12)),
        (BucketLayout(limit=32, min=3), 12, (3, 6, 12)),
        (BucketLayout(limit=32, step=3), 20, (2, 6, 20)),
        (BucketLayout("linear", limit=4, step=2), 8, (2, 4, 6, 8)),
        (BucketLayout("linear", limit=32, step=3), 8, (2, 5, 8)),
        (BucketLayout("linear", limit=32, step=1), 3, (1, 2, 3)),
        (BucketLayout("linear", limit=32, step=3, min=3), 8, (5, 8)),
        (BucketLayout("manual", manual=(8, 3)), 8, (3, 8)),
        (BucketLayout("manual", manual=(3, 8, 3), limit=1), 8, (3, 8)),
    ],
)
def test_layouts(layout: BucketLayout, ceiling: int, buckets: tuple[int, ...]) -> None:
    assert layout.buckets(ceiling) == buckets


@pytest.mark.parametrize(("slots", "stages", "ceiling"), [(8, 1, 8), (8, 2, 4), (9, 2, 4), (3, 4, 0)])
def test_the_ceiling_is_the_slots_over_the_stages(slots: int, stages: int, ceiling: int) -> None:
    assert decode_ceiling(slots, stages) == ceiling


@pytest.mark.parametrize(
    ("decodes", "rows", "dummies"), [(0, 1, 1), (1, 1, 0), (2, 2, 0), (3, 4, 1), (4, 4, 0), (5, 8, 3), (8, 8, 0)]
)
def test_the_smallest_bucket_that_covers(decodes: int, rows: int, dummies: int) -> None:
    assert decode_rows((1, 2, 4, 8), decodes) == DecodeRows(rows, dummies)


@pytest.mark.parametrize(
    ("layout", "ceiling", "reason", "words"),
    [
        (BucketLayout("exponental"), 8, "unknown_strategy", "'exponental': one of exponential, linear, manual"),
        (BucketLayout("exponental"), 8, "unknown_strategy", "exponential"),
        (BucketLayout(step=0), 8, "step_not_positive", "bucket step 0: at least 1"),
        (BucketLayout("linear", step=-2), 8, "step_not_positive", "bucket step -2: at least 1"),
        (BucketLayout(min=0), 8, "min_not_positive", "bucket min 0: at least 1"),
        (BucketLayout(limit=0), 8, "limit_not_positive", "bucket limit 0: at least 1"),
        (BucketLayout(min=9), 8, "ceiling_below_min", "bucket min 9 is above the ceiling 8"),
        (BucketLayout(), 0, "ceiling_below_min", "bucket min 1 is above the ceiling 0"),
        (BucketLayout(step=1), 8, "exponential_step_not_above_1", "bucket step 1: exponential needs at least 2"),
        (BucketLayout("manual", manual=(1, 4)), 8, "manual_last_not_ceiling", "the largest must be the ceiling 8"),
        (BucketLayout("manual", manual=(4, 16)), 8, "manual_last_not_ceiling", "manual buckets [4, 16]"),
        (BucketLayout("manual", manual=(0, 8)), 8, "min_not_positive", "manual bucket 0: at least 1"),
    ],
)
def test_a_refused_layout_says_what_is_wrong(layout: BucketLayout, ceiling: int, reason: str, words: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        layout.buckets(ceiling)
    assert (refusal.value.reason, refusal.value.raised) == (reason, "ValueError")
    assert words in str(refusal.value)


def test_an_empty_manual_list_is_an_assertion_of_the_vendor() -> None:
    with pytest.raises(ShapeError, match="a manual bucket list has at least one bucket") as refusal:
        BucketLayout("manual").buckets(8)
    assert (refusal.value.reason, refusal.value.raised) == ("manual_empty", "AssertionError")


def test_more_decodes_than_the_largest_bucket_do_not_run_eager() -> None:
    with pytest.raises(ShapeError, match="9 decodes: the largest compiled bucket has 8 rows") as refusal:
        decode_rows((1, 2, 4, 8), 9)
    assert (refusal.value.reason, refusal.value.raised, refusal.value.rank) == (
        "no_covering_bucket",
        "ValueError",
        None,
    )


def test_the_rank_that_has_no_bucket_is_named() -> None:
    with pytest.raises(ShapeError, match="rank 3: 5 decodes: the largest compiled bucket has 4 rows") as refusal:
        covering((2, 4), 5, rank=3)
    assert refusal.value.rank == 3


layouts = st.builds(
    BucketLayout,
    st.sampled_from(["exponential", "linear"]),
    min=st.integers(1, 8),
    step=st.integers(2, 5),
    limit=st.integers(1, 40),
)


@given(layouts, st.integers(8, 300))
def test_a_layout_ends_at_the_ceiling_and_stays_within_its_limits(layout: BucketLayout, ceiling: int) -> None:
    found = layout.buckets(ceiling)
    assert found[-1] == ceiling
    assert found[0] >= layout.min
    assert len(found) <= layout.limit
    assert list(found) == sorted(set(found))


@given(layouts, st.integers(8, 300), st.data())
def test_no_smaller_bucket_covers(layout: BucketLayout, ceiling: int, data: st.DataObject) -> None:
    buckets = layout.buckets(ceiling)
    decodes = data.draw(st.integers(1, ceiling))
    found = decode_rows(buckets, decodes)
    assert found.rows in buckets
    assert found.rows - found.dummy_rows == decodes
    assert all(bucket < decodes for bucket in buckets if bucket < found.rows)
