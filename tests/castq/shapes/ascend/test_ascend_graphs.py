"""Captured sizes and graphs on Ascend, and the gate of sequence parallelism."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.ascend.graphs import ascend_graphs, sampled
from castq.shapes.ascend.sequence_parallel import PLAIN_BACKEND, SpGate, round_tokens, sp_gate
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.ascend.versions import VERSIONS
from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.graph_dispatch import Descriptor, Graphs
from castq.shapes.vllm.graph_modes import AttentionSupport, GraphMode, RunMode

NONE, PIECEWISE, FULL = RunMode.NONE, RunMode.PIECEWISE, RunMode.FULL
BACKEND = "allgather_reducescatter"


def graphs(slots: int, **settings: Any) -> Graphs:
    return ascend_graphs(AscendSettings(max_num_seqs=slots, **settings))


@pytest.mark.parametrize(
    ("slots", "sizes"),
    [
        (1, (1,)),
        (3, (1, 2)),
        (12, (1, 2, 4, 8)),
        (16, (1, 2, 4, 8, 16)),
        (20, (1, 2, 4, 8, 16)),
    ],
)
def test_the_largest_size_is_cut_to_the_grid(slots: int, sizes: tuple[int, ...]) -> None:
    assert graphs(slots).sizes == sizes


def test_300_slots_end_at_288_and_1000_at_512() -> None:
    assert graphs(300).largest == 288
    assert graphs(1000).largest == 512


@pytest.mark.parametrize("decodes", [9, 10, 11, 12])
def test_with_12_slots_decodes_beyond_8_run_eager(decodes: int) -> None:
    found = graphs(12)
    assert found.dispatch(8, uniform=True) == Descriptor(FULL, 8, 8, True)
    assert found.dispatch(decodes, uniform=True) == Descriptor(NONE, decodes)


def test_16_added_helps_in_pieces_and_not_where_only_decodes_are_captured() -> None:
    added = (1, 2, 4, 8, 16)
    only_decodes = graphs(12, capture_sizes=added, mode=GraphMode.FULL_DECODE_ONLY)
    assert only_decodes.dispatch(9, uniform=True) == Descriptor(NONE, 9)
    assert graphs(12, capture_sizes=added).dispatch(9, uniform=True) == Descriptor(PIECEWISE, 16)


@pytest.mark.parametrize("mode", [GraphMode.FULL_DECODE_ONLY, GraphMode.FULL_AND_PIECEWISE])
def test_12_added_runs_every_decode_as_one_graph(mode: GraphMode) -> None:
    found = graphs(12, capture_sizes=(1, 2, 4, 8, 12), mode=mode)
    assert found.dispatch(9, uniform=True) == Descriptor(FULL, 12, 12, True)


def test_older_releases_shared_out_1920_streams() -> None:
    asked = (1, 2, 4, 8, *range(16, 513, 8))
    found = graphs(512, capture_sizes=asked, stream_cap=1920, layers=94, parallel_kinds=2)
    assert found.sizes == (1, 88, 192, 304, 408, 512)
    assert graphs(512, capture_sizes=asked).sizes == asked


def test_a_stream_cap_needs_the_layers() -> None:
    with pytest.raises(ShapeError, match="stream_cap needs layers"):
        AscendSettings(max_num_seqs=8, stream_cap=1920)


def test_sampling_keeps_the_first_and_the_last() -> None:
    assert sampled((1, 2, 4, 8, 16, 24), 4) == (1, 4, 8, 24)
    assert sampled((1, 2, 4), 4) == (1, 2, 4)
    assert sampled((1, 2, 4), 1) == (4,)
    assert sampled((1, 2, 4), 0) == ()


def test_a5_keeps_four_sizes_where_pieces_are_captured() -> None:
    found = graphs(40, reduced_capture_device=True)
    assert (len(found.sizes), found.sizes[0], found.sizes[-1]) == (4, 1, 40)
    whole = graphs(40, reduced_capture_device=True, mode=GraphMode.FULL_DECODE_ONLY)
    assert whole.sizes == (1, 2, 4, 8, 16, 24, 32, 40)


def test_sequence_parallelism_drops_sizes_that_are_no_tp_multiple() -> None:
    assert graphs(16, sp=True, tensor_parallel_size=4).sizes == (4, 8, 16)
    assert graphs(16, shared_expert_dp=True, tensor_parallel_size=8).sizes == (8, 16)
    assert graphs(16, sp=True).sizes == (1, 2, 4, 8, 16)


def test_drafts_round_sizes_up_to_whole_decodes() -> None:
    assert graphs(4, num_spec_tokens=2).sizes == (3, 6)
    assert graphs(16, num_spec_tokens=3).sizes == (4, 8, 16, 24, 32, 40, 48, 56, 64)


def test_attention_without_full_graphs_of_mixed_batches_gets_decodes_only() -> None:
    uniform = AttentionSupport.UNIFORM_BATCH
    assert graphs(8, mode=GraphMode.FULL, attention_support=uniform).mode is GraphMode.FULL_DECODE_ONLY
    assert graphs(8, attention_support=uniform).mode is GraphMode.FULL_AND_PIECEWISE


def test_eager_has_no_graphs() -> None:
    assert graphs(8, enforce_eager=True) == Graphs(GraphMode.NONE, (), 8)
    assert graphs(8, enforce_eager=True).dispatch(3, uniform=True) == Descriptor(NONE, 3)


@pytest.mark.parametrize(
    ("given_", "reason", "words"),
    [
        ({"max_num_seqs": 0}, "not_positive", "max_num_seqs 0: at least 1"),
        ({"tensor_parallel_size": 0}, "not_positive", "tensor_parallel_size 0: at least 1"),
        ({"num_spec_tokens": 16}, "drafts_out_of_range", "num_spec_tokens 16: from 0 to 15"),
        ({"version": "0.24.0"}, "unknown_version", "described are 0.23.0, 0.25.1rc1, 182b75ea, 0.27.1rc1"),
        (
            {"max_num_seqs": 2, "sp": True, "tensor_parallel_size": 4},
            "no_tp_multiple_capture_size",
            "no capture size is a multiple of tensor_parallel_size 4",
        ),
        (
            {"sp": True, "tensor_parallel_size": 4, "num_spec_tokens": 2},
            "spec_tp_multiple_conflict",
            "both 3 tokens of a decode (num_spec_tokens + 1) and tensor_parallel_size 4",
        ),
        (
            {"capture_sizes": (2,), "num_spec_tokens": 3},
            "no_size_after_spec_rounding",
            "no capture size holds 4 tokens",
        ),
        (
            {"max_num_seqs": 1, "num_spec_tokens": 2},
            "no_size_after_spec_rounding",
            "no capture size holds 3 tokens",
        ),
        ({"capture_sizes": (1, 8), "max_capture_size": 16}, "max_capture_size_inconsistent", "max capture size 16"),
    ],
)
def test_refused_settings(given_: dict[str, Any], reason: str, words: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        ascend_graphs(AscendSettings(**{"max_num_seqs": 8, **given_}))
    assert refusal.value.reason == reason
    assert words in str(refusal.value)


def gate(backend: str = BACKEND, *, dp: int = 1, tp: int = 4, ep: bool = True, **switches: Any) -> SpGate:
    return sp_gate(backend, expert_parallel=ep, tensor_parallel_size=tp, data_parallel_size=dp, **switches)


def test_sequence_parallelism_has_to_be_asked_for() -> None:
    assert gate(flashcomm=True) == SpGate(True, BACKEND)
    assert gate(dsa_context_parallel=True) == SpGate(True, BACKEND)
    assert gate() == SpGate(False, PLAIN_BACKEND)
    assert gate(dp=4) == SpGate(False, PLAIN_BACKEND)


@pytest.mark.parametrize("backend", [BACKEND, "deepep_low_latency", "mori_x", "nixl_ep"])
def test_backends_that_are_capable(backend: str) -> None:
    assert gate(backend, flashcomm=True) == SpGate(True, backend)


def test_what_it_takes_besides_being_asked_for() -> None:
    assert gate("naive", flashcomm=True) == SpGate(False, "naive")
    assert gate(flashcomm=True, ep=False) == SpGate(False, BACKEND)
    assert gate(flashcomm=True, tp=1) == SpGate(False, BACKEND)


@pytest.mark.parametrize("version", ["0.23.0", "0.25.1rc1"])
def test_older_releases_look_at_the_switch_alone(version: str) -> None:
    assert gate("naive", ep=False, flashcomm=True, version=version) == SpGate(True, "naive")
    assert gate(tp=1, flashcomm=True, version=version) == SpGate(False, BACKEND)
    assert gate(dp=4, version=version) == SpGate(False, BACKEND)


def test_main_of_182b75ea_turns_it_on_by_itself_with_data_parallelism() -> None:
    assert gate(dp=2, version="182b75ea") == SpGate(True, BACKEND)
    assert gate(dp=1, flashcomm=True, version="182b75ea") == SpGate(False, BACKEND)


def test_an_unknown_release_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ShapeError) as refusal:
        gate(version="0.24.0")
    assert refusal.value.reason == "unknown_version"
    assert all(version in str(refusal.value) for version in VERSIONS)
    assert "vllm-ascend '0.24.0'" in str(refusal.value)


@pytest.mark.parametrize(("tokens", "tp", "rounded"), [(5, 4, 8), (8, 4, 8), (1, 16, 16), (0, 4, 0), (7, 1, 7)])
def test_tokens_are_rounded_up_to_a_tp_multiple(tokens: int, tp: int, rounded: int) -> None:
    assert round_tokens(tokens, tp, active=True) == rounded
    assert round_tokens(tokens, tp, active=False) == tokens


@given(st.integers(2, 300), st.integers(0, 15), st.sampled_from(GraphMode), st.integers(1, 700), st.booleans())
def test_a_batch_meets_the_smallest_graph_that_covers_or_runs_as_it_is(
    slots: int, drafts: int, mode: GraphMode, tokens: int, uniform: bool
) -> None:
    found = graphs(slots, num_spec_tokens=drafts, mode=mode)
    run = found.dispatch(tokens, uniform=uniform)
    if run.mode is NONE:
        assert run == Descriptor(NONE, tokens)
    else:
        assert run.tokens == min(size for size in found.sizes if size >= tokens)
        keys = found.full_keys if run.mode is FULL else found.piecewise_keys
        assert (run.tokens, run.requests, run.uniform) in [(key.tokens, key.requests, key.uniform) for key in keys]
