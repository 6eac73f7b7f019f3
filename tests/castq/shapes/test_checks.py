"""Each rule of a step's metadata, broken by hand, is named (docs/shapes.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from castq.shapes.ascend.checks import check_step
from castq.shapes.ascend.graphs import ascend_graphs
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.ascend.step import AscendStep, Scheduled, ascend_step
from castq.shapes.planned import Work
from castq.shapes.rbln.checks import check_dummies, check_fits, check_mask, check_uniform
from castq.shapes.rbln.metadata import RowMetadata, decode_metadata
from castq.shapes.rbln.moe import GatheredTokens, gathered
from castq.shapes.refusals import ShapeError

SP = AscendSettings(max_num_seqs=64, tensor_parallel_size=4, sp=True, enforce_eager=True)


def step(*tokens: int) -> AscendStep:
    return ascend_step([Scheduled(10, count) for count in tokens], SP, ascend_graphs(SP))


@pytest.mark.parametrize(
    ("check", "rule", "words"),
    [
        (lambda: check_uniform([Work(5, 1, 6), Work(5, 3, 8)], 2), "R-a", "in place 1 schedules 3 tokens"),
        (lambda: check_dummies(RowMetadata((7, 0, 9), 2, 2), 1), "R-b", "dummy row 2 starts at 9"),
        (lambda: check_fits(2, 1, 3, None), "R-c", "3 requests on 2 rows"),
        (lambda: check_fits(8, 4, 3, 16), "R-c", "8 rows of 4 tokens do not fit the token dimension 16"),
        (lambda: check_mask(GatheredTokens(8, (3, 2)), (3, 1)), "R-d", "2 tokens are marked of 1"),
        (lambda: check_step(replace(step(1, 1), boundaries=(1, 2, 4)), 2), "A-a", "the first does not"),
        (lambda: check_step(replace(step(1, 1), boundaries=(0, 2, 1)), 2), "A-a", "request 1 does not"),
        (lambda: check_step(replace(step(1, 1), boundaries=(0, 1, 9), dummy_requests=0), 2), "A-b", "is 9"),
        (lambda: check_step(replace(step(1, 1), kv_lens=(11,)), 2), "A-d", "1 KV lengths for 3"),
        (lambda: check_step(step(1, 1), 3), "A-e", "KV is written for 2 tokens, and 3 are real"),
        (lambda: AscendSettings(max_num_seqs=1, num_spec_tokens=16), "drafts_out_of_range", "from 0 to 15"),
    ],
)
def test_a_broken_rule_is_named(check: Callable[[], object], rule: str, words: str) -> None:
    with pytest.raises(ShapeError, match=words) as caught:
        check()
    assert caught.value.reason == rule


def test_what_is_legal_passes() -> None:
    check_dummies(decode_metadata([7, 8, 9], 4), 3)
    check_mask(gathered((3, 17), 128), (3, 17))
    check_step(step(1, 1, 1, 1, 1), 5)


def test_padding_that_happens_to_be_whole_decodes_is_left_uncovered() -> None:
    """Rule A-c: one decode of one token, K = 3, TP 4: four tokens and the boundaries 0, 1."""
    settings = AscendSettings(max_num_seqs=64, tensor_parallel_size=4, sp=True, num_spec_tokens=3, enforce_eager=True)
    found = ascend_step([Scheduled(10, 1)], settings, ascend_graphs(settings))
    assert (found.run.tokens, found.boundaries, found.by_coincidence) == (4, (0, 1), True)
    check_step(found, 1)
