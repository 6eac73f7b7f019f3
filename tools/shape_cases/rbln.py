"""The tables of vllm-rbln."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from castq.shapes.rbln.buckets import BucketLayout, decode_ceiling, decode_rows
from castq.shapes.rbln.data_parallel import Rank, agree, pack
from castq.shapes.rbln.drafts import draft_shape
from castq.shapes.rbln.metadata import decode_metadata, decode_window, prefill_metadata, prefill_window
from castq.shapes.rbln.moe import gathered
from castq.shapes.rbln.pipeline import decode_caps, defers_drafts
from castq.shapes.rbln.scheduler import RblnScheduler
from castq.shapes.rbln.staging import (
    Staged,
    base_tokens,
    chunks_of,
    request_is_prefill,
    stage_decodes,
    stage_prefill,
    step_is_prefill,
)
from castq.shapes.rbln.startup import check_startup, sub_block_size
from castq.shapes.rbln.warmup import warmup_graphs
from castq.shapes.vllm.replay import replay
from shape_cases import Case, Engine
from shape_cases.vllm import arrivals, settings, trace

__all__ = ["ENGINES"]


def _buckets(group: str, case: Case) -> object:
    names = ("min", "step", "limit")
    layout = BucketLayout(
        case["strategy"], manual=tuple(case.get("manual", ())), **{name: case[name] for name in names if name in case}
    )
    ceiling = decode_ceiling(case["max_num_seqs"], case["pipeline_parallel_size"])
    found = layout.buckets(ceiling)
    if group == "build":
        return {"ceiling": ceiling, "buckets": found, "batch_buckets": sorted({1, *found})}
    rows = decode_rows(found, case["decodes"])
    return {"rows": rows.rows, "dummy_rows": rows.dummy_rows, "query_len": 1}


def _prefill(group: str, case: Case) -> object:
    if group == "stage_prefill":
        return _staged(stage_prefill(case["width"], case["chunk"]))
    if group == "stage_decode":
        return _staged(stage_decodes(case["decodes"], case["rows"], case["query_len"]))
    if group == "request_phase":
        return {"is_prefill": request_is_prefill(case["num_computed"], case["num_tokens"])}
    if group == "step_phase":
        found = step_is_prefill(case["scheduled"], case["drafts"])
        return {"step_is_prefill": found, "base_tokens": base_tokens(case["scheduled"], case["drafts"])}
    steps = chunks_of(case["width"], case["prompt"], case["cached"])
    shapes: Mapping[str, tuple[object, int]] = {"prefill": (1, case["width"]), "decode": ("bucket", 1)}
    return {"steps": [[step.phase, step.start, step.tokens, *shapes[step.phase]] for step in steps]}


def _staged(staged: Staged) -> object:
    return {
        "rows": staged.rows,
        "query_len_padded": staged.query_len,
        "valid": staged.valid,
        "physical_tokens": staged.physical_tokens,
        "padded_tokens": staged.padded_tokens,
        "pad_input_id": 0,
        "pad_position": 0,
    }


def _ranks(given: Sequence[Sequence[Any]]) -> list[Rank]:
    return [Rank(*rank) for rank in given]


def _data_parallel(group: str, case: Case) -> object:
    if group == "transport_limits":
        packed = pack(Rank(case["num_reqs"], case["num_tokens"], prefill=True))
        counts = {"num_tokens": packed.tokens, "num_reqs": packed.requests}
        return {**counts, "is_prefill": packed.prefill, "is_idle": packed.idle}
    shapes = agree(
        _ranks(case["ranks"]),
        case["buckets"],
        case["max_num_tokens"],
        specialized=case["specialized"],
        pinned=case.get("pinned"),
    )
    return [
        {"route": one.route.value, "rows": one.rows, "query_len": one.query_len, "tokens_padded": one.tokens}
        for one in shapes
    ]


def _drafts(group: str, case: Case) -> object:
    found = draft_shape(
        _ranks(case["ranks"]),
        case["rank"],
        case["tokens"],
        case["buckets"],
        case["max_num_tokens"],
        specialized=case["specialized"],
        has_moe=case["draft_has_moe"],
        first_pass=case["first_pass"],
    )
    shape = {"rows": found.rows, "query_len": found.query_len}
    return {**shape, "tokens_padded": found.tokens, "tokens_across_dp": found.tokens_across_ranks}


def _metadata(group: str, case: Case) -> object:
    if group == "window":
        return _window(case)
    found = (
        prefill_metadata(case["computed"][0]) if group == "prefill" else decode_metadata(case["computed"], case["rows"])
    )
    return {
        "start_positions": found.start_positions,
        "block_table_rows": len(found.start_positions),
        "block_table_ndim": found.block_table_dims,
        "dummy_row_block_ids": found.dummy_row_block_ids,
        "real_rows_unchanged": found.start_positions[: len(case["computed"])] == tuple(case["computed"]),
    }


def _window(case: Case) -> object:
    known = case.get("num_tokens", [0] * len(case["computed"]))
    if case.get("is_prefill"):
        found = prefill_window(case["computed"][0], case["scheduled"][0])
    else:
        found = decode_window(
            case["computed"],
            case["scheduled"],
            case["drafts"],
            num_spec_tokens=case["num_spec_tokens"],
            max_model_len=case["max_model_len"],
            fixed=case["fixed_window"],
        )
    return {
        "query_lens": found.query_lens,
        "total_query_tokens": sum(found.query_lens),
        "front_pad": found.front_pad,
        "back_pad": found.back_pad,
        "first_positions": found.first_positions,
        "query_start_loc": found.query_start_loc,
        "seq_lens": found.seq_lens,
        "logits_rows": found.logits_rows,
        "not_sampled": [length < tokens for length, tokens in zip(found.seq_lens, known, strict=True)],
    }


def _moe(group: str, case: Case) -> object:
    found = gathered(case["tokens_across_dp"], case["tokens_padded"])
    return {"gathered_tokens": found.rows, "valid_tokens": found.valid, "mask_per_rank": found.valid_by_rank}


def _pipeline(group: str, case: Case) -> object:
    if group == "defer_spec":
        return {"defer": defers_drafts(case["num_spec_tokens"], case["drafts_held"], case["num_new_tokens"])}
    caps = decode_caps(case["max_num_seqs"], case["pipeline_parallel_size"], case["demand"])
    admitted = caps.admitted(soft=True)
    return {"hard": caps.hard, "soft": caps.soft, "admit": admitted, "admit_hard_only": caps.hard - admitted}


def _startup(group: str, case: Case) -> object:
    if group == "sub_block":
        size = sub_block_size(
            case["block_size"],
            case["budget"],
            case["sub_block_size"],
            prefix_caching=case["prefix_caching"],
            sub_block_cache=case["sub_block_cache"],
            multi_block_store=case["multi_block_store_device"],
        )
        return {"sub_block_size": size}
    slots = check_startup(
        case["max_num_seqs"],
        case["budget"],
        data_parallel_size=case.get("dp", 1),
        pipeline_parallel_size=case.get("pp", 1),
        expert_parallel=case.get("ep", False),
        moe_token_mask=case.get("moe_mask", True),
        chunked_prefill=case.get("chunked", True),
        lora=case.get("lora", False),
    )
    return {"ok": True, "decode_ceiling": slots.decode_ceiling, "unused_slots": slots.unused}


def _warmup(group: str, case: Case) -> object:
    graphs = warmup_graphs(
        case["buckets"],
        case["max_num_tokens"],
        num_spec_tokens=case["num_spec_tokens"],
        method=case["method"],
        specialized=case["specialized"],
    )
    return {"graphs": [[one.phase, one.rows, one.query_len, one.tokens] for one in graphs], "count": len(graphs)}


def _scheduler(group: str, case: Case) -> object:
    return trace(replay(RblnScheduler(settings(case)), arrivals(case["arrivals"])))


ENGINES: Mapping[str, Engine] = {
    "sched_rbln": _scheduler,
    "rbln_config": _startup,
    "rbln_decode_bucket": _buckets,
    "rbln_dp": _data_parallel,
    "rbln_dp_draft": _drafts,
    "rbln_metadata": _metadata,
    "rbln_moe_dp": _moe,
    "rbln_pp_budget": _pipeline,
    "rbln_prefill": _prefill,
    "rbln_warmup": _warmup,
}
