"""What start-up on Ascend changes or warns of."""

from __future__ import annotations

import pytest

from castq.shapes.ascend.startup import LargestDecode, kv_block_size, largest_decode


@pytest.mark.parametrize(
    ("asked", "prefix", "chunked", "hybrid", "model", "size"),
    [
        (None, True, True, False, "", 128),
        (64, True, False, False, "", 128),
        (64, False, True, False, "", 128),
        (64, False, False, False, "", 64),
        (64, True, True, True, "", 64),
        (64, True, True, False, "deepseek_v4", 64),
        (256, True, True, False, "deepseek_v4", 32),
        (None, True, True, False, "deepseek_v4", 128),
    ],
)
def test_the_block_size_in_use(
    asked: int | None, prefix: bool, chunked: bool, hybrid: bool, model: str, size: int
) -> None:
    found = kv_block_size(asked, prefix_caching=prefix, chunked_prefill=chunked, hybrid=hybrid, model_type=model)
    assert found == size


@pytest.mark.parametrize(
    ("slots", "query", "budget", "graph", "tokens", "beyond"),
    [
        (12, 1, 2048, 8, 12, True),
        (16, 1, 2048, 16, 16, False),
        (4, 1, 2048, 16, 16, False),
        (300, 4, 1000, 512, 1000, True),
        (300, 4, 1000, 0, 512, False),
    ],
)
def test_decodes_that_fall_off_the_graphs_are_warned_of(
    slots: int, query: int, budget: int, graph: int, tokens: int, beyond: bool
) -> None:
    assert largest_decode(slots, query, budget, graph) == LargestDecode(tokens, beyond)
