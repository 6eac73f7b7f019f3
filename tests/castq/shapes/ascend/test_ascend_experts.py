"""How experts on Ascend exchange tokens, by device and layout."""

from __future__ import annotations

from typing import Any

import pytest

from castq.shapes.ascend.experts import MoeExchange, MoeLayout, mc2_capacity, moe_exchange


def layout(device: str, **given_: Any) -> MoeLayout:
    usual: dict[str, Any] = {
        "expert_parallel": True,
        "expert_parallel_size": 16,
        "world_size": 16,
        "tensor_parallel_size": 4,
        "experts_per_token": 8,
    }
    return MoeLayout(device=device, **{**usual, **given_})


@pytest.mark.parametrize(
    ("device", "given_", "small", "large"),
    [
        ("A2", {}, "MC2", "ALLGATHER"),
        ("A2", {"world_size": 8}, "ALLGATHER", "ALLGATHER"),
        ("A3", {}, "MC2", "ALLTOALL"),
        ("A3", {"fused_mc2": True}, "FUSED_MC2", "FUSED_MC2"),
        ("A5", {}, "MC2", "ALLTOALL"),
        ("A5", {"expert_parallel_size": 8}, "MC2", "ALLGATHER"),
        ("310P", {}, "ALLGATHER", "ALLGATHER"),
        ("A3", {"expert_parallel": False}, "ALLGATHER", "ALLGATHER"),
        ("A3", {"expert_parallel_size": 1}, "ALLGATHER", "ALLGATHER"),
        ("A3", {"lora": True}, "ALLTOALL", "ALLTOALL"),
    ],
)
def test_how_experts_exchange_by_device(device: str, given_: dict[str, Any], small: str, large: str) -> None:
    assert moe_exchange(layout(device, **given_), 64, 64).method == small
    assert moe_exchange(layout(device, **given_), 65, 64).method == large


def test_a_dense_model_exchanges_nothing() -> None:
    assert moe_exchange(layout("A3", moe=False), 5, 64) == MoeExchange(None, 8)


def test_the_tokens_of_the_largest_rank_are_rounded_up() -> None:
    assert moe_exchange(layout("A3"), 61, 64) == MoeExchange("MC2", 64)
    assert moe_exchange(layout("A3", tensor_parallel_size=1), 61, 64) == MoeExchange("MC2", 61)


@pytest.mark.parametrize(("tokens", "tp", "capacity"), [(16, 4, 16), (17, 4, 20), (4096, 4, 2048), (4096, 1, 512)])
def test_capacity(tokens: int, tp: int, capacity: int) -> None:
    assert mc2_capacity(tokens, tp) == capacity
