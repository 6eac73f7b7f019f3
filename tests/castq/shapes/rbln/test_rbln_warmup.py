"""The graphs that start-up on RBLN compiles, and the memory that they take."""

from __future__ import annotations

import pytest

from castq.shapes.rbln.warmup import Graph, reserved_bytes, warmup_graphs


def test_one_prefill_and_a_decode_for_each_bucket() -> None:
    assert warmup_graphs((1, 2, 4), 128) == (
        Graph("prefill", 1, 128),
        Graph("decode", 1, 1),
        Graph("decode", 2, 1),
        Graph("decode", 4, 1),
    )


def test_specialised_decode_compiles_the_top_bucket_again_at_the_width() -> None:
    assert warmup_graphs((2, 4), 128, specialized=True) == (
        Graph("prefill", 1, 128),
        Graph("decode", 2, 1),
        Graph("decode", 4, 1),
        Graph("decode", 4, 1, 128),
    )


@pytest.mark.parametrize("method", ["mtp", "eagle", "eagle3"])
def test_a_fixed_window_has_one_query_length(method: str) -> None:
    assert warmup_graphs((2, 4), 128, num_spec_tokens=3, method=method, specialized=True) == (
        Graph("prefill", 1, 128),
        Graph("decode", 2, 4),
        Graph("decode", 4, 4),
        Graph("decode", 4, 4, 128),
    )


def test_a_variable_window_has_two_and_one_more_pinned_to_the_whole_window() -> None:
    assert warmup_graphs((2, 4), 128, num_spec_tokens=3, method="ngram", specialized=True) == (
        Graph("prefill", 1, 128),
        Graph("decode", 2, 1),
        Graph("decode", 2, 4),
        Graph("decode", 4, 1),
        Graph("decode", 4, 4),
        Graph("decode", 4, 1, 128),
        Graph("decode", 4, 4, 128),
        Graph("decode", 4, 1, 16),
    )


@pytest.mark.parametrize(
    ("drafts", "method", "specialized", "count"),
    [
        (0, None, False, 5),
        (0, None, True, 6),
        (3, "mtp", False, 5),
        (3, "mtp", True, 6),
        (3, "ngram", False, 9),
        (3, "ngram", True, 12),
    ],
)
def test_how_many_graphs_four_buckets_cost(drafts: int, method: str | None, specialized: bool, count: int) -> None:
    found = warmup_graphs((1, 2, 4, 8), 128, num_spec_tokens=drafts, method=method, specialized=specialized)
    assert len(found) == count


def test_a_graph_takes_256_mib_on_each_device_and_four_times_that_on_rebel() -> None:
    assert reserved_bytes(1) == 268_435_456
    assert reserved_bytes(5, devices_per_rank=2) == 2_684_354_560
    assert reserved_bytes(5, devices_per_rank=2, rebel=True) == 5_368_709_120
