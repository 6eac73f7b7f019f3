"""CUDA graphs of vLLM: captured sizes by version, modes, and what a batch is dispatched to.

S1 to S5 and D1 to D3 are the worked examples of the description of vLLM's graphs.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.gpu_graphs import GpuBatch, GpuGraphs, GpuSettings, derived_sizes
from castq.shapes.vllm.graph_dispatch import Descriptor, GraphKey, Graphs
from castq.shapes.vllm.graph_modes import AttentionSupport, GraphMode, RunMode, resolve_mode
from castq.shapes.vllm.graph_sizes import SIZE_RULES, capture_sizes, grid, round_to_multiples

NONE, PIECEWISE, FULL = RunMode.NONE, RunMode.PIECEWISE, RunMode.FULL


def sizes(slots: int, **settings: Any) -> tuple[int, ...]:
    return derived_sizes(GpuSettings(max_num_seqs=slots, **settings))


def test_the_grid_has_steps_of_8_to_248_and_of_16_from_256() -> None:
    assert list(grid(40)) == [1, 2, 4, 8, 16, 24, 32, 40]
    assert list(grid(290))[-4:] == [248, 256, 272, 288]
    assert list(grid(3)) == [1, 2]


def test_s1_256_slots_have_51_sizes_to_512() -> None:
    found = sizes(256)
    assert (len(found), found[0], found[-1]) == (51, 1, 512)


def test_s3_drafts_count_from_0_13_0() -> None:
    assert sizes(20, num_spec_tokens=2, version="0.11.2")[-1] == 40
    for version in ("0.13.0", "0.27.1", "0.33.0"):
        assert sizes(20, num_spec_tokens=2, version=version)[-1] == 120


def test_s4_the_slots_are_a_size_by_0_33_0() -> None:
    old, new = sizes(100), sizes(100, version="0.33.0")
    assert old[-1] == new[-1] == 200
    assert [size for size in old if 90 < size < 110] == [96, 104]
    assert [size for size in new if 90 < size < 110] == [96, 100, 104]


def test_s5_the_budget_is_a_size_by_0_27_1() -> None:
    assert sizes(512, max_num_batched_tokens=500, version="0.13.0")[-1] == 496
    assert sizes(512, max_num_batched_tokens=500)[-2:] == (496, 500)


def test_blackwell_doubles_the_ceiling_by_0_33_0() -> None:
    assert sizes(1024, blackwell=True)[-1] == 512
    assert sizes(1024, blackwell=True, version="0.33.0")[-1] == 1024


def test_interactivity_captures_every_count_to_32() -> None:
    found = sizes(20, performance_mode="interactivity")
    assert found == (*range(1, 33), 40)
    assert sizes(4, performance_mode="interactivity") == (1, 2, 3, 4, 5, 6, 7, 8)


def test_a_users_list_is_sorted_and_cut_at_the_budget() -> None:
    assert sizes(20, capture_sizes=(64, 8, 8, 4096), max_num_batched_tokens=2048) == (8, 64)
    assert sizes(20, max_capture_size=30) == (1, 2, 4, 8, 16, 24)


def test_eager_captures_nothing() -> None:
    assert sizes(20, enforce_eager=True) == ()
    assert sizes(20, mode=GraphMode.NONE) == ()
    assert GpuGraphs(GpuSettings(max_num_seqs=20, enforce_eager=True)).mode is GraphMode.NONE


def test_rounding_for_drafts_drops_what_goes_beyond_the_largest() -> None:
    assert round_to_multiples((1, 2, 4, 8, 16), 3, 16) == (3, 6, 9)
    assert round_to_multiples((4, 8), 4, 8) == (4, 8)


@pytest.mark.parametrize(
    ("given_", "reason", "raised", "words"),
    [
        ({"sizes": ()}, "capture_sizes_empty", "AssertionError", "the list of capture sizes is empty"),
        ({"maximum": 0}, "max_capture_size_below_one", "AssertionError", "max capture size 0: at least 1"),
        (
            {"sizes": (8, 64), "maximum": 32},
            "max_capture_size_inconsistent",
            "ValueError",
            "max capture size 32 is not the last of the capture sizes within the token budget, 64",
        ),
    ],
)
def test_refused_sizes(given_: dict[str, Any], reason: str, raised: str, words: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        capture_sizes(SIZE_RULES["0.27.1"], 20, 1, 2048, **given_)
    assert (refusal.value.reason, refusal.value.raised) == (reason, raised)
    assert words in str(refusal.value)


def test_what_is_not_described_is_refused_with_what_is() -> None:
    with pytest.raises(ShapeError, match=r"'0\.12\.0': described are 0\.11\.2, 0\.13\.0, 0\.27\.1, 0\.33\.0"):
        GpuSettings(max_num_seqs=20, version="0.12.0")
    with pytest.raises(ShapeError, match="runner 'v3': one of v1, v2"):
        GpuSettings(max_num_seqs=20, runner="v3")


SINGLE, UNIFORM = AttentionSupport.UNIFORM_SINGLE_TOKEN_DECODE, AttentionSupport.UNIFORM_BATCH
ALWAYS, NEVER = AttentionSupport.ALWAYS, AttentionSupport.NEVER


@pytest.mark.parametrize(
    ("asked", "support", "query", "splits", "mode"),
    [
        ("FULL", ALWAYS, 1, True, "FULL"),
        ("FULL", UNIFORM, 1, True, "FULL_AND_PIECEWISE"),
        ("FULL", UNIFORM, 1, False, "FULL_DECODE_ONLY"),
        ("FULL", SINGLE, 3, True, "PIECEWISE"),
        ("FULL_AND_PIECEWISE", ALWAYS, 1, True, "FULL_AND_PIECEWISE"),
        ("FULL_AND_PIECEWISE", SINGLE, 1, True, "FULL_AND_PIECEWISE"),
        ("FULL_AND_PIECEWISE", SINGLE, 3, True, "PIECEWISE"),
        ("FULL_AND_PIECEWISE", NEVER, 1, True, "PIECEWISE"),
        ("FULL_DECODE_ONLY", NEVER, 1, False, "NONE"),
        ("PIECEWISE", NEVER, 1, True, "PIECEWISE"),
        ("NONE", NEVER, 1, False, "NONE"),
    ],
)
def test_modes_that_attention_allows(
    asked: str, support: AttentionSupport, query: int, splits: bool, mode: str
) -> None:
    assert resolve_mode(GraphMode(asked), support, query, splits_attention=splits) is GraphMode(mode)


def test_full_graphs_on_a_backend_that_captures_nothing_are_refused() -> None:
    with pytest.raises(ShapeError, match="the attention backend captures no full graph"):
        resolve_mode(GraphMode.FULL, NEVER, 1, splits_attention=True)


@pytest.mark.parametrize(
    ("mode", "decodes", "mixed"),
    [
        ("NONE", NONE, NONE),
        ("PIECEWISE", PIECEWISE, PIECEWISE),
        ("FULL", FULL, FULL),
        ("FULL_DECODE_ONLY", FULL, NONE),
        ("FULL_AND_PIECEWISE", FULL, PIECEWISE),
    ],
)
def test_how_decodes_and_other_batches_run(mode: str, decodes: RunMode, mixed: RunMode) -> None:
    assert (GraphMode(mode).decodes, GraphMode(mode).mixed) == (decodes, mixed)


def test_d1_decodes_run_full_a_mixed_batch_in_pieces_and_a_large_one_eager() -> None:
    graphs = GpuGraphs(GpuSettings(max_num_seqs=256))
    assert graphs.dispatch(GpuBatch(9, 9, 1)) == Descriptor(FULL, 16, 16, True)
    assert graphs.dispatch(GpuBatch(2, 9, 8, decodes_only=False)) == Descriptor(PIECEWISE, 16)
    assert graphs.dispatch(GpuBatch(2, 515, 514, decodes_only=False)) == Descriptor(NONE, 515)


def test_d2_the_second_runner_of_0_27_1_stops_at_a_count_that_it_cannot_use() -> None:
    def run(version: str) -> Descriptor:
        settings = GpuSettings(max_num_seqs=20, num_spec_tokens=2, runner="v2", version=version)
        return GpuGraphs(settings).dispatch(GpuBatch(2, 5, 4, decodes_only=False))

    assert (run("0.27.1").mode, run("0.27.1").tokens) == (NONE, 5)
    assert (run("0.33.0").mode, run("0.33.0").tokens) == (PIECEWISE, 6)


def test_d3_97_decodes_of_100_slots() -> None:
    def run(version: str) -> Descriptor:
        return GpuGraphs(GpuSettings(max_num_seqs=100, version=version)).dispatch(GpuBatch(97, 97, 1))

    assert run("0.27.1") == Descriptor(PIECEWISE, 104)
    assert run("0.33.0") == Descriptor(FULL, 100, 100, True)


def test_keys_of_full_graphs_hold_whole_decodes_of_the_slots() -> None:
    graphs = Graphs(GraphMode.FULL_AND_PIECEWISE, (2, 4, 8, 16), max_num_seqs=3, query_len=4)
    assert graphs.full_keys == (GraphKey(4, 1, True), GraphKey(8, 2, True))
    assert [key.tokens for key in graphs.piecewise_keys] == [2, 4, 8, 16]
    mixed = Graphs(GraphMode.FULL, (2, 4, 8), max_num_seqs=3)
    assert mixed.full_keys == (GraphKey(2, 2, False), GraphKey(4, 3, False), GraphKey(8, 3, False))
    assert mixed.piecewise_keys == ()


def test_only_allowed_modes_are_dispatched_to() -> None:
    graphs = Graphs(GraphMode.FULL_AND_PIECEWISE, (4, 8), max_num_seqs=8)
    assert graphs.dispatch(5, uniform=True, allowed=(PIECEWISE,)) == Descriptor(PIECEWISE, 8)
    assert graphs.dispatch(5, uniform=False, allowed=(FULL,)) == Descriptor(NONE, 5)


@given(
    st.builds(
        GpuSettings,
        max_num_seqs=st.integers(1, 300),
        num_spec_tokens=st.integers(0, 4),
        mode=st.sampled_from(GraphMode),
        version=st.sampled_from(sorted(SIZE_RULES)),
        runner=st.sampled_from(["v1", "v2"]),
    ),
    st.integers(1, 600),
    st.booleans(),
)
def test_a_batch_is_padded_to_the_smallest_size_that_covers_or_not_at_all(
    settings: GpuSettings, count: int, decodes: bool
) -> None:
    graphs, query = GpuGraphs(settings), settings.query_len
    batch = GpuBatch(count, count * query, query) if decodes else GpuBatch(1, count, count, decodes_only=False)
    found = graphs.dispatch(batch)
    assert found.tokens >= batch.tokens
    if found.mode is NONE:
        assert found.tokens == batch.tokens
    else:
        captured = graphs.full if found.mode is FULL else graphs.piecewise
        assert found.tokens == min(size for size in captured if size >= batch.tokens)
