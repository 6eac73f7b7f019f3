"""The four numbered examples that the description of input shapes starts from."""

from __future__ import annotations

from castq.shapes.ascend.graphs import ascend_graphs
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.ascend.step import AscendStep, Scheduled, ascend_step
from castq.shapes.rbln.buckets import BucketLayout, DecodeRows, decode_rows
from castq.shapes.rbln.data_parallel import Rank, RankShape, Route, agree
from castq.shapes.rbln.metadata import decode_metadata
from castq.shapes.rbln.moe import gathered
from castq.shapes.rbln.staging import stage_decodes, stage_prefill
from castq.shapes.vllm.graph_dispatch import Descriptor
from castq.shapes.vllm.graph_modes import RunMode

BUCKETS = (1, 2, 4, 8)


def ascend(requests: list[Scheduled], *, eager: bool) -> AscendStep:
    settings = AscendSettings(max_num_seqs=16, tensor_parallel_size=4, sp=True, enforce_eager=eager)
    return ascend_step(requests, settings, ascend_graphs(settings))


def test_seed_1_three_decodes_run_on_four_rows() -> None:
    assert BucketLayout(limit=4).buckets(8) == BUCKETS
    assert decode_rows(BUCKETS, 3) == DecodeRows(rows=4, dummy_rows=1)
    staged = stage_decodes(decodes=3, rows=4, query_len=1)
    assert (staged.rows, staged.query_len, staged.valid) == (4, 1, (3, 1))


def test_seed_1_the_dummy_row_starts_at_zero_in_the_null_block() -> None:
    metadata = decode_metadata([70, 5, 900], rows=4)
    assert metadata.start_positions == (70, 5, 900, 0)
    assert metadata.dummy_row_block_ids == (0,)


def test_seed_2_a_chunk_of_17_tokens_is_padded_to_the_width() -> None:
    staged = stage_prefill(width=128, chunk=17)
    assert (staged.rows, staged.query_len, staged.valid) == (1, 128, (1, 17))
    assert (staged.physical_tokens, staged.padded_tokens) == (128, 111)


def test_seed_3_decodes_beside_a_prefill_take_the_top_bucket_and_the_width() -> None:
    decoding, prefilling = agree([Rank(3, 3), Rank(1, 17, prefill=True)], BUCKETS, 128, specialized=True)
    assert decoding == RankShape(Route.ANY_PREFILL, rows=8, query_len=1, tokens=128)
    assert prefilling == RankShape(Route.ANY_PREFILL, rows=1, query_len=17, tokens=128)


def test_seed_3_experts_see_256_rows_of_which_20_are_real() -> None:
    experts = gathered([3, 17], 128)
    assert (experts.rows, experts.valid, experts.valid_by_rank) == (256, 20, (3, 17))


def test_seed_4_five_eager_decodes_get_one_dummy_of_three_tokens() -> None:
    step = ascend([Scheduled(40, 1, 8)] * 5, eager=True)
    assert (step.sp_tokens, step.run) == (8, Descriptor(RunMode.NONE, 8))
    assert step.boundaries == (0, 1, 2, 3, 4, 5, 8)
    assert (step.dummy_requests, step.kv_write_tokens, step.padded_slots) == (1, 5, 3)


def test_seed_4_a_prefill_of_five_tokens() -> None:
    step = ascend([Scheduled(0, 5, 5)], eager=True)
    assert step.sp_tokens == 8
    assert step.boundaries == (0, 5, 8)
    assert (step.dummy_requests, step.kv_write_tokens, step.padded_slots) == (1, 5, 3)


def test_seed_4_a_full_graph_of_decodes_gets_three_dummies_of_one_token() -> None:
    step = ascend([Scheduled(40, 1, 8)] * 5, eager=False)
    assert step.run == Descriptor(RunMode.FULL, 8, 8, True)
    assert step.boundaries == (0, 1, 2, 3, 4, 5, 6, 7, 8)
    assert (step.dummy_requests, step.kv_write_tokens, step.padded_slots) == (3, 5, 3)
    assert step.dummy_row_block_ids == (0,)
