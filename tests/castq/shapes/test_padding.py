"""Rule zero, over all vendors: padding changes the cost of a step and nothing else.

Random requests go through a vendor's scheduler, and each of its steps through the shapes of that vendor.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from castq.shapes.ascend.graphs import ascend_graphs
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.ascend.step import Scheduled, ascend_step
from castq.shapes.rbln.buckets import BucketLayout, covering
from castq.shapes.rbln.metadata import decode_metadata
from castq.shapes.rbln.scheduler import RblnScheduler
from castq.shapes.rbln.staging import Staged, stage_decodes, stage_prefill
from castq.shapes.vllm.gpu_graphs import GpuBatch, GpuGraphs, GpuSettings
from castq.shapes.vllm.graph_modes import RunMode
from castq.shapes.vllm.replay import Step, replay
from castq.shapes.vllm.requests import Arrival
from castq.shapes.vllm.scheduler import Scheduler, SchedulerSettings

SLOTS, BUDGET = 8, 32
GIVEN = SchedulerSettings(max_num_seqs=SLOTS, max_num_batched_tokens=BUDGET, num_blocks=50)

arrivals = st.lists(st.tuples(st.integers(1, 70), st.integers(1, 6), st.integers(0, 9)), min_size=1, max_size=10).map(
    lambda rows: [Arrival(f"r{at}", *row) for at, row in enumerate(rows)]
)
some = settings(max_examples=60, deadline=None)


def working(steps: list[Step]) -> list[Step]:
    return [step for step in steps if step.shares]


def rbln_shape(step: Step, buckets: tuple[int, ...]) -> Staged:
    if step.shares[0].prefill:
        return stage_prefill(BUDGET, step.tokens)
    return stage_decodes(len(step.shares), covering(buckets, len(step.shares)), 1)


@some
@given(arrivals, st.integers(1, 5))
def test_rbln_computes_every_real_token_in_a_rectangle_that_start_up_compiled(
    coming: list[Arrival], limit: int
) -> None:
    buckets = BucketLayout(limit=limit).buckets(SLOTS)
    steps = working(list(replay(RblnScheduler(GIVEN), coming)))
    shapes = [rbln_shape(step, buckets) for step in steps]
    assert {(one.rows, one.query_len) for one in shapes} <= {(1, BUDGET), *((rows, 1) for rows in buckets)}
    for step, shape in zip(steps, shapes, strict=True):
        assert shape.valid[0] * shape.valid[1] == step.tokens
        assert shape.physical_tokens == step.tokens + shape.padded_tokens
        assert shape.padded_tokens >= 0
    assert sum(step.tokens for step in steps) == sum(one.prompt + one.output - 1 for one in coming)
    assert shapes == [rbln_shape(step, buckets) for step in steps]


@some
@given(arrivals)
def test_more_rows_on_rbln_add_null_rows_and_change_no_real_one(coming: list[Arrival]) -> None:
    for step in working(list(replay(RblnScheduler(GIVEN), coming))):
        if not step.shares[0].prefill:
            computed = [share.start for share in step.shares]
            narrow, wide = (decode_metadata(computed, rows) for rows in (len(computed), SLOTS))
            assert wide.start_positions == narrow.start_positions + (0,) * (SLOTS - len(computed))
            assert wide.dummy_row_block_ids in ((), (0,))


@some
@given(arrivals, st.booleans(), st.sampled_from([1, 4]))
def test_ascend_writes_kv_for_real_tokens_only(coming: list[Arrival], sp: bool, tp: int) -> None:
    given_ = AscendSettings(max_num_seqs=SLOTS, max_num_batched_tokens=BUDGET, sp=sp, tensor_parallel_size=tp)
    graphs = ascend_graphs(given_)
    written = 0
    for step in working(list(replay(Scheduler(GIVEN), coming))):
        requests = [Scheduled(share.start, share.tokens, share.request.arrival.prompt) for share in step.shares]
        found = ascend_step(requests, given_, graphs)
        assert found.run.tokens >= step.tokens == found.kv_write_tokens
        assert set(found.dummy_row_block_ids) <= {0}
        assert found == ascend_step(requests, given_, graphs)
        written += found.kv_write_tokens
    assert written == sum(one.prompt + one.output - 1 for one in coming)


@some
@given(arrivals)
def test_a_gpu_pads_to_its_graphs_or_not_at_all(coming: list[Arrival]) -> None:
    graphs = GpuGraphs(GpuSettings(max_num_seqs=SLOTS, max_num_batched_tokens=BUDGET))
    for step in working(list(replay(Scheduler(GIVEN), coming))):
        longest = max(share.tokens for share in step.shares)
        found = graphs.dispatch(GpuBatch(len(step.shares), step.tokens, longest))
        assert found.tokens >= step.tokens
        assert found.tokens in graphs.sizes or found.mode is RunMode.NONE
        assert found.mode is not RunMode.NONE or found.tokens == step.tokens
