"""The generator and its streams, against fixed vectors (docs/facts/random-streams.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from serq.sim.chacha import seed_key, stream_seed
from serq.sim.rng import Rng, StreamBank, uniforms


def test_key_and_outputs_of_seed_one() -> None:
    assert [f"{word:08x}" for word in seed_key(1)] == (
        ["721dd8ea", "4e10265d", "f83b9c89", "2e78ce42", "da03d3ba", "c2d29799", "ac560212", "1bfb6673"]
    )
    rng = Rng(1)
    assert [rng.next_u32() for _ in range(4)] == [3543144545, 4184349284, 3423430986, 2968834341]
    rng = Rng(1)
    assert [rng.random() for _ in range(3)] == [0.9742447372584028, 0.6912356107023264, 0.4279747815328704]
    rng = Rng(1)
    assert [rng.range_u32(0, 9) for _ in range(10)] == [8, 9, 7, 6, 1, 4, 2, 1, 7, 2]


@pytest.mark.parametrize(
    ("place", "seed"),
    [
        ((1, 0, 0, 1), 4585330820673184961),
        ((1, 0, 1, 1), 9361919802298821421),
        ((1, 0, 0, 2), 10430974457111710706),
        ((1, 5, 2, 1), 1308085462477454880),
    ],
)
def test_seeds_of_streams(place: Any, seed: Any) -> None:
    assert stream_seed(*place) == seed


@pytest.mark.parametrize("run_seed", [0, 1, 2**63 + 12345, 2**64 - 1])
@pytest.mark.parametrize("kind", [1, 2])
def test_banked_streams_are_the_streams(run_seed: Any, kind: Any) -> None:
    """Many blocks at once in numpy give what one block in plain Python gives, past the first block too."""
    bank = StreamBank(run_seed, kind)
    for serial, turn in [(0, 0), (1, 0), (511, 3), (512, 3), (70_000, 1), (0, 0), *((0, turn) for turn in range(40))]:
        banked, plain = bank.stream(serial, turn), Rng(stream_seed(run_seed, serial, turn, kind))
        assert [banked.next_u32() for _ in range(40)] == [plain.next_u32() for _ in range(40)]


def test_many_numbers_at_once_are_those_drawn_one_by_one() -> None:
    one, many = Rng(7), Rng(7)
    assert one.next_u32() == many.next_u32()  # so that pairs lie across blocks
    got = many.randoms(5) + many.randoms(3000)
    assert got == [one.random() for _ in range(3005)]


def test_blocks_of_many_streams() -> None:
    serials = np.array([0, 5, 900], dtype=np.uint64)
    blocks = [uniforms(3, serials, (2, 1), number) for number in (0, 1)]
    for i, serial in enumerate((0, 5, 900)):
        stream = Rng(stream_seed(3, serial, 2, 1))
        assert [*blocks[0][i], *blocks[1][i]] == [stream.random() for _ in range(16)]
